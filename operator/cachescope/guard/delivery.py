"""Answers that are dropped, never flushed, when they end early: an ASGI wrapper around a guard, and the connection it acts on.

Rules:

- a message counts as handed over only once the process holds nothing of it any more; until then its request is in flight, so a
  fence still cuts it. Each message starts with an empty buffer, so that the guard's check and the write are one step;
- an answer that ends incomplete takes its connection with it in the same step: what is still buffered goes to nobody;
- a server that gives no such connection serves nothing.

A server's own way to end a cut answer, uvicorn's too, is `transport.close()`, which first sends all that is buffered, to a client
that may read it long after the fence. What the kernel has is out of reach. Behind TLS up to 64 KiB of a whole answer are too.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from cachescope.guard.answers import misconfigured, send_answer
from cachescope.guard.wire import BODY, DISCONNECT, App, Message, Receive, Scope, Send

STATE = "cachescope.connection"
"""The name in ASGI's `state` under which the server gives a request its connection."""

NO_CONNECTION = misconfigured("the server cannot drop a connection; start it with `python -m cachescope.guard.sidecar`")


class Connection:
    """One client's connection, as far as a wrapper needs it.

    Attributes:
        empty: Set while nothing waits to be sent, and once the connection is lost.
        lost: Set once the connection is lost.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.empty = asyncio.Event()
        self.empty.set()
        self.lost = asyncio.Event()
        transport.set_write_buffer_limits(high=0)  # from now on the server says of every byte whether it waits

    def drop(self) -> None:
        """Lose the connection now, with everything that waits to be sent."""
        self._transport.abort()


class DroppableProtocol(asyncio.Protocol):
    """Mixed into one of uvicorn's protocols, it gives each request its connection."""

    def __init__(self, *, app_state: dict[str, Any], **server: Any) -> None:  # noqa: ANN401 - passed on as uvicorn gives it
        self._state = dict(app_state)  # uvicorn shares one among all connections
        super().__init__(app_state=self._state, **server)  # type: ignore[call-arg] # uvicorn's class comes next

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        super().connection_made(transport)
        # It is one, but uvloop's class does not say so.
        self._connection = self._state[STATE] = Connection(cast(asyncio.Transport, transport))

    def pause_writing(self) -> None:
        """Called by the event loop when a byte has to wait."""
        super().pause_writing()
        self._connection.empty.clear()

    def resume_writing(self) -> None:
        """Called by the event loop when no byte waits any more."""
        super().resume_writing()
        self._connection.empty.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        super().connection_lost(exc)
        self._connection.lost.set()
        self._connection.empty.set()


class Delivery:
    """ASGI wrapper that lets no answer outlive its request.

    Args:
        app: The guard's application.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        connection = scope.get("state", {}).get(STATE)
        if not isinstance(connection, Connection):
            await send_answer(send, NO_CONNECTION)
            return
        await connection.empty.wait()  # a pipelined request comes while the answer before it still waits
        delivered = _Delivered(connection, receive, send)
        try:
            await self._app(scope, delivered.receive, delivered.send)
        finally:
            await delivered.end()


class _Delivered:
    """The messages of one answer."""

    def __init__(self, connection: Connection, receive: Receive, send: Send) -> None:
        self._connection = connection
        self._receive = receive
        self._send = send
        self._ending = False
        self._whole = False

    async def receive(self) -> Message:
        """The server's next message; it says that a client is gone already when it has the whole answer, which is too early."""
        message = await self._receive()
        if message["type"] == DISCONNECT and self._ending:
            await self._connection.lost.wait()
        return message

    async def send(self, message: Message) -> None:
        """Hand over, and wait until nothing of it is left here."""
        self._ending = message["type"] == BODY and not message.get("more_body", False)
        await self._send(message)
        await self._connection.empty.wait()
        self._whole = self._ending

    async def end(self) -> None:
        """Drop what is not whole; once the server knows, it has nothing to say about it."""
        if not self._whole:
            self._connection.drop()
            await self._connection.lost.wait()
