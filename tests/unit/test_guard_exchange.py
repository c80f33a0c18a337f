"""Answers in flight: every message is checked, and what became old is cut."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from cachescope.core.admission import Refusal
from cachescope.core.epochs import Floors
from cachescope.core.heads import Head
from cachescope.core.types import Epoch, TargetName
from cachescope.guard.exchange import ResponseClosed
from cachescope.guard.in_flight import Flight
from cachescope.guard.wire import App, Receive, Scope, Send
from tests.unit.guard_fakes import POOL, TENANT, Server, World, head_at


def _raise_tenant(world: World) -> None:
    world.source.head = head_at(tenant=2, sequence=2)


def _raise_pool(world: World) -> None:
    world.source.head = head_at(pool=2, sequence=2)


def _restore(world: World) -> None:
    world.source.head = head_at(lineage="restored")


def _lose_right(world: World) -> None:
    world.source.head = None


def _regain_right(world: World) -> None:
    world.source.generation += 1


def _break_check(world: World) -> None:
    world.process.source = None  # type: ignore[assignment]


CHANGES = [
    (_raise_tenant, Refusal.BEHIND),
    (_raise_pool, Refusal.BEHIND),
    (_restore, Refusal.BEHIND),
    (_lose_right, Refusal.NO_RIGHT),
    (_regain_right, Refusal.NO_RIGHT),
    (_break_check, Refusal.NO_RIGHT),
]


@asynccontextmanager
async def _streaming(world: World) -> AsyncIterator[tuple[Server, asyncio.Task[None], asyncio.Queue[bytes | None]]]:
    chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
    world.engine.chunks = chunks
    server = Server([b'{"model":"tiny","prompt":"hello"}'])
    task = asyncio.ensure_future(world.app(world.scope(world.permit()), server.receive, server.send))
    chunks.put_nowait(b"one")
    await server.until_messages(2)
    yield server, task, chunks
    chunks.put_nowait(None)
    await asyncio.wait_for(task, 5)


async def test_a_stream_passes_while_nothing_changes() -> None:
    world = World()
    async with _streaming(world) as (server, task, chunks):
        assert world.process.in_flight.counts() == {"open": 1, "closing": 0}
        world.source.head = head_at(sequence=9)
        chunks.put_nowait(b"two")
        chunks.put_nowait(None)
        await asyncio.wait_for(task, 5)
    assert (server.body, server.complete) == (b"onetwo", True)
    assert world.process.in_flight.counts() == {"open": 0, "closing": 0}


@pytest.mark.parametrize(("change", "reason"), CHANGES)
async def test_the_next_message_after_a_change_is_not_handed_over(change: Callable[[World], None], reason: Refusal) -> None:
    world = World()
    async with _streaming(world) as (server, task, chunks):
        change(world)
        chunks.put_nowait(b"two")
        await asyncio.wait_for(task, 5)
        assert (server.body, server.complete) == (b"one", False)
        assert world.process.in_flight.cuts == {reason.code: 1}


async def test_an_applied_head_closes_without_waiting_for_a_message() -> None:
    world = World()
    async with _streaming(world) as (server, _, chunks):
        _raise_tenant(world)
        world.process.apply()
        await asyncio.wait_for(world.engine.disconnected.wait(), 5)
        assert world.process.in_flight.counts() == {"open": 0, "closing": 1}
        chunks.put_nowait(b"two")
    assert (server.body, server.complete) == (b"one", False)


@pytest.mark.parametrize("change", [_lose_right, _regain_right])
async def test_the_loss_of_a_right_closes_everything_of_its_generation(change: Callable[[World], None]) -> None:
    world = World()
    async with _streaming(world):
        change(world)
        world.process.apply()
        await asyncio.wait_for(world.engine.disconnected.wait(), 5)


async def test_a_head_that_does_not_concern_a_request_leaves_it_open() -> None:
    world = World()
    async with _streaming(world) as (server, task, chunks):
        world.source.head = Head("lineage", 2, Floors({POOL: Epoch(1), TENANT: Epoch(1), TargetName("c" * 64): Epoch(7)}))
        world.process.apply()
        chunks.put_nowait(b"two")
        chunks.put_nowait(None)
        await asyncio.wait_for(task, 5)
    assert (server.body, server.complete) == (b"onetwo", True)


async def test_a_client_that_goes_away_is_a_disconnect_for_the_engine() -> None:
    world = World()
    async with _streaming(world) as (server, _, _chunks):
        server.gone.set()
        await asyncio.wait_for(world.engine.disconnected.wait(), 5)
    assert world.process.in_flight.cuts == {}


@pytest.mark.parametrize(("change", "reason"), CHANGES)
async def test_a_change_before_the_answer_starts_is_an_error_of_the_guard(change: Callable[[World], None], reason: Refusal) -> None:
    world = World()

    async def slow(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        change(world)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"secret", "more_body": False})

    server = await _served_by(world, slow)
    assert (server.status, server.code, server.complete) == (reason.status, reason.code, True)
    assert b"secret" not in server.body


async def test_an_engine_that_stops_without_answering_a_closed_request_gets_the_guards_error() -> None:
    world = World()

    async def cancelled(_: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - it never answers
        await receive()
        _raise_tenant(world)
        world.process.apply()
        assert (await receive())["type"] == "http.disconnect"
        raise ValueError("the engine does not like it")

    server = await _served_by(world, cancelled)
    assert (server.status, server.code) == (409, Refusal.BEHIND.code)


async def test_an_engine_that_keeps_sending_after_the_cut_sends_into_the_void() -> None:
    world = World()
    raised = 0

    async def stubborn(_: Scope, receive: Receive, send: Send) -> None:
        nonlocal raised
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        _raise_pool(world)
        for more in (True, True, False):
            try:
                await send({"type": "http.response.body", "body": b"secret", "more_body": more})
            except ResponseClosed:
                raised += 1

    server = await _served_by(world, stubborn)
    assert (raised, server.body, server.complete) == (3, b"", False)


async def test_an_engines_own_failure_is_the_servers_to_answer() -> None:
    world = World()

    async def broken(_: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - it never answers
        await receive()
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await _served_by(world, broken)
    assert world.process.in_flight.counts() == {"open": 0, "closing": 0}


async def test_the_check_of_a_message_takes_microseconds() -> None:
    world = World()
    await world.ask(world.permit())
    head = head_at()
    world.source.head = head
    flight = Flight(world.permit().epochs, 1, head)
    started = time.process_time()
    for _ in range(10_000):
        world.process.verdict(flight)
    assert (time.process_time() - started) / 10_000 < 25e-6  # five times the figure to reach, for a busy machine


async def _served_by(world: World, app: App) -> Server:
    world.serve(app)
    return await asyncio.wait_for(world.ask(world.permit()), 5)
