"""A guard whose right its lease rounds keep: what it publishes, what it takes over, and what it closes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cachescope.api.ledgers import FenceLeaseSpec
from cachescope.core.admission import Refusal
from cachescope.core.errors import ClusterError
from cachescope.core.heads import Head, write_head
from cachescope.core.keys import KeyRing
from cachescope.core.leases import GUARD, LeaseStatement, Seen, read_lease
from cachescope.core.types import Epoch, Reuse
from cachescope.guard.lease_heads import LeaseHeads
from cachescope.guard.lease_holder import LeaseHolder
from cachescope.leases.rounds import DONE, FAILED
from tests.unit.guard_fakes import BODY, ENGINE, KEY, LEASE_MS, POOL, TENANT, Server, World, head_at, vector
from tests.unit.lease_fakes import HOP_MS, Clock, FakeStore, Fault

CHALLENGE = [(b"x-cachescope-challenge", b"n" * 22)]


class LeasedGuard(World):
    """A guard process with a lease in a store, and a ledger that a test writes."""

    def __init__(self, *, slow: bool = False) -> None:
        super().__init__()
        self.store = FakeStore(self.clock if slow else Clock())
        self.ledger: Any = write_head(head_at())
        self.ledger_reads = 0
        self.read_ms = HOP_MS
        self.heads = LeaseHeads(self._read, self.clock)
        self.process.source = self.heads
        self.holder = LeaseHolder(self.process, self.heads, store=self.store)
        self.process.keeper = self.holder

    async def round(self, *faults: Fault, later: int = 20_000) -> None:
        self.clock.now += later
        self.store.faults = list(faults)
        await self.holder.rounds.round()

    def write(self, tenant: int = 1, sequence: int = 1, **changes: Any) -> None:
        self.ledger = write_head(head_at(tenant=tenant, sequence=sequence, **changes))

    def tenant(self) -> int | None:
        head = self.heads.current(self.clock())
        return head.floors.floor(TENANT) if head else None

    def published(self) -> LeaseStatement:
        name = self.holder.lease_name()
        return read_lease(KeyRing.of(KEY), self.store.specs[name]["statement"], name=name)

    @property
    def left(self) -> int:
        return self.heads.right_left_ms(self.clock())

    async def _read(self) -> Any:
        self.ledger_reads += 1
        await asyncio.sleep(0)  # others may ask before any time has passed
        await self.store.hop(self.read_ms)
        if isinstance(self.ledger, Exception):
            raise self.ledger
        return self.ledger


@asynccontextmanager
async def _streaming(guard: LeasedGuard, **changes: Any) -> AsyncIterator[Server]:
    """A request whose answer has begun; it ends after the test's steps."""
    guard.engine.chunks = asyncio.Queue()
    server = Server([BODY])
    answering = asyncio.ensure_future(guard.app(guard.scope(guard.permit(**changes)), server.receive, server.send))
    await server.until_messages(1)
    yield server
    for chunk in (b"one", None):
        guard.engine.chunks.put_nowait(chunk)
    await asyncio.wait_for(answering, 5)


async def test_there_is_no_right_before_the_first_round() -> None:
    guard = LeasedGuard()
    assert (guard.tenant(), guard.heads.generation, guard.left) == (None, 0, 0)
    assert (await guard.ask(guard.permit())).code == Refusal.NO_RIGHT.code
    await guard.round()
    assert (guard.tenant(), guard.heads.generation, guard.left) == (1, 1, LEASE_MS)
    assert (await guard.ask(guard.permit())).status == 200


async def test_a_right_ends_exactly_one_lease_after_its_write_was_sent() -> None:
    guard = LeasedGuard(slow=True)
    await guard.round()
    assert guard.left == LEASE_MS - 3 * HOP_MS  # two hops of the write and one of the read
    guard.clock.now += guard.left - 1
    assert (guard.tenant(), guard.left) == (1, 1)
    guard.clock.now += 1
    assert (guard.tenant(), guard.left) == (None, 0)


async def test_a_lease_says_what_the_guard_is_and_applied() -> None:
    guard = LeasedGuard()
    guard.process.engine = None
    await guard.round()
    first = guard.published()
    assert (first.heads, first.engine) == ({}, None)
    guard.process.engine = ENGINE
    guard.write(sequence=5)
    await guard.round()
    await guard.round()
    statement = guard.published()
    assert statement.heads == {"pool-uid": Seen("lineage", 1, 5)}
    assert (statement.holder, statement.pod_uid, statement.boot_id) == (GUARD, "pod-uid", guard.process.boot_id)
    assert (statement.engine, statement.tick, statement.lease_ms) == (ENGINE, guard.process.tick(), LEASE_MS)
    spec = FenceLeaseSpec.model_validate(guard.store.specs[guard.holder.lease_name()])
    assert (spec.holder, spec.pod, spec.pool, spec.tick) == (GUARD, "tiny-0", "tiny", statement.tick)
    assert (spec.lease_seconds, spec.sequence, spec.version) == (60, 5, statement.version)


