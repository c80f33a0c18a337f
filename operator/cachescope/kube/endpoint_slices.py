"""Ready endpoints of pools from EndpointSlices: list, watch from its version, list again on every gap.

A watch can stall without an error, so each one is bounded in time on both sides, and the age of the last answer of the API server
is visible: readiness and metrics show it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import aiohttp
from kubernetes.aio import client, config

from cachescope.core.endpoints import Endpoint
from cachescope.core.errors import ClusterError
from cachescope.core.labels import COMPONENT_LABEL, ENGINE, POOL_LABEL

log = logging.getLogger(__name__)

WATCH_SECONDS = 20
REQUEST_SECONDS = 30
RETRY_SECONDS = 1.0
SELECTOR = f"{COMPONENT_LABEL}={ENGINE},{POOL_LABEL}"
_FAULTS = (TimeoutError, client.ApiException, aiohttp.ClientError, OSError, ValueError, ClusterError)


class EndpointSlices:
    """The ready endpoints of all pools of one namespace.

    Args:
        namespace: Where the pools are.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._slices: dict[str, tuple[Endpoint, ...]] = {}
        self._synced: float | None = None

    def endpoints(self, pool: str) -> Sequence[Endpoint]:
        """Ready endpoints of a pool; terminating ones are left out."""
        return [endpoint for item in self._slices.values() for endpoint in item if endpoint.pool == pool]

    def age(self) -> float | None:
        """Seconds since the API server last answered, or `None` before the first list."""
        return None if self._synced is None else time.monotonic() - self._synced

    async def run(self) -> None:
        """Follow the cluster until cancelled; faults are logged once each and retried."""
        await load_configuration()
        async with client.ApiClient() as api:
            fault = ""
            while True:
                try:
                    await self._list_and_watch(client.DiscoveryV1Api(api))
                    fault = ""
                except _FAULTS as error:
                    if str(error) != fault:
                        log.warning("endpoints not followed", extra={"fault": str(error)})
                    fault = str(error)
                    await asyncio.sleep(RETRY_SECONDS)

    async def _list_and_watch(self, api: client.DiscoveryV1Api) -> None:
        response = await self._request(api)
        listed = json.loads(await response.read())
        self._slices = {item["metadata"]["name"]: tuple(ready_endpoints(item)) for item in listed["items"]}
        self._synced = time.monotonic()
        version = listed["metadata"]["resourceVersion"]
        stream = await self._request(api, watch=True, resource_version=version, timeout_seconds=WATCH_SECONDS)
        async for event in _events(stream):
            self._apply(event["type"], event["object"])

    async def _request(self, api: client.DiscoveryV1Api, **options: Any) -> aiohttp.ClientResponse:  # noqa: ANN401
        response: Any = await api.list_namespaced_endpoint_slice_without_preload_content(
            self._namespace, label_selector=SELECTOR, _request_timeout=REQUEST_SECONDS, **options
        )
        if response.status != 200:
            raise ClusterError(f"the API server answered {response.status} for EndpointSlices; check the gateway's Role")
        found: aiohttp.ClientResponse = response
        return found

    def _apply(self, kind: str, item: Mapping[str, Any]) -> None:
        if kind == "ERROR":
            raise ClusterError(f"the watch ended ({item.get('message', 'no reason given')}); it starts again from a list")
        self._synced = time.monotonic()
        if kind == "DELETED":
            self._slices.pop(item["metadata"]["name"], None)
        else:
            self._slices[item["metadata"]["name"]] = tuple(ready_endpoints(item))


def ready_endpoints(item: Mapping[str, Any]) -> Iterable[Endpoint]:
    """Endpoints of one slice that are ready and not terminating, each with its pod's UID and the port named `http`."""
    port = next((port.get("port") for port in item.get("ports") or [] if port.get("name") == "http"), None)
    pool = (item["metadata"].get("labels") or {}).get(POOL_LABEL)
    for endpoint in item.get("endpoints") or []:
        conditions, target = endpoint.get("conditions") or {}, endpoint.get("targetRef") or {}
        if port and pool and target.get("uid") and conditions.get("ready") and not conditions.get("terminating"):
            yield Endpoint(pool, target["uid"], f"{_host(endpoint['addresses'][0])}:{port}")


async def load_configuration() -> None:
    """Load the pod's ServiceAccount, or the user's kubeconfig outside a cluster."""
    try:
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    except config.ConfigException:
        # Named here: the client reads the variable only once, when it is imported.
        await config.load_kube_config(config_file=os.environ.get("KUBECONFIG"))  # type: ignore[no-untyped-call]


async def _events(stream: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    try:
        async for line in stream.content:
            yield json.loads(line)
    finally:
        stream.close()


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
