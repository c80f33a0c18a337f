"""One admitted request between the server and the engine: what the engine may read and what it may still send.

Rules:

- every message is checked in the same step of the event loop in which it is handed to the server;
- once the check fails, nothing of the engine passes any more: before the answer started the client gets an error of ours, after it
  the answer stays incomplete, so that the server closes the connection and nobody takes it for whole;
- the engine learns of it as of a client that went away, and stops computing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from cachescope.core.admission import Refusal
from cachescope.core.log_lines import fault_of
from cachescope.guard.answers import Answer, send_answer
from cachescope.guard.in_flight import Flight
from cachescope.guard.wire import BODY, DISCONNECT, REQUEST, START, App, Message, Receive, Scope, Send

_LOG = logging.getLogger(__name__)


class ResponseClosed(OSError):  # noqa: N818 - it says what happened, as ConnectionReset does
    """The answer was cut; the engine takes it for a connection that is gone."""


class Exchange:
    """The messages of one admitted request.

    Args:
        flight: The request in flight.
        body: Its whole body, as the permit names it.
        receive: The server's receive.
        send: The server's send.
        verdict: Whether a message of a flight may still be handed over.
        abort: Closes a flight.
    """

    def __init__(
        self,
        flight: Flight,
        body: bytes,
        *,
        receive: Receive,
        send: Send,
        verdict: Callable[[Flight], Refusal | None],
        abort: Callable[[Flight, Refusal], None],
    ) -> None:
        self._flight = flight
        self._body: bytes | None = body
        self._server_receive = receive
        self._server_send = send
        self._verdict = verdict
        self._abort = abort
        self._started = False
        self._complete = False
        self._cut = False

    async def run(self, app: App, scope: Scope) -> None:
        """Let the engine answer; an answer that was cut ends here, incomplete and quiet."""
        try:
            await app(scope, self.receive, self.send)
        except Exception as error:
            if not self._closed():
                raise
            _LOG.debug("the engine ended a request that was closed", extra=fault_of(error))
        if self._closed() and not self._complete and not self._cut:
            await self._end(self._flight.reason or Refusal.NO_RIGHT)

    async def receive(self) -> Message:
        """The body, once; then the end: the client went away, or the request was closed."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": REQUEST, "body": body, "more_body": False}
        gone = asyncio.ensure_future(self._server_receive())
        closed = asyncio.ensure_future(self._flight.aborted.wait())
        try:
            await asyncio.wait({gone, closed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            closed.cancel()
        if gone.done() and not gone.cancelled():
            gone.exception()  # whatever the server said or raised, the client is gone
        return {"type": DISCONNECT}

    async def send(self, message: Message) -> None:
        """Check, and hand over in the same step."""
        if self._cut:
            self._refuse_rest()
            return
        reason = self._checked()
        if reason is not None:
            await self._end(reason)
            self._refuse_rest()
            return
        kind = message["type"]
        if kind == START:
            self._started = True
        elif kind == BODY and not message.get("more_body", False):
            self._complete = True
        await self._server_send(message)

    def _checked(self) -> Refusal | None:
        try:
            return self._verdict(self._flight)
        except Exception as error:  # a check that fails is a check that does not pass
            _LOG.error("the check of a message failed", extra=fault_of(error))
            return Refusal.NO_RIGHT

    async def _end(self, reason: Refusal) -> None:
        self._cut = True
        self._abort(self._flight, reason)
        if not self._started:
            self._started = self._complete = True
            await send_answer(self._server_send, Answer.of(reason))

    def _refuse_rest(self) -> None:
        if not self._complete:
            raise ResponseClosed("the answer was closed, since its permit is not valid any more")

    def _closed(self) -> bool:
        return self._cut or self._flight.reason is not None
