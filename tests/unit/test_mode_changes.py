"""A pool changes how its tenants are kept apart without a gap: what served goes last, and nothing of it is built anew."""

from __future__ import annotations

import copy

import pytest

from cachescope.kube.rest import Document
from tests.unit.bench_leases import gateway
from tests.unit.controller_bench import CHILDREN, POOL, tenant
from tests.unit.template_bench import PER_TENANT, TemplateBench

SHARED: Document = {"mode": "Shared"}
OTHER_FENCE: Document = {"leaseSeconds": 30}


@pytest.fixture
async def bench() -> TemplateBench:
    """A pool that all its tenants share, with a pod."""
    made = TemplateBench()
    await made.begin("red", "blue", isolation=SHARED, replicas=2)
    made.run_pod("tiny", "p")
    return made


def serve(bench: TemplateBench, *names: str) -> None:
    """Gateways route to the engines of tenants, by what their pools say, and the pools' own passes say otherwise no more."""
    for name in names:
        pod = bench.run_pod(bench.pool_of(name)["metadata"]["name"], f"{name}-0")
        routed[bench.pool_of(name)["metadata"]["uid"]] = (pod["metadata"]["uid"],)
    gateway(bench).write(routable=dict(routed))


routed: dict[str, tuple[str, ...]] = {}


@pytest.fixture(autouse=True)
def nothing_routed() -> None:
    routed.clear()


def template_of(bench: TemplateBench) -> Document:
    found: Document = bench.found("Deployment", "tiny")["spec"]["template"]
    return copy.deepcopy(found)


def left(bench: TemplateBench) -> list[str]:
    """Children of the pool's own engines that there still are."""
    own = [kind for kind, name in CHILDREN if name in bench.names(kind)]
    revisions = [name for name in bench.names("ControllerRevision") if name.startswith("tiny-") and len(name) == 17]
    return own + [name for name in revisions if _owner(bench, name) == "pool-uid-1"]


def _owner(bench: TemplateBench, revision: str) -> str:
    return str(bench.found("ControllerRevision", revision)["metadata"]["ownerReferences"][0]["uid"])


async def test_own_engines_stay_as_they_are_until_every_tenants_engines_serve(bench: TemplateBench) -> None:
    before = template_of(bench)
    bench.declare(POOL, isolation=PER_TENANT, fence=OTHER_FENCE, replicas=1)
    await bench.settle()
    assert bench.found("Deployment", "tiny")["spec"]["replicas"] == 2
    assert bench.served() == {"red", "blue"}
    serve(bench, "red")
    await bench.settle()
    assert template_of(bench) == before, "nothing of it is built anew"
    assert bench.condition("ServingPool", "tiny", "Ready") == ("False", "TenantsNotReady")
    serve(bench, "blue")
    await bench.settle()
    assert not bench.has_engines()
    assert "Service" in left(bench), "its pods end with what they need"
    bench.remove("Pod", "p")
    await bench.settle()
    assert left(bench) == []
    assert bench.found("EpochLedger", "tiny")
    assert bench.condition("ServingPool", "tiny", "Ready") == ("True", "Routable")


async def test_own_engines_stay_until_every_gateway_routes_to_as_many_as_are_asked_for(bench: TemplateBench) -> None:
    bench.declare(POOL, isolation=PER_TENANT, replicas=2)
    await bench.settle()
    one, other = gateway(bench, "one"), gateway(bench, "other")
    for number in (0, 1):
        for name in ("red", "blue"):
            uid, pool = bench.pool_of(name)["metadata"]["uid"], bench.pool_of(name)["metadata"]["name"]
            routed[uid] = (*routed.get(uid, ()), str(bench.run_pod(pool, f"{name}-{number}")["metadata"]["uid"]))
        one.write(routable=dict(routed))
        if not number:
            other.write(routable=dict(routed))
        await bench.settle()
        assert bench.condition("ServingPool", "tiny", "Ready") == ("True", "Routable")
        assert bench.has_engines()
    other.write(routable=dict(routed))
    await bench.settle()
    assert not bench.has_engines()


async def test_tenants_engines_stay_until_every_gateway_routes_to_the_pools_own(bench: TemplateBench) -> None:
    bench.declare(POOL, isolation=PER_TENANT)
    await bench.settle()
    bench.declare(POOL, isolation=SHARED)
    one, other = gateway(bench, "one"), gateway(bench, "other")
    one.write(routable={"pool-uid-1": ("uid-p",)})
    other.write()
    await bench.settle()
    assert bench.served() == {"red", "blue"}
    other.write(released=True)
    await bench.settle()
    assert bench.served() == set()


async def test_own_engines_are_healed_while_they_wait(bench: TemplateBench) -> None:
    bench.declare(POOL, isolation=PER_TENANT)
    await bench.settle()
    bench.remove("NetworkPolicy", "tiny")
    await bench.settle(1)
    assert "NetworkPolicy" in left(bench)


