"""What a CacheEpoch says of itself: `Fenced` for exactly what it asks, of everybody concerned, and never taken back."""

from __future__ import annotations

from typing import Any

import pytest

from cachescope.controller.cache_epochs import CacheEpochs
from cachescope.controller.dispatch import authorization
from cachescope.controller.store import Key
from cachescope.core import shard_room
from cachescope.core.errors import ClusterError
from cachescope.core.ledgers import AUTHORIZATION_HEAD
from cachescope.core.rosters import right_ms
from cachescope.kube.rest import Document
from tests.unit.bench_fixtures import bench, guard
from tests.unit.bench_leases import LEASE_MS, POOL_UID, LeasedProcess, gateway, ledger, wait
from tests.unit.controller_bench import Bench, epoch, tenant

__all__ = ["bench", "guard"]

LEAK, SECOND = {"id": "leak-1"}, {"id": "leak-2"}
KEY = Key("CacheEpoch", "ns", "e")


def of_tenant(name: str = "e", namespace: str = "ns", **spec: Any) -> Document:
    made = epoch(name, target={"kind": "Tenant", "name": "red"}, **spec)
    return {**made, "metadata": {**made["metadata"], "namespace": namespace}}


def status(bench: Bench, name: str = "e") -> Document:
    found: Document = bench.found("CacheEpoch", name)["status"]
    return found


def fenced(bench: Bench, name: str = "e") -> tuple[str, str]:
    return bench.condition("CacheEpoch", name, "Fenced")


async def test_a_rollback_waits_for_its_guards_and_says_how_long_it_took(bench: Bench, guard: LeasedProcess) -> None:
    other = LeasedProcess(bench, name="h")
    other.acknowledge()
    bench.declare(epoch("e", incident=LEAK))
    await bench.pass_over()
    assert (fenced(bench), status(bench)["phase"]) == (("False", "WaitingForProcesses"), "Fencing")
    guard.acknowledge()
    wait(bench, 1000)
    await bench.tell()
    assert status(bench)["guards"] == {"total": 2, "acknowledged": 1, "expired": 0}
    assert "seconds" not in status(bench)
    other.acknowledge()
    wait(bench, 500)
    await bench.tell()
    assert (fenced(bench), status(bench)["phase"], status(bench)["seconds"]) == (("True", "Acknowledged"), "Fenced", 1.5)
    assert (status(bench)["epoch"], status(bench)["sequence"]) == (2, 2)
    assert status(bench)["lineage"] == ledger(bench).lineage.generation


@pytest.mark.usefixtures("guard")
async def test_who_is_not_heard_of_is_counted_as_expired(bench: Bench) -> None:
    bench.declare(epoch("e", incident=LEAK))
    await bench.pass_over()
    LeasedProcess(bench, name="h").acknowledge()
    wait(bench, right_ms(LEASE_MS) - 10)
    await bench.tell()
    assert fenced(bench) == ("False", "WaitingForProcesses")
    wait(bench, 20)
    await bench.tell()
    assert (fenced(bench), status(bench)["guards"]) == (("True", "Expired"), {"total": 2, "acknowledged": 1, "expired": 1})


async def test_what_was_fenced_stays_so_after_a_restart_and_what_was_not_is_looked_at(bench: Bench, guard: LeasedProcess) -> None:
    bench.declare(epoch("e", incident=LEAK))
    await bench.pass_over()
    guard.acknowledge()
    await bench.tell()
    bench.declare(epoch("f", incident=SECOND))
    await bench.pass_over()
    before = status(bench)
    bench.restart()
    bench.book.roster.settle(bench.book.now_ms())
    await bench.pass_over()
    assert (fenced(bench), fenced(bench, "f")) == (("True", "Acknowledged"), ("False", "WaitingForProcesses"))
    assert status(bench) == before
    guard.acknowledge()
    await bench.tell()
    assert (fenced(bench, "f"), status(bench)) == (("False", "Settling"), before)


