"""The engine behind a sidecar guard: an ASGI application that forwards each request to it, once, and streams its answer.

Rules:

- a request is sent once: no retry, no redirect, no kept connection, which the engine could have closed just then;
- its target and body are those that the permit names, byte by byte; only hop-by-hop headers are taken off;
- when the client goes away, or the guard closes the request, the engine's connection is dropped before the application returns;
- an answer whose end cannot be told from a crash (no length, no chunks) is refused, and one that breaks off stays incomplete.
"""

from __future__ import annotations

import asyncio
import io
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from types import SimpleNamespace

import aiohttp
from yarl import URL  # aiohttp's own type of address; as a text it would be quoted anew, and differ from the permit's target

from cachescope.core.errors import SpecError
from cachescope.core.log_lines import fault_of
from cachescope.guard.answers import Answer, send_answer
from cachescope.guard.wire import BODY, DISCONNECT, REQUEST, START, Headers, Receive, Scope, Send

_LOG = logging.getLogger(__name__)
_CONNECT_SECONDS = 2.0
_LOCAL = re.compile(r"http://127\.0\.0\.1:([0-9]{1,5})/?")
_HOP_BY_HOP = frozenset(  # RFC 9110, 7.6.1
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_MADE_ANEW = frozenset({b"content-length", b"expect"})  # the body is whole already
_ADDED_BY_AIOHTTP = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")

METRICS = "/metrics"
UNREACHABLE = Answer(503, "engine_unreachable", "its engine accepts no connection; see the engine container's state and log", 1)
BROKEN = Answer(502, "engine_broken", "its engine gave no usable answer; see the engine container's log")


@dataclass(frozen=True)
class Upstream:
    """Where the engine listens.

    Attributes:
        port: Its port on 127.0.0.1; 80 where it is a socket.
        path: Path of its Unix socket, or empty.
        metrics: Where its metrics are, which the guard asks for as `/metrics`.
    """

    port: int = 80
    path: str = ""
    metrics: str = METRICS

    def url(self, path: str, query: str = "") -> URL:
        """The address of a request, exactly as given."""
        return URL.build(scheme="http", host="127.0.0.1", port=self.port, path=path, query_string=query, encoded=True)

    def session(self) -> aiohttp.ClientSession:
        """A client of the engine that sends each request once, on a connection of its own, and changes nothing in it."""
        trace = aiohttp.TraceConfig()
        trace.on_connection_create_start.append(_only_once)
        return aiohttp.ClientSession(
            connector=self._connector(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=_ADDED_BY_AIOHTTP,
            trace_configs=[trace],
            response_class=_Response,
        )

    def _connector(self) -> aiohttp.BaseConnector:
        if self.path:
            return aiohttp.UnixConnector(self.path, force_close=True, limit=0)
        return aiohttp.TCPConnector(force_close=True, limit=0)


def read_upstream(text: str) -> Upstream:
    """Read `CACHESCOPE_UPSTREAM`: `http://127.0.0.1:<port>` or `unix:<path>`.

    Raises:
        SpecError: It is something else; an engine that listens elsewhere could be reached beside its guard.
    """
    if text.startswith("unix:/"):
        return Upstream(path=text.removeprefix("unix:"))
    found = _LOCAL.fullmatch(text)
    if not found or not 0 < int(found[1]) < 2**16:
        raise SpecError(f"CACHESCOPE_UPSTREAM is {text!r}; set http://127.0.0.1:<port> or unix:/<path>, where the engine listens")
    return Upstream(port=int(found[1]))


class Proxy:
    """ASGI application that forwards requests to the engine.

    Args:
        upstream: Where it listens.
    """

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._session: aiohttp.ClientSession | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        """The client, made in the event loop that asks first."""
        if self._session is None:
            self._session = self._upstream.session()
        return self._session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI scope."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            raise RuntimeError(f"the proxy knows no ASGI scope {scope['type']!r}; put the guard in front of it")

    async def close(self) -> None:
        """Close the client; a later request makes another."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            stage = (await receive())["type"]
            if stage == "lifespan.shutdown":
                await self.close()
            await send({"type": f"{stage}.complete"})
            if stage == "lifespan.shutdown":
                return

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        first = await receive()  # the guard gives the body whole
        forwarding = asyncio.ensure_future(self._forward(scope, first.get("body", b""), send))
        # The guard's own request for metrics has no client: its receive says so from the start.
        client = _gone(receive) if first["type"] == REQUEST else asyncio.Event().wait()
        gone = asyncio.ensure_future(client)
        try:
            await asyncio.wait({forwarding, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            forwarding.cancel()
            gone.cancel()
            await asyncio.gather(forwarding, gone, return_exceptions=True)
        if not forwarding.cancelled():
            forwarding.result()

    async def _forward(self, scope: Scope, body: bytes, send: Send) -> None:
        try:
            response = await self._request(scope, body)
        except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError) as error:
            await _answer_fault(send, UNREACHABLE, error)
            return
        except (aiohttp.ClientError, OSError) as error:
            await _answer_fault(send, BROKEN, error)
            return
        try:
            await _stream(response, send)
        finally:
            response.close()

    async def _request(self, scope: Scope, body: bytes) -> aiohttp.ClientResponse:
        path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        asked = self._upstream.metrics if path == METRICS else path  # no gateway permits it: the guard itself asks
        url = self._upstream.url(asked, scope.get("query_string", b"").decode("latin-1"))
        headers = [(name.decode("latin-1"), value.decode("utf-8", "replace")) for name, value in _passed_on(scope["headers"])]
        data = io.BytesIO(body) if body else None  # written in pieces, so that a large one does not hold the event loop
        return await self.session.request(scope["method"], url, data=data, headers=headers, allow_redirects=False)


class _Response(aiohttp.ClientResponse):
    """A response whose connection is dropped when it is closed early, with what is left of the request."""

    def close(self) -> None:
        if self.connection is not None and self.connection.transport is not None:
            self.connection.transport.abort()
        super().close()


async def _only_once(_session: object, context: SimpleNamespace, _parameters: object) -> None:
    """Give a request one connection: aiohttp sends a GET again on another when the first breaks."""
    if getattr(context, "connected", False):
        raise ConnectionError("the connection broke")
    context.connected = True


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != DISCONNECT:
        pass


async def _answer_fault(send: Send, answer: Answer, error: BaseException) -> None:
    _LOG.warning("the engine gave no answer", extra={"code": answer.code, **fault_of(error)})
    await send_answer(send, answer)


async def _stream(response: aiohttp.ClientResponse, send: Send) -> None:
    if not _ends_visibly(response):
        _LOG.error("the engine's answer has neither a length nor chunks, so that nobody could see it break off; it is refused")
        await send_answer(send, BROKEN)
        return
    await send({"type": START, "status": response.status, "headers": _returned(response.raw_headers)})
    while part := await _next_part(response):
        await send({"type": BODY, "body": part, "more_body": True})
    if part is not None:
        await send({"type": BODY, "body": b"", "more_body": False})


async def _next_part(response: aiohttp.ClientResponse) -> bytes | None:
    """What came since, empty at the end, or `None` when the engine broke off."""
    try:
        return await response.content.readany()
    except (aiohttp.ClientError, OSError) as error:
        _LOG.warning("the engine broke its answer off; it stays incomplete", extra=fault_of(error))
        return None


def _ends_visibly(response: aiohttp.ClientResponse) -> bool:
    if response.method == "HEAD" or response.status in {204, 304}:
        return True
    chunked = response.headers.get("Transfer-Encoding", "").lower().endswith("chunked")
    return chunked or "Content-Length" in response.headers


def _passed_on(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in _end_to_end(headers) if name not in _MADE_ANEW]


def _returned(headers: Headers) -> list[tuple[bytes, bytes]]:
    given = list(headers)
    framed = any(name.lower() == b"transfer-encoding" for name, _ in given)
    return [(name, value) for name, value in _end_to_end(given) if not (framed and name == b"content-length")]


def _end_to_end(headers: Headers) -> list[tuple[bytes, bytes]]:
    given = [(name.lower(), value) for name, value in headers]
    named = _tokens(value for name, value in given if name == b"connection")
    return [(name, value) for name, value in given if name not in _HOP_BY_HOP and name not in named]


def _tokens(values: Iterable[bytes]) -> frozenset[bytes]:
    return frozenset(token.strip().lower() for value in values for token in value.split(b","))
