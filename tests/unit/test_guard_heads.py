"""Heads from a file: the right runs from before the read, nothing seen falls, and a lapse starts a new generation."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cachescope.core.types import Epoch
from cachescope.guard.heads import FileHeads
from tests.unit.guard_fakes import BODY, LEASE_MS, POOL, TENANT, Clock, Server, World


class Ledger:
    """A head file, and the source that reads it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "head.json"
        self.clock = Clock()
        self.source = FileHeads(self.file, LEASE_MS, self.clock)

    async def write(self, *, tenant: int = 1, sequence: int = 1, lineage: str = "lineage", **changes: Any) -> None:
        document = {"lineage": lineage, "sequence": sequence, "base": 0, "floors": {POOL: 1, TENANT: tenant}, **changes}
        await self.write_text(json.dumps(document))

    async def write_text(self, text: str) -> None:
        self.file.write_text(text)
        self.clock.now += 1000
        await self.source.refresh()

    def tenant(self) -> int | None:
        head = self.source.current(self.clock())
        return head.floors.floor(TENANT) if head else None


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


async def test_there_is_no_right_before_the_first_read(ledger: Ledger) -> None:
    assert (ledger.source.current(ledger.clock()), ledger.source.generation, ledger.source.right_left_ms(0)) == (None, 0, 0)
    await ledger.write()
    assert (ledger.tenant(), ledger.source.generation) == (1, 1)


async def test_a_right_ends_exactly_one_lease_after_its_read(ledger: Ledger) -> None:
    await ledger.write()
    ledger.clock.now += LEASE_MS - 1
    assert (ledger.tenant(), ledger.source.right_left_ms(ledger.clock())) == (1, 1)
    ledger.clock.now += 1
    assert (ledger.tenant(), ledger.source.right_left_ms(ledger.clock())) == (None, 0)


async def test_the_right_runs_from_before_the_read(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    read_bytes = Path.read_bytes

    def slow(path: Path) -> bytes:
        ledger.clock.now += LEASE_MS
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", slow)
    await ledger.write()
    assert ledger.tenant() is None


async def test_a_right_that_ended_and_came_back_is_a_new_generation(ledger: Ledger) -> None:
    await ledger.write()
    await ledger.write()
    assert ledger.source.generation == 1
    ledger.clock.now += LEASE_MS - 1000
    await ledger.write()
    assert (ledger.tenant(), ledger.source.generation) == (1, 2)


async def test_floors_and_sequence_never_fall(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    await ledger.write(tenant=5, sequence=7)
    await ledger.write(tenant=4, sequence=6)
    head = ledger.source.current(ledger.clock())
    assert head is not None
    assert (head.floors.floor(TENANT), head.sequence) == (Epoch(5), 7)
    assert "the floor is 5 and 4 was asked" in str(caplog.records[-1].__dict__["problem"])


async def test_a_target_that_vanishes_keeps_its_floor(ledger: Ledger) -> None:
    await ledger.write(tenant=5)
    await ledger.write(floors={POOL: 1})
    assert ledger.tenant() == 5


async def test_an_unchanged_head_stays_the_same_object(ledger: Ledger) -> None:
    await ledger.write()
    before = ledger.source.current(ledger.clock())
    await ledger.write()
    assert ledger.source.current(ledger.clock()) is before
    await ledger.write(sequence=2)
    assert ledger.source.current(ledger.clock()) is not before


BROKEN = {
    "another lineage": '{"lineage": "restored", "sequence": 9, "base": 0, "floors": {}}',
    "no JSON": "{",
    "no object": "[]",
    "a number as text": '{"lineage": "lineage", "sequence": "9", "base": 0, "floors": {}}',
    "a floor below zero": '{"lineage": "lineage", "sequence": 9, "base": 0, "floors": {"x": -1}}',
    "too deep": "[" * 100_000,
    "not UTF-8": "\udcff",
}


@pytest.mark.parametrize("fault", BROKEN)
async def test_what_cannot_be_read_extends_no_right(ledger: Ledger, fault: str) -> None:
    await ledger.write()
    left = ledger.source.right_left_ms(ledger.clock())
    ledger.file.write_bytes(BROKEN[fault].encode("utf-8", "surrogateescape"))
    ledger.clock.now += 1000
    await ledger.source.refresh()
    assert (ledger.tenant(), ledger.source.right_left_ms(ledger.clock())) == (1, left - 1000)
    await ledger.write(sequence=2)
    assert ledger.source.right_left_ms(ledger.clock()) == LEASE_MS


async def test_a_missing_file_extends_no_right(ledger: Ledger) -> None:
    await ledger.write()
    ledger.file.unlink()
    ledger.clock.now += LEASE_MS
    await ledger.source.refresh()
    assert ledger.tenant() is None


async def test_reads_are_limited_to_ten_a_second(ledger: Ledger) -> None:
    await ledger.write()
    ledger.file.write_text(ledger.file.read_text().replace('"sequence": 1', '"sequence": 2'))
    ledger.clock.now += 99
    await ledger.source.refresh()
    head = ledger.source.current(ledger.clock())
    assert head is not None
    assert head.sequence == 1
    ledger.clock.now += 1
    await ledger.source.refresh()
    head = ledger.source.current(ledger.clock())
    assert head is not None
    assert head.sequence == 2


@pytest.mark.parametrize(("pause", "raised", "cut"), [(LEASE_MS, 1, True), (LEASE_MS - 2000, 2, True), (LEASE_MS - 2000, 1, False)])
async def test_a_lapse_or_a_raised_epoch_closes_what_is_in_flight(tmp_path: Path, pause: int, raised: int, cut: bool) -> None:
    world, ledger = World(), Ledger(tmp_path)
    ledger.clock = world.clock
    world.process.source = ledger.source = FileHeads(ledger.file, LEASE_MS, world.clock)
    await ledger.write()
    world.engine.chunks = asyncio.Queue()
    server = Server([BODY])
    answering = asyncio.ensure_future(world.app(world.scope(world.permit()), server.receive, server.send))
    await server.until_messages(1)
    world.clock.now += pause
    await ledger.write(tenant=raised)
    world.process.apply()
    for chunk in (b"one", None):
        world.engine.chunks.put_nowait(chunk)
    await asyncio.wait_for(answering, 5)
    assert (server.complete, server.body) == ((False, b"") if cut else (True, b"one"))