async def test_a_challenge_stays_unanswered_without_right_or_digests() -> None:
    guard = LeasedGuard()
    for engine, rounds, answered in [(ENGINE, False, False), (None, True, False), (ENGINE, True, True)]:
        guard.process.engine = engine
        if rounds:
            await guard.round()
        assert ("x-cachescope-statement" in (await guard.ask(headers=CHALLENGE)).headers) == answered


async def test_a_guard_without_keys_writes_no_lease() -> None:
    guard = LeasedGuard()
    ring, guard.process.keys.ring = guard.process.keys.ring, None
    await guard.round()
    assert (guard.store.commits, guard.left) == ([], 0)
    guard.process.keys.ring = ring
    await guard.round()
    assert (len(guard.store.commits), guard.left) == (1, LEASE_MS)


async def test_floors_and_sequence_never_fall(caplog: pytest.LogCaptureFixture) -> None:
    guard = LeasedGuard()
    guard.write(tenant=5, sequence=7)
    await guard.round()
    guard.write(tenant=4, sequence=6)
    for _ in range(3):
        await guard.round()
    assert guard.heads.applied is not None
    assert (guard.heads.applied.floors.floor(TENANT), guard.heads.applied.sequence) == (Epoch(5), 7)
    said = [record.__dict__["problem"] for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 1
    assert "the floor is 5 and 4 was asked" in said[0]


async def test_a_target_that_vanishes_keeps_its_floor() -> None:
    guard = LeasedGuard()
    guard.write(tenant=5)
    await guard.round()
    guard.ledger["floors"] = {POOL: 1}
    await guard.round()
    assert guard.tenant() == 5


async def test_an_unchanged_head_stays_the_same_object() -> None:
    guard = LeasedGuard()
    await guard.round()
    before = guard.heads.applied
    await guard.round()
    assert guard.heads.applied is before
    guard.write(sequence=2)
    await guard.round()
    assert guard.heads.applied is not before


GOOD = write_head(head_at())
BROKEN: dict[str, Any] = {
    "another lineage": {**GOOD, "lineage": {"generation": 1, "id": "other"}},
    "an older lineage": {**GOOD, "lineage": {"generation": 0, "id": "other"}},
    "no object": [],
    "nothing": None,
    "a number as text": {**GOOD, "sequence": "9"},
    "a floor below zero": {**GOOD, "floors": {TENANT: -1}},
    "unreadable": ClusterError("the API server did not answer; wait"),
}


@pytest.mark.parametrize("fault", BROKEN)
async def test_what_cannot_be_applied_extends_no_right(fault: str) -> None:
    guard = LeasedGuard()
    await guard.round()
    guard.ledger = BROKEN[fault]
    await guard.round(later=1000)
    assert (guard.tenant(), guard.left, guard.holder.outcomes[FAILED]) == (1, LEASE_MS - 1000, 1)
    commits = len(guard.store.commits)
    await guard.round(later=1000)
    assert len(guard.store.commits) == commits
    guard.write(sequence=2)
    await guard.round(later=1000)
    assert (guard.left, len(guard.store.commits)) == (LEASE_MS, commits + 1)


async def test_a_read_between_rounds_raises_floors_and_extends_nothing() -> None:
    guard = LeasedGuard()
    await guard.heads.refresh()
    assert (guard.ledger_reads, guard.heads.applied) == (0, None)
    await guard.round()
    guard.write(tenant=2, sequence=2)
    guard.clock.now += 1000
    permit = guard.permit(epochs=vector(1, 2), sequence=2)
    assert (await guard.ask(permit)).status == 200
    assert (guard.tenant(), guard.left, guard.heads.generation) == (2, LEASE_MS - 1000, 1)
    guard.clock.now += LEASE_MS
    guard.write(tenant=3, sequence=3)
    await guard.process.refresh()
    assert guard.tenant() is None


async def test_a_read_between_rounds_takes_no_new_lineage() -> None:
    guard = LeasedGuard()
    await guard.round()
    guard.write(lineage="restored", generation=2)
    await guard.process.refresh()
    assert guard.heads.applied == head_at()
    await guard.round()
    assert guard.heads.applied == head_at(lineage="restored", generation=2)


async def test_a_read_between_rounds_that_fails_changes_nothing() -> None:
    guard = LeasedGuard()
    await guard.round()
    guard.ledger = ClusterError("down; wait")
    await guard.process.refresh()
    assert (guard.tenant(), guard.left) == (1, LEASE_MS)


async def test_reads_between_rounds_are_at_most_ten_a_second() -> None:
    guard = LeasedGuard()
    await guard.round()
    reads = guard.ledger_reads
    for later, made in [(0, 1), (99, 1), (1, 2), (0, 2)]:
        guard.clock.now += later
        await guard.heads.refresh()
        assert guard.ledger_reads - reads == made


async def test_whoever_waits_for_a_slow_read_shares_the_next() -> None:
    guard = LeasedGuard()
    await guard.round()
    reads = guard.ledger_reads
    guard.store.clock, guard.read_ms = guard.clock, 500
    first = asyncio.ensure_future(guard.heads.refresh())
    await asyncio.sleep(0)
    guard.clock.now += 1000
    await asyncio.gather(first, *(guard.heads.refresh() for _ in range(20)))
    assert guard.ledger_reads - reads == 2


@pytest.mark.parametrize(("pause", "tenant", "cut"), [(LEASE_MS, 1, True), (LEASE_MS - 2000, 2, True), (LEASE_MS - 2000, 1, False)])
@pytest.mark.parametrize("reuse", [Reuse.SALTED, Reuse.FRESH])
async def test_a_lapse_or_a_raised_epoch_closes_what_is_in_flight(pause: int, tenant: int, cut: bool, reuse: Reuse) -> None:
    guard = LeasedGuard()
    await guard.round()
    async with _streaming(guard, reuse=reuse) as server:
        guard.write(tenant=tenant, sequence=tenant)
        await guard.round(later=pause)
        if cut:  # the engine learns of it at once, not with its next message
            await asyncio.wait_for(guard.engine.disconnected.wait(), 5)
    assert (server.complete, server.body) == ((False, b"") if cut else (True, b"one"))
    assert guard.heads.generation == (2 if pause == LEASE_MS else 1)


async def test_a_later_lineage_closes_the_requests_of_the_one_before_and_serves_its_own() -> None:
    guard = LeasedGuard()
    await guard.round()
    async with _streaming(guard) as server:
        guard.write(lineage="restored", generation=2)
        await guard.round()
        await asyncio.wait_for(guard.engine.disconnected.wait(), 5)
        assert guard.process.in_flight.cuts == {Refusal.BEHIND.code: 1}
    assert (server.complete, server.body, guard.heads.generation) == (False, b"", 1)
    guard.engine.chunks = None
    assert (await guard.ask(guard.permit())).code == Refusal.OTHER_LINEAGE.code
    assert (await guard.ask(guard.permit(lineage="restored"))).status == 200


@pytest.mark.parametrize("fault", [Fault.DELETED, Fault.MARKED])
async def test_a_deleted_lease_closes_everything_and_makes_a_new_boot_id(fault: Fault) -> None:
    guard = LeasedGuard()
    await guard.round()
    before, old = guard.process.boot_id, guard.permit()
    async with _streaming(guard, reuse=Reuse.FRESH) as server:
        await guard.round(fault)
        await asyncio.wait_for(guard.engine.disconnected.wait(), 5)
    assert (server.complete, server.body) == (False, b"")
    assert guard.process.boot_id != before
    assert (guard.left, (await guard.ask(guard.permit())).code) == (0, Refusal.NO_RIGHT.code)
    assert "x-cachescope-statement" not in (await guard.ask(headers=CHALLENGE)).headers
    await guard.round()
    guard.engine.chunks = None
    assert (await guard.ask(old)).code == Refusal.OTHER_BOOT.code
    assert (await guard.ask(guard.permit())).status == 200
    assert (guard.published().boot_id, guard.heads.generation) == (guard.process.boot_id, 2)


async def test_a_right_that_ends_in_the_very_step_of_the_next_is_closed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = LeasedGuard()
    await guard.round()
    apply = guard.process.apply

    def frozen() -> None:
        apply()
        assert guard.left == 1
        guard.clock.now += 1

    monkeypatch.setattr(guard.process, "apply", frozen)
    async with _streaming(guard):
        await guard.round(later=LEASE_MS - 1)
        await asyncio.wait_for(guard.engine.disconnected.wait(), 5)
    assert (guard.heads.generation, guard.process.in_flight.cuts) == (2, {Refusal.NO_RIGHT.code: 1})


async def test_a_right_that_ended_is_noticed_without_a_round() -> None:
    guard = LeasedGuard()
    await guard.round()
    async with _streaming(guard):
        guard.clock.now += LEASE_MS
        guard.process.apply()
        await asyncio.wait_for(guard.engine.disconnected.wait(), 5)
    assert guard.process.in_flight.cuts == {Refusal.NO_RIGHT.code: 1}


async def test_lost_answers_keep_the_right_and_the_requests() -> None:
    guard = LeasedGuard()
    await guard.round()
    async with _streaming(guard) as server:
        for fault in (Fault.LOST_AFTER, Fault.LOST_BEFORE, Fault.LATE, Fault.CONFLICT):
            await guard.round(fault)
    assert (server.complete, server.body, guard.heads.generation) == (True, b"one", 1)
    assert guard.holder.outcomes == {DONE: 5, FAILED: 0, "lease_gone": 0}


async def test_the_keeper_reads_the_keys_first_and_closes_its_connections() -> None:
    guard = LeasedGuard()
    running = asyncio.ensure_future(guard.holder.run())
    async with asyncio.timeout(5):
        while guard.left == 0:  # noqa: ASYNC110 - what it waits for has no event, and the wait has a deadline
            await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert guard.store.closed == 1


def test_a_head_survives_its_way_through_the_ledger() -> None:
    head = head_at(tenant=3, sequence=9, generation=4)
    assert isinstance(head, Head)
    heads = LeaseHeads(lambda: asyncio.sleep(0), lambda: 0)
    heads.apply(write_head(head))
    assert heads.applied == head
