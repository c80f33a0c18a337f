"""NetworkPolicies: who may open a connection to whom. They know no paths, so the guard's metrics have a port of their own."""

from __future__ import annotations

from cachescope.api.resources import ServingPool
from cachescope.core.labels import COMPONENT_LABEL, ENGINE, ENGINE_PORT, GATEWAY, GUARD_METRICS_PORT, PART_OF_LABEL, POOL_LABEL
from cachescope.manifests.parts import Manifest, Site, metadata, selector

GATEWAY_PORT = 8080
GATEWAY_METRICS_PORT = 9090


def engine_policy(site: Site, pool: ServingPool) -> Manifest:
    """Engines hear gateways on the engine port and the monitoring namespace on the metrics port; they call nobody."""
    gateways = {"podSelector": {"matchLabels": {COMPONENT_LABEL: GATEWAY, PART_OF_LABEL: "cachescope"}}}
    return _policy(
        metadata(site, pool.name, ENGINE, **{POOL_LABEL: pool.name}),
        {**selector(pool.name, ENGINE), POOL_LABEL: pool.name},
        {
            "ingress": [_from(gateways, ENGINE_PORT), _from(_monitoring(site), GUARD_METRICS_PORT)],
            "egress": [],
            "policyTypes": ["Ingress", "Egress"],
        },
    )


def gateway_policy(site: Site, name: str) -> Manifest:
    """Gateways hear clients on the public port and the monitoring namespace on the metrics port."""
    return _policy(
        metadata(site, name, GATEWAY),
        selector(name, GATEWAY),
        {
            "ingress": [{"ports": [_port(GATEWAY_PORT)]}, _from(_monitoring(site), GATEWAY_METRICS_PORT)],
            "policyTypes": ["Ingress"],
        },
    )


def _policy(meta: Manifest, pods: dict[str, str], rules: Manifest) -> Manifest:
    spec = {"podSelector": {"matchLabels": pods}, **rules}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": spec}


def _monitoring(site: Site) -> Manifest:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": site.monitoring_namespace}}}


def _from(peer: Manifest, port: int) -> Manifest:
    return {"from": [peer], "ports": [_port(port)]}


def _port(number: int) -> Manifest:
    return {"port": number, "protocol": "TCP"}
