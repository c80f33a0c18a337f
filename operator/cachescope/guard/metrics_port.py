"""A port that serves `GET /metrics` and nothing else.

The engine's own metrics are a hit oracle, so they are refused on the engine's port and served here, on a port that a
NetworkPolicy can keep to the monitoring namespace. Requests are bounded in size and time; bodies are never read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from cachescope.core.log_lines import fault_of
from cachescope.guard.wire import BODY, DISCONNECT, START, App, Message, Scope

_LOG = logging.getLogger(__name__)
_MAX_REQUEST_BYTES = 16_384
_SECONDS = 10.0


class MetricsPort:
    """The port.

    Args:
        port: Its number; 0 takes a free one.
        metrics: What it serves.
        host: Where it listens.
    """

    def __init__(self, port: int, metrics: Callable[[], Awaitable[bytes]], host: str = "0.0.0.0") -> None:  # noqa: S104 - a scraper is another pod
        self._number = port
        self._metrics = metrics
        self._host = host
        self._server: asyncio.Server | None = None

    async def open(self) -> int:
        """Listen; the number of the port."""
        self._server = await asyncio.start_server(self._connected, self._host, self._number, limit=_MAX_REQUEST_BYTES)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(await asyncio.wait_for(self._answer(reader), _SECONDS))
            await asyncio.wait_for(writer.drain(), _SECONDS)
        except (asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # a scraper that is too slow, too long or gone gets nothing
        except Exception as error:
            _LOG.error("the metrics cannot be served", extra=fault_of(error))
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        request = await reader.readuntil(b"\r\n\r\n")
        method, _, rest = request.split(b"\r\n", 1)[0].partition(b" ")
        if rest.partition(b" ")[0].partition(b"?")[0] != b"/metrics":
            return _response("404 Not Found", b"only /metrics is here\n")
        if method != b"GET":
            return _response("405 Method Not Allowed", b"only GET is served\n")
        return _response("200 OK", await self._metrics())


async def engine_metrics(app: App) -> bytes:
    """The engine's own metrics, asked inside the process; empty when it has none to give."""
    status, parts = 0, []

    async def receive() -> Message:
        return {"type": DISCONNECT}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == START:
            status = message["status"]
        elif message["type"] == BODY:
            parts.append(bytes(message.get("body", b"")))

    try:
        await app(_scope(), receive, send)
    except Exception as error:
        _LOG.error("the engine's metrics cannot be read", extra=fault_of(error))
        return b""
    return b"".join(parts) if status == 200 else b""


def _scope() -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/metrics",
        "raw_path": b"/metrics",
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"localhost"), (b"accept", b"text/plain")],
        "client": None,
        "server": None,
    }


def _response(status: str, body: bytes) -> bytes:
    headers = ("Content-Type: text/plain; version=0.0.4", f"Content-Length: {len(body)}", "Connection: close")
    return "\r\n".join((f"HTTP/1.1 {status}", *headers, "", "")).encode() + body
