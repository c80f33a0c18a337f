"""No right outlasts what an operator waits for, in random walks through faults; and the walk notices rounds that break a rule."""

from __future__ import annotations

import random

import pytest

from cachescope.leases.ports import Stored
from cachescope.leases.rounds import DONE, FAILED, GONE, Rounds
from tests.unit.lease_fakes import HOP_MS, LEASE_MS, UNREADABLE, Fault, LeasedProcess


class CountsFromAnswer(Rounds):
    """The right counted from the answer."""

    async def _write(self) -> int:
        await super()._write()
        return self._clock()


class CountsFromGrant(Rounds):
    """The right counted from the end of the read."""

    def _grant(self, sent_at: int) -> None:  # noqa: ARG002 - that is the fault
        super()._grant(self._clock())


class ReadsFirst(Rounds):
    """The heads read before the write."""

    async def _steps(self) -> None:
        heads = await self._holder.read_heads()
        sent_at = await self._write()
        await self._holder.apply(heads)
        self._grant(sent_at)


class GrantsWithoutWrite(Rounds):
    """A lost answer taken for a good one."""

    async def _attempt(self, name: str, sent: dict[int, int]) -> Stored | None:
        shown = await super()._attempt(name, sent)
        return Stored(shown.resource_version, self._tick) if shown else shown


class RepeatsItself(Rounds):
    """The second attempt says the same as the first."""

    async def _attempt(self, name: str, sent: dict[int, int]) -> Stored | None:
        if sent:
            self._tick = max(sent) - 1
            clock, self._clock = self._clock, lambda: 0
            try:
                shown = await super()._attempt(name, sent)
            finally:
                self._clock = clock
            sent[self._tick] = clock() - 4 * HOP_MS  # when this one was sent
            return shown
        return await super()._attempt(name, sent)


FAULTY = [CountsFromAnswer, CountsFromGrant, ReadsFirst, GrantsWithoutWrite, RepeatsItself]


async def _walk(rounds: type[Rounds], seed: int, count: int = 150) -> LeasedProcess:
    """Rounds with faults and pauses by chance; the rule is checked after each."""
    chance = random.Random(seed)  # noqa: S311 - the same faults in every run
    process = LeasedProcess(rounds)
    for _ in range(count):
        process.clock.now += chance.choice([0, 1000, 20_000, LEASE_MS])
        process.store.unreadable = int(chance.random() < 0.1)
        if chance.random() < 0.2:
            process.holder.read_faults = [UNREADABLE]
        await process.round(*chance.choices(list(Fault), k=3))
        if chance.random() < 0.5 and process.rounds._may_acknowledge():
            process.clock.now += chance.choice([0, 1000, LEASE_MS // 3])
            await process.acknowledge(*chance.choices(list(Fault), k=3))
    return process


@pytest.mark.parametrize("seed", range(4))
async def test_no_right_outlasts_what_an_operator_waits_for_whatever_happens(seed: int) -> None:
    process = await _walk(Rounds, seed)
    assert process.rounds.outcomes[DONE] > 30
    assert process.rounds.outcomes[GONE] > 5
    assert process.rounds.outcomes[FAILED] > 10
    ticks = process.store.ticks
    assert ticks == sorted(set(ticks))


@pytest.mark.parametrize("faulty", FAULTY)
async def test_the_walk_notices_a_rule_that_is_broken(faulty: type[Rounds]) -> None:
    with pytest.raises(AssertionError, match="a right"):
        await _walk(faulty, seed=1)
