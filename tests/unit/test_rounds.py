"""Lease rounds: write, read, apply, grant, in that order and never otherwise, whatever the API server does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from cachescope.core.errors import ClusterError, SpecError
from cachescope.core.ledgers import LedgerFork
from cachescope.leases.ports import LeaseConflict, LostAnswer, Stored
from cachescope.leases.rounds import ACKNOWLEDGED, DONE, FAILED, GONE
from tests.unit.lease_fakes import BUSY, HOP_MS, LEASE_MS, SLOW_MS, UNREADABLE, Clock, FakeStore, Fault, LeasedProcess

FORK = LedgerFork("the ledger was restored; wait for the operator")
UNUSABLE = SpecError("the head cannot be applied; look at the ledger")


async def test_a_round_writes_then_reads_then_applies_then_grants() -> None:
    process = LeasedProcess()
    sent_at = process.clock()
    assert (process.left, process.right.generation) == (0, 0)
    await process.round()
    assert process.holder.calls == ["spec", "read", "apply"]
    assert [commit.tick for commit in process.store.commits] == [sent_at]
    assert process.clock() + process.left == sent_at + LEASE_MS
    assert process.right.generation == 1


async def test_a_later_round_replaces_the_version_that_it_knows() -> None:
    process = LeasedProcess()
    for version in ("1", "2", "3"):
        await process.round()
        assert process.store.leases["pod.1"].resource_version == version
    assert (process.right.generation, process.store.reads, process.rounds.outcomes[DONE]) == (1, 0, 3)


async def test_ticks_rise_with_every_attempt_even_while_the_clock_stands() -> None:
    process = LeasedProcess()
    process.store.clock = Clock()  # requests move another clock
    for _ in range(3):
        await process.round(Fault.LOST_BEFORE)
    assert process.store.ticks == [1000, 1001, 1002, 1003, 1004, 1005]


@pytest.mark.parametrize(
    ("faults", "writes", "counted"),
    [
        ([Fault.NONE], 1, 1),
        ([Fault.SLOW], 1, 1),
        ([Fault.LOST_AFTER], 1, 1),
        ([Fault.LOST_BEFORE], 2, 2),
        ([Fault.CONFLICT], 2, 2),
        ([Fault.LATE], 2, 1),
        ([Fault.LOST_BEFORE, Fault.LOST_AFTER], 2, 2),
        ([Fault.CONFLICT, Fault.LOST_AFTER], 2, 2),
        ([Fault.BUSY], 2, 2),
        ([Fault.BUSY, Fault.BUSY, Fault.LOST_AFTER], 3, 3),
        ([Fault.LOST_BEFORE, Fault.BUSY], 3, 3),
        ([Fault.BUSY_AFTER], 2, 1),
    ],
)
async def test_the_right_counts_from_the_send_of_the_attempt_that_is_stored(faults: list[Fault], writes: int, counted: int) -> None:
    process = LeasedProcess()
    await process.round()
    process.clock.now += 20_000
    before = len(process.store.ticks)
    await process.round(*faults)
    attempts = process.store.ticks[before:]  # ticks are the times of the sends here
    assert len(attempts) == writes
    assert process.clock() + process.left == attempts[counted - 1] + LEASE_MS
    assert (process.rounds.outcomes[DONE], process.rounds.outcomes[FAILED]) == (2, 0)


async def test_a_busy_api_server_is_asked_again_when_it_says_and_not_by_all_at_once() -> None:
    process = LeasedProcess()
    process.holder.read_faults = [BUSY, BUSY]
    await process.round(Fault.BUSY)
    assert (process.rounds.outcomes[DONE], process.waits) == (1, [2.0, 2.0, 2.0])
    process.rounds._chance = lambda: 0.0
    assert await process.acknowledge(Fault.BUSY)
    assert process.waits[3:] == [1.0]


async def test_a_round_is_not_patient_for_ever_and_then_grants_nothing() -> None:
    process = LeasedProcess()
    await process.round()
    granted = process.clock() + process.left
    began_at = process.clock()
    await process.round(*[Fault.BUSY] * 100)
    assert process.rounds.outcomes[FAILED] == 1
    assert LEASE_MS // 6 <= process.clock() - began_at < LEASE_MS // 6 + 1000
    assert process.clock() + process.left == granted
    await process.round()
    assert (process.rounds.outcomes[DONE], process.right.generation) == (2, 1)


@pytest.mark.parametrize(
    ("faults", "writes"),
    [
        ([Fault.LOST_BEFORE, Fault.LOST_BEFORE, Fault.NONE], 2),
        ([Fault.CONFLICT, Fault.CONFLICT, Fault.NONE], 2),
        ([Fault.REFUSED, Fault.NONE], 1),
        ([Fault.CONFLICT, Fault.REFUSED, Fault.NONE], 2),
    ],
)
async def test_a_round_without_a_committed_write_reads_nothing_and_grants_nothing(faults: list[Fault], writes: int) -> None:
    process = LeasedProcess()
    await process.round()
    until, before = process.clock() + process.left, len(process.store.ticks)
    process.holder.calls.clear()
    await process.round(*faults)
    assert len(process.store.ticks) - before == writes
    assert "read" not in process.holder.calls
    assert process.clock() + process.left == until
    await process.round()
    assert process.clock() + process.left > until


async def test_a_lost_answer_is_decided_by_a_read_and_never_by_a_guess() -> None:
    process = LeasedProcess()
    process.store.unreadable = 1
    await process.round(Fault.LOST_AFTER)
    assert (process.left, process.rounds.outcomes[FAILED]) == (0, 1)
    await process.round()  # it knows no version, creates, and finds its own lease
    assert (process.rounds.outcomes[DONE], process.holder.boots) == (1, 1)


async def test_a_first_write_that_never_arrived_is_no_lost_lease() -> None:
    process = LeasedProcess()
    await process.round(Fault.LOST_BEFORE)
    assert (process.holder.boots, process.rounds.outcomes[DONE]) == (1, 1)


@pytest.mark.parametrize("faults", [[Fault.DELETED], [Fault.MARKED], [Fault.LOST_BEFORE, Fault.DELETED]])
async def test_a_lease_that_is_gone_ends_the_right_and_the_process_goes_on_as_another(faults: list[Fault]) -> None:
    process = LeasedProcess()
    await process.round()
    assert process.left > 0
    await process.round(*faults)
    assert (process.left, process.holder.calls.count("restarted"), process.rounds.outcomes[GONE]) == (0, 1, 1)
    await process.round()
    assert process.store.commits[-1].name == "pod.2"
    assert (process.left > 0, process.right.generation) == (True, 2)


async def test_a_lease_that_a_look_after_a_lost_answer_does_not_find_is_gone() -> None:
    process = LeasedProcess()
    await process.round()
    process.store.delete("pod.1")
    await process.round(Fault.LOST_BEFORE)
    assert (process.left, process.holder.boots, process.store.reads) == (0, 2, 1)


@pytest.mark.parametrize("step", ["read", "apply"])
async def test_a_process_that_cannot_read_or_apply_gets_no_right_and_writes_no_more(step: str) -> None:
    process = LeasedProcess()
    faults = process.holder.read_faults if step == "read" else process.holder.apply_faults
    faults += [UNREADABLE if step == "read" else UNUSABLE] * 4
    for _ in range(4):
        await process.round()
    assert (process.left, len(process.store.commits), process.rounds.outcomes[FAILED]) == (0, 1, 4)
    await process.round()
    assert (process.left > 0, len(process.store.commits)) == (True, 2)
    assert process.holder.calls[-5:] == ["read", "apply", "spec", "read", "apply"]


@pytest.mark.parametrize(("lease_ms", "granted"), [(4 * HOP_MS + 1, True), (4 * HOP_MS, False)])
async def test_a_round_that_takes_longer_than_the_lease_grants_nothing(lease_ms: int, granted: bool) -> None:
    process = LeasedProcess()
    process.rounds._lease_ms = lease_ms  # two requests there and back are four hops
    await process.round()
    assert (process.left, process.rounds.outcomes[DONE]) == (int(granted), int(granted))


async def test_a_right_that_had_ended_is_closed_before_the_next_is_granted() -> None:
    process = LeasedProcess()
    await process.round()
    process.clock.now += 20_000
    await process.round()
    assert (process.lapses, process.right.generation) == ([0], 1)
    process.clock.now += LEASE_MS  # nobody looked meanwhile
    await process.round()
    assert (process.lapses, process.right.generation) == ([0, 1], 2)  # called while the old generation still stood


async def test_a_right_that_ends_within_a_round_is_closed_too() -> None:
    process = LeasedProcess()
    await process.round()
    process.clock.now += LEASE_MS - SLOW_MS - 1000
    assert process.left > 0
    await process.round(Fault.SLOW)
    assert (process.lapses, process.right.generation) == ([0, 1], 2)


async def test_each_fault_is_logged_once_until_a_round_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cachescope")
    process = LeasedProcess()
    for _ in range(3):
        process.holder.read_faults.append(UNREADABLE)
        await process.round()
        process.holder.read_faults.append(ClusterError("another; wait"))
        await process.round()
    await process.round()
    process.holder.read_faults.append(UNREADABLE)
    await process.round()
    said = [(record.getMessage(), record.__dict__.get("problem")) for record in caplog.records]
    failed = "a lease round failed; the right runs out if this goes on"
    assert said == [
        (failed, str(UNREADABLE)),
        (failed, "another; wait"),
        ("a right begins", None),
        ("lease rounds succeed again", None),
        (failed, str(UNREADABLE)),
    ]


async def test_an_unexpected_fault_grants_nothing_and_does_not_quote_itself(caplog: pytest.LogCaptureFixture) -> None:
    process = LeasedProcess()
    process.holder.spec_faults.append(ValueError("a secret"))
    await process.round()
    assert (process.left, process.rounds.outcomes[FAILED], process.store.commits) == (0, 1, [])
    assert "a secret" not in str([record.__dict__ for record in caplog.records])
    await process.round()
    assert process.left > 0


@pytest.mark.parametrize(
    ("faults", "writes"), [([Fault.LOST_AFTER], 1), ([Fault.LOST_BEFORE], 2), ([Fault.CONFLICT], 2), ([Fault.LATE], 2)]
)
async def test_an_acknowledgement_whose_answer_was_lost_is_decided_by_a_read(faults: list[Fault], writes: int) -> None:
    process = LeasedProcess()
    await process.round()
    process.clock.now += 1000
    before = len(process.store.ticks)
    assert await process.acknowledge(*faults)
    assert len(process.store.ticks) - before == writes
    assert process.store.reads >= 1
    assert await process.rounds.round(), "and the version is known that was committed"
    assert process.rounds.outcomes == {DONE: 2, ACKNOWLEDGED: 1, FAILED: 0, GONE: 0}


async def test_a_fork_is_shown_once_more_to_the_operator_and_then_nothing_is_written() -> None:
    process = LeasedProcess()
    await process.round()
    process.holder.read_faults += [FORK] * 4
    for _ in range(4):
        await process.round()
    assert (len(process.store.commits), process.rounds.outcomes[FAILED]) == (3, 4), "its round, and once for the fork"
    await process.round()
    await process.round(*[Fault.NONE])
    process.holder.read_faults.append(FORK)
    await process.round()
    assert len(process.store.commits) == 7, "another fork is shown again"


@pytest.mark.parametrize("unfinished", [True, False])
async def test_a_fork_is_shown_in_a_new_lease_when_a_restore_took_the_old_one(unfinished: bool) -> None:
    process = LeasedProcess()
    await process.round()
    if unfinished:
        process.holder.read_faults.append(UNREADABLE)
        await process.round()
    process.store.delete("pod.1")
    process.holder.read_faults += [FORK] * 5
    for _ in range(5):
        await process.round()
    assert process.store.commits[-1].name == "pod.2"
    assert len([commit for commit in process.store.commits if commit.name == "pod.2"]) <= 2


async def test_a_write_that_failed_is_made_again_before_the_next_read() -> None:
    process = LeasedProcess()
    await process.round()
    await process.round(Fault.LOST_BEFORE, Fault.LOST_BEFORE)
    process.holder.calls.clear()
    await process.round()
    assert process.holder.calls == ["spec", "read", "apply"]


@pytest.mark.parametrize(("number", "seconds"), [(0.0, 16), (0.5, 18), (1.0, 20)])
def test_chance_spreads_the_rounds_and_never_makes_them_later(number: float, seconds: int) -> None:
    process = LeasedProcess()
    process.rounds._chance = lambda: number
    assert process.rounds._seconds() == pytest.approx(seconds)


class HangingStore(FakeStore):
    """Never answers a write that it took."""

    async def _write(self, name: str, spec: Mapping[str, Any], version: str | None) -> Stored:
        await super()._write(name, spec, version)
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_round_that_is_cancelled_grants_nothing() -> None:
    process = LeasedProcess()
    process.rounds._store = store = HangingStore(process.clock)
    task = asyncio.ensure_future(process.rounds.round())
    async with asyncio.timeout(5):
        while not store.commits:  # noqa: ASYNC110 - what it waits for has no event, and the wait has a deadline
            await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert process.left == 0


async def test_the_fake_store_locks_as_the_api_server_does() -> None:
    store = FakeStore(Clock())
    first = await store.create("a", {"tick": 1})
    with pytest.raises(LeaseConflict):
        await store.create("a", {"tick": 2})
    second = await store.replace("a", {"tick": 2}, first.resource_version)
    assert await store.replace("a", {"tick": 2}, second.resource_version) == second  # the same again keeps its version
    with pytest.raises(LeaseConflict):
        await store.replace("a", {"tick": 3}, first.resource_version)
    store.faults = [Fault.LATE]
    with pytest.raises(LostAnswer):
        await store.replace("a", {"tick": 4}, second.resource_version)
    assert [await store.get("a"), (await store.get("a") or second).tick] == [second, 4]
