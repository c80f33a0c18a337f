"""Ready endpoints of pools, from EndpointSlices.

A pool is named with the namespace of its slices: whoever may write slices in one namespace can name no pool of another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cachescope.core.endpoints import Endpoint, pool_key
from cachescope.core.labels import COMPONENT_LABEL, ENGINE, POOL_LABEL
from cachescope.kube.rest import collection
from cachescope.kube.watched import Api, Watched

SELECTOR = f"{COMPONENT_LABEL}={ENGINE},{POOL_LABEL}"


class EndpointSlices:
    """The ready endpoints of all pools.

    Args:
        api: The API server.
        namespace: Where the pools are, or `None` for all namespaces.
        changed: Called after each change.

    Attributes:
        watched: The slices; run it.
    """

    def __init__(self, api: Api, namespace: str | None, changed: Callable[[], None] = lambda: None) -> None:
        path = collection("discovery.k8s.io/v1", "endpointslices", namespace)
        self.watched = Watched(api, path, parse=ready_endpoints, label_selector=SELECTOR, changed=changed)
        self._by_pool: dict[str, list[Endpoint]] = {}
        self._version = 0

    def endpoints(self, pool: str) -> Sequence[Endpoint]:
        """Ready endpoints of a pool (`pool_key`); terminating ones are left out."""
        if self._version != self.watched.version:
            self._version, self._by_pool = self.watched.version, _by_pool(self.watched.items().values())
        return self._by_pool.get(pool, [])


def ready_endpoints(item: Mapping[str, Any]) -> tuple[Endpoint, ...]:
    """Endpoints of one slice that are ready and not terminating, each with its pod's UID and the port named `http`."""
    return tuple(_ready(item))


def _ready(item: Mapping[str, Any]) -> Iterable[Endpoint]:
    port = next((port.get("port") for port in item.get("ports") or [] if port.get("name") == "http"), None)
    pool = (item["metadata"].get("labels") or {}).get(POOL_LABEL)
    for endpoint in item.get("endpoints") or []:
        conditions, target = endpoint.get("conditions") or {}, endpoint.get("targetRef") or {}
        if port and pool and target.get("uid") and conditions.get("ready") and not conditions.get("terminating"):
            name = pool_key(item["metadata"].get("namespace", ""), pool)
            yield Endpoint(name, target["uid"], f"{_host(endpoint['addresses'][0])}:{port}")


def _by_pool(slices: Iterable[tuple[Endpoint, ...]]) -> dict[str, list[Endpoint]]:
    found: defaultdict[str, list[Endpoint]] = defaultdict(list)
    # While a slice is split, one endpoint can be in two of them.
    for endpoint in dict.fromkeys(endpoint for item in slices for endpoint in item):
        found[endpoint.pool].append(endpoint)
    return dict(found)


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
