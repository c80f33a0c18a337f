"""When a lease is written: rounds when they are due, acknowledgements at once, and a last word at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from cachescope.core.errors import SpecError
from cachescope.leases import rounds as rounds_module
from cachescope.leases.pace import BETWEEN_SECONDS
from cachescope.leases.rounds import ACKNOWLEDGED, DONE, FAILED, GONE
from tests.unit.lease_fakes import LEASE_MS, Fault, LeasedProcess

UNUSABLE = SpecError("the head cannot be applied; look at the ledger")


class Sleeps:
    """Pauses that a test ends, by their length in milliseconds."""

    def __init__(self) -> None:
        self.open: dict[int, list[asyncio.Future[None]]] = {}

    async def __call__(self, seconds: float) -> None:
        end = asyncio.get_running_loop().create_future()
        self.open.setdefault(round(seconds * 1000), []).append(end)
        await end

    def end(self, milliseconds: int) -> None:
        """End the pauses of that length."""
        for end in self.open.pop(milliseconds):
            if not end.done():
                end.set_result(None)

    def waiting(self) -> list[int]:
        """Lengths of the pauses that last."""
        return sorted(length for length, ends in self.open.items() if any(not end.done() for end in ends))


BETWEEN, LEAST, THIRD = round(BETWEEN_SECONDS * 1000), 1000, LEASE_MS // 3


class Running:
    """A process that goes round until the test ends, with pauses that the test ends."""

    def __init__(self, process: LeasedProcess) -> None:
        self.process = process
        self.sleeps = Sleeps()
        process.rounds._pace._sleep = self.sleeps
        self.task = asyncio.ensure_future(process.rounds.run())

    async def settle(self) -> None:
        """Everything that can happen without time has happened."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def after(self, milliseconds: int) -> list[int]:
        """End the pause of that length; what is waited for then."""
        await self.settle()
        self.sleeps.end(milliseconds)
        await self.settle()
        return self.sleeps.waiting()

    async def stop(self) -> None:
        self.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.task

    @property
    def writes(self) -> tuple[int, int]:
        return self.process.rounds.outcomes[DONE], self.process.rounds.outcomes[ACKNOWLEDGED]


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    """A process whose first round succeeded, and which has said what it read in it."""
    made = Running(LeasedProcess())
    assert await made.after(BETWEEN) == [BETWEEN, LEAST, THIRD]
    assert made.writes == (1, 1)
    yield made
    if not made.task.done():
        await made.stop()


async def test_what_the_first_round_read_is_acknowledged_at_once_and_nothing_else_without_news(running: Running) -> None:
    assert (await running.after(BETWEEN), running.writes) == ([LEAST, THIRD], (1, 1))


async def test_rounds_come_every_third_of_the_lease(running: Running) -> None:
    assert (await running.after(THIRD), running.writes) == ([BETWEEN, LEAST, THIRD], (2, 1))
    await running.after(BETWEEN)
    assert running.writes == (2, 1), "a round that read nothing new has nothing to acknowledge"


async def test_news_are_written_at_once_and_twenty_times_a_second_at_most(running: Running) -> None:
    await running.after(BETWEEN)
    process = running.process
    until, reads = process.clock() + process.left, process.holder.calls.count("read")
    for _ in range(3):
        process.rounds.hurry()
    await running.settle()
    assert running.writes == (1, 2), "three wishes are one write"
    process.rounds.hurry()
    await running.settle()
    assert running.writes == (1, 2), "too soon"
    await running.after(BETWEEN)
    assert running.writes == (1, 3)
    assert (process.clock() + process.left, process.holder.calls.count("read")) == (until, reads), "no read, and no longer right"
    process.check()


async def test_a_wish_for_a_round_waits_a_second_and_reads(running: Running) -> None:
    await running.after(BETWEEN)
    running.process.rounds.hurry(whole=True)
    await running.settle()
    assert running.writes == (1, 1)
    await running.after(LEAST)
    assert running.writes == (2, 1)
    assert (await running.after(BETWEEN), running.writes) == ([LEAST, THIRD], (2, 1)), "the wish was fulfilled"
    running.process.rounds.hurry()
    await running.settle()
    assert running.writes == (2, 2), "and the next one is for an acknowledgement"


async def test_a_right_that_ended_is_not_acknowledged_under_but_renewed(running: Running) -> None:
    await running.after(BETWEEN)
    running.process.clock.now += LEASE_MS
    running.process.rounds.hurry()
    await running.settle()
    assert running.writes == (1, 1)
    await running.after(LEAST)
    assert (running.writes, running.process.grants) == ((2, 1), [1, 2])


