"""The engine's cache is reset after a fence of the whole pool, never before, and nothing depends on whether it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from cachescope.core.admission import Request
from cachescope.core.digests import sha256
from cachescope.core.heads import Heads
from cachescope.guard.asgi import Guard, Running
from cachescope.guard.cleanup import BOUND_MS, Cleanup
from cachescope.guard.histogram import Histogram
from cachescope.guard.in_flight import Flight
from cachescope.guard.metrics import exposition
from tests.unit.guard_fakes import BODY, PATH, POOL, Server, World, head_at, until

ROLLED = head_at(pool=2, sequence=2)
TURNS = 50


class Client:
    """vLLM's `AsyncLLM`, as far as a reset asks it: one answer after the other, and the last for ever."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def is_sleeping(self) -> bool:
        return False

    async def reset_prefix_cache(self) -> object:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return await answer.wait() if isinstance(answer, asyncio.Event) else answer


def _world(client: object, *, bound_ms: int = BOUND_MS, enabled: bool = True) -> World:
    """A guard whose first heads are acknowledged, with that client in its engine; each pause takes half a second of its clock."""
    world = World()

    async def pause(seconds: float) -> None:
        world.clock.now += int(seconds * 1000)
        await asyncio.sleep(0)

    world.process.cleanup = Cleanup(POOL, enabled=enabled, clock=world.clock, sleep=pause, bound_ms=bound_ms)
    world.process.cleanup.saw({"type": "http", "app": SimpleNamespace(state=SimpleNamespace(engine_client=client))})
    return world


async def _acknowledge(world: World, heads: Heads | None) -> None:
    world.source.heads = heads
    world.process.apply()
    await world.process.closed()
    assert world.process.acknowledged is heads


@asynccontextmanager
async def _cleaning(world: World) -> AsyncIterator[None]:
    await _acknowledge(world, head_at())
    task = asyncio.ensure_future(world.process.cleanup.run())
    yield
    assert not task.done()
    task.cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(task, return_exceptions=True)


async def _turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "heads",
    [ROLLED, head_at(pool=3, tenant=2, sequence=9), head_at(lineage="restored", generation=2)],
    ids=["epoch", "more", "lineage"],
)
async def test_after_a_fence_of_the_whole_pool_the_cache_is_reset_once(heads: Heads) -> None:
    client = Client(True)
    world = _world(client)
    async with _cleaning(world):
        await _turns()
        assert client.asked == 0, "the first heads cool nothing"
        await _acknowledge(world, heads)
        await until(lambda: bool(world.process.cleanup.outcomes))
        await _turns()
    assert (world.process.cleanup.outcomes, client.asked) == ({"success": 1}, 1)


async def test_what_cools_a_tenant_or_nothing_leaves_everybody_elses_cache() -> None:
    client = Client(True)
    world = _world(client)
    async with _cleaning(world):
        await _acknowledge(world, head_at(tenant=2, sequence=2))
        await _acknowledge(world, head_at(tenant=2, sequence=3))
        await _turns()
        assert client.asked == 0
        await _acknowledge(world, head_at(pool=2, tenant=2, sequence=4))
        await until(lambda: client.asked == 1)


async def test_the_engine_is_not_asked_before_everything_older_is_closed() -> None:
    client = Client(True)
    world = _world(client)
    async with _cleaning(world):
        flight = world.process.admit(world.permit(), Request("POST", PATH, sha256(BODY)))
        assert isinstance(flight, Flight)
        world.source.heads = ROLLED
        world.process.apply()
        closing = asyncio.ensure_future(world.process.closed())
        await _turns()
        assert (world.process.acknowledged, client.asked) == (head_at(), 0)
        world.process.leave(flight)
        await closing
        await until(lambda: client.asked == 1)
    assert world.process.acknowledged is ROLLED


