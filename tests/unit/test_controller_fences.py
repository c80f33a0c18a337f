"""Fences in progress: completed by a list that began after the write, told of seldom, and forgotten with their lineage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import pytest

from cachescope.controller.fence_verdicts import fence_verdict
from cachescope.controller.fences import TOLD_MS, Fence, Fences
from cachescope.controller.lease_book import LeaseBook
from cachescope.controller.root_keys import RootKeys
from cachescope.controller.store import Store
from cachescope.core import fences
from cachescope.core.errors import ClusterError
from cachescope.core.fences import Wanted
from cachescope.core.leases import GUARD
from cachescope.core.ledgers import Ledger, Lineage, Role, advanced, reborn
from cachescope.core.rosters import Entry, Member, after_right_ms, right_ms
from tests.unit.fake_api import FakeApi

LEASE = 3000
FIRST = Ledger(Role.POOL, Lineage(1, "a"), 1)
SECOND = advanced(FIRST)
THIRD = advanced(SECOND)


class World:
    """Fences, the roster that completes them, and a clock.

    Attributes:
        listed: Done by each list; nothing by default.
    """

    def __init__(self) -> None:
        self.now, self.version = 1000.0, 10
        self.book = LeaseBook(Store(), RootKeys(FakeApi(), "x"), home="ns", clock=lambda: self.now, news=lambda *_: None)
        self.told: list[float] = []
        self.completed: list[Fence] = []
        self.lists = 0
        self.listed: Callable[[], None] = lambda: None
        self.fences = Fences(self.book, self._refresh, told=lambda _: self.told.append(self.now), completed=self.completed.append)

    async def _refresh(self) -> None:
        self.lists += 1
        self.listed()

    def saw(self, name: str, at: Ledger | None) -> None:
        """The watch brings a lease."""
        self.version += 1
        marks = {"pool": at.mark} if at else {}
        member = Member(name, "ns", name, self.version, GUARD, "pool", LEASE, acknowledged=marks)
        self.book.roster.saw(member, self.book.now_ms())
        self.book.roster.reached(self.version)

    def write(self, ledger: Ledger, *, written: bool = True) -> None:
        """The ledger is written."""
        self.version += 1
        self.fences.stands("pool", ledger)
        self.fences.want(
            Wanted("pool", ledger.sequence, self.version, self.book.now_ms(), namespace="ns", pool="pool", written=written)
        )

    def of(self, ledger: Ledger) -> Fence | None:
        return self.fences.of("pool", ledger.lineage, ledger.sequence)

    def done(self, ledger: Ledger) -> bool:
        found = self.of(ledger)
        return found is not None and found.fenced_ms is not None

    def verdict(self, ledger: Ledger) -> str:
        return fence_verdict([self.of(ledger)]).reason.value


@pytest.fixture
def world() -> World:
    made = World()
    made.saw("g", FIRST)
    made.write(FIRST)
    return made


async def test_a_fence_is_complete_only_with_a_list_that_began_after_the_write(world: World) -> None:
    world.write(SECOND)
    world.saw("g", SECOND)
    assert not world.done(SECOND), "the watch shows it; the list has not been read"
    world.listed = lambda: world.saw("h", FIRST)
    await world.fences.look()
    assert (world.lists, world.done(SECOND), world.verdict(SECOND)) == (1, False, "WaitingForProcesses")
    world.listed = lambda: None
    world.saw("h", SECOND)
    await world.fences.look()
    assert (world.lists, world.done(SECOND), world.verdict(SECOND)) == (2, True, "Acknowledged")


async def test_what_time_completes_during_a_look_waits_for_the_next_list(world: World) -> None:
    world.write(SECOND)
    ends = world.now + right_ms(LEASE) / 1000 + 0.01
    moments = iter([ends - 0.02] * 2)
    world.book._clock = lambda: next(moments, ends)
    await world.fences.look()
    assert (world.lists, world.done(SECOND)) == (0, False)
    await world.fences.look()
    assert (world.lists, world.done(SECOND), world.verdict(SECOND)) == (1, True, "Expired")


async def test_what_this_process_did_not_write_is_fenced_and_not_measured(world: World) -> None:
    world.write(SECOND, written=False)
    world.saw("g", SECOND)
    await world.fences.look()
    assert world.done(SECOND)
    world.write(THIRD)
    world.saw("g", THIRD)
    await world.fences.look()
    assert [fence.wanted.sequence for fence in world.completed] == [FIRST.sequence, THIRD.sequence]


async def test_nothing_is_listed_while_somebody_is_waited_for(world: World) -> None:
    world.write(SECOND)
    world.saw("g", FIRST)
    await world.fences.look()
    before = world.lists
    await world.fences.look()
    assert (world.lists, world.done(FIRST), world.done(SECOND)) == (before, True, False)


async def test_a_list_that_fails_completes_nothing(world: World) -> None:
    world.write(SECOND)
    world.saw("g", SECOND)

    def fail() -> None:
        raise ClusterError("the API server is away; try again")

    world.listed = fail
    with pytest.raises(ClusterError):
        await world.fences.look()
    assert not world.done(SECOND)


async def test_a_complete_later_state_covers_the_earlier_ones_and_each_is_told_once(world: World) -> None:
    world.write(SECOND)
    world.write(THIRD)
    world.saw("g", THIRD)
    for _ in range(2):
        await world.fences.look()
    assert [world.done(item) for item in (FIRST, SECOND, THIRD)] == [True] * 3
    assert sorted(fence.wanted.sequence for fence in world.completed) == [1, 2, 3]
    world.write(SECOND)
    await world.fences.look()
    assert len(world.completed) == 3, "it was complete before"


async def test_an_acknowledged_earlier_state_covers_no_later_one(world: World) -> None:
    world.write(SECOND)
    world.write(THIRD)
    world.saw("g", SECOND)
    await world.fences.look()
    assert [world.done(item) for item in (SECOND, THIRD)] == [True, False]


async def test_a_later_lineage_forgets_the_fences_of_before(world: World) -> None:
    world.write(SECOND)
    world.saw("g", SECOND)
    await world.fences.look()
    after = reborn(SECOND, Lineage(2, "b"))
    assert world.done(SECOND)
    world.write(after)
    assert (world.of(SECOND), world.done(after)) == (None, False)
    await world.fences.look()
    assert not world.done(after), "an acknowledgement of the old lineage counts for nothing"
    world.saw("g", after)
    await world.fences.look()
    assert world.done(after)


async def test_a_fence_whose_lineage_ended_during_the_list_is_not_completed(world: World) -> None:
    world.write(SECOND)
    world.saw("g", SECOND)
    world.listed = lambda: world.write(reborn(SECOND, Lineage(2, "b")))
    await world.fences.look()
    assert world.completed == []


async def test_nobody_asked_for_it_so_there_is_none(world: World) -> None:
    assert (world.of(SECOND), world.verdict(SECOND)) == (None, "NotWritten")
    assert world.fences.of("other", FIRST.lineage, 1) is None


async def test_progress_is_told_seldom_and_the_end_at_once(world: World) -> None:
    for number in range(40):
        world.saw(f"h{number}", FIRST)
    world.write(SECOND)
    for number in range(40):
        world.saw(f"h{number}", SECOND)
        world.now += 0.05
        await world.fences.look()
    progress = list(world.told)
    assert 2 <= len(progress) <= 1 + 40 * 50 // TOLD_MS
    assert all(later - earlier >= TOLD_MS / 1000 - 1e-6 for earlier, later in pairwise(progress))
    world.saw("g", SECOND)
    await world.fences.look()
    assert (world.done(SECOND), world.told[-1]) == (True, world.now)


async def test_of_two_fences_of_a_ledger_none_keeps_the_others_progress_back(world: World) -> None:
    world.write(SECOND)
    world.write(THIRD)
    await world.fences.look()
    world.saw("j", FIRST)
    await world.fences.look()
    told = len(world.told)
    for name in ("h", "i"):
        world.saw(name, SECOND)
        await world.fences.look()
        for state in (SECOND, THIRD):
            found = world.of(state)
            assert found is not None
            assert (name in found.progress.awaited) == (state is THIRD)
    assert len(world.told) == told, "it was told a moment ago"
    world.now += TOLD_MS / 1000
    await world.fences.look()
    await world.fences.look()
    assert len(world.told) == told + 1, "one time for both, though nothing has moved since"


async def test_a_look_judges_each_process_once_however_many_fences_are_open(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []
    acknowledged = fences._acknowledged

    def counted(entry: Entry, key: str, ledger: Ledger) -> int:
        judged.append(1)
        return acknowledged(entry, key, ledger)

    monkeypatch.setattr(fences, "_acknowledged", counted)
    for number in range(20):
        world.saw(f"h{number}", FIRST)
    world.saw("g", None)
    costs = []
    state = FIRST
    for _ in range(40):
        state = advanced(state)
        world.write(state)
        judged.clear()
        await world.fences.look()
        costs.append(len(judged))
    assert len(world.fences.waiting()) == 41
    assert set(costs) == {21}


async def test_a_fence_says_how_long_it_took_on_the_operators_clock(world: World) -> None:
    world.write(SECOND)
    world.now += 2.25
    world.saw("g", SECOND)
    await world.fences.look()
    found = world.of(SECOND)
    assert found is not None
    assert found.seconds == 2.25


async def test_a_restart_waits_until_what_was_missed_does_not_matter(world: World) -> None:
    world.book.roster.settle(world.book.now_ms())
    world.write(SECOND)
    world.saw("g", SECOND)
    await world.fences.look()
    assert (world.done(SECOND), world.verdict(SECOND)) == (False, "Settling")
    world.now += LEASE / 1000 + 1.5
    await world.fences.look()
    assert (world.done(SECOND), world.verdict(SECOND)) == (True, "Acknowledged")


async def test_an_authorization_waits_from_when_it_was_clear_and_anew_after_a_gap(world: World) -> None:
    """One guard is not heard of: it may go on with what was issued before everybody else acknowledged."""
    fresh = 2000
    world.fences.stands("people", SECOND)
    member = Member("g", "ns", "g", 99, GUARD, "pool", LEASE, fresh)
    world.book.roster.saw(member, world.book.now_ms())
    world.book.roster.reached(99)
    world.fences.want(Wanted("people", 2, 99, world.book.now_ms(), namespace="ns"))

    async def after(milliseconds: int) -> bool:
        world.now += milliseconds / 1000
        await world.fences.look()
        found = world.fences.of("people", SECOND.lineage, 2)
        assert found is not None
        return found.fenced_ms is not None

    takes = after_right_ms(LEASE, fresh)
    assert not await after(right_ms(LEASE) + 1)
    assert not await after(takes - 1)
    world.book.roster.settle(world.book.now_ms())
    assert not await after(1)
    assert not await after(right_ms(LEASE))
    assert not await after(takes - 1)
    assert await after(1)


async def test_an_event_of_a_lease_completes_a_fence_and_a_fault_ends_nothing(world: World) -> None:
    failures = [ClusterError("the API server is away; try again")]

    def fail_once() -> None:
        if failures:
            raise failures.pop()

    world.listed = fail_once
    task = asyncio.create_task(world.fences.run())
    try:
        world.write(SECOND)
        world.saw("g", SECOND)
        world.fences.looked()
        await _until(lambda: world.done(SECOND))
        assert (failures, task.done()) == ([], False)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - the loop under test has no event that tells
            await asyncio.sleep(0.01)
