"""Engines of one tenant run while somebody asks them, and some time after; a request starts them once."""

from __future__ import annotations

from typing import Any

import pytest

from cachescope.controller.store import Key
from tests.unit.bench_leases import LeasedProcess, gateway
from tests.unit.controller_bench import POOL, POOL_KEY
from tests.unit.template_bench import PER_TENANT, TemplateBench

IDLE: dict[str, Any] = {**PER_TENANT, "idleSeconds": 100, "minWarmSeconds": 300}
IDENTITY = "i" * 43


@pytest.fixture
async def bench() -> TemplateBench:
    made = TemplateBench()
    await made.begin("red", replicas=2, isolation=IDLE)
    return made


def replicas(bench: TemplateBench) -> int:
    found: int = bench.pool_of("red")["spec"]["replicas"]
    return found


async def later(bench: TemplateBench, seconds: float) -> int:
    """Time passes, and how many engine pods are asked for then."""
    bench.now += seconds
    await bench.settle(2)
    return replicas(bench)


def wants(bench: TemplateBench, *identities: str, name: str = "w") -> LeasedProcess:
    """A gateway wants engines of the tenant's pool."""
    process = gateway(bench, name)
    uid = bench.pool_of("red")["metadata"]["uid"]
    process.write(wanted={uid: identities} if identities else {})
    return process


async def test_engines_that_nobody_asks_are_stopped_after_their_least_time(bench: TemplateBench) -> None:
    assert await later(bench, 299) == 2
    assert await later(bench, 2) == 0
    assert bench.found("Deployment", bench.pool_of("red")["metadata"]["name"])["spec"]["replicas"] == 0
    assert "the next request starts them" in bench.message("ServingPool", bench.pool_of("red")["metadata"]["name"], "Ready")
    assert bench.condition("ServingPool", "tiny", "Ready") == ("True", "Routable")
    assert "1 get theirs with their next request" in bench.message("ServingPool", "tiny", "Ready")


async def test_without_idle_seconds_they_run_all_the_time(bench: TemplateBench) -> None:
    bench.declare(POOL, replicas=2, isolation=PER_TENANT)
    await bench.settle()
    assert await later(bench, 1_000_000) == 2


async def test_somebody_comes_back_to_see_whether_they_are_idle(bench: TemplateBench) -> None:
    bench.due.clear()
    await bench.settle(1)
    assert POOL_KEY in bench.due


async def test_engines_whose_guard_was_asked_go_on(bench: TemplateBench) -> None:
    bench.run_pod(bench.pool_of("red")["metadata"]["name"], "p")
    guard = bench.guard_of("red", "p")
    guard.write()
    await later(bench, 290)
    guard.tick = 290_000
    guard.write(used_ms=280_000)
    assert await later(bench, 80) == 2, "the last request was 90 seconds ago"
    guard.tick = 370_000
    guard.write(used_ms=280_000)
    assert await later(bench, 11) == 0


async def test_engines_whose_ready_pods_are_silent_go_on(bench: TemplateBench) -> None:
    bench.run_pod(bench.pool_of("red")["metadata"]["name"], "p")
    assert await later(bench, 10_000) == 2
    bench.remove("Pod", "p")
    assert await later(bench, 10_000) == 0


async def test_a_gateway_that_wants_them_starts_them_once_and_for_a_while(bench: TemplateBench) -> None:
    assert await later(bench, 400) == 0
    processes = [wants(bench, IDENTITY, name=f"w{number}") for number in range(5)]
    bench.api.requests.clear()
    for _ in range(5):
        await bench.pass_over()
    assert replicas(bench) == 2
    assert bench.api.writes.count("apply") == 1, "a storm of wishes is one write"
    for process in processes:
        process.write()
    assert await later(bench, 299) == 2
    assert await later(bench, 2) == 0


async def test_what_a_silent_gateway_wanted_long_ago_starts_nothing(bench: TemplateBench) -> None:
    assert await later(bench, 400) == 0
    process = wants(bench, IDENTITY)
    bench.now += 1000
    bench.book.judge()
    assert await later(bench, 0) == 0
    process.write(wanted={bench.pool_of("red")["metadata"]["uid"]: (IDENTITY,)})
    assert await later(bench, 0) == 2


async def test_what_a_gateway_wanted_before_the_operator_began_counts_once_it_moves(bench: TemplateBench) -> None:
    assert await later(bench, 400) == 0
    process = wants(bench, IDENTITY)
    bench.restart()
    assert await later(bench, 0) == 0
    process.write(wanted={bench.pool_of("red")["metadata"]["uid"]: (IDENTITY,)})
    assert await later(bench, 0) == 2


async def test_what_is_stopped_stays_stopped_when_an_operator_starts_anew(bench: TemplateBench) -> None:
    assert await later(bench, 400) == 0
    bench.restart()
    bench.api.requests.clear()
    await bench.settle()
    assert (replicas(bench), bench.api.writes) == (0, [])


async def test_an_operator_that_starts_anew_stops_nothing_too_early(bench: TemplateBench) -> None:
    await later(bench, 200)
    bench.restart()
    await bench.settle()
    assert await later(bench, 200) == 2
    assert await later(bench, 101) == 0


async def test_an_autoscalers_number_stays_while_engines_run(bench: TemplateBench) -> None:
    name = bench.pool_of("red")["metadata"]["name"]
    scaled = bench.pool_of("red")
    scaled["spec"]["replicas"] = 7
    entry = {
        "manager": "kube-controller-manager",
        "operation": "Update",
        "subresource": "scale",
        "fieldsV1": {"f:spec": {"f:replicas": {}}},
    }
    scaled["metadata"]["managedFields"].append(entry)
    bench.api._store(f"/apis/cachescope.dev/v1alpha1/namespaces/ns/servingpools/{name}", scaled)
    await bench.settle()
    assert replicas(bench) == 7
    assert await later(bench, 400) == 0, "it is stopped all the same"
    wants(bench, IDENTITY)
    assert await later(bench, 0) == 2, "and started, which no autoscaler does"


async def test_memory_of_a_template_that_is_gone_is_forgotten(bench: TemplateBench) -> None:
    assert bench.pools._dedicated._warmth
    bench.remove("ServingPool", "tiny")
    await bench.pools.reconcile(Key("ServingPool", "ns", "tiny"), 0)
    assert not bench.pools._dedicated._warmth
