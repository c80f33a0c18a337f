"""One CacheEpoch of a template rolls the pools of all of its tenants, and is fenced once the last of them is."""

from __future__ import annotations

import pytest

from cachescope.controller.declared_epochs import ledgers_of, read_epoch
from cachescope.controller.store import Key
from cachescope.core.epochs import target_name
from cachescope.core.types import TargetKind
from tests.unit.bench_leases import LeasedProcess, gateway, ledger, wait
from tests.unit.controller_bench import POOL, epoch, tenant
from tests.unit.template_bench import TemplateBench

INCIDENT = {"id": "i"}
TARGET_UID = str(POOL["metadata"]["uid"])


@pytest.fixture
async def bench() -> TemplateBench:
    """A template with the engines of two tenants, each with a guard, and a gateway."""
    made = TemplateBench()
    await made.begin("red", "blue")
    await made.authorize()
    wait(made, 3_600_000)  # nobody has a right of before
    await made.settle()
    return made


def guards(bench: TemplateBench) -> dict[str, LeasedProcess]:
    found = {name: bench.guard_of(name) for name in ("red", "blue")}
    for process in (*found.values(), gateway(bench)):
        process.acknowledge()
    return found


def floors(bench: TemplateBench, pool: str) -> dict[str, int]:
    return {target: floor.epoch for target, floor in ledger(bench, pool).floors.items()}


def names(bench: TemplateBench) -> list[str]:
    return [bench.pool_of(name)["metadata"]["name"] for name in ("red", "blue")]


async def test_a_rollback_of_the_template_is_in_the_ledger_of_every_tenants_pool(bench: TemplateBench) -> None:
    bench.declare(epoch("e", incident=INCIDENT))
    await bench.settle()
    target = target_name(bench.keys.targets, TargetKind.POOL, TARGET_UID)
    assert [floors(bench, name) for name in ("tiny", *names(bench))] == [{target: 2}] * 3
    assert bench.found("CacheEpoch", "e")["status"]["epoch"] == 2


async def test_it_is_fenced_once_every_tenants_guards_have_it(bench: TemplateBench) -> None:
    processes = guards(bench)
    bench.declare(epoch("e", incident=INCIDENT))
    await bench.settle()
    assert bench.condition("CacheEpoch", "e", "Fenced") == ("False", "WaitingForProcesses")
    assert bench.condition("ServingPool", "tiny", "Fenced") == ("False", "WaitingForProcesses")
    processes["red"].acknowledge()
    await bench.settle()
    assert bench.condition("ServingPool", names(bench)[0], "Fenced") == ("True", "Acknowledged")
    for kind, name in (("CacheEpoch", "e"), ("ServingPool", "tiny"), ("ServingPool", names(bench)[1])):
        assert bench.condition(kind, name, "Fenced") == ("False", "WaitingForProcesses"), (kind, name)
    processes["blue"].acknowledge()
    await bench.settle()
    for kind, name in (("CacheEpoch", "e"), ("ServingPool", "tiny"), ("ServingPool", names(bench)[1])):
        assert bench.condition(kind, name, "Fenced") == ("True", "Acknowledged"), (kind, name)


async def test_the_template_is_not_fenced_before_its_tenants_pools_know_of_it(bench: TemplateBench) -> None:
    for process in guards(bench).values():
        process.acknowledge()
    bench.declare(epoch("e", incident=INCIDENT))
    await bench.pass_over()
    assert bench.condition("ServingPool", "tiny", "Fenced") == ("False", "NotWritten")
    assert bench.condition("CacheEpoch", "e", "Fenced") == ("False", "NotWritten")


async def test_a_tenant_that_comes_later_begins_with_what_is_declared(bench: TemplateBench) -> None:
    bench.declare(epoch("e", floor=7))
    await bench.settle()
    bench.declare(tenant("green"))
    await bench.settle()
    target = target_name(bench.keys.targets, TargetKind.POOL, TARGET_UID)
    assert floors(bench, bench.pool_of("green")["metadata"]["name"]) == {target: 7}


async def test_an_epoch_that_names_a_tenants_pool_is_told_to_name_the_template(bench: TemplateBench) -> None:
    name = names(bench)[0]
    bench.declare(epoch("e", target={"name": name}, incident=INCIDENT))
    await bench.settle()
    assert bench.condition("CacheEpoch", "e", "Accepted") == ("False", "ReferenceNotFound")
    assert "this pool is the pool tiny of one tenant; name the pool that it was made of" in bench.message(
        "CacheEpoch", "e", "Accepted"
    )
    assert floors(bench, name) == {}


async def test_the_ledgers_of_a_template_are_its_own_and_those_of_its_tenants(bench: TemplateBench) -> None:
    document = bench.declare(epoch("e", incident=INCIDENT))
    uids = {bench.pool_of(name)["metadata"]["uid"] for name in ("red", "blue")}
    assert ledgers_of(bench.store, (), Key("CacheEpoch", "ns", "e"), read_epoch(document)) == {TARGET_UID, *uids}


async def test_what_an_incident_switched_off_is_off_for_all_and_resumes_for_all(bench: TemplateBench) -> None:
    bench.declare(epoch("e", incident={"id": "i", "bypassReuse": True}))
    await bench.settle()
    pools = ("tiny", *names(bench))
    assert [bench.found("ServingPool", name)["status"]["bypassed"] for name in pools] == [True] * 3
    assert [bench.found("ServingPool", name)["status"]["latestIncident"] for name in pools] == ["i"] * 3
    bench.declare(POOL, isolation={"mode": "PerTenant"}, sharing={"resumeAfter": "i"})
    await bench.settle()
    assert [bench.found("ServingPool", name)["status"]["bypassed"] for name in pools] == [False] * 3
