"""What a guard learns between two rounds closes and is acknowledged at once, and is never more than a hint."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from cachescope.core.ledgers import AUTHORIZATION_HEAD, LedgerFork
from cachescope.guard.lease_heads import Reading
from cachescope.leases.rounds import ACKNOWLEDGED, DONE, FAILED
from tests.unit.guard_fakes import LEASE_MS, POOL, TENANT, until, vector
from tests.unit.leased_guards import AUTHORIZATION, NAMES, LeasedGuard, acknowledged_marks, eventually, running, streaming, turns


@pytest.mark.parametrize("name", NAMES)
async def test_a_hint_raises_closes_and_is_acknowledged_at_once(name: str) -> None:
    guard = LeasedGuard()
    async with running(guard):
        await eventually(lambda: guard.published().acknowledged)
        async with streaming(guard) as server:
            guard.book.roll(POOL, 2)
            guard.book.revoke(TENANT, 2)
            guard.store.watched[name].put_nowait(guard.book.spec(name))
            await asyncio.wait_for(guard.engine.disconnected.wait(), 5)
            await turns()
            key, mark = ("pool-uid", guard.book.pool.mark) if name == "tiny" else (AUTHORIZATION, guard.book.authorization.mark)
            assert mark not in acknowledged_marks(guard), "its application has not returned"
        await eventually(lambda: guard.published().acknowledged[key] == mark)
        assert (guard.epochs, server.complete) == (((2, 1) if name == "tiny" else (1, 2)), False)
        assert (guard.holder.outcomes[DONE], guard.holder.outcomes[ACKNOWLEDGED]) == (1, 2)


async def test_a_hint_before_the_first_round_is_nothing() -> None:
    guard = LeasedGuard()
    guard.hint()
    assert guard.heads.applied is None


@pytest.mark.parametrize("kind", ["late", "older lineage", "fork", "no ledger", "another role"])
async def test_a_hint_of_anything_but_what_follows_changes_nothing(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    guard = LeasedGuard()
    backup = guard.book.snapshot()
    guard.book.roll(POOL, 2)
    if kind == "older lineage":
        guard.book.rebirth("later")
    await guard.round()
    before = guard.heads.applied
    other = guard.book.forked()
    other.roll(POOL, 3)
    specs = {"fork": other.spec("tiny"), "no ledger": None, "another role": guard.book.spec(AUTHORIZATION_HEAD)}
    for _ in range(3):
        guard.heads.hint("tiny", specs.get(kind, backup.spec("tiny")))
    assert guard.heads.applied is before
    assert (guard.left, guard.holder.rounds._pace._whole) == (LEASE_MS, False)
    said = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == (1 if kind in specs else 0)
    guard.book.roll(POOL, 4)
    guard.hint()
    assert guard.epochs == (4, 1), "and what follows is taken"


async def test_a_hint_that_comes_while_an_older_state_is_read_stays() -> None:
    guard = LeasedGuard()
    await guard.round()
    guard.answering.clear()
    round_ = asyncio.ensure_future(guard.round())
    await until(lambda: guard.reads == 4)
    guard.book.roll(POOL, 2)
    guard.hint()
    guard.answering.set()
    await round_
    assert (guard.epochs, guard.left, guard.holder.outcomes[FAILED]) == ((2, 1), LEASE_MS, 0)


async def test_a_hint_that_came_before_an_older_state_was_read_shows_that_the_ledger_went_back() -> None:
    guard = LeasedGuard()
    await guard.round()
    backup = guard.book.snapshot()
    guard.book.roll(POOL, 2)
    guard.hint()
    guard.book = backup
    await guard.round()
    assert (guard.epochs, guard.left, guard.holder.outcomes[FAILED]) == ((2, 1), 0, 1)


async def test_what_was_read_while_another_history_was_hinted_is_a_fork() -> None:
    guard = LeasedGuard()
    await guard.round()
    reading = await guard.heads.read()
    other = guard.book.snapshot()
    other.roll(POOL, 2)
    guard.heads.hint("tiny", other.spec("tiny"))
    guard.book.roll(POOL, 9)
    with pytest.raises(LedgerFork, match="was read before"):
        guard.heads.apply(Reading(reading.since, guard.book.spec("tiny"), reading.authorization))


async def test_while_an_engine_does_not_confirm_hints_close_and_nothing_is_acknowledged_or_granted() -> None:
    guard = LeasedGuard()
    await guard.round()
    guard.confirmation.allowed.clear()
    async with streaming(guard):
        guard.book.roll(POOL, 2)
        round_ = asyncio.ensure_future(guard.round())
        await asyncio.wait_for(guard.engine.disconnected.wait(), 5)
    await until(lambda: bool(guard.confirmation.asked))
    commits, guard.engine.disconnected = len(guard.store.commits), asyncio.Event()
    async with streaming(guard, epochs=vector(2, 1)):
        guard.book.roll(POOL, 3)
        guard.hint()
        await asyncio.wait_for(guard.engine.disconnected.wait(), 5)
    guard.clock.now += LEASE_MS
    await turns()
    assert (round_.done(), guard.left, len(guard.store.commits)) == (False, 0, commits)
    assert guard.process.acknowledged is None or guard.process.acknowledged.pool.sequence == 2
    guard.confirmation.allowed.set()
    await round_
    assert guard.holder.outcomes[FAILED] == 1, "what took longer than the lease grants nothing"
    await guard.round()
    assert (guard.left, guard.heads.generation, guard.published().acknowledged["pool-uid"]) == (LEASE_MS, 2, guard.book.pool.mark)


async def test_a_change_that_cannot_be_taken_over_ends_no_watch(caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    guard = LeasedGuard()
    async with running(guard):
        with monkeypatch.context() as broken:
            broken.setattr(guard.heads, "hint", lambda *_: 1 / 0)
            guard.store.watched["tiny"].put_nowait(guard.book.spec("tiny"))
            await until(lambda: "ZeroDivisionError" in str([record.__dict__ for record in caplog.records]))
        guard.book.roll(POOL, 2)
        guard.store.watched["tiny"].put_nowait(guard.book.spec("tiny"))
        await until(lambda: guard.epochs == (2, 1))
