"""Endpoints follow a real API server: what is not ready, terminating or gone is not routed to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cachescope.core.endpoints import Endpoint
from cachescope.core.labels import COMPONENT_LABEL, ENGINE, POOL_LABEL
from cachescope.kube.endpoint_slices import EndpointSlices
from cachescope.kube.rest import Rest
from e2e.stack import kubectl
from tests.integration.following import SECONDS, namespace, rest, running, until

__all__ = ["namespace", "rest"]


@pytest.fixture
async def slices(rest: Rest, namespace: str) -> AsyncIterator[EndpointSlices]:
    source = EndpointSlices(rest, namespace)
    async with running(source.watched.run()):
        await until(lambda: source.watched.age() is not None)
        yield source


async def test_ready_endpoints_are_found_with_their_pods(slices: EndpointSlices, namespace: str) -> None:
    pool = f"{namespace}/tiny"
    assert slices.endpoints(pool) == []
    apply(namespace, {"ready": True})
    await until(lambda: slices.endpoints(pool) == [Endpoint(pool, "pod-uid", "10.1.2.3:8000")])
    assert slices.endpoints(f"{namespace}/other") == []
    assert slices.endpoints("other/tiny") == []


@pytest.mark.parametrize("conditions", [{"ready": False}, {"ready": True, "terminating": True}, {}])
async def test_what_is_not_ready_leaves(slices: EndpointSlices, namespace: str, conditions: dict[str, bool]) -> None:
    apply(namespace, {"ready": True})
    await until(lambda: len(slices.endpoints(f"{namespace}/tiny")) == 1)
    apply(namespace, conditions)
    await until(lambda: slices.endpoints(f"{namespace}/tiny") == [])


async def test_a_slice_that_was_deleted_leaves_also_across_watches(slices: EndpointSlices, namespace: str) -> None:
    for _ in range(3):
        apply(namespace, {"ready": True})
        await until(lambda: len(slices.endpoints(f"{namespace}/tiny")) == 1)
        await asyncio.to_thread(kubectl.run, "delete", "endpointslice", "tiny", namespace=namespace)
        await until(lambda: slices.endpoints(f"{namespace}/tiny") == [])


async def test_the_slices_of_all_namespaces_are_told_apart(slices: EndpointSlices, namespace: str) -> None:
    """One that is cluster-wide sees what a namespace's own sees, under that namespace's name."""
    apply(namespace, {"ready": True})
    everywhere = EndpointSlices(slices.watched._api, None)
    async with running(everywhere.watched.run()):
        await until(lambda: len(everywhere.endpoints(f"{namespace}/tiny")) == 1)
        assert everywhere.endpoints("tiny") == everywhere.endpoints("/tiny") == []


async def test_the_age_of_the_last_answer_is_known(slices: EndpointSlices) -> None:
    age = slices.watched.age()
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
