"""What flows through a sidecar guard: large bodies both ways, events as they come, one connection for many requests."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cachescope.guard.metrics_port import engine_metrics
from cachescope.guard.proxy import Proxy, Upstream
from tests.integration.sidecar_stage import CHUNKED, DEADLINE, END, Stack, chunk, stack
from tests.unit.guard_fakes import PATH, World

LARGE = bytes(range(256)) * (8 * 2**20 // 256)
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n%s"
MOST_HELD = 4 * 2**20
"""Far above what a Unix socket, aiohttp and uvicorn hold of an answer, far below the answer itself."""


@pytest.mark.parametrize("unix", [False, True])
async def test_a_large_request_reaches_the_engine_whole(tmp_path: Path, *, unix: bool) -> None:
    async with stack(tmp_path / "engine.sock" if unix else None) as it:
        it.ask(body=LARGE)
        it.engine.feed(OK % b"ok")
        assert (await it.until(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200")
        assert it.engine.requests[0].partition(b"\r\n\r\n")[2] == LARGE


@pytest.mark.parametrize("unix", [False, True])
async def test_a_large_answer_reaches_the_client_whole(tmp_path: Path, *, unix: bool) -> None:
    async with stack(tmp_path / "engine.sock" if unix else None) as it:
        it.ask()
        it.engine.feed(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LARGE), LARGE)
        await it.until(b"\r\n\r\n")
        assert await asyncio.wait_for(it.reader.readexactly(len(LARGE)), DEADLINE) == LARGE


async def test_an_event_is_there_before_the_engine_makes_the_next() -> None:
    async with stack() as it:
        it.ask()
        it.engine.feed(SSE)
        assert b"content-type: text/event-stream" in await it.until(b"\r\n\r\n")
        for number in range(3):
            event = b"data: {%d}\n\n" % number
            it.engine.feed(chunk(event))
            assert await it.until(event + b"\r\n")
        it.engine.feed(END)
        assert await it.until(END)


async def test_a_client_that_does_not_read_makes_the_engine_wait(tmp_path: Path) -> None:
    async with stack(tmp_path / "engine.sock") as it:
        it.ask()
        it.engine.feed(CHUNKED)
        await it.until(b"\r\n\r\n")
        it.engine.feed(*[chunk(bytes(2**20))] * 8)
        it.engine.feed(END)
        assert await _at_rest(it) > 8 * 2**20 - MOST_HELD, "the engine holds what nobody takes"
        await asyncio.wait_for(_read_to_the_end(it), DEADLINE)  # and hands it over once somebody does


async def _at_rest(it: Stack) -> int:
    """What the engine could not hand over, once that does not change any more."""
    (connection,) = it.engine.connections
    await it.stuck()
    before = -1
    async with asyncio.timeout(DEADLINE):
        while (left := connection.transport.get_write_buffer_size()) != before or it.engine.wire.qsize():
            before = left
            for _ in range(100):
                await asyncio.sleep(0)
    return left


async def _read_to_the_end(it: Stack) -> None:
    tail = b""
    while not tail.endswith(END):
        part = await it.reader.read(2**16)
        assert part, "the connection ended before the answer"
        tail = (tail + part)[-len(END) :]


async def test_a_connection_of_the_gateway_is_kept_and_each_request_has_its_own_to_the_engine() -> None:
    async with stack() as it:
        for answer in (b"a1", b"a2", b"a3"):
            it.ask()
            it.engine.feed(OK % answer, None)
            assert await it.until(b"\r\n\r\n" + answer)
            it.engine.arrived.clear()
        assert (len(it.engine.requests), len(it.engine.connections)) == (3, 3)


async def test_metrics_that_are_elsewhere_are_asked_for_there_and_nothing_else_is(tmp_path: Path) -> None:
    async with stack(tmp_path / "engine.sock") as it:
        elsewhere = Proxy(Upstream(path=str(tmp_path / "engine.sock"), metrics="/prometheus/metrics"))
        it.engine.feed(OK % b"m1", None)
        assert await engine_metrics(elsewhere) == b"m1"
        await elsewhere.close()
        it.ask()
        it.engine.feed(OK % b"ok", None)
        await it.until(b"\r\n\r\nok")
        assert [request.split(b" ")[1] for request in it.engine.requests] == [b"/prometheus/metrics", PATH.encode()]


async def test_a_socket_that_is_not_there_is_an_engine_that_is_down(tmp_path: Path) -> None:
    world = World()
    world.serve(proxy := Proxy(Upstream(path=str(tmp_path / "none.sock"))))
    server = await world.ask(world.permit())
    await proxy.close()
    assert (server.status, server.code) == (503, "engine_unreachable")