@pytest.mark.parametrize("fault", [Fault.DELETED, Fault.MARKED])
async def test_an_acknowledgement_that_finds_the_lease_gone_ends_the_right_and_the_process_goes_on_as_another(
    running: Running, fault: Fault
) -> None:
    await running.after(BETWEEN)
    process = running.process
    process.store.faults = [fault]
    process.rounds.hurry()
    await running.settle()
    assert (process.left, process.holder.calls.count("restarted"), process.rounds.outcomes[GONE]) == (0, 1, 1)
    await running.after(LEAST)
    assert (process.store.commits[-1].name, process.left > 0, process.right.generation) == ("pod.2", True, 2)


async def test_an_acknowledgement_that_fails_is_followed_by_a_round_soon(running: Running) -> None:
    await running.after(BETWEEN)
    running.process.store.faults = [Fault.LOST_BEFORE, Fault.LOST_BEFORE]
    running.process.rounds.hurry()
    await running.settle()
    assert (running.writes, running.process.rounds.outcomes[FAILED]) == ((1, 1), 1)
    assert running.process.left > 0
    running.process.rounds.hurry()
    await running.after(BETWEEN)
    assert running.writes == (1, 1), "and no other acknowledgement before it"
    await running.after(LEAST)
    assert running.writes == (2, 1)


async def test_what_cannot_be_closed_starts_no_further_round_and_the_right_lapses(running: Running) -> None:
    process = running.process
    process.holder.closes.clear()
    commits = len(process.store.commits)
    await running.after(BETWEEN)
    assert await running.after(LEAST) == [THIRD]
    await running.after(THIRD)
    process.rounds.hurry()
    process.rounds.hurry(whole=True)
    await running.settle()
    assert (running.sleeps.waiting(), len(process.store.commits)) == ([], commits + 1), "it waits for nothing but closing"
    process.clock.now += LEASE_MS
    assert (process.left, running.writes) == (0, (1, 1))
    process.holder.closes.set()
    await running.settle()
    assert process.rounds.outcomes[FAILED] == 1, "what took longer than the lease grants nothing"
    await running.after(LEAST)
    assert (running.writes, process.right.generation) == ((2, 1), 2)


async def test_failed_rounds_come_again_soon_and_then_less_often() -> None:
    process = LeasedProcess()
    process.holder.spec_faults += [UNUSABLE] * 7
    running = Running(process)
    await running.settle()
    pauses = []
    for _ in range(8):
        pauses.append(running.sleeps.waiting()[-1])
        await running.after(pauses[-1])
    assert pauses == [1000, 2000, 4000, 8000, 16_000, THIRD, THIRD, THIRD]
    assert process.rounds.outcomes == {FAILED: 7, DONE: 2, ACKNOWLEDGED: 0, GONE: 0}
    await running.stop()


async def test_a_process_that_ends_closes_everything_without_a_right_and_says_so_last(running: Running) -> None:
    process = running.process
    rights: list[int] = []
    released = process.holder.released

    async def noting() -> None:
        rights.append(process.left)
        await released()

    process.holder.released = noting  # type: ignore[method-assign]
    assert process.left > 0
    process.holder.calls.clear()
    await running.stop()
    assert (rights, process.left, process.holder.calls) == ([0], 0, ["released", "spec"])
    assert process.store.specs["pod.1"]["released"] is True
    await asyncio.wait_for(process.rounds.run(), 5)
    assert process.holder.calls == ["released", "spec"], "and it never comes back"


async def test_a_process_that_cannot_close_releases_nothing(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_module, "_RELEASE_SECONDS", 0.05)
    running.process.holder.closes.clear()
    await running.stop()
    assert (running.process.left, running.process.store.specs["pod.1"]["released"]) == (0, False)


@pytest.mark.parametrize(("faults", "said"), [([Fault.CONFLICT], True), ([Fault.LOST_AFTER], True), ([Fault.DELETED], False)])
async def test_the_last_write_is_conditional_as_all_are(running: Running, faults: list[Fault], said: bool) -> None:
    running.process.store.faults = faults
    await running.stop()
    assert [spec["released"] for spec in running.process.store.specs.values()] == [said]
    assert list(running.process.store.specs) == ["pod.1"]


async def test_a_process_that_never_wrote_has_nothing_to_release() -> None:
    process = LeasedProcess()
    process.holder.spec_faults.append(UNUSABLE)
    running = Running(process)
    await running.settle()
    await running.stop()
    assert (process.holder.calls, process.store.commits) == (["spec", "released"], [])
