"""Witnesses: what a pod read outlives its process, and shows the operator what stood before a restore."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from cachescope.guard import lease_holder
from tests.unit.guard_fakes import POOL, until
from tests.unit.leased_guards import LeasedGuard, eventually, running


async def test_witnesses_that_are_too_long_leave_the_rest_of_the_lease(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    guard = LeasedGuard()
    await guard.round()
    await guard.round()
    length = len(guard.lease["statement"])  # of the next one it is another, by some characters: ticks and ids deflate as they will
    for most, kept in [(length + 64, True), (length - 64, False), (length - 64, False)]:
        monkeypatch.setattr(lease_holder, "MAX_CHARACTERS", most)
        await guard.round()
        assert (bool(guard.published().witnesses), bool(guard.published().acknowledged)) == (kept, True)
    assert len([record for record in caplog.records if "too long" in record.message]) == 1, "and not with each write"


async def test_a_new_process_of_a_pod_shows_from_its_first_lease_on_what_the_one_before_had_read(tmp_path: Path) -> None:
    before = LeasedGuard(state_folder=tmp_path)
    before.book.roll(POOL, 5)
    async with running(before):
        await until(lambda: not before.holder.witnesses.unsaved)
    after = LeasedGuard(state_folder=tmp_path)
    after.answering.clear()
    work = asyncio.ensure_future(after.holder.run())
    await until(lambda: bool(after.store.commits))
    first = after.witnessed()
    after.answering.set()
    await until(lambda: after.holder.outcomes["failed"] > 0)
    assert [ledger.mark for ledger in first] == [before.book.pool.mark, before.book.authorization.mark]
    assert (after.left, after.heads.applied) == (0, None), "they are never used as heads, but what lacks them gives no right"
    assert after.witnessed()[0].mark == before.book.pool.mark, "what a restore left does not replace it"
    after.book.rebirth("restored", before.book)
    await after.round()
    await after.round()
    assert (after.left > 0, after.epochs) == (True, (5, 1))
    assert [ledger.mark for ledger in after.witnessed()] == [after.book.pool.mark, after.book.authorization.mark]
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def test_a_later_state_of_the_same_history_replaces_what_was_kept(tmp_path: Path) -> None:
    before = LeasedGuard(state_folder=tmp_path)
    async with running(before):
        await until(lambda: not before.holder.witnesses.unsaved)
    after = LeasedGuard(state_folder=tmp_path)
    after.book.roll(POOL, 2)
    async with running(after):
        await until(lambda: not after.holder.witnesses.unsaved)
        await after.round()
        assert after.witnessed()[0].mark == after.book.pool.mark


async def test_without_a_file_a_new_process_shows_nothing_in_its_first_lease() -> None:
    after = LeasedGuard()
    await after.round()
    assert after.published().witnesses == {}


@pytest.mark.parametrize("content", ["", "{", "[]", '["x"]', '{"pool-uid": {}}', "[" * 100_000, None])
async def test_a_damaged_file_of_witnesses_is_as_good_as_none(
    tmp_path: Path, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    guard = LeasedGuard(state_folder=tmp_path)
    file = tmp_path / "witnesses.json"
    if content is None:
        file.mkdir()
    else:
        file.write_text(content)
    async with running(guard):
        await eventually(lambda: guard.published().acknowledged)
        assert len(guard.witnessed()) == 2
        assert len([record for record in caplog.records if "witnesses of before" in record.getMessage()]) == (content != "[]")
        if content is not None:
            await eventually(lambda: file.read_text() != content)
            assert len(json.loads(file.read_text())) == 2


async def test_witnesses_that_cannot_be_kept_harm_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    guard = LeasedGuard(state_folder=tmp_path / "nowhere")
    async with running(guard):
        await eventually(lambda: guard.published().acknowledged)
        await eventually(lambda: "cannot be kept" in caplog.text)
        assert len(guard.witnessed()) == 2
