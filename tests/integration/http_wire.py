"""HTTP/1.1 byte by byte: a client that sends exactly what it is told, and an engine that keeps exactly what it got."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

SECONDS = 15.0


@dataclass
class Message:
    """A request or an answer as it was on the wire."""

    start: str
    headers: list[tuple[str, str]]
    body: bytes = b""

    @property
    def status(self) -> int:
        return int(self.start.split()[1])

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    def error(self) -> dict[str, Any]:
        """The error object, of which all fields must be there."""
        assert self.values("content-type") == ["application/json"]
        error: dict[str, Any] = json.loads(self.body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition, or fail."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 what is waited for happens in another process
            await asyncio.sleep(0.005)
    assert condition(), what


async def read_head(reader: asyncio.StreamReader) -> Message:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = [line.partition(":") for line in lines[1:] if line]
    return Message(lines[0], [(key.lower(), value.strip()) for key, _, value in pairs])


async def read_message(reader: asyncio.StreamReader) -> Message:
    """One whole message, with its body by length or in chunks."""
    async with asyncio.timeout(SECONDS):
        message = await read_head(reader)
        if message.values("transfer-encoding") == ["chunked"]:
            message.body = await _chunks(reader)
        else:
            message.body = await reader.readexactly(int((message.values("content-length") or ["0"])[0]))
    return message


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int(await reader.readline(), 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readline()
    return b"".join(parts)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


def request(
    body: bytes | None = b"{}",
    *,
    method: str = "POST",
    path: str = "/v1/chat/completions",
    headers: tuple[tuple[str, str], ...] = (),
) -> bytes:
    """A request with its length, unless `body` is `None`."""
    length = () if body is None else (("content-length", str(len(body))),)
    fields = (("host", "gateway.test"), ("content-type", "application/json"), *length, *headers)
    lines = [f"{method} {path} HTTP/1.1", *(f"{key}: {value}" for key, value in fields), "", ""]
    return "\r\n".join(lines).encode("latin-1") + (body or b"")


async def send(port: int, raw: bytes) -> Message:
    """Send bytes on a connection of their own and read one answer."""
    async with connected(port) as (reader, writer):
        writer.write(raw)
        return await read_message(reader)


Behaviour = Callable[[Message, asyncio.StreamWriter], Awaitable[None]]


async def answer_ok(message: Message, writer: asyncio.StreamWriter) -> None:
    """Answer with the request's own body."""
    writer.write(b"HTTP/1.1 200 OK\r\nserver: engine/9\r\ncontent-length: %d\r\n\r\n%s" % (len(message.body), message.body))


@dataclass
class Engine:
    """A fake engine; `behaviour` decides how it answers."""

    port: int = 0
    behaviour: Behaviour = answer_ok
    requests: list[Message] = field(default_factory=list)
    aborted: int = 0
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            while True:
                head = await read_head(reader)
                head.body = await self._body(head, reader)
                self.requests.append(head)
                await self.behaviour(head, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.aborted += 1
        finally:
            writer.transport.abort()

    async def _body(self, head: Message, reader: asyncio.StreamReader) -> bytes:
        if head.values("transfer-encoding") == ["chunked"]:
            return await _chunks(reader)
        return await reader.readexactly(int((head.values("content-length") or ["0"])[0]))

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def running_engine() -> AsyncIterator[Engine]:
    engine = Engine()
    server = await asyncio.start_server(engine.serve, "127.0.0.1", 0, backlog=1024)
    engine.port = server.sockets[0].getsockname()[1]
    try:
        yield engine
    finally:
        server.close()
        engine.close()
        await asyncio.sleep(0.01)  # lets the aborted connections' tasks end before the loop does
