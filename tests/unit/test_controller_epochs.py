"""What people are told of epochs: an Event with each write of a ledger and never again, and the incident in the condition."""

from __future__ import annotations

import pytest

from cachescope.core.leases import GUARD, LeaseStatement, lease_name, write_lease
from cachescope.core.ledgers import Lineage, Mark
from cachescope.core.permits import permit_keys
from cachescope.core.types import Digest
from cachescope.kube.rest import Document
from tests.unit.controller_bench import POOL, Bench, epoch

LEAK = {"id": "leak-1", "reason": "a prompt was seen by a stranger"}
TOLD = "incident leak-1: epoch 2, a prompt was seen by a stranger"


@pytest.fixture
async def bench() -> Bench:
    made = Bench()
    await made.start()
    made.declare(POOL)
    await made.pass_over()
    return made


def events(bench: Bench, reason: str) -> list[tuple[str, str, str]]:
    """Type, kind of the object, and note of each Event of a reason."""
    found = [item for item in bench.api.objects.values() if item.get("kind") == "Event" and item["reason"] == reason]
    assert all("series" not in item for item in found), "none is counted twice"
    return sorted((item["type"], item["regarding"]["kind"], item["note"]) for item in found)


def accepted(bench: Bench, name: str) -> Document:
    conditions = bench.found("CacheEpoch", name)["status"]["conditions"]
    return next(item for item in conditions if item["type"] == "Accepted")


async def test_an_incident_is_told_on_the_pool_and_on_its_epoch_once_also_after_a_restart(bench: Bench) -> None:
    bench.declare(epoch("e", incident=LEAK))
    for _ in range(2):
        await bench.pass_over()
    bench.restart()
    await bench.pass_over()
    assert events(bench, "EpochAdvanced") == [("Normal", "CacheEpoch", TOLD), ("Normal", "ServingPool", TOLD)]
    assert accepted(bench, "e")["message"] == TOLD
    assert events(bench, "NewLineage") == []


async def test_the_incident_stays_in_the_condition_when_its_floor_is_held(bench: Bench) -> None:
    bench.declare(epoch("e", incident=LEAK, floor=9000))
    await bench.pass_over()
    assert (accepted(bench, "e")["message"], bench.condition("CacheEpoch", "e", "Held")[0]) == (TOLD, "True")


async def test_a_floor_that_rose_is_told_and_a_held_one_is_not(bench: Bench) -> None:
    bench.declare(epoch("e", floor=7))
    await bench.pass_over()
    bench.declare(epoch("e", floor=3))
    await bench.pass_over()
    told = "the floor of CacheEpoch e: epoch 7 stands"
    assert events(bench, "EpochAdvanced") == [("Normal", "CacheEpoch", told), ("Normal", "ServingPool", told)]


async def test_an_incident_of_before_is_not_told_again_beside_a_new_one(bench: Bench) -> None:
    bench.declare(epoch("e", incident=LEAK))
    await bench.pass_over()
    bench.declare(epoch("f", incident={"id": "leak-2"}))
    await bench.pass_over()
    assert [note for _, kind, note in events(bench, "EpochAdvanced") if kind == "ServingPool"] == [TOLD, "incident leak-2: epoch 3"]


async def test_a_ledger_that_was_deleted_warns_of_the_new_lineage_once(bench: Bench) -> None:
    bench.remove("EpochLedger", "tiny")
    for _ in range(2):
        await bench.pass_over()
    number = bench.found("EpochLedger", "tiny")["spec"]["lineage"]["generation"]
    said = f"somebody deleted the ledger: it goes on in lineage {number}, and everything cached before is unreachable"
    assert events(bench, "NewLineage") == [("Warning", "ServingPool", said)]


async def test_an_operator_that_never_saw_the_deleted_ledger_learns_of_it_from_a_guard(bench: Bench) -> None:
    bench.remove("EpochLedger", "tiny")
    bench.restart()
    bench.store.listen(bench.site.leases.hear)
    mark = Mark(Lineage(7, "l"), 5000, Digest("sha256:" + "0" * 64))
    statement = LeaseStatement(GUARD, "pod-1", "boot-1", 5, 30_000, "0.1.0", {"pool-uid-1": mark}, pool_uid="pool-uid-1")
    text = write_lease(permit_keys(bench.keys.ring, "pool-uid-1").current, statement)
    spec = {"holder": GUARD, "pod": "p", "pool": "tiny", "leaseSeconds": 30, "statement": text}
    metadata = {"name": lease_name("pod-1", "boot-1"), "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    bench.store.put("FenceLease", {"metadata": metadata, "spec": spec})
    await bench.pass_over()
    assert [kind for kind, *_ in events(bench, "NewLineage")] == ["Warning"]


async def test_an_older_ledger_that_was_put_back_warns(bench: Bench) -> None:
    old = bench.found("EpochLedger", "tiny")["spec"]
    bench.declare(epoch("e", floor=7))
    await bench.pass_over()
    bench.declare({**bench.found("EpochLedger", "tiny"), "spec": old})
    await bench.pass_over()
    assert [note.partition(":")[0] for *_, note in events(bench, "NewLineage")] == ["somebody put an older ledger back"]
