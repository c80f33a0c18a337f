"""NetworkPolicies: who may open a connection to whom. They know no paths, so the guard's metrics have a port of their own."""

from __future__ import annotations

from cachescope.api.pools import ServingPool
from cachescope.core.labels import COMPONENT_LABEL, ENGINE_PORT, GATEWAY, GUARD_METRICS_PORT, OPERATOR, PART_OF_LABEL
from cachescope.manifests.children import child, engine_selector
from cachescope.manifests.parts import Manifest
from cachescope.manifests.platform import Platform


def engine_policy(platform: Platform, pool: ServingPool) -> Manifest:
    """Engines hear the gateways, and on the metrics port monitoring and the operator; they call the API server alone.

    A pool that fetches from the hub also looks up names and calls any address by HTTPS: a policy knows no containers.
    """
    gateways, operators = _component(platform, GATEWAY), _component(platform, OPERATOR)
    readers = [_namespace(platform.monitoring_namespace), operators]
    spec = {
        "podSelector": {"matchLabels": engine_selector(pool)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [_from(gateways, ENGINE_PORT), *(_from(reader, GUARD_METRICS_PORT) for reader in readers)],
        "egress": [_to_api_server(platform), *(_to_hub() if pool.spec.fetches else [])],
    }
    return child(pool, "NetworkPolicy", name=pool.name, spec=spec)


def _to_api_server(platform: Platform) -> Manifest:
    rule: Manifest = {"ports": [_port(number) for number in platform.api_server_ports]}
    if platform.api_servers:
        rule["to"] = [{"ipBlock": {"cidr": cidr}} for cidr in platform.api_servers]
    return rule


def _to_hub() -> list[Manifest]:
    return [{"ports": [_port(443)]}, {"ports": [_port(53, "UDP"), _port(53)]}]


def _component(platform: Platform, name: str) -> Manifest:
    return {**_namespace(platform.namespace), "podSelector": {"matchLabels": {COMPONENT_LABEL: name, PART_OF_LABEL: "cachescope"}}}


def _namespace(name: str) -> Manifest:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def _from(peer: Manifest, port: int) -> Manifest:
    return {"from": [peer], "ports": [_port(port)]}


def _port(number: int, protocol: str = "TCP") -> Manifest:
    return {"port": number, "protocol": protocol}
