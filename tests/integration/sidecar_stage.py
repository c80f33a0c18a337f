"""A sidecar guard on real sockets: uvicorn before it, and an engine behind it that does on the wire what a test says."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn

from cachescope.core.digests import sha256
from cachescope.core.permits import write_permit
from cachescope.guard.delivery import Delivery
from cachescope.guard.proxy import Proxy, Upstream
from cachescope.guard.sidecar import server_protocol
from tests.unit.guard_fakes import BODY, KEY, PATH, World, head_at

CHUNKED = b"HTTP/1.1 200 OK\r\nX-Engine: a\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
SMALL = 4096
DEADLINE = 10
MARK = b"last-bytes"


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


@dataclass
class Engine:
    """A server that records each request and answers with the bytes that a test feeds it; `None` ends the connection."""

    wire: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    requests: list[bytes] = field(default_factory=list)
    connections: list[asyncio.StreamWriter] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            self.requests.append(head + await reader.readexactly(int(length[0]) if length else 0))
            self.arrived.set()
            listening = asyncio.ensure_future(self._listen(reader))
            while (sent := await self.wire.get()) is not None:
                writer.write(sent)
            listening.cancel()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone.set()
        finally:
            writer.close()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            await reader.read()
        self.gone.set()
        self.wire.put_nowait(None)

    def feed(self, *wire: bytes | None) -> None:
        for sent in wire:
            self.wire.put_nowait(sent)


@dataclass
class Stack:
    """A client's connection, the guard and the engine."""

    world: World
    engine: Engine
    proxy: Proxy
    server: uvicorn.Server
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def ask(self, *, permit: bool = True, method: str = "POST", path: str = PATH, body: bytes = BODY) -> None:
        names = {"Host": "x", "Content-Length": str(len(body)), "Connection": "X-Hop", "X-Hop": "1", "X-Kept": "1"}
        if permit:
            allowed = self.world.permit(method=method, path=path, body_digest=sha256(body))
            names["x-cachescope-permit"] = write_permit(KEY, allowed)
        head = "".join(f"{name}: {value}\r\n" for name, value in names.items())
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)

    def fence(self) -> None:
        self.world.source.heads = head_at(tenant=2)
        self.world.process.apply()

    async def answer(self) -> bytes:
        return await asyncio.wait_for(self.reader.read(), DEADLINE)

    async def until(self, text: bytes) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(text), DEADLINE)

    async def late(self) -> bytes:
        """What comes until the end of the large answer, or until the connection's end."""
        received = b""
        async with asyncio.timeout(DEADLINE):
            while MARK not in received and (part := await self.reader.read(SMALL)):
                received += part
        return received

    async def gone(self) -> float:
        """Seconds until the engine sees that its connection is closed."""
        began = time.monotonic()
        await asyncio.wait_for(self.engine.gone.wait(), DEADLINE)
        return time.monotonic() - began

    async def stuck(self) -> None:
        """Wait until a byte waits in the guard, since the client does not read."""
        async with asyncio.timeout(DEADLINE):
            while not self._waiting():  # noqa: ASYNC110 - no event says it
                await asyncio.sleep(0)

    def _waiting(self) -> bool:
        return any(connection.transport.get_write_buffer_size() for connection in self.server.server_state.connections)


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def _upstream(engine: Handler, path: Path | None = None) -> AsyncIterator[Upstream]:
    if path:
        server, upstream = await asyncio.start_unix_server(engine, path), Upstream(path=str(path))
    else:
        server = await asyncio.start_server(engine, "127.0.0.1", 0)
        upstream = Upstream(port=server.sockets[0].getsockname()[1])
    try:
        yield upstream
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def _serving(server: uvicorn.Server) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    with socket.socket() as listener, socket.socket() as client:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
        listener.bind(("127.0.0.1", 0))
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        async with asyncio.timeout(DEADLINE):
            while not server.started:  # noqa: ASYNC110 - what it waits for has no event, and the wait has a deadline
                await asyncio.sleep(0)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, listener.getsockname())
        reader, writer = await asyncio.open_connection(sock=client, limit=SMALL // 2)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()
            server.should_exit = True
            await asyncio.wait_for(serving, DEADLINE)


@asynccontextmanager
async def stack(path: Path | None = None, *, dropping: bool = True) -> AsyncIterator[Stack]:
    async with AsyncExitStack() as exits:
        engine, world = Engine(), World()
        upstream = await exits.enter_async_context(_upstream(engine, path))
        proxy = Proxy(upstream)
        exits.push_async_callback(proxy.close)
        world.serve(proxy)
        app, protocol = (Delivery(world.app), server_protocol()) if dropping else (world.app, "auto")
        config = uvicorn.Config(app, http=protocol, log_level="critical", lifespan="off", date_header=False, server_header=False)
        server = uvicorn.Server(config)
        reader, writer = await exits.enter_async_context(_serving(server))
        yield Stack(world, engine, proxy, server, reader, writer)
