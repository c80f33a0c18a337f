"""Endpoints follow a real API server: what is not ready, terminating or gone is not routed to."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from cachescope.core.endpoints import Endpoint
from cachescope.core.labels import COMPONENT_LABEL, ENGINE, POOL_LABEL
from cachescope.kube import endpoint_slices
from cachescope.kube.endpoint_slices import EndpointSlices
from e2e.stack import kubectl
from e2e.stack.paths import KUBECONFIG

SECONDS = 30


@pytest.fixture
def namespace() -> Iterator[str]:
    name = f"cachescope-slices-{secrets.token_hex(4)}"
    kubectl.run("create", "namespace", name, namespace=name)
    yield name
    kubectl.run("delete", "namespace", name, "--wait=false", namespace=name)


@pytest.fixture
async def slices(namespace: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EndpointSlices]:
    monkeypatch.setenv("KUBECONFIG", str(KUBECONFIG))
    # Short watches, so that every test also crosses the gap between two of them.
    monkeypatch.setattr(endpoint_slices, "WATCH_SECONDS", 1)
    source = EndpointSlices(namespace)
    task = asyncio.create_task(source.run())
    await until(lambda: source.age() is not None)
    yield source
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_ready_endpoints_are_found_with_their_pods(slices: EndpointSlices, namespace: str) -> None:
    assert slices.endpoints("tiny") == []
    apply(namespace, {"ready": True})
    await until(lambda: slices.endpoints("tiny") == [Endpoint("tiny", "pod-uid", "10.1.2.3:8000")])
    assert slices.endpoints("other") == []


@pytest.mark.parametrize("conditions", [{"ready": False}, {"ready": True, "terminating": True}, {}])
async def test_what_is_not_ready_leaves(slices: EndpointSlices, namespace: str, conditions: dict[str, bool]) -> None:
    apply(namespace, {"ready": True})
    await until(lambda: len(slices.endpoints("tiny")) == 1)
    apply(namespace, conditions)
    await until(lambda: slices.endpoints("tiny") == [])


async def test_a_slice_that_was_deleted_leaves_also_across_watches(slices: EndpointSlices, namespace: str) -> None:
    for _ in range(3):
        apply(namespace, {"ready": True})
        await until(lambda: len(slices.endpoints("tiny")) == 1)
        await asyncio.to_thread(kubectl.run, "delete", "endpointslice", "tiny", namespace=namespace)
        await until(lambda: slices.endpoints("tiny") == [])


async def test_the_age_of_the_last_answer_is_known(slices: EndpointSlices) -> None:
    age = slices.age()
    assert age is not None
    assert age < SECONDS


def apply(namespace: str, conditions: dict[str, bool]) -> None:
    target = {"kind": "Pod", "name": "tiny-0", "namespace": namespace, "uid": "pod-uid"}
    labels = {COMPONENT_LABEL: ENGINE, POOL_LABEL: "tiny"}
    item: dict[str, Any] = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "tiny", "namespace": namespace, "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["10.1.2.3"], "conditions": conditions, "targetRef": target}],
    }
    kubectl.apply([item], namespace=namespace)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not holds():  # noqa: ASYNC110 - the source has no event to wait for
            await asyncio.sleep(0.02)