async def test_an_engine_whose_blocks_are_in_use_is_asked_until_they_are_not() -> None:
    client = Client(False, False, True)
    world = _world(client)
    async with _cleaning(world):
        await _acknowledge(world, ROLLED)
        await until(lambda: bool(world.process.cleanup.outcomes))
    assert (world.process.cleanup.outcomes, client.asked) == ({"success": 1}, 3)
    assert world.process.cleanup.seconds.total == 1.0


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [(False, "busy"), (None, "busy"), (RuntimeError("dead"), "failed"), (asyncio.CancelledError(), "failed")],
    ids=["busy", "an answer that is no success", "failed", "cancelled"],
)
async def test_an_engine_that_never_can_is_given_up_after_a_minute(answer: object, outcome: str) -> None:
    client = Client(answer)
    world = _world(client)
    async with _cleaning(world):
        await _acknowledge(world, ROLLED)
        assert world.process.acknowledged is ROLLED, "whatever becomes of the reset"
        began = world.clock.now
        await until(lambda: bool(world.process.cleanup.outcomes))
        assert (world.clock.now - began, client.asked) == (BOUND_MS, 121)
        client.answers = [True]
        await _acknowledge(world, head_at(pool=3, sequence=3))
        await until(lambda: len(world.process.cleanup.outcomes) == 2)
    assert world.process.cleanup.outcomes == {outcome: 1, "success": 1}
    assert [*world.process.cleanup.seconds.buckets()][-1] == ("+Inf", 1), "a reset that failed took no time that says anything"


async def test_an_engine_that_does_not_answer_is_given_up_too() -> None:
    client = Client(asyncio.Event())
    world = _world(client, bound_ms=1)
    async with _cleaning(world):
        await _acknowledge(world, ROLLED)
        await until(lambda: bool(world.process.cleanup.outcomes))
    assert world.process.cleanup.outcomes == {"unanswered": 1}


async def test_an_engine_that_cannot_be_asked_is_said() -> None:
    world = _world(None)
    async with _cleaning(world):
        await _acknowledge(world, ROLLED)
        await until(lambda: bool(world.process.cleanup.outcomes))
    assert world.process.cleanup.outcomes == {"failed": 1}


async def test_fences_that_come_meanwhile_share_one_more_reset() -> None:
    held = asyncio.Event()
    client = Client(held, True)
    world = _world(client)
    async with _cleaning(world):
        await _acknowledge(world, ROLLED)
        await until(lambda: client.asked == 1)
        await _acknowledge(world, head_at(pool=3, sequence=3))
        await _acknowledge(world, head_at(pool=4, sequence=4))
        held.set()
        await until(lambda: world.process.cleanup.outcomes["success"] == 2)
        await _turns()
    assert client.asked == 2


async def test_a_pool_that_did_not_ask_for_it_is_not_cleaned_up() -> None:
    client = Client(True)
    world = _world(client, enabled=False)
    async with _cleaning(world):
        await _acknowledge(world, ROLLED)
        await _turns()
    assert client.asked == 0
    assert World().process.settings.resets_cache is False


async def test_it_runs_beside_requests_and_is_counted() -> None:
    client = Client(True)
    world = World(resets_cache=True)
    guard = Guard(world.engine, Running(world.process))
    application = SimpleNamespace(state=SimpleNamespace(engine_client=client))
    await _acknowledge(world, head_at())
    await guard({**world.scope(), "app": application}, Server([b""]).receive, Server([]).send)
    await _acknowledge(world, ROLLED)
    await until(lambda: bool(world.process.cleanup.outcomes))
    text = exposition(world.process, world.running.requests)
    await guard({"type": "lifespan"}, Server([]).receive, Server([]).send)
    assert 'cachescope_guard_cache_resets_total{outcome="success"} 1\n' in text
    assert 'cachescope_guard_cache_reset_seconds_bucket{le="0.01"} 1\n' in text
    assert 'cachescope_guard_cache_reset_seconds_bucket{le="+Inf"} 1\n' in text
    assert "cachescope_guard_cache_reset_seconds_sum 0.0\ncachescope_guard_cache_reset_seconds_count 1\n" in text


def test_a_histogram_counts_what_is_at_most_each_bound() -> None:
    values = Histogram((1.0, 5.0))
    for value in (0.5, 1.0, 3.0, 9.0):
        values.observe(value)
    assert (list(values.buckets()), values.total) == ([("1.0", 2), ("5.0", 3), ("+Inf", 4)], 13.5)
