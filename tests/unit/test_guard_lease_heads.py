"""A guard whose right its lease rounds keep: what it publishes, what it takes over, and what it closes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cachescope.api.ledgers import FenceLeaseSpec
from cachescope.core.admission import Refusal
from cachescope.core.errors import ClusterError
from cachescope.core.leases import GUARD
from cachescope.core.ledgers import AUTHORIZATION_HEAD
from cachescope.core.record import Loaded
from cachescope.core.types import Reuse
from cachescope.leases.rounds import ACKNOWLEDGED, DONE, FAILED
from tests.unit.guard_fakes import ENGINE, LEASE_MS, POOL, TENANT, seen, vector
from tests.unit.lease_fakes import HOP_MS, Fault
from tests.unit.leased_guards import AUTHORIZATION, NAMES, LeasedGuard, running, streaming


async def test_there_is_no_right_before_the_first_round() -> None:
    guard = LeasedGuard()
    assert (guard.epochs, guard.heads.generation, guard.left) == (None, 0, 0)
    assert (await guard.ask(guard.permit(reuse=Reuse.FRESH))).code == Refusal.NO_RIGHT.code
    await guard.round()
    assert (guard.epochs, guard.heads.generation, guard.left) == ((1, 1), 1, LEASE_MS)
    assert (await guard.ask(guard.permit())).status == 200


async def test_heads_that_were_read_without_a_right_serve_nobody() -> None:
    guard = LeasedGuard()
    await guard.heads.refresh()
    guard.heads.apply(await guard.heads.read())
    assert guard.heads.applied is not None
    assert guard.heads.heads is None


async def test_a_right_ends_exactly_one_lease_after_its_write_was_sent() -> None:
    guard = LeasedGuard(slow=True)
    await guard.round()
    assert guard.left == LEASE_MS - 4 * HOP_MS  # two hops of the write and one of each read
    guard.clock.now += guard.left - 1
    assert guard.left == 1
    guard.clock.now += 1
    assert (guard.epochs, guard.left) == ((1, 1), 0)


async def test_a_lease_says_what_the_guard_is_and_what_it_closed() -> None:
    guard = LeasedGuard(fresh_ms=7000)
    guard.process.loaded = None
    await guard.round()
    first = guard.published()
    assert (first.acknowledged, first.witnesses, first.engine, first.adapters, first.released) == ({}, {}, None, {}, False)
    guard.process.loaded = Loaded(ENGINE, {"x": ENGINE.model})
    await guard.round()
    statement = guard.published()
    book = guard.book
    assert statement.acknowledged == {"pool-uid": book.pool.mark, AUTHORIZATION: book.authorization.mark}
    assert [ledger.mark for ledger in guard.witnessed()] == [book.pool.mark, book.authorization.mark]
    assert "history" not in statement.witnesses["pool-uid"]
    assert (statement.holder, statement.pod_uid, statement.boot_id) == (GUARD, "pod-uid", guard.process.boot_id)
    assert (statement.engine, statement.tick, statement.lease_ms) == (ENGINE, guard.process.tick(), LEASE_MS)
    assert statement.adapters == {"x": ENGINE.model}
    assert (statement.fresh_ms, statement.pool_uid) == (7000, "pool-uid")
    spec = FenceLeaseSpec.model_validate(guard.lease)
    assert (spec.holder, spec.pod, spec.pool, spec.tick) == (GUARD, "tiny-0", "tiny", statement.tick)
    assert (spec.lease_seconds, spec.sequence, spec.version) == (60, 2, statement.version)


async def test_a_guard_without_keys_writes_no_lease() -> None:
    guard = LeasedGuard()
    ring, guard.process.keys.ring = guard.process.keys.ring, None
    await guard.round()
    assert (guard.store.commits, guard.left) == ([], 0)
    guard.process.keys.ring = ring
    await guard.round()
    assert (len(guard.store.commits), guard.left) == (1, LEASE_MS)


async def test_what_is_read_raises_epochs_and_an_unchanged_head_stays_the_same_object() -> None:
    guard = LeasedGuard()
    await guard.round()
    before = guard.heads.applied
    await guard.round()
    assert guard.heads.applied is before
    guard.book.revoke(TENANT, 2)
    await guard.round()
    assert guard.epochs == (1, 2)
    assert before is not None
    assert guard.heads.applied is not None
    assert guard.heads.applied.pool is before.pool


@pytest.mark.parametrize("kind", ["older", "other history"])
async def test_a_ledger_that_went_back_ends_the_right_until_what_follows_is_read(kind: str) -> None:
    guard = LeasedGuard()
    backup = guard.book.snapshot()
    guard.book.roll(POOL, 2)
    await guard.round()
    known = guard.book
    guard.book = backup if kind == "older" else known.forked()
    await guard.round(later=1000)
    assert (guard.left, guard.epochs, guard.holder.outcomes[FAILED]) == (0, (2, 1), 1)
    commits = len(guard.store.commits)
    await guard.round(later=1000)
    assert (guard.left, len(guard.store.commits)) == (0, commits), "it lapses"
    assert guard.witnessed()[0].mark == known.pool.mark, "its lease shows what stood before"
    assert (await guard.ask(guard.permit(epochs=vector(2, 1)))).code == Refusal.LEASE_LOST.code
    assert (await guard.ask(guard.permit(epochs=vector(2, 1), reuse=Reuse.FRESH))).status == 200
    guard.book.rebirth("restored", known)
    await guard.round(later=1000)
    assert (guard.left, guard.heads.generation) == (LEASE_MS, 2)
    assert guard.heads.applied is not None
    assert guard.heads.applied.seen.lineages == ("restored", "restored")


@pytest.mark.parametrize("of_pool", [True, False])
async def test_a_lineage_that_began_without_what_a_process_knows_gives_no_right_before_that_is_merged(of_pool: bool) -> None:
    guard = LeasedGuard()
    backup = guard.book.snapshot()
    guard.book.roll(POOL, 2) if of_pool else guard.book.revoke(TENANT, 2)
    await guard.round()
    known, guard.book = guard.book, backup
    guard.book.rebirth("of one who knew less")
    await guard.round(later=1000)
    assert (guard.left, guard.epochs) == (0, (2, 1) if of_pool else (1, 2))
    shown = guard.witnessed()[0 if of_pool else 1]
    assert shown.mark == (known.pool if of_pool else known.authorization).mark, "the operator can merge it"
    guard.book.rebirth("of all", known)
    await guard.round(later=1000)
    assert (guard.left, guard.heads.generation) == (LEASE_MS, 2)
    assert guard.heads.applied is not None
    assert guard.heads.applied.seen.lineages == ("of all", "of all")


def _edited(guard: LeasedGuard, name: str, **changes: Any) -> dict[str, Any]:
    return {**guard.book.spec(name), **changes}


BROKEN: dict[str, Any] = {
    "no object": lambda _: ["x"],
    "a number as text": lambda guard: _edited(guard, "tiny", sequence="9"),
    "a floor below zero": lambda guard: _edited(guard, "tiny", floors={TENANT: -1}),
    "another digest than its content": lambda guard: _edited(guard, "tiny", base=7),
    "another role": lambda guard: guard.book.spec(AUTHORIZATION_HEAD),
    "unreadable": lambda _: ClusterError("the API server did not answer; wait"),
}


@pytest.mark.parametrize("fault", BROKEN)
async def test_what_cannot_be_applied_extends_no_right_and_starts_no_round(fault: str) -> None:
    guard = LeasedGuard()
    await guard.round()
    guard.faults = {"tiny": BROKEN[fault](guard)}
    await guard.round(later=1000)
    assert (guard.epochs, guard.left, guard.holder.outcomes[FAILED]) == ((1, 1), LEASE_MS - 1000, 1)
    commits = len(guard.store.commits)
    await guard.round(later=1000)
    assert len(guard.store.commits) == commits
    guard.faults = {}
    guard.book.roll(POOL, 2)
    await guard.round(later=1000)
    assert (guard.epochs, guard.left, len(guard.store.commits)) == ((2, 1), LEASE_MS, commits + 1)


@pytest.mark.parametrize("name", NAMES)
async def test_both_ledgers_have_to_be_read(name: str) -> None:
    guard = LeasedGuard()
    guard.faults = {name: ClusterError("down; wait")}
    await guard.round()
    assert (guard.left, guard.holder.outcomes[FAILED]) == (0, 1)
    guard.faults = {}
    await guard.round()
    assert guard.left == LEASE_MS


async def test_a_read_between_rounds_raises_epochs_and_extends_nothing() -> None:
    guard = LeasedGuard()
    await guard.heads.refresh()
    assert (guard.reads, guard.heads.applied) == (0, None)
    await guard.round()
    guard.book.revoke(TENANT, 2)
    guard.clock.now += 1000
    assert (await guard.ask(guard.permit(epochs=vector(1, 2)))).status == 200
    assert (guard.epochs, guard.left, guard.heads.generation) == ((1, 2), LEASE_MS - 1000, 1)


async def test_a_read_between_rounds_takes_no_new_lineage_and_asks_for_a_round() -> None:
    guard = LeasedGuard()
    await guard.round()
    before = guard.heads.applied
    guard.book.rebirth("restored")
    assert not guard.holder.rounds._pace._whole
    await guard.process.refresh()
    assert guard.heads.applied is before
    assert guard.holder.rounds._pace._whole
    await guard.round()
    assert guard.heads.applied is not None
    assert guard.heads.applied.seen.lineages == ("restored", "restored")
    assert not guard.holder.rounds._pace._whole


async def test_a_read_between_rounds_that_fails_or_went_back_changes_nothing() -> None:
    guard = LeasedGuard()
    backup = guard.book.snapshot()
    guard.book.roll(POOL, 2)
    await guard.round()
    before = guard.heads.applied
    guard.faults = {"tiny": ClusterError("down; wait")}
    await guard.process.refresh()
    guard.faults, guard.book = {}, backup
    guard.clock.now += 1000
    await guard.process.refresh()
    assert guard.heads.applied is before
    assert guard.left == LEASE_MS - 1000


async def test_reads_between_rounds_are_at_most_ten_a_second() -> None:
    guard = LeasedGuard()
    await guard.round()
    reads = guard.reads
    for later, made in [(0, 1), (99, 1), (1, 2), (0, 2)]:
        guard.clock.now += later
        await guard.heads.refresh()
        assert guard.reads - reads == 2 * made


async def test_whoever_waits_for_a_slow_read_shares_the_next() -> None:
    guard = LeasedGuard()
    await guard.round()
    reads = guard.reads
    guard.store.clock, guard.read_ms = guard.clock, 500
    first = asyncio.ensure_future(guard.heads.refresh())
    await asyncio.sleep(0)
    guard.clock.now += 1000
    await asyncio.gather(first, *(guard.heads.refresh() for _ in range(20)))
    assert guard.reads - reads == 2 * 2


@pytest.mark.parametrize(("pause", "tenant", "cut"), [(LEASE_MS, 1, True), (LEASE_MS - 2000, 2, True), (LEASE_MS - 2000, 1, False)])
@pytest.mark.parametrize("reuse", [Reuse.SALTED, Reuse.FRESH])
async def test_a_lapse_or_a_raised_epoch_closes_what_is_in_flight(pause: int, tenant: int, cut: bool, reuse: Reuse) -> None:
    guard = LeasedGuard()
    await guard.round()
    async with streaming(guard, reuse=reuse) as server:
        if tenant > 1:
            guard.book.revoke(TENANT, tenant)
        round_ = asyncio.ensure_future(guard.round(later=pause))
        if cut:  # the engine learns of it at once, not with its next message
            await asyncio.wait_for(guard.engine.disconnected.wait(), 5)
        else:
            await round_
    await asyncio.wait_for(round_, 5)
    assert (server.complete, server.body) == ((False, b"") if cut else (True, b"one"))
    assert guard.heads.generation == (2 if pause == LEASE_MS else 1)


async def test_a_later_lineage_closes_the_requests_of_the_one_before_and_serves_its_own() -> None:
    guard = LeasedGuard()
    await guard.round()
    async with streaming(guard) as server:
        guard.book.rebirth("restored")
        round_ = asyncio.ensure_future(guard.round())
        await asyncio.wait_for(guard.engine.disconnected.wait(), 5)
    await asyncio.wait_for(round_, 5)
    assert (server.complete, server.body, guard.heads.generation) == (False, b"", 1)
    guard.engine.chunks = None
    assert (await guard.ask(guard.permit())).code == Refusal.OTHER_LINEAGE.code
    assert (await guard.ask(guard.permit(seen=seen(1, "restored")))).status == 200


@pytest.mark.parametrize("fault", [Fault.DELETED, Fault.MARKED])
async def test_a_deleted_lease_closes_everything_and_makes_a_new_boot_id(fault: Fault) -> None:
    guard = LeasedGuard()
    await guard.round()
    before, old = guard.process.boot_id, guard.permit()
    async with streaming(guard, reuse=Reuse.FRESH) as server:
        await guard.round(fault)
        await asyncio.wait_for(guard.engine.disconnected.wait(), 5)
    assert (server.complete, server.body) == (False, b"")
    assert guard.process.boot_id != before
    guard.engine.chunks = None
    assert (guard.left, (await guard.ask(guard.permit(reuse=Reuse.FRESH))).code) == (0, Refusal.NO_RIGHT.code)
    await guard.round()
    assert (await guard.ask(old)).code == Refusal.OTHER_BOOT.code
    assert (await guard.ask(guard.permit())).status == 200
    statement = guard.published()
    assert (statement.boot_id, guard.heads.generation) == (guard.process.boot_id, 2)
    assert statement.acknowledged["pool-uid"] == guard.book.pool.mark, "what was closed before is closed"


@pytest.mark.parametrize(("fresh_ms", "status"), [(1000, 200), (0, 503)])
async def test_without_a_right_only_fresh_is_served_or_nothing(fresh_ms: int, status: int) -> None:
    guard = LeasedGuard(fresh_ms=fresh_ms)
    await guard.round()
    guard.clock.now += LEASE_MS
    assert (await guard.ask(guard.permit(reuse=Reuse.FRESH))).status == status
    assert (await guard.ask(guard.permit(reuse=Reuse.SALTED))).status == (409 if fresh_ms else 503)


async def test_a_right_that_ends_in_the_very_step_of_the_next_is_closed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = LeasedGuard()
    await guard.round()
    closed = guard.process.closed

    async def frozen() -> None:
        await closed()
        assert guard.left == 1
        guard.clock.now += 1

    monkeypatch.setattr(guard.process, "closed", frozen)
    async with streaming(guard):
        await guard.round(later=LEASE_MS - 1)
        await asyncio.wait_for(guard.engine.disconnected.wait(), 5)
    assert (guard.heads.generation, guard.process.in_flight.closed) == (2, {Refusal.LEASE_LOST.code: 1})


async def test_lost_answers_keep_the_right_and_the_requests() -> None:
    guard = LeasedGuard()
    await guard.round()
    async with streaming(guard) as server:
        for fault in (Fault.LOST_AFTER, Fault.LOST_BEFORE, Fault.LATE, Fault.CONFLICT):
            await guard.round(fault)
    assert (server.complete, server.body, guard.heads.generation) == (True, b"one", 1)
    assert guard.holder.outcomes == {DONE: 5, ACKNOWLEDGED: 0, FAILED: 0, "lease_gone": 0}


async def test_a_keeper_that_ends_refuses_everything_says_so_and_closes_its_connections() -> None:
    guard = LeasedGuard()
    async with running(guard):
        assert (guard.published().released, (await guard.ask(guard.permit())).status) == (False, 200)
    assert (guard.published().released, guard.left, guard.store.closed) == (True, 0, 1)
    assert (await guard.ask(guard.permit(reuse=Reuse.FRESH))).code == Refusal.NO_RIGHT.code
