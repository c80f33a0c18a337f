"""Answers in flight: every message is checked, and what became old is cut."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from cachescope.core.admission import Refusal, Request
from cachescope.core.digests import sha256
from cachescope.core.ledgers import Floor
from cachescope.core.types import Epoch, Reuse, TargetName
from cachescope.guard.exchange import ResponseClosed
from cachescope.guard.in_flight import Flight
from cachescope.guard.wire import App, Receive, Scope, Send
from tests.unit.guard_fakes import BODY, PATH, TENANT, Server, World, bypassing, denying, head_at, with_authorization

FRESH_MS = 120_000
IDLE = {"open": 0, "draining": 0, "closing": 0}


def _raise_tenant(world: World) -> None:
    world.source.heads = head_at(tenant=2, sequence=2)


def _raise_pool(world: World) -> None:
    world.source.heads = head_at(pool=2, sequence=2)


def _restore(world: World) -> None:
    world.source.heads = head_at(lineage="restored", generation=2)


def _say_restored(world: World) -> None:
    world.source.heads = with_authorization(sequence=2, restored=1)


def _deny(world: World) -> None:
    world.source.heads = denying(2)


def _forget_changes(world: World) -> None:
    world.source.heads = with_authorization(sequence=9, reach=8)


def _bypass(world: World) -> None:
    world.source.heads = bypassing()


def _lose_right(world: World) -> None:
    world.source.left_ms = 0


def _regain_right(world: World) -> None:
    world.source.generation += 1


def _restart(world: World) -> None:
    world.process.restart()


def _release(world: World) -> None:
    world.process.release()


def _break_check(world: World) -> None:
    world.process.source = None  # type: ignore[assignment]


CHANGES = [
    (_raise_tenant, Refusal.BEHIND),
    (_raise_pool, Refusal.BEHIND),
    (_restore, Refusal.OTHER_LINEAGE),
    (_say_restored, Refusal.UNCONFIRMED),
    (_deny, Refusal.REVOKED),
    (_forget_changes, Refusal.BEHIND),
    (_bypass, Refusal.BYPASSED),
    (_lose_right, Refusal.LEASE_LOST),
    (_regain_right, Refusal.LEASE_LOST),
    (_restart, Refusal.LEASE_LOST),
    (_release, Refusal.NO_RIGHT),
    (_break_check, Refusal.NO_RIGHT),
]


@asynccontextmanager
async def _streaming(
    world: World, reuse: Reuse = Reuse.SALTED
) -> AsyncIterator[tuple[Server, asyncio.Task[None], asyncio.Queue[bytes | None]]]:
    chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
    world.engine.chunks = chunks
    server = Server([b'{"model":"tiny","prompt":"hello"}'])
    task = asyncio.ensure_future(world.app(world.scope(world.permit(reuse=reuse)), server.receive, server.send))
    chunks.put_nowait(b"one")
    await server.until_messages(2)
    yield server, task, chunks
    chunks.put_nowait(None)
    await asyncio.wait_for(task, 5)


async def test_a_stream_passes_while_nothing_changes() -> None:
    world = World()
    async with _streaming(world) as (server, task, chunks):
        assert world.process.in_flight.counts() == {"open": 1, "draining": 0, "closing": 0}
        world.source.heads = head_at(sequence=9)
        chunks.put_nowait(b"two")
        chunks.put_nowait(None)
        await asyncio.wait_for(task, 5)
    assert (server.body, server.complete) == (b"onetwo", True)
    assert world.process.in_flight.counts() == IDLE


@pytest.mark.parametrize(("change", "reason"), CHANGES)
async def test_the_next_message_after_a_change_is_not_handed_over(change: Callable[[World], None], reason: Refusal) -> None:
    world = World()
    async with _streaming(world) as (server, task, chunks):
        change(world)
        chunks.put_nowait(b"two")
        await asyncio.wait_for(task, 5)
        assert (server.body, server.complete) == (b"one", False)
        assert world.process.in_flight.closed == {reason.code: 1}


async def test_an_applied_head_closes_without_waiting_for_a_message() -> None:
    world = World()
    async with _streaming(world) as (server, _, chunks):
        _raise_tenant(world)
        world.process.apply()
        await asyncio.wait_for(world.engine.disconnected.wait(), 5)
        assert world.process.in_flight.counts() == {"open": 0, "draining": 0, "closing": 1}
        chunks.put_nowait(b"two")
    assert (server.body, server.complete) == (b"one", False)


@pytest.mark.parametrize("change", [_lose_right, _regain_right, _restart, _release])
async def test_the_loss_of_a_right_closes_everything_of_its_generation(change: Callable[[World], None]) -> None:
    world = World()
    async with _streaming(world):
        change(world)
        world.process.apply()
        await asyncio.wait_for(world.engine.disconnected.wait(), 5)


async def test_a_head_that_does_not_concern_a_request_leaves_it_open() -> None:
    world = World()
    async with _streaming(world) as (server, task, chunks):
        world.source.heads = with_authorization(
            sequence=2, floors={TENANT: Floor(Epoch(1)), TargetName("c" * 64): Floor(Epoch(7), Epoch(7), denied=Epoch(7))}
        )
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
    assert world.process.in_flight.closed == {}


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
    assert world.process.in_flight.counts() == IDLE


async def test_a_stream_outlives_the_list_of_changes_that_it_was_judged_by() -> None:
    world = World()
    async with _streaming(world) as (server, task, chunks):
        for sequence, reach in ((5, 1), (12, 5), (19, 12)):
            world.source.heads = with_authorization(sequence=sequence, reach=reach)
            world.process.apply()
        chunks.put_nowait(b"two")
        chunks.put_nowait(None)
        await asyncio.wait_for(task, 5)
    assert (server.body, server.complete) == (b"onetwo", True)


async def test_a_fresh_stream_goes_on_without_a_right_until_its_time_is_over() -> None:
    world = World()
    async with _streaming(world, Reuse.FRESH) as (server, task, chunks):
        world.clock.now += FRESH_MS - 1
        _lose_right(world)
        world.process.apply()
        chunks.put_nowait(b"two")
        await server.until_messages(3)
        world.clock.now += 1
        chunks.put_nowait(b"three")
        await asyncio.wait_for(task, 5)
    assert (server.body, server.complete) == (b"onetwo", False)
    assert world.process.in_flight.closed == {Refusal.FRESH_OVER.code: 1}


async def test_a_fresh_stream_has_no_time_limit_under_a_right() -> None:
    world = World()
    async with _streaming(world, Reuse.FRESH) as (server, task, chunks):
        world.clock.now += 10 * FRESH_MS
        chunks.put_nowait(b"two")
        chunks.put_nowait(None)
        await asyncio.wait_for(task, 5)
    assert (server.body, server.complete) == (b"onetwo", True)


@pytest.mark.parametrize("reuse", [Reuse.SALTED, Reuse.FRESH])
async def test_a_gap_between_two_rights_that_nobody_noticed_closes(reuse: Reuse) -> None:
    world = World()
    async with _streaming(world, reuse) as (server, task, chunks):
        _lose_right(world)  # nothing was sent and nothing applied in between
        world.source.left_ms, world.source.generation = 1000, 2
        chunks.put_nowait(b"two")
        await asyncio.wait_for(task, 5)
    assert (server.body, server.complete) == (b"one", False)


async def test_with_deny_the_end_of_a_right_ends_what_is_fresh_too() -> None:
    world = World(fresh_ms=0)
    async with _streaming(world, Reuse.FRESH) as (server, task, chunks):
        _lose_right(world)
        chunks.put_nowait(b"two")
        await asyncio.wait_for(task, 5)
    assert (server.body, world.process.in_flight.closed) == (b"one", {Refusal.NO_RIGHT.code: 1})


async def test_the_check_of_a_message_takes_microseconds() -> None:
    world = World()
    flight = world.process.admit(world.permit(), Request("POST", PATH, sha256(BODY)))
    assert isinstance(flight, Flight)
    started = time.process_time()
    for _ in range(10_000):
        world.process.verdict(flight)
    seconds = (time.process_time() - started) / 10_000
    assert seconds < 25e-6  # five times the figure to reach, for a busy machine


async def _served_by(world: World, app: App) -> Server:
    world.serve(app)
    return await asyncio.wait_for(world.ask(world.permit()), 5)