async def test_a_held_floor_is_fenced_as_what_stands_is_and_a_refused_one_is_not(bench: Bench, guard: LeasedProcess) -> None:
    bench.declare(epoch("e", floor=7))
    await bench.pass_over()
    guard.acknowledge()
    await bench.tell()
    bench.declare(epoch("e", floor=3))
    await bench.pass_over()
    assert bench.condition("CacheEpoch", "e", "Held") == ("True", "SpecBehindLedger")
    assert (fenced(bench), status(bench)["epoch"], status(bench)["phase"]) == (("True", "Acknowledged"), 7, "Fenced")
    bench.declare(epoch("e", floor=1500))
    await bench.pass_over()
    assert (fenced(bench), bench.condition("CacheEpoch", "e", "Held")) == (("False", "NotWritten"), ("True", "JumpTooLarge"))
    assert "sequence" not in status(bench)
    assert status(bench)["phase"] == "Held", "it never will be fenced as it is"


async def test_a_floor_that_fits_later_is_fenced_with_the_state_that_took_it(bench: Bench, guard: LeasedProcess) -> None:
    bench.declare(epoch("e", floor=1500))
    await bench.pass_over()
    bench.declare(epoch("f", floor=900))
    await bench.pass_over()
    assert (fenced(bench), status(bench)["epoch"], status(bench)["sequence"]) == (("False", "WaitingForProcesses"), 1500, 2)
    guard.acknowledge()
    await bench.tell()
    assert (fenced(bench), status(bench)["sequence"]) == (("True", "Acknowledged"), 2)


async def test_what_was_decided_before_an_edit_answers_nothing_of_it(bench: Bench, guard: LeasedProcess) -> None:
    bench.declare(epoch("e", incident=LEAK))
    await bench.pass_over()
    guard.acknowledge()
    await bench.tell()
    before = status(bench)
    bench.declare(epoch("e", incident=SECOND))
    await CacheEpochs(bench.site).reconcile(KEY, 0)
    assert status(bench) == before, "its ledger has not been decided yet"
    await bench.pass_over()
    assert (fenced(bench), status(bench)["epoch"], status(bench)["sequence"]) == (("False", "WaitingForProcesses"), 3, 3)
    guard.acknowledge()
    await bench.tell()
    assert fenced(bench) == ("True", "Acknowledged")


async def test_what_was_decided_of_one_that_was_deleted_answers_nothing_of_the_next(bench: Bench, guard: LeasedProcess) -> None:
    bench.declare(epoch("e", incident=LEAK))
    await bench.pass_over()
    guard.acknowledge()
    await bench.tell()
    bench.remove("CacheEpoch", "e")
    again = epoch("e", incident=SECOND)
    again["metadata"]["uid"] = "epoch-uid-again"
    bench.declare(again)
    await CacheEpochs(bench.site).reconcile(KEY, 0)
    assert "status" not in bench.found("CacheEpoch", "e")
    await bench.pass_over()
    assert (fenced(bench), status(bench)["sequence"]) == (("False", "WaitingForProcesses"), 3)


@pytest.mark.parametrize("spec", [{"floor": 1}, {"incident": LEAK}, {"floor": 1, "incident": LEAK}])
async def test_reverted_or_made_anew_it_lowers_nothing_and_says_what_stands(
    bench: Bench, guard: LeasedProcess, spec: Document
) -> None:
    bench.declare(epoch("e", floor=9, incident=LEAK))
    await bench.pass_over()
    guard.acknowledge()
    await bench.tell()
    at, standing = status(bench)["epoch"], ledger(bench)
    bench.declare(epoch("e", **spec))
    await bench.pass_over()
    assert (ledger(bench), fenced(bench), status(bench)["epoch"]) == (standing, ("True", "Acknowledged"), at)
    bench.remove("CacheEpoch", "e")
    await bench.pass_over()
    again = epoch("e", **spec)
    again["metadata"]["uid"] = "epoch-uid-again"
    bench.declare(again)
    await bench.pass_over()
    await bench.tell()
    assert (ledger(bench), fenced(bench), status(bench)["epoch"]) == (standing, ("True", "Acknowledged"), at)


