"""The guard under a real server: a cut answer must not look whole."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn

from cachescope.core.permits import write_permit
from tests.unit.guard_fakes import BODY, KEY, PATH, World, head_at


@asynccontextmanager
async def _serving(world: World) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(world.app, log_level="critical", lifespan="off"))
        async with asyncio.timeout(10):
            serving = asyncio.ensure_future(server.serve(sockets=[listener]))
            while not server.started:  # noqa: ASYNC110 - what it waits for has no event, and the wait has a deadline
                await asyncio.sleep(0)
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            yield reader, writer
            writer.close()
            server.should_exit = True
            await serving


def _request(world: World) -> bytes:
    permit = write_permit(KEY, world.permit())
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nx-cachescope-permit: {permit}\r\nContent-Length: {len(BODY)}\r\n\r\n"
    return head.encode() + BODY


@pytest.mark.parametrize("applied", [False, True])
async def test_a_cut_stream_ends_without_its_last_chunk(applied: bool) -> None:
    world = World()
    world.engine.chunks = asyncio.Queue()
    async with _serving(world) as (reader, writer):
        writer.write(_request(world))
        world.engine.chunks.put_nowait(b"one")
        await reader.readuntil(b"one\r\n")
        world.source.heads = head_at(tenant=2)
        if applied:
            world.process.apply()
        world.engine.chunks.put_nowait(b"two")
        assert await reader.read() == b""


async def test_a_stream_that_nothing_cut_ends_with_its_last_chunk() -> None:
    world = World()
    world.engine.chunks = asyncio.Queue()
    async with _serving(world) as (reader, writer):
        writer.write(_request(world))
        for chunk in (b"one", b"two", None):
            world.engine.chunks.put_nowait(chunk)
        assert (await reader.readuntil(b"0\r\n\r\n")).endswith(b"two\r\n0\r\n\r\n")
