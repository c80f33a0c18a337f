"""Leader election: never two at once, whatever is lost on the way, and soon another when the leader is gone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import pytest

from cachescope.kube.election import Election
from cachescope.kube.rest import ApiError, Document
from tests.unit.fake_api import FakeApi

PATH = "/apis/coordination.k8s.io/v1/namespaces/n/leases/operator"


class Times:
    """Seconds that only a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class UnsureApi(FakeApi):
    """Takes its time, and loses requests and answers by the dice of a test."""

    def __init__(self, times: Times, dice: random.Random) -> None:
        super().__init__()
        self.times, self.dice = times, dice
        self.losses = 0.3

    async def get(self, path: str, **query: str) -> Document:
        await self._underway()
        found = await super().get(path, **query)
        await self._underway()
        return found

    async def create(self, path: str, document: Mapping[str, Any], **query: str) -> Document:
        await self._underway()
        made = await super().create(path, document, **query)
        await self._underway()
        return made

    async def replace(self, path: str, document: Mapping[str, Any], **query: str) -> Document:
        await self._underway()
        made = await super().replace(path, document, **query)
        await self._underway()
        return made

    async def _underway(self) -> None:
        for _ in range(self.dice.randrange(3)):
            self.times.now += self.dice.random() * self.dice.choice((1, 1, 1, 8))
            await asyncio.sleep(0)
        if self.dice.random() < self.losses / 2:
            raise ApiError(0, "lost; try again")


def candidate(api: FakeApi, times: Times, name: str = "a", **options: float) -> Election:
    return Election(api, "n", "operator", name, clock=times, **options)


async def test_the_first_wins_at_once_and_renews() -> None:
    api, times = FakeApi(), Times()
    first, second = candidate(api, times), candidate(api, times, "b")
    await first.won()
    assert first.leading
    assert not await second.attempt()
    for _ in range(20):
        times.now += 9
        assert first.leading
        assert await first.attempt()
        assert not await second.attempt()
    spec = api.objects[PATH]["spec"]
    assert spec["holderIdentity"] == first.identity != "a"
    assert spec["leaseDurationSeconds"] == 15
    assert spec["leaseTransitions"] == 0


async def test_a_leader_that_does_not_renew_stops_before_another_begins() -> None:
    api, times = FakeApi(), Times()
    first, second = candidate(api, times), candidate(api, times, "b")
    await first.won()
    await second.attempt()
    times.now += 10
    assert not first.leading
    times.now += 4.9
    assert not await second.attempt()
    times.now += 0.1
    assert await second.attempt()
    assert api.objects[PATH]["spec"]["leaseTransitions"] == 1
    assert not await first.attempt()


async def test_an_observer_counts_from_what_it_saw_and_never_from_the_written_time() -> None:
    api, times = FakeApi(), Times()
    await candidate(api, times).won()
    api.objects[PATH]["spec"]["renewTime"] = "1970-01-01T00:00:00.000000Z"
    times.now += 100
    late = candidate(api, times, "b")
    assert not await late.attempt(), "it has seen this lease for no time"
    times.now += 15
    assert await late.attempt()


async def test_leading_counts_from_the_send_of_a_write_and_not_from_its_answer() -> None:
    api, times = FakeApi(), Times()
    first = candidate(api, times)
    await first.won()
    real = api.replace

    async def late(*arguments: Any, **query: Any) -> Document:
        written = await real(*arguments, **query)
        times.now += 8
        return written

    api.replace = late  # type: ignore[method-assign]
    times.now += 1
    assert await first.attempt()
    times.now += 1.9
    assert first.leading
    times.now += 0.2
    assert not first.leading


async def test_a_released_lease_is_taken_at_once() -> None:
    api, times = FakeApi(), Times()
    first, second = candidate(api, times), candidate(api, times, "b")
    await first.won()
    await first.release()
    assert not first.leading
    await second.won()
    await first.release()
    assert api.objects[PATH]["spec"]["holderIdentity"] == second.identity


async def test_a_process_with_the_same_name_is_another() -> None:
    api, times = FakeApi(), Times()
    await candidate(api, times, "pod-0").won()
    assert not await candidate(api, times, "pod-0").attempt()


async def test_a_lease_that_vanished_is_waited_for_by_who_saw_it() -> None:
    api, times = FakeApi(), Times()
    first, second = candidate(api, times), candidate(api, times, "b")
    await first.won()
    await second.attempt()
    api.objects.clear()
    assert not await second.attempt()
    assert not await first.attempt()
    assert await first.attempt(), "its leader makes it again, once it read that it is gone"
    assert not await second.attempt()


async def test_held_returns_when_another_took_over() -> None:
    api, times = FakeApi(), Times()
    first = candidate(api, times, duration=0.3, renew=0.2, retry=0.01)
    await first.won()
    holding = asyncio.create_task(first.held())
    await asyncio.sleep(0)
    await api.replace(PATH, {**api.objects[PATH], "spec": {"holderIdentity": "other"}})
    await asyncio.wait_for(holding, 5)
    assert not first.leading


async def test_held_returns_in_time_when_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    api = FakeApi()
    first = Election(api, "n", "operator", "a", duration=3.0, renew=0.3, retry=0.02)
    await first.won()

    async def hang(*_: Any, **__: Any) -> Document:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(api, "replace", hang)
    started = asyncio.get_running_loop().time()
    await asyncio.wait_for(first.held(), 5)
    assert asyncio.get_running_loop().time() - started < 3
    assert not first.leading


def test_times_that_cannot_be_safe_are_refused() -> None:
    with pytest.raises(RuntimeError, match="give other times"):
        candidate(FakeApi(), Times(), renew=15)


async def together(seed: int, *, careless: bool = False) -> tuple[int, int]:
    """Three candidates over many attempts; how often one led, and how often two."""
    dice, times = random.Random(seed), Times()  # noqa: S311 - a search that can be repeated
    api = UnsureApi(times, dice)
    everybody = [candidate(api, times, str(number)) for number in range(3)]
    if careless:
        for one in everybody:
            one._duration = 1.0  # who waits less than a leader leads
    led = twice = 0
    for _ in range(100):
        times.now += dice.random() * dice.choice((1, 1, 8))
        trying = [asyncio.create_task(one.attempt()) for one in dice.sample(everybody, dice.randrange(1, 4))]
        while not all(task.done() for task in trying):
            await asyncio.sleep(0)
            leaders = sum(one.leading for one in everybody)
            led, twice = led + (leaders == 1), twice + (leaders > 1)
    return led, twice


async def test_there_are_never_two_leaders_whatever_is_lost() -> None:
    counts = [await together(seed) for seed in range(6)]
    assert sum(led for led, _ in counts) > 500
    assert sum(twice for _, twice in counts) == 0


async def test_candidates_that_wait_too_little_are_found_by_the_same_search() -> None:
    assert sum([(await together(seed, careless=True))[1] for seed in range(6)]) > 0


async def test_a_lost_answer_costs_no_leadership() -> None:
    api, times = FakeApi(), Times()
    first = candidate(api, times)
    await first.won()
    real = api.replace

    async def lose(*arguments: Any, **query: Any) -> Document:
        await real(*arguments, **query)
        raise ApiError(0, "the answer was lost; try again")

    api.replace = lose  # type: ignore[method-assign]
    times.now += 2
    assert not await first.attempt()
    api.replace = real  # type: ignore[method-assign]
    assert first.leading
    assert await first.attempt()
