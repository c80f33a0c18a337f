"""The guard as pure ASGI middleware: `--middleware cachescope.guard.asgi.Guard`.

Rules:

- the one path without a permit is `GET /health`; everything else is refused before any of its body is read;
- the permit is checked before the body is read, and again, with the body's digest, in the step that admits the request;
- no exception of the guard lets a request through;
- the engine sees the id of the permit in `x-request-id`, by which its own queue can be searched (`confirmation`), and a server that
  says through `receive` that a client went away: an engine that waits for the next `send` would compute on;
- constructing it does nothing: servers construct middleware more than once, and all share the state of the process;
- logs never hold a permit, a salt, a body or a tenant; of an unexpected error they say its type and place, since its message could.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from cachescope.core.admission import Refusal, Request
from cachescope.core.log_lines import fault_of
from cachescope.core.permits import PERMIT_HEADER, Permit
from cachescope.core.statements import CHALLENGE_HEADER, STATEMENT_HEADER
from cachescope.guard.answers import GUARD_ERROR, Answer, misconfigured, send_answer
from cachescope.guard.background import Background
from cachescope.guard.bodies import BodyTooLargeError, read_body
from cachescope.guard.exchange import Exchange
from cachescope.guard.in_flight import Flight
from cachescope.guard.metrics import ADMITTED, Requests
from cachescope.guard.process import GuardProcess
from cachescope.guard.start import Misconfigured, shared_process
from cachescope.guard.wire import DISCONNECT, REQUEST, App, Message, Receive, Scope, Send, header_values, target

_LOG = logging.getLogger(__name__)
_OWN_HEADERS = frozenset({PERMIT_HEADER.encode(), CHALLENGE_HEADER.encode(), STATEMENT_HEADER.encode()})
_REQUEST_ID = "x-request-id"
_LONGEST_REQUEST_ID = 64
_ASGI = {"version": "3.0", "spec_version": "2.3"}
"""From 2.4 on frameworks learn of a client that went away from `send` alone."""


@dataclass(frozen=True)
class Admitted:
    """A request that may reach the engine: its flight and its whole body."""

    flight: Flight
    body: bytes


@dataclass(frozen=True)
class Call:
    """One HTTP request as the server hands it over."""

    scope: Scope
    receive: Receive
    send: Send


class Running:
    """A guard's state and what runs beside it.

    Args:
        process: The state.
        sleep: Waits between two polls, in seconds.
    """

    def __init__(self, process: GuardProcess | Misconfigured, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self.process = process
        self.requests = Requests()
        self.background = Background(process, self.requests, sleep) if isinstance(process, GuardProcess) else None


class Guard:
    """ASGI middleware that lets no request reach the engine without a valid permit.

    Args:
        app: The engine's application.
        running: State to use instead of this process's own one; tests pass theirs.
    """

    def __init__(self, app: App, running: Running | None = None) -> None:
        self._app = app
        self._given = running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI scope."""
        running = self._given or _running_of(shared_process())
        if running.background is not None:
            running.background.ensure_started(self._app, scope)
        if scope["type"] == "http":
            await self._http(running, Call(scope, receive, send))
        elif scope["type"] == "lifespan":
            await self._lifespan(running, scope, receive, send)
        elif scope["type"] == "websocket":
            running.requests.count("websocket")
            await send({"type": "websocket.close", "code": 1008, "reason": "the guard accepts no WebSocket"})
        else:
            raise RuntimeError(f"the guard knows no ASGI scope {scope['type']!r}; update it together with the server")

    async def decide(self, process: GuardProcess, scope: Scope, receive: Receive) -> Admitted | Refusal | None:
        """Admit or refuse a request; `None` when the client went away before it was whole."""
        found = await _permit(process, scope)
        if isinstance(found, Refusal):
            return found
        request = Request(scope["method"], target(scope), None)
        refused = await _first_look(process, found, request)
        if refused is not None:
            return refused
        try:
            body = await read_body(scope, receive, process.settings.max_body_bytes)
        except BodyTooLargeError:
            return Refusal.TOO_LARGE
        if body is None:
            return None
        flight = process.admit(found, replace(request, body_digest=body.digest))
        return flight if isinstance(flight, Refusal) else Admitted(flight, body.content)

    async def _lifespan(self, running: Running, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        finally:
            if running.background is not None:
                await running.background.stop()

    async def _http(self, running: Running, call: Call) -> None:
        process = running.process
        problem = process.problem or _root_path_problem(call.scope)
        if isinstance(process, Misconfigured) or problem:
            await _refuse(running, misconfigured(problem), call)
        elif _is_health(call.scope):
            await self._app(_inner({**call.scope, "query_string": b""}), _no_body(call.receive), call.send)
        else:
            outcome = await self._decide_safely(process, call)
            if isinstance(outcome, Admitted):
                await self._serve(running, process, outcome, call)
            elif outcome is not None:
                await _refuse(running, outcome, call, *_statement(process, call.scope, outcome))

    async def _decide_safely(self, process: GuardProcess, call: Call) -> Admitted | Answer | None:
        try:
            outcome = await self.decide(process, call.scope, call.receive)
        except Exception as error:
            _LOG.error("the guard failed and refuses the request", extra=fault_of(error))
            return GUARD_ERROR
        return Answer.of(outcome) if isinstance(outcome, Refusal) else outcome

    async def _serve(self, running: Running, process: GuardProcess, admitted: Admitted, call: Call) -> None:
        running.requests.count(ADMITTED)
        exchange = Exchange(
            admitted.flight,
            admitted.body,
            receive=call.receive,
            send=call.send,
            verdict=process.verdict,
            abort=process.in_flight.abort,
        )
        try:
            await exchange.run(self._app, _named(_inner(call.scope), admitted.flight.permit.id))
        finally:
            process.leave(admitted.flight)


async def _permit(process: GuardProcess, scope: Scope) -> Permit | Refusal:
    texts = header_values(scope, PERMIT_HEADER)
    if not texts:
        return Refusal.PERMIT_REQUIRED
    return await process.read_permit(texts[0]) if len(texts) == 1 else Refusal.PERMIT_INVALID


async def _first_look(process: GuardProcess, permit: Permit, request: Request) -> Refusal | None:
    refused = process.look(permit, request)
    if refused is Refusal.GUARD_BEHIND:
        await process.refresh()
        refused = process.look(permit, request)
    return refused


async def _refuse(running: Running, answer: Answer, call: Call, *headers: tuple[bytes, bytes]) -> None:
    running.requests.count(answer.code)
    _LOG.debug("request refused", extra={"code": answer.code, "status": answer.status})
    await send_answer(call.send, answer, *headers)


@lru_cache(maxsize=1)
def _running_of(process: GuardProcess | Misconfigured) -> Running:
    return Running(process)


def _statement(process: GuardProcess, scope: Scope, answer: Answer) -> list[tuple[bytes, bytes]]:
    if answer.code != Refusal.PERMIT_REQUIRED.code:
        return []
    try:
        statement = process.statement(header_values(scope, CHALLENGE_HEADER))
    except Exception as error:
        _LOG.error("the statement cannot be made; the challenge stays unanswered", extra=fault_of(error))
        return []
    return [(STATEMENT_HEADER.encode(), statement.encode())] if statement else []


def _is_health(scope: Scope) -> bool:
    seen = (scope["method"], scope["path"], scope.get("raw_path", b"/health"))
    return seen == ("GET", "/health", b"/health")


def _root_path_problem(scope: Scope) -> str:
    """With a root path the engine routes by another path than the permit names."""
    return "the server has a root path; start it without --root-path" if scope.get("root_path") else ""


def _inner(scope: Scope) -> Scope:
    """What the engine sees of a request: everything but the guard's own headers."""
    headers = [(name, value) for name, value in scope["headers"] if name.lower() not in _OWN_HEADERS]
    return {**scope, "headers": headers, "asgi": {**scope.get("asgi", {}), **_ASGI}}


def _named(scope: Scope, permit_id: str) -> Scope:
    """The request with the permit's id in its own; what the gateway called it comes first, so that logs can be joined."""
    given = [value[:_LONGEST_REQUEST_ID] for value in header_values(scope, _REQUEST_ID)]
    name = "-".join([*given[:1], permit_id]).encode("latin-1")
    others = [(key, value) for key, value in scope["headers"] if key.lower() != _REQUEST_ID.encode()]
    return {**scope, "headers": [*others, (_REQUEST_ID.encode(), name)]}


def _no_body(receive: Receive) -> Receive:
    """A receive that hides the body: the engine's health check needs none."""
    sent = False

    async def without_body() -> Message:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": REQUEST, "body": b"", "more_body": False}
        while (await receive())["type"] == REQUEST:
            pass
        return {"type": DISCONNECT}

    return without_body
