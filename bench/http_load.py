"""A load generator for HTTP/1.1: each connection sends one request after another and keeps the seconds that each took.

Usage: `python -m bench.http_load PORT CONNECTIONS SECONDS BODY_BYTES KEY`; writes one JSON object.
It counts only answers with status 200 and stops at any other.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import cast

import uvloop


def chat_body(size: int) -> bytes:
    """A chat request of exactly `size` bytes."""
    frame = {"model": "tiny", "messages": [{"role": "user", "content": ""}]}
    empty = len(json.dumps(frame))
    frame["messages"] = [{"role": "user", "content": "a" * (size - empty)}]
    return json.dumps(frame).encode()


class Connection(asyncio.Protocol):
    """One connection with one request under way at a time."""

    def __init__(self, request: bytes, until: float, done: asyncio.Future[None]) -> None:
        self._request = request
        self._until = until
        self._done = done
        self._answer = b""
        self._sent = 0.0
        self._transport: asyncio.WriteTransport | None = None
        self.seconds: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop registers no base class
        self._send()

    def data_received(self, data: bytes) -> None:
        """Collect an answer; when it is whole, send the next request."""
        self._answer += data
        head, found, body = self._answer.partition(b"\r\n\r\n")
        if not found or len(body) < _length(head):
            return
        self.seconds.append(time.perf_counter() - self._sent)
        if not head.startswith(b"HTTP/1.1 200"):
            self._done.set_exception(RuntimeError(f"the answer was not 200 but {head.splitlines()[0]!r}"))
        elif time.perf_counter() > self._until:
            self._done.set_result(None)
        else:
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """A connection that is closed early ends the run."""
        if not self._done.done():
            self._done.set_exception(exc or RuntimeError("the connection was closed"))

    def _send(self) -> None:
        assert self._transport is not None  # noqa: S101 set before the first call
        self._answer = b""
        self._sent = time.perf_counter()
        self._transport.write(self._request)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


async def run(port: int, connections: int, seconds: float, body: bytes, key: str) -> dict[str, float]:
    """Load a port of this machine.

    Args:
        port: TCP port on 127.0.0.1.
        connections: How many connections at once.
        seconds: How long.
        body: The request's body.
        key: The bearer credential.

    Returns:
        `requests`, their number; `rate`, requests a second; `p50` and `p99`, in milliseconds.
    """
    loop = asyncio.get_running_loop()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\naccept: application/json\r\nuser-agent: bench\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    started = time.perf_counter()
    pairs = []
    for _ in range(connections):
        done: asyncio.Future[None] = loop.create_future()
        connection = Connection(head.encode() + body, started + seconds, done)
        await loop.create_connection(lambda made=connection: made, "127.0.0.1", port)  # type: ignore[misc]
        pairs.append((connection, done))
    await asyncio.gather(*(done for _, done in pairs))
    elapsed = time.perf_counter() - started
    times = sorted(value for connection, _ in pairs for value in connection.seconds)
    count = len(times)
    return {
        "requests": count,
        "rate": count / elapsed,
        "p50": times[count // 2] * 1000,
        "p99": times[count * 99 // 100] * 1000,
    }


if __name__ == "__main__":
    port, connections, duration, size, token = sys.argv[1:]
    result = uvloop.run(run(int(port), int(connections), float(duration), chat_body(int(size)), token))
    sys.stdout.write(json.dumps(result))
