"""Restores, as the operator finds and deals with them: with witnesses, with its own memory, and with nothing left but people."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cachescope.core.leases import shard_key
from cachescope.core.ledger_documents import parse_ledger
from cachescope.core.ledger_seals import seal_keys, sealed, verified, witness
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Ledger, advanced
from cachescope.core.lineages import includes
from cachescope.core.rosters import right_ms
from cachescope.kube.rest import Document
from tests.unit.bench_fixtures import bench, guard
from tests.unit.bench_leases import PEOPLE, POOL_UID, LeasedProcess, gateway, ledger, standing, wait
from tests.unit.controller_bench import Bench, epoch

__all__ = ["bench", "guard"]

LONGEST_MS = 60_000
"""What the pool declares: somebody may have it of whom the operator was not told."""


def ledgers(bench: Bench) -> dict[str, Document]:
    return {path: item for path, item in bench.api.objects.items() if item.get("kind") == "EpochLedger"}


async def revoked(bench: Bench) -> dict[str, Document]:
    """Roll the pool back and deny a tenant; what a backup of before holds."""
    backup = ledgers(bench)
    bench.declare(epoch("e", incident={"id": "leak-1", "bypassReuse": True}))
    bench.declare(epoch("f", target={"kind": "Tenant", "name": "red"}, incident={"id": "thief"}, deny=True))
    await bench.pass_over()
    await bench.authorize()
    return backup


def put_back(bench: Bench, backup: dict[str, Document], *, restarted: bool = True) -> None:
    """The cluster is restored: the ledgers are as they were, and of CacheEpochs since then nothing is left."""
    for path in ledgers(bench):
        del bench.api.objects[path]
    for name in ("e", "f"):
        bench.remove("CacheEpoch", name)
    for path, item in backup.items():
        bench.api._store(path, item)
    if restarted:
        bench.restart()


def denies(head: Ledger) -> bool:
    return any(floor.denies for floor in head.floors.values())


def shards_deny(bench: Bench) -> bool:
    shards = [item["metadata"]["name"] for item in ledgers(bench).values() if item["spec"]["role"] == "Shard"]
    return any(denies(ledger(bench, name)) for name in shards)


async def reconciled(bench: Bench) -> None:
    await bench.pass_over()
    await bench.authorize()


async def test_with_a_witness_all_that_stood_stands_again_in_a_new_lineage(bench: Bench, guard: LeasedProcess) -> None:
    backup = await revoked(bench)
    guard.acknowledge()
    before = {name: ledger(bench, name).lineage for name in ("tiny", AUTHORIZATION_HEAD)}
    put_back(bench, backup)
    await reconciled(bench)
    pool, head = ledger(bench), ledger(bench, AUTHORIZATION_HEAD)
    assert (max(floor.epoch for floor in pool.floors.values()), pool.flags.bypasses) == (2, True)
    assert (head.unconfirmed, shards_deny(bench)) == (False, True)
    for name, lineage in before.items():
        assert ledger(bench, name).lineage.generation > lineage.generation
    standing = (pool, head)
    await reconciled(bench)
    assert (ledger(bench), ledger(bench, AUTHORIZATION_HEAD)) == standing, "it is dealt with once"


async def test_without_any_witness_nothing_tells_and_people_say_it(bench: Bench) -> None:
    backup = await revoked(bench)
    put_back(bench, backup)
    before = ledger(bench), ledger(bench, AUTHORIZATION_HEAD)
    await reconciled(bench)
    assert (ledger(bench), ledger(bench, AUTHORIZATION_HEAD)) == before, "positive control: nobody can know"
    bench.declare(restored("backup-1"))
    for _ in range(2):
        await reconciled(bench)
    pool, head = ledger(bench), ledger(bench, AUTHORIZATION_HEAD)
    assert (pool.lineage > before[0].lineage, head.lineage > before[1].lineage) == (True, True)
    assert (head.unconfirmed, head.restored) == (True, 1)
    assert bench.condition("CacheEpoch", "backup-1", "Fenced") == ("False", "RestoreUnconfirmed")
    bench.declare(restored("backup-1", confirmed=True))
    await reconciled(bench)
    assert ledger(bench, AUTHORIZATION_HEAD).unconfirmed, "what was left over from another restore confirms nothing"
    assert "confirms nothing" in bench.message("CacheEpoch", "backup-1", "Fenced")
    bench.declare(restored("backup-1", confirmed=True, lineage=head.lineage.generation))
    wait(bench, right_ms(LONGEST_MS))
    for _ in range(2):
        await reconciled(bench)
    after = ledger(bench, AUTHORIZATION_HEAD)
    assert (after.lineage, after.unconfirmed) == (head.lineage, False)
    assert ledger(bench).lineage == pool.lineage


async def test_a_second_restore_starts_a_further_lineage_and_denies_again(bench: Bench) -> None:
    bench.declare(restored("backup-1"))
    await reconciled(bench)
    bench.declare(restored("backup-1", confirmed=True, lineage=ledger(bench, AUTHORIZATION_HEAD).lineage.generation))
    wait(bench, right_ms(LONGEST_MS))
    for _ in range(2):
        await reconciled(bench)
    first = ledger(bench, AUTHORIZATION_HEAD)
    assert not first.unconfirmed
    bench.declare(restored("backup-2"))
    await reconciled(bench)
    second = ledger(bench, AUTHORIZATION_HEAD)
    assert (second.lineage > first.lineage, second.unconfirmed, second.restored) == (True, True, 2)


async def test_a_confirmation_waits_for_who_may_know_more_and_says_for_whom(bench: Bench, guard: LeasedProcess) -> None:
    bench.declare(restored("backup-1"))
    await reconciled(bench)
    lineage = ledger(bench, AUTHORIZATION_HEAD).lineage.generation
    bench.declare(restored("backup-1", confirmed=True, lineage=lineage))
    await reconciled(bench)
    assert ledger(bench, AUTHORIZATION_HEAD).unconfirmed
    assert bench.condition("CacheEpoch", "backup-1", "Fenced") == ("False", "WaitingForProcesses")
    assert guard.lease in bench.message("CacheEpoch", "backup-1", "Fenced")
    guard.acknowledge()
    for _ in range(2):
        await reconciled(bench)
    assert not ledger(bench, AUTHORIZATION_HEAD).unconfirmed


async def test_a_confirmation_waits_no_longer_for_whom_nobody_hears_of_than_his_right_lasts(bench: Bench) -> None:
    LeasedProcess(bench).acknowledge()
    bench.declare(restored("backup-1"))
    await reconciled(bench)
    lineage = ledger(bench, AUTHORIZATION_HEAD).lineage.generation
    bench.declare(restored("backup-1", confirmed=True, lineage=lineage))
    wait(bench, right_ms(LONGEST_MS))
    for _ in range(2):
        await reconciled(bench)
    assert not ledger(bench, AUTHORIZATION_HEAD).unconfirmed


async def test_a_witness_that_comes_after_its_lineage_was_given_up_is_merged_too(bench: Bench, guard: LeasedProcess) -> None:
    """Somebody said that the cluster was restored before the one process came back that knows of the revocation."""
    backup = await revoked(bench)
    known = {name: dict(spec) for name, spec in standing(bench).items()}
    put_back(bench, backup)
    bench.declare(restored("backup-1"))
    await reconciled(bench)
    assert not shards_deny(bench)
    for name, spec in known.items():
        guard.witnesses[name] = witness(spec)
    guard.write()
    await reconciled(bench)
    pool, head = ledger(bench), ledger(bench, AUTHORIZATION_HEAD)
    assert (shards_deny(bench), head.unconfirmed, pool.flags.bypasses) == (True, True, True)
    assert all(includes(item, parse_ledger(known[name])) for name, item in ((POOL_UID, pool), (PEOPLE, head)))
    before = pool, head
    await reconciled(bench)
    assert (ledger(bench), ledger(bench, AUTHORIZATION_HEAD)) == before, "it is dealt with once"


async def test_who_holds_an_earlier_lineage_and_knows_no_more_is_told_so(bench: Bench, guard: LeasedProcess) -> None:
    known = standing(bench)[PEOPLE]
    for number in ("1", "2"):
        bench.declare(restored(f"backup-{number}"))
        await reconciled(bench)
    head = ledger(bench, AUTHORIZATION_HEAD)
    assert includes(head, parse_ledger(known)), "it went on from that"
    lost = advanced(parse_ledger(known), policy={})
    guard.witnesses[PEOPLE] = witness(sealed(seal_keys(bench.keys.ring), PEOPLE, lost))
    guard.write()
    for _ in range(2):
        await reconciled(bench)
    found = ledger(bench, AUTHORIZATION_HEAD)
    assert (includes(head, lost), includes(found, lost)) == (False, True)
    assert (found.lineage, found.sequence) == (head.lineage, head.sequence + 1)


async def test_of_what_nobody_shows_people_are_asked_once_and_its_holder_may_go_on(bench: Bench, guard: LeasedProcess) -> None:
    """The lease of a gateway with many pools has no room for copies."""
    router = gateway(bench)
    known = advanced(parse_ledger(standing(bench)[PEOPLE]), policy={})
    bench.declare(restored("backup-1"))
    await reconciled(bench)
    guard.acknowledge()
    router.acknowledged[PEOPLE] = known.mark
    router.write()
    before = ledger(bench, AUTHORIZATION_HEAD)
    await reconciled(bench)
    head = ledger(bench, AUTHORIZATION_HEAD)
    assert (includes(before, known), includes(head, known)) == (False, True)
    assert (head.unconfirmed, head.restored, before.restored) == (True, 1, 1)
    await reconciled(bench)
    assert ledger(bench, AUTHORIZATION_HEAD) == head


async def test_the_operators_own_memory_is_a_witness(bench: Bench) -> None:
    backup = await revoked(bench)
    put_back(bench, backup, restarted=False)
    await reconciled(bench)
    head = ledger(bench, AUTHORIZATION_HEAD)
    assert (head.unconfirmed, shards_deny(bench), ledger(bench).flags.bypasses) == (False, True, True)


async def test_a_gateway_alone_makes_up_for_authorization(bench: Bench) -> None:
    router = gateway(bench)
    backup = await revoked(bench)
    router.acknowledge(PEOPLE)
    put_back(bench, backup)
    await reconciled(bench)
    assert (ledger(bench, AUTHORIZATION_HEAD).unconfirmed, shards_deny(bench)) == (False, True)
    assert not ledger(bench).flags.bypasses, "of the pool nobody was left who knew; a gateway is no witness of pools"


async def test_a_witness_that_does_not_reach_back_far_enough_denies_until_somebody_confirms(bench: Bench) -> None:
    backup = await revoked(bench)
    head = ledger(bench, AUTHORIZATION_HEAD)
    later = advanced(head, floors={}, changed={}, reach=head.sequence)
    put_back(bench, backup)
    publish(bench, sealed(seal_keys(bench.keys.ring), PEOPLE, later))
    await reconciled(bench)
    assert ledger(bench, AUTHORIZATION_HEAD).unconfirmed


async def test_a_witness_that_nobody_can_verify_denies_until_somebody_confirms(bench: Bench, guard: LeasedProcess) -> None:
    await revoked(bench)
    guard.acknowledge()
    later = advanced(ledger(bench, AUTHORIZATION_HEAD))
    unsealed = {**sealed(seal_keys(bench.keys.ring), PEOPLE, later), "mac": {"key": "k1", "value": "0" * 64}}
    guard.acknowledged[PEOPLE], guard.witnesses[PEOPLE] = later.mark, witness(unsealed)
    guard.write()
    await reconciled(bench)
    head = ledger(bench, AUTHORIZATION_HEAD)
    assert (head.unconfirmed, head.lineage > later.lineage) == (True, True)
    await reconciled(bench)
    assert ledger(bench, AUTHORIZATION_HEAD) == head, "the doubt is latched once"


@pytest.mark.parametrize("changes", [{"sequence": 9}, {"digest": "sha256:" + "0" * 64}, {"digest": "x"}, {"lineage": None}, {}])
async def test_an_unsealed_copy_of_a_process_that_read_nothing_yet_is_a_doubt_and_once(bench: Bench, changes: Document) -> None:
    """A guard that began anew publishes what the one before it left in the pod."""
    old = LeasedProcess(bench)
    old.acknowledge()
    copy = {**old.witnesses[PEOPLE], "mac": {"key": "gone", "value": "0" * 64}, **changes}
    began = LeasedProcess(bench, name="h", witnesses={PEOPLE: copy})
    began.write()
    await reconciled(bench)
    await reconciled(bench)
    found = ledger(bench, AUTHORIZATION_HEAD)
    assert found.unconfirmed == bool(changes), "of a state that the ledger had there is no doubt"
    await reconciled(bench)
    assert ledger(bench, AUTHORIZATION_HEAD) == found, "it is dealt with once"


async def test_an_unsealed_copy_of_a_state_that_the_ledger_had_is_no_doubt(bench: Bench, guard: LeasedProcess) -> None:
    unsealed = {**guard.witnesses[PEOPLE], "mac": {"key": "k1", "value": "0" * 64}}
    guard.witnesses[PEOPLE] = unsealed
    guard.write()
    before = ledger(bench, AUTHORIZATION_HEAD)
    await reconciled(bench)
    assert ledger(bench, AUTHORIZATION_HEAD) == before


@pytest.mark.parametrize("taken_back", [True, False])
async def test_a_shard_that_a_gateway_holds_and_that_was_taken_back_denies_until_somebody_confirms(
    bench: Bench, taken_back: bool
) -> None:
    """It used what an operator wrote whose head never came: no head tells of the restore."""
    await revoked(bench)
    before = ledger(bench, AUTHORIZATION_HEAD)
    (name,) = before.shards
    standing_shard = ledger(bench, name)
    process = gateway(bench)
    held = advanced(replace(standing_shard, lineage=replace(standing_shard.lineage, generation=2**40)), base=99)
    process.acknowledged[shard_key("ns", name)] = held.mark if taken_back else standing_shard.mark
    process.write()
    await reconciled(bench)
    head = ledger(bench, AUTHORIZATION_HEAD)
    assert (head.unconfirmed, head.lineage > before.lineage) == (taken_back, taken_back)
    assert (ledger(bench, name).lineage > held.lineage) is taken_back, "the gateway takes no earlier one"
    await reconciled(bench)
    assert ledger(bench, AUTHORIZATION_HEAD) == head, "it is dealt with once"


@pytest.mark.parametrize("told", ["before the merge", "after it"])
@pytest.mark.parametrize("witnessed", [True, False])
async def test_a_shard_that_a_gateway_holds_is_not_lost_where_a_witness_names_it_and_lists_all_changes(
    bench: Bench, guard: LeasedProcess, witnessed: bool, told: str
) -> None:
    """Another change has taken its number since; the gateway says so, maybe long after the guard was heard."""
    backup = await revoked(bench)
    (name,) = ledger(bench, AUTHORIZATION_HEAD).shards
    held = ledger(bench, name)
    if witnessed:
        guard.acknowledge()
    put_back(bench, backup)
    bench.declare(epoch("g", target={"kind": "Tenant", "name": "red"}, incident={"id": "another"}, deny=True))
    process = gateway(bench)
    process.acknowledged[shard_key("ns", name)] = held.mark
    if told == "before the merge":
        process.write()
    await reconciled(bench)
    process.write()
    await reconciled(bench)
    head = ledger(bench, AUTHORIZATION_HEAD)
    assert (head.unconfirmed, shards_deny(bench)) == (not witnessed, True)
    await reconciled(bench)
    assert ledger(bench, AUTHORIZATION_HEAD) == head, "it is dealt with once"


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_shard_that_was_deleted_is_made_again_from_what_is_known(
    bench: Bench, guard: LeasedProcess, restarted: bool
) -> None:
    await revoked(bench)
    guard.acknowledge()
    name = next(iter(ledger(bench, AUTHORIZATION_HEAD).shards))
    bench.remove("EpochLedger", name)
    if restarted:
        bench.restart()
    for _ in range(2):
        await reconciled(bench)
        head = ledger(bench, AUTHORIZATION_HEAD)
        assert (denies(ledger(bench, name)), head.shards[name]) == (True, ledger(bench, name).mark)
        assert head.unconfirmed is restarted, "the head lists what changed lately; only memory knows the rest"


async def test_a_head_that_was_deleted_goes_on_with_what_is_known(bench: Bench, guard: LeasedProcess) -> None:
    await revoked(bench)
    guard.acknowledge()
    before = ledger(bench, AUTHORIZATION_HEAD)
    bench.remove("EpochLedger", AUTHORIZATION_HEAD)
    bench.restart()
    await reconciled(bench)
    head = ledger(bench, AUTHORIZATION_HEAD)
    assert (head.lineage.generation > before.lineage.generation, shards_deny(bench)) == (True, True)


async def test_what_many_hold_is_verified_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        LeasedProcess(bench, name=f"g{number}").acknowledge()
    times = 0

    def counted(*given: Any) -> Ledger:
        nonlocal times
        times += 1
        return verified(*given)

    monkeypatch.setattr("cachescope.controller.ledger_objects.verified", counted)
    await reconciled(bench)
    assert 0 < times < 30


async def test_a_fence_of_before_a_restore_is_made_anew(bench: Bench, guard: LeasedProcess) -> None:
    backup = await revoked(bench)
    guard.acknowledge()
    await bench.tell()
    assert bench.condition("CacheEpoch", "e", "Fenced") == ("True", "Acknowledged")
    put_back(bench, {path: item for path, item in backup.items() if path.endswith("/tiny")}, restarted=False)
    bench.declare(epoch("e", incident={"id": "leak-1", "bypassReuse": True}))
    await bench.pass_over()
    assert bench.condition("CacheEpoch", "e", "Fenced") == ("False", "WaitingForProcesses")
    guard.acknowledge(POOL_UID)
    await bench.tell()
    assert bench.condition("CacheEpoch", "e", "Fenced") == ("True", "Acknowledged")


def restored(name: str, **said: Any) -> Document:
    return epoch(name, target={"kind": "Namespace"}, incident={"id": name}, restored=said)


def publish(bench: Bench, spec: Document) -> None:
    """A guard of before the restore still shows what it read."""
    made = LeasedProcess(bench, name="old")
    made.witnesses[PEOPLE] = witness(spec)
    made.write()


@pytest.mark.usefixtures("guard")
@pytest.mark.parametrize("loss", ["deleted", "edited"])
async def test_the_new_lineage_of_a_lost_authorization_ledger_is_told_at_the_pools(bench: Bench, loss: str) -> None:
    assert new_lineages(bench) == [], "control: nothing was lost"
    if loss == "deleted":
        bench.remove("EpochLedger", AUTHORIZATION_HEAD)
    else:
        document = bench.found("EpochLedger", AUTHORIZATION_HEAD)
        bench.declare(document, base=document["spec"]["base"] + 1)
    await bench.authorize()
    ((kind, name, note),) = new_lineages(bench)
    assert (kind, name) == ("ServingPool", "tiny")
    assert f"it goes on in lineage {ledger(bench, AUTHORIZATION_HEAD).lineage.generation}" in note
    await bench.authorize()
    assert len(new_lineages(bench)) == 1


def new_lineages(bench: Bench) -> list[tuple[str, str, str]]:
    """Events of new lineages: kind and name of what they are about, and what they say."""
    found = [item for path, item in bench.api.objects.items() if "/events/" in path and item["reason"] == "NewLineage"]
    return [(item["regarding"]["kind"], item["regarding"]["name"], item["note"]) for item in found]