async def test_people_are_fenced_once_every_ledger_that_concerns_them_is(bench: Bench) -> None:
    reconcile = CacheEpochs(bench.site, ["ns", "home"]).reconcile
    bench.declare(of_tenant(incident=LEAK, deny=True))
    router = gateway(bench)
    router.acknowledge()
    await bench.authorize()
    router.acknowledge()
    await bench.fences.look()
    await reconcile(KEY, 0)
    assert fenced(bench) == ("False", "NotWritten"), "the ledger of the installation has not spoken"
    await bench.tell()
    assert fenced(bench) == ("True", "Acknowledged"), "it was the only one that did not"


async def test_ledgers_of_one_age_are_not_taken_for_each_other(bench: Bench) -> None:
    bench.authorizations.rulers = ["ns", "other"]
    reconcile = CacheEpochs(bench.site, ["ns", "other"]).reconcile
    router = gateway(bench)
    router.acknowledge()
    for number in range(3):
        bench.declare(of_tenant(f"old{number}", floor=2 + number))
        await bench.authorizations.reconcile(authorization("other"), 0)
    bench.declare(of_tenant(incident=LEAK))
    await bench.authorizations.reconcile(authorization("ns"), 0)
    await bench.authorizations.reconcile(authorization("other"), 0)
    told = bench.outcomes.of(KEY)
    assert len({item.lineage.generation for item in told.values() if item.lineage}) == 1, "both were made in one second"
    assert len({item.sequence for item in told.values()}) == 2
    router.acknowledge()
    await bench.fences.look()
    await reconcile(KEY, 0)
    assert fenced(bench) == ("False", "WaitingForProcesses")
    await bench.authorizations.reconcile(authorization("other"), 0)
    await reconcile(KEY, 0)
    assert fenced(bench) == ("False", "WaitingForProcesses"), "nobody acknowledged the other ledger"


async def test_a_tenant_that_was_made_anew_is_fenced_anew_also_if_nobody_saw_it(bench: Bench, guard: LeasedProcess) -> None:
    bench.declare(of_tenant(incident=LEAK))
    await bench.authorize()
    guard.acknowledge()
    await bench.tell()
    assert fenced(bench) == ("True", "Acknowledged")
    bench.remove("Tenant", "red")
    again = tenant("red")
    again["metadata"]["uid"] = "tenant-uid-again"
    bench.declare(again)
    bench.restart()
    await bench.authorize()
    assert (fenced(bench), status(bench)["sequence"]) == (
        ("False", "WaitingForProcesses"),
        ledger(bench, AUTHORIZATION_HEAD).sequence,
    )


async def test_a_name_of_nobody_is_said(bench: Bench) -> None:
    bench.declare(epoch("e", target={"kind": "Tenant", "name": "blue"}, incident=LEAK))
    await CacheEpochs(bench.site).reconcile(KEY, 0)
    assert bench.condition("CacheEpoch", "e", "Accepted") == ("False", "ReferenceNotFound")


NAMESPACE: Document = {"kind": "Namespace"}
SCOPE = {
    "apiVersion": "cachescope.dev/v1alpha1",
    "kind": "CacheScope",
    "metadata": {"name": "s", "namespace": "ns", "uid": "scope-uid", "generation": 0},
    "spec": {"class": "Principal", "pools": ["gone"]},
}