async def test_own_engines_that_are_gone_do_not_come_back(bench: TemplateBench) -> None:
    bench.declare(POOL, isolation=PER_TENANT)
    await bench.settle()
    serve(bench, "red", "blue")
    await bench.settle()
    bench.remove("Pod", "p")
    await bench.settle()
    bench.declare(tenant("green"))
    bench.declare(POOL, isolation=PER_TENANT, rollout="soon")
    await bench.settle()
    assert left(bench) == []
    bench.restart()
    await bench.settle()
    assert left(bench) == []


async def test_where_gpus_are_short_the_remedy_is_said_and_works(bench: TemplateBench) -> None:
    bench.declare(POOL, isolation=PER_TENANT)
    await bench.settle()
    serve(bench, "red")
    name = bench.pool_of("blue")["metadata"]["name"]
    waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: Insufficient gpu"}
    pod = copy.deepcopy(bench.run_pod(name, "blue-0", ready=False))
    pod["status"]["conditions"].append(waiting)
    bench.api._store("/api/v1/namespaces/ns/pods/blue-0", pod)
    await bench.settle()
    assert bench.has_engines()
    assert bench.condition("ServingPool", "tiny", "Degraded") == ("True", "Unschedulable")
    message = bench.message("ServingPool", "tiny", "Degraded")
    assert message.startswith("1 of 2 tenants have engines that are routed to")
    assert "with rollout.strategy InPlace they go first" in message
    bench.declare(POOL, isolation=PER_TENANT, rollout={"strategy": "InPlace"})
    await bench.settle()
    assert not bench.has_engines()
    assert "InPlace they go first" not in bench.message("ServingPool", "tiny", "Degraded")


async def test_tenants_engines_stay_as_they_are_until_the_pools_own_serve(bench: TemplateBench) -> None:
    bench.declare(POOL, isolation=PER_TENANT)
    await bench.settle()
    serve(bench, "red", "blue")
    await bench.settle()
    bench.remove("Pod", "p")
    await bench.settle()
    before = [item["spec"] for item in bench.dedicated()]
    bench.declare(POOL, isolation={"mode": "Disabled"}, fence=OTHER_FENCE)
    await bench.settle()
    assert bench.has_engines()
    assert [item["spec"] for item in bench.dedicated()] == before, "they are not changed any more"
    bench.run_pod("tiny", "q")
    await bench.settle()
    assert bench.served() == {"red", "blue"}, "ready is not routable"
    routed["pool-uid-1"] = ("uid-q",)
    gateway(bench).write(routable=dict(routed), tick=99)
    await bench.settle()
    assert bench.dedicated() == []
    assert bench.found("ServingPool", "tiny")["status"]["mode"] == "Disabled"


async def test_a_tenant_that_goes_meanwhile_loses_its_engines_at_once(bench: TemplateBench) -> None:
    bench.declare(POOL, isolation=PER_TENANT)
    await bench.settle()
    for spec in ({"isolation": SHARED}, {"isolation": PER_TENANT, "rollout": "soon"}):
        bench.declare(POOL, **spec)
        await bench.settle()
        assert bench.served() == {"red", "blue"}
    bench.remove("Tenant", "red")
    await bench.settle()
    assert bench.served() == {"blue"}


async def test_a_template_whose_spec_is_refused_keeps_what_its_tenants_have(bench: TemplateBench) -> None:
    bench.declare(POOL, isolation=PER_TENANT)
    await bench.settle()
    before = bench.dedicated()
    for refused in ({"rollout": "soon"}, {"engine": {"version": "0.32.0", "image": "x", "args": ["--headless"]}}):
        bench.declare(POOL, **{"isolation": PER_TENANT, **refused})
        await bench.settle()
        assert bench.condition("ServingPool", "tiny", "Ready") == ("False", "InvalidSpec")
        assert [item["spec"] for item in bench.dedicated()] == [item["spec"] for item in before]


async def test_a_wish_that_the_engine_cannot_meet_is_refused_with_the_reason() -> None:
    bench = TemplateBench()
    await bench.begin(isolation=SHARED, engine={"version": "0.8.0", "image": "registry.example/vllm:0.8.0"})
    assert bench.condition("ServingPool", "tiny", "Ready") == ("False", "InvalidSpec")
    assert "isolation Shared is refused" in bench.message("ServingPool", "tiny", "Ready")
    assert not bench.has_engines()
    status = bench.found("ServingPool", "tiny")["status"]
    assert status["mode"] == ""
    assert status["modeReason"].startswith("isolation Shared is refused")
    capabilities = {item["route"]: item["capability"] for item in status["routes"]}
    assert capabilities["/v1/chat/completions"] != "Enforced"


@pytest.mark.parametrize("mode", ["Shared", "Disabled", "PerTenant"])
async def test_own_engines_are_built_in_modes_where_tenants_share_them_alone(mode: str) -> None:
    bench = TemplateBench()
    await bench.begin("red", isolation={"mode": mode})
    assert bench.has_engines() is (mode != "PerTenant")
    assert bench.found("ServingPool", "tiny")["status"]["mode"] == mode
    own = [name for name in bench.names("ControllerRevision") if _owner(bench, name) == "pool-uid-1"]
    assert bool(own) is (mode != "PerTenant")
