"""The sidecar guard over real sockets: uvicorn before it, an engine behind it that does on the wire what a test says."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from cachescope.core.digests import sha256
from cachescope.guard.metrics_port import engine_metrics
from cachescope.guard.proxy import Proxy, Upstream
from tests.integration.sidecar_stage import CHUNKED, DEADLINE, END, MARK, Stack, chunk, stack
from tests.unit.guard_fakes import BODY, PATH, World, head_at

PROMPT_SECONDS = 0.5
LARGE = b"x" * 100_000 + MARK


@pytest.mark.parametrize("unix", [False, True])
async def test_a_request_reaches_the_engine_and_its_answer_comes_chunk_by_chunk(tmp_path: Path, *, unix: bool) -> None:
    async with stack(tmp_path / "engine.sock" if unix else None) as it:
        it.ask()
        it.engine.feed(CHUNKED)
        head = await it.until(b"\r\n\r\n")
        assert head.lower() == b"http/1.1 200 ok\r\nx-engine: a\r\ntransfer-encoding: chunked\r\n\r\n"
        for content in (b"one", b"two"):
            it.engine.feed(chunk(content))
            assert await it.until(chunk(content)) == chunk(content)
        it.engine.feed(END)
        assert await it.until(END) == END
        sent = it.engine.requests[0]
        assert sent.startswith(f"POST {PATH} HTTP/1.1\r\n".encode())
        assert sent.endswith(b"\r\n\r\n" + BODY)
        names = {line.split(b":")[0].lower() for line in sent.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]}
        assert names == {b"host", b"x-kept", b"x-request-id", b"content-length", b"connection"}


async def test_nothing_but_health_reaches_the_engine_without_a_permit() -> None:
    async with stack() as it:
        for method, path in (("POST", PATH), ("GET", "/metrics")):
            it.ask(permit=False, method=method, path=path)
            assert b"permit_required" in await it.until(b"}}")
        assert it.engine.requests == []
        it.ask(permit=False, method="GET", path="/health")
        it.engine.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        assert (await it.until(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200")
        assert it.engine.requests[0].startswith(b"GET /health HTTP/1.1\r\n")


def _leave(it: Stack) -> None:
    it.writer.transport.abort()


@pytest.mark.parametrize("end", [Stack.fence, _leave])
@pytest.mark.parametrize("started", [False, True])
async def test_a_closed_request_closes_the_engines_connection_at_once(end: Callable[[Stack], None], *, started: bool) -> None:
    async with stack() as it:
        it.ask()
        await asyncio.wait_for(it.engine.arrived.wait(), DEADLINE)
        if started:
            it.engine.feed(CHUNKED + chunk(b"one"))
            await it.until(chunk(b"one"))
        assert not it.engine.gone.is_set()
        end(it)
        assert await it.gone() < PROMPT_SECONDS


async def test_a_cut_answer_that_has_not_begun_is_an_error_of_the_guard() -> None:
    async with stack() as it:
        it.ask()
        await asyncio.wait_for(it.engine.arrived.wait(), DEADLINE)
        it.fence()
        assert (await it.until(b"\r\n")).startswith(b"HTTP/1.1 409")


BROKEN_OFF = {
    "within the chunks": CHUNKED + chunk(b"one"),
    "within a chunk": CHUNKED + chunk(b"one")[:-2],
    "within the length": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\none",
}


@pytest.mark.parametrize("sent", BROKEN_OFF.values(), ids=BROKEN_OFF)
async def test_an_answer_that_the_engine_breaks_off_never_looks_whole(sent: bytes) -> None:
    async with stack() as it:
        it.ask()
        it.engine.feed(sent)
        await it.until(b"one")
        it.engine.feed(None)
        assert await it.answer() in (b"", b"\r\n")


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nConte", b"HTTP/1.1 200 OK\r\n\r\nwhole?", b"SSH-2.0\r\n"])
async def test_an_answer_that_cannot_be_read_or_has_no_end_is_a_502(sent: bytes) -> None:
    async with stack() as it:
        it.ask(method="GET", path="/v1/models")
        it.engine.feed(sent, None, None)
        answer = await it.until(b"}}")
        assert answer.startswith(b"HTTP/1.1 502")
        assert b'"code": "engine_broken"' in answer
        assert len(it.engine.requests) == 1  # not sent again, though aiohttp would


async def test_an_engine_that_is_down_is_a_503() -> None:
    world = World()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, but it does not listen
        world.serve(proxy := Proxy(Upstream(port=closed.getsockname()[1])))
        server = await world.ask(world.permit())
        await proxy.close()
    assert (server.status, server.code) == (503, "engine_unreachable")


LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LARGE)
ANSWERS = {"more to come": CHUNKED + chunk(LARGE), "whole": LENGTH + LARGE}


@pytest.mark.parametrize("sent", ANSWERS.values(), ids=ANSWERS)
async def test_a_client_that_does_not_read_gets_nothing_from_the_guards_memory_after_the_fence(sent: bytes) -> None:
    async with stack() as it:
        it.ask()
        it.engine.feed(sent)
        await it.stuck()
        it.fence()
        await asyncio.wait_for(it.world.process.closing.over(), PROMPT_SECONDS)  # from here on the guard acknowledges
        assert MARK not in await it.answer()


def test_the_same_holds_in_uvloops_event_loop() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test_a_client_that_does_not_read_gets_nothing_from_the_guards_memory_after_the_fence(ANSWERS["more to come"]))
        runner.run(test_a_client_that_reads_late_gets_the_whole_answer_if_nothing_was_fenced(ANSWERS["more to come"]))


@pytest.mark.parametrize("sent", ANSWERS.values(), ids=ANSWERS)
async def test_a_client_that_reads_late_gets_the_whole_answer_if_nothing_was_fenced(sent: bytes) -> None:
    async with stack() as it:
        it.ask()
        it.engine.feed(sent, None)
        await it.stuck()
        assert MARK in await it.late()


async def test_a_server_that_flushes_what_was_cut_is_what_the_wrapper_is_for() -> None:
    async with stack(dropping=False) as it:
        it.ask()
        it.engine.feed(ANSWERS["whole"])
        await it.stuck()
        it.fence()
        assert MARK in await it.late()


async def test_a_request_that_the_engine_does_not_take_is_dropped_not_flushed(tmp_path: Path) -> None:
    path, loop = tmp_path / "engine.sock", asyncio.get_running_loop()
    world, body = World(), bytes(8 * 2**20)
    world.serve(proxy := Proxy(Upstream(path=str(path))))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.setblocking(False)
        asking = asyncio.ensure_future(world.ask(world.permit(body_digest=sha256(body)), body))
        engine, _ = await asyncio.wait_for(loop.sock_accept(listener), DEADLINE)
        with engine:
            for _ in range(100):  # by then the guard has written what the socket takes, one piece each turn of the loop
                await asyncio.sleep(0)
            engine.send(b"H")  # the guard listens
            world.source.heads = head_at(tenant=2)
            world.process.apply()
            assert (await asyncio.wait_for(asking, DEADLINE)).status == 409
            await asyncio.sleep(0)  # a dropped connection is closed in the next turn
            with pytest.raises(ConnectionError):
                engine.send(b"T")
    await proxy.close()


async def test_the_engines_metrics_are_read_through_the_proxy() -> None:
    async with stack() as it:
        metrics = b"vllm:num_requests_running 1\nvllm:num_requests_waiting 2\n"
        it.engine.feed(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(metrics), metrics), None)
        assert await engine_metrics(it.proxy) == metrics
        assert it.engine.requests[0].startswith(b"GET /metrics HTTP/1.1\r\n")
        it.engine.feed(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", None)
        assert await engine_metrics(it.proxy) == b""