@pytest.mark.parametrize("spec", [{"target": {"kind": "CacheScope", "name": "s"}}, {"target": NAMESPACE, "restored": {}}])
async def test_what_concerns_no_pool_is_refused_instead_of_waiting_for_ever(bench: Bench, spec: Document) -> None:
    bench.authorizations.rulers = ["home"]
    bench.declare(SCOPE)
    bench.remove("ServingPool", "tiny")
    bench.remove("EpochLedger", AUTHORIZATION_HEAD)  # as if there had never been a pool
    bench.declare(epoch("e", incident=LEAK, **spec))
    await bench.authorize()
    assert bench.condition("CacheEpoch", "e", "Accepted") == ("False", "ReferenceNotFound")
    assert "create the pool, or delete this CacheEpoch" in bench.message("CacheEpoch", "e", "Accepted")


async def test_a_ruling_namespace_counts_without_pools(bench: Bench) -> None:
    reconcile = CacheEpochs(bench.site, ["ns"]).reconcile
    bench.remove("ServingPool", "tiny")
    bench.declare(epoch("e", incident=LEAK, target=NAMESPACE, restored={}))
    await reconcile(KEY, 0)
    assert "status" not in bench.found("CacheEpoch", "e"), "its ledger has yet to speak"
    for _ in range(2):
        await bench.authorize()
    await reconcile(KEY, 0)
    assert (fenced(bench), status(bench)["phase"]) == (("False", "RestoreUnconfirmed"), "Unconfirmed")


@pytest.mark.usefixtures("guard")
async def test_a_state_that_nobody_was_told_of_is_not_fenced(bench: Bench) -> None:
    bench.declare(epoch("e", incident=LEAK))
    bench.api.refused.add("/epochledgers/tiny")
    with pytest.raises(ClusterError):
        await bench.pass_over()
    assert bench.outcomes.of(KEY) == {}
    bench.api.refused.clear()
    await bench.pass_over()
    assert (fenced(bench), bench.outcomes.of(KEY)[POOL_UID].sequence) == (("False", "WaitingForProcesses"), 2)


async def test_a_later_rollback_writes_nothing_to_a_cache_epoch_that_is_fenced(bench: Bench, guard: LeasedProcess) -> None:
    bench.declare(epoch("e", incident=LEAK))
    await bench.pass_over()
    guard.acknowledge()
    await bench.tell()
    before = bench.found("CacheEpoch", "e")["metadata"]["resourceVersion"]
    bench.declare(epoch("f", incident=SECOND))
    await bench.pass_over()
    guard.acknowledge()
    await bench.tell()
    assert (status(bench, "f")["epoch"], fenced(bench, "f")) == (3, ("True", "Acknowledged"))
    assert (status(bench)["epoch"], bench.found("CacheEpoch", "e")["metadata"]["resourceVersion"]) == (2, before)


async def test_what_a_ledger_has_no_room_for_is_postponed_and_not_too_large(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_room, "MAX_INCIDENTS", 0)
    bench.declare(of_tenant(incident=LEAK, deny=True))
    await bench.authorize()
    assert bench.condition("CacheEpoch", "e", "Held") == ("True", "Postponed")
    monkeypatch.undo()
    await bench.authorize()
    assert bench.condition("CacheEpoch", "e", "Held") == ("False", "NotHeld")


async def test_a_pool_is_fenced_anew_in_a_new_lineage_also_at_the_same_epoch(bench: Bench, guard: LeasedProcess) -> None:
    def of_pool() -> tuple[str, str]:
        return bench.condition("ServingPool", "tiny", "Fenced")

    bench.declare(epoch("e", incident=LEAK))
    await bench.pass_over()
    guard.acknowledge()
    await bench.tell()
    await bench.pass_over()
    assert of_pool() == ("True", "Acknowledged")
    bench.declare(epoch("r", target={"kind": "Namespace"}, incident={"id": "backup-1"}, restored={}))
    await bench.pass_over()
    await bench.pass_over()
    assert (bench.found("ServingPool", "tiny")["status"]["epoch"], of_pool()) == (2, ("False", "WaitingForProcesses"))
    guard.acknowledge()
    await bench.tell()
    await bench.pass_over()
    assert of_pool() == ("True", "Acknowledged")
