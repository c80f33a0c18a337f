"""`finished` is called exactly once for each forward, when its answer has ended, however it ended."""

from __future__ import annotations

import asyncio
from typing import Any

from cachescope.gateway.exchange import Forward, RequestHead
from tests.integration.envoy_fixtures import Gateway, envoy, gateway
from tests.integration.http_wire import Message, connected, read_message, request, send, until

__all__ = ["envoy", "gateway"]

STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n"


async def test_finished_comes_after_the_last_byte_of_a_stream(gateway: Gateway) -> None:
    go = asyncio.Event()

    async def stream(_: Message, writer: Any) -> None:
        writer.write(STREAM)
        await go.wait()
        writer.write(b"0\r\n\r\n")

    gateway.engine.behaviour = stream
    async with connected(gateway.port) as (reader, writer):
        writer.write(request())
        await reader.readuntil(b"a\r\n")
        # Another request passes whole in the meantime: had the end been told early, it would be here by now.
        gateway.engine.behaviour = answer_at_once
        assert (await send(gateway.port, request(b"[]"))).status == 200
        await until(lambda: len(gateway.gate.ended) == 1, "the other ended")
        assert gateway.gate.ended[0].body == b"[]"
        go.set()
        await reader.readuntil(b"0\r\n\r\n")
    await until(lambda: len(gateway.gate.ended) == 2, "the stream ended")
    assert gateway.gate.ended[1].body == b"{}"


async def answer_at_once(_: Message, writer: Any) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")


async def test_answer_with_trailers_ends_once(gateway: Gateway) -> None:
    async def trailers(_: Message, writer: Any) -> None:
        writer.write(STREAM + b"0\r\nx-late: 1\r\n\r\n")

    gateway.engine.behaviour = trailers
    async with connected(gateway.port) as (reader, writer):
        writer.write(request())
        await reader.readuntil(b"0\r\n")
    await until(lambda: len(gateway.gate.ended) == 1, "it ended")


async def test_client_that_leaves_mid_stream_ends_it_at_the_engine_too(gateway: Gateway) -> None:
    async def endless(_: Message, writer: Any) -> None:
        writer.write(STREAM)
        while True:
            writer.write(b"1\r\na\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    gateway.engine.behaviour = endless
    async with connected(gateway.port) as (reader, writer):
        writer.write(request())
        await reader.readuntil(b"a\r\n")
        assert gateway.gate.ended == []
    await until(lambda: len(gateway.gate.ended) == 1, "the processor was told")
    await until(lambda: gateway.engine.aborted == 1, "the engine was told")


async def test_engine_reset_ends_it(gateway: Gateway) -> None:
    async def reset(_: Message, writer: Any) -> None:
        writer.write(STREAM)
        await writer.drain()
        writer.transport.abort()

    gateway.engine.behaviour = reset
    async with connected(gateway.port) as (reader, writer):
        writer.write(request())
        await reader.read()
    await until(lambda: len(gateway.gate.ended) == 1, "it ended")


async def test_dead_engine_ends_it(gateway: Gateway) -> None:
    gateway.gate.endpoint = "127.0.0.1:1"
    assert (await send(gateway.port, request())).status == 503
    await until(lambda: len(gateway.gate.ended) == 1, "it ended")


async def test_client_that_leaves_during_the_body_is_never_decided(gateway: Gateway) -> None:
    async with connected(gateway.port) as (_, writer):
        writer.write(request(None, headers=(("content-length", "10"),)) + b"12345")
        await until(lambda: len(gateway.gate.heads) == 1, "the request came")
    assert (await send(gateway.port, request(b"[]"))).status == 200
    assert gateway.gate.bodies == [b"[]"]
    assert len(gateway.engine.requests) == 1


async def test_client_that_leaves_during_the_decision_reaches_no_engine(gateway: Gateway) -> None:
    cancelled = asyncio.Event()

    async def hang(_: RequestHead, body: bytes) -> Forward:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()
        return gateway.gate.forward(body)

    gateway.gate.on_decide = hang
    async with connected(gateway.port) as (_, writer):
        writer.write(request())
        await until(lambda: len(gateway.gate.bodies) == 1, "the decision began")
    async with asyncio.timeout(10):
        await cancelled.wait()
    assert (gateway.gate.ended, gateway.engine.requests) == ([], [])


async def test_many_streams_at_once_each_end_once(gateway: Gateway) -> None:
    go = asyncio.Event()

    async def stream(_: Message, writer: Any) -> None:
        writer.write(STREAM)
        await go.wait()
        writer.write(b"0\r\n\r\n")

    gateway.engine.behaviour = stream
    running = [asyncio.create_task(send(gateway.port, request(b"%d" % number))) for number in range(300)]
    await until(lambda: len(gateway.engine.requests) == 300, "all reached the engine at once")
    assert gateway.gate.ended == []
    go.set()
    assert {answer.body for answer in await asyncio.gather(*running)} == {b"a"}
    await until(lambda: len(gateway.gate.ended) == 300, "all ended")
    assert len({forward.body for forward in gateway.gate.ended}) == 300


async def test_two_requests_of_one_connection_end_apart(gateway: Gateway) -> None:
    async with connected(gateway.port) as (reader, writer):
        for body in (b"1", b"2"):
            writer.write(request(body))
            assert (await read_message(reader)).body == body
    await until(lambda: [forward.body for forward in gateway.gate.ended] == [b"1", b"2"], "both ended in order")
