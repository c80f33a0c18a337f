"""Which processes are probed: those that serve in pools whose tenants share a cache, while there is something to show."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from cachescope.controller.isolation_targets import Target, shared_pool, targets
from cachescope.controller.lease_book import Life, Process
from cachescope.controller.store import Key
from cachescope.core.labels import GUARD_METRICS_PORT
from cachescope.kube.rest import Document
from tests.unit.observed import guard, pod
from tests.unit.shown_isolation import CHAT

POOL: Document = {
    "apiVersion": "cachescope.dev/v1alpha1",
    "kind": "ServingPool",
    "metadata": {"name": "tiny", "namespace": "models", "uid": "uid-of-pool", "generation": 1},
    "spec": {
        "model": {"name": "tiny-chat", "source": {"imagePath": "/models/tiny"}},
        "engine": {"version": "0.32.0", "image": "registry.example/vllm:0.32.0"},
        "isolation": {"verifySeconds": 90},
    },
}
KEY = Key("ServingPool", "models", "tiny")
WHOSE = {"poolName": "t", "poolUid": "uid-of-template", "tenantName": "red", "tenantUid": "uid-of-red"}
LLAMA = {
    "model": {"name": "tiny", "source": {"persistentVolumeClaim": {"claimName": "models", "path": "tiny.gguf"}}},
    "engine": {"type": "llama.cpp", "version": "2026.10.11549", "image": "registry.example/llama-cpp:1"},
    "guard": {"mode": "Sidecar"},
}


def of_pool(name: str = "p", life: Life = Life.LIVE, **changes: Any) -> Process:
    process = guard(name, life)
    assert process.statement is not None
    return replace(process, statement=replace(process.statement, pool_uid="uid-of-pool", boot_id=f"boot-{name}", **changes))


def changed(**spec: Any) -> Document:
    document = copy.deepcopy(POOL)
    document["spec"].update(spec)
    return document


def found(guards: list[Process], *pods: Document, document: Document = POOL) -> list[Target]:
    shared = shared_pool(document)
    assert shared is not None
    return list(targets(document, shared, guards, {item["metadata"]["uid"]: item for item in pods}))


def test_a_process_that_serves_is_probed_by_what_clients_may_reach() -> None:
    (target,) = found([of_pool()], pod(podIP="10.0.0.7"))
    assert (target.pool, target.pool_uid, target.model, target.verify_seconds) == (KEY, "uid-of-pool", "tiny-chat", 90)
    assert (target.boot_id, target.pod, target.metrics) == ("boot-p", "p", f"http://10.0.0.7:{GUARD_METRICS_PORT}/metrics")
    assert CHAT in {route.path for route in target.routes}


@pytest.mark.parametrize(
    ("address", "metrics"), [("fd00::7", f"http://[fd00::7]:{GUARD_METRICS_PORT}/metrics"), (None, ""), ("", "")]
)
def test_the_counter_is_read_where_the_pod_is(address: str | None, metrics: str) -> None:
    assert [target.metrics for target in found([of_pool()], pod(podIP=address))] == [metrics]


def leaving(name: str) -> Document:
    item = pod(name)
    item["metadata"]["deletionTimestamp"] = "2026-11-30T12:00:00Z"
    return item


@pytest.mark.parametrize(
    ("process", "its_pod"),
    [
        pytest.param(of_pool("q", Life.LAPSED), pod("q"), id="lapsed"),
        pytest.param(of_pool("q", Life.UNSEEN), pod("q"), id="not seen to live"),
        pytest.param(of_pool("q", released=True), pod("q"), id="going"),
        pytest.param(replace(of_pool("q"), statement=None), pod("q"), id="not verified"),
        pytest.param(of_pool("q"), pod("q", ready=False), id="not ready"),
        pytest.param(of_pool("q"), leaving("q"), id="being deleted"),
    ],
)
def test_a_process_that_does_not_serve_is_left_out(process: Process, its_pod: Document) -> None:
    assert [target.pod for target in found([of_pool(), process], pod(), its_pod)] == ["p"]
    assert [target.pod for target in found([of_pool(), of_pool("q")], pod(), pod("q"))] == ["p", "q"]


@pytest.mark.parametrize(
    ("document", "shared"),
    [
        pytest.param(POOL, True, id="auto"),
        pytest.param(changed(isolation={"mode": "Shared"}), True, id="shared"),
        pytest.param(changed(isolation={"mode": "PerTenant"}), False, id="per tenant"),
        pytest.param(changed(isolation={"mode": "Disabled"}), False, id="disabled"),
        pytest.param(changed(dedicatedTo=WHOSE), False, id="one tenant's"),
        pytest.param(changed(**LLAMA), False, id="an engine without salts"),
        pytest.param(changed(engine={"version": 7}), False, id="unreadable"),
        pytest.param({**POOL, "status": {"guards": "nonsense"}}, True, id="whatever its status says"),
    ],
)
def test_only_pools_whose_tenants_share_a_cache_are_probed(document: Document, shared: bool) -> None:
    assert (shared_pool(document) is not None) == shared


@pytest.mark.parametrize(
    ("containers", "restarts"),
    [(None, 0), ([], 0), ([{"name": "guard", "restartCount": 7}], 0), ([{"name": "engine", "restartCount": 3}], 3)],
)
def test_an_engine_that_began_anew_in_its_pod_is_counted(containers: list[Document] | None, restarts: int) -> None:
    more: Document = {} if containers is None else {"containerStatuses": containers}
    assert [target.restarts for target in found([of_pool()], pod("p", **more))] == [restarts]


@pytest.mark.parametrize(("says", "probed"), [("", True), ("0.32.0", True), ("0.31.0", False), ("0.32.0+patched", False)])
def test_an_engine_that_says_another_version_is_not_probed(says: str, probed: bool) -> None:
    assert bool(found([of_pool(engine_version=says)], pod())) == probed


def test_a_process_whose_pod_is_not_known_yet_is_probed_without_its_counter() -> None:
    assert [(target.pod, target.metrics) for target in found([of_pool("q")], pod("r"))] == [("q", "")]
