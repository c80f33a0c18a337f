"""Readiness and metrics of the gateway, and what it makes of objects that nobody foresaw."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from cachescope.gateway.health import Health, serve_health
from cachescope.gateway.readings import Document, Reading, whatever
from cachescope.gateway.stores import CLUSTER, follow
from cachescope.kube.watched import Api
from tests.unit.gateway_lease_bench import World
from tests.unit.whole_path import NAMESPACE, POOL, WholePath


@pytest.fixture
async def world(tmp_path: Path) -> World:
    found = World(tmp_path)
    await found.path.prove()
    return found


def health(world: World) -> Health:
    return Health(world.standing, world.path.fleet, dict)


async def test_readiness_needs_a_right_and_says_what_is_missing(world: World) -> None:
    ready, report = health(world).report()
    assert not ready
    assert "no live right" in str(report["problems"])
    await world.rounds.round()
    ready, report = health(world).report()
    assert (ready, report["problems"], report["configuration"]) == (True, [], "loaded")
    assert report["pools"] == {f"{NAMESPACE}/{POOL}": {"pod-uid 10.0.0.1:8000": "routable"}}
    assert report["right_seconds"] == 60


async def test_readiness_tells_why_a_pool_is_not_routed_to_and_stays(world: World) -> None:
    await world.rounds.round()
    for name in list(world.path.cluster.leases.documents):
        world.path.cluster.leases.remove(*name)
    ready, report = health(world).report()
    assert ready
    assert "holds no FenceLease" in str(report["pools"])
    world.path.cluster.ledgers.remove(NAMESPACE, POOL)
    world.path.round()
    assert "no EpochLedger" in str(health(world).report()[1]["pools"])


@pytest.mark.parametrize(
    ("now", "state", "ready", "fresh"),
    [(1_000, "with_right", True, 0), (61_000, "fresh_only", True, 599), (700_000, "stopped", False, 0)],
)
async def test_readiness_and_metrics_say_how_far_it_may_decide(world: World, now: int, state: str, ready: bool, fresh: int) -> None:
    await world.rounds.round()
    world.now = now
    found, report = health(world).report()
    assert (found, report["state"], report["fresh_seconds"]) == (ready, state, fresh)
    text = metrics(world)
    for name in ("with_right", "fresh_only", "stopped"):
        assert f'cachescope_gateway_state{{state="{name}"}} {float(name == state)}' in text
    assert f"cachescope_gateway_fresh_seconds {float(fresh)}" in text


@pytest.mark.parametrize(("age", "ready"), [(50.0, True), (121.0, False), (None, False)])
async def test_readiness_and_metrics_see_the_age_of_every_watch(world: World, age: float | None, ready: bool) -> None:
    await world.rounds.round()
    world.ages["ServingPool"] = age
    found, report = health(world).report()
    assert found is ready
    assert report["watch_age_seconds"] == {"Tenant": 0.0, "ServingPool": age}
    assert f'cachescope_watch_age_seconds{{kind="ServingPool"}} {-1.0 if age is None else age}' in metrics(world)


async def test_metrics_name_pools_and_kinds_and_no_tenant(world: World) -> None:
    await world.rounds.round()
    world.path.edit("Tenant", "blue", lambda tenant: tenant["spec"].update(suspended="perhaps"))
    text = metrics(world)
    assert f'cachescope_endpoints{{pool="{POOL}",pool_namespace="{NAMESPACE}",state="routable"}} 1.0' in text
    assert 'cachescope_objects_at_fault{kind="Tenant"} 1.0' in text
    assert "cachescope_gateway_right_seconds 60.0" in text
    assert "blue" not in text


def metrics(world: World) -> str:
    registry = CollectorRegistry()
    registry.register(health(world))
    return generate_latest(registry).decode()


def test_what_nobody_thought_of_is_a_fault_of_its_object() -> None:
    def fragile(document: Document) -> Reading[int]:
        return Reading(len(document["spec"]["never"]["there"]))

    assert whatever(fragile)({"spec": {"never": {"there": "x"}}}) == Reading(1)
    reading = whatever(fragile)({"spec": None})
    assert reading.value is None
    assert "TypeError" in reading.fault


def test_what_nobody_thought_of_in_any_kind_is_a_fault_of_its_object() -> None:
    followed = follow(cast("Api", None), "home", CLUSTER, changed=lambda: None, ledgers_changed=lambda: None)
    assert "Namespace" in followed.others
    for kind, watch in followed.others.items():
        reading = watch._parse({"metadata": {"name": "a", "labels": ["x"]}, "spec": [], "data": ["x"]})
        assert reading.fault, kind


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"metadata": None, "spec": 1, "status": []},
        {"metadata": {"name": "a", "namespace": "b", "uid": "0123456789"}, "spec": {"identities": []}, "status": {"accepted": {}}},
        {"metadata": {"name": "a"}, "status": {"accepted": [None, 1, {"claim": 1, "since": "x"}]}, "data": {"a": 1}},
    ],
)
@pytest.mark.parametrize("kind", ["ServingPool", "Tenant", "CacheScope", "PublicSource", "EpochLedger", "FenceLease", "Secret"])
def test_no_object_ends_the_gateway(tmp_path: Path, kind: str, document: Document) -> None:
    read = WholePath(tmp_path).cluster.store(kind)._read
    reading = whatever(read)(dict(document))
    assert reading.fault or not reading.value


async def test_the_length_of_a_right_is_told_once_it_is_known(world: World) -> None:
    assert "cachescope_gateway_lease_seconds 60.0" in metrics(world)
    world.standing = replace(world.standing, lease_ms=lambda: 0)
    assert "cachescope_gateway_lease_seconds" not in metrics(world)


async def test_health_is_served_to_the_kubelet_and_to_prometheus(world: World) -> None:
    found = health(world)
    registry = CollectorRegistry()
    registry.register(found)
    runner = await serve_health(found, registry, 0)
    host, port = runner.addresses[0][:2]
    async with aiohttp.ClientSession(f"http://{host}:{port}") as session:

        async def status(path: str) -> int:
            async with session.get(path) as response:
                return response.status

        assert [await status(path) for path in ("/healthz", "/readyz", "/metrics")] == [200, 503, 200]
        await world.rounds.round()
        assert await status("/readyz") == 200
    await runner.cleanup()
