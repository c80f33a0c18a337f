"""The API server as an ASGI application: middleware as Starlette applies it, and vLLM's routes as far as the stub has them.

A client that goes away, or seems to, is seen by `receive()` as vLLM sees it (`with_cancellation`, Starlette's `StreamingResponse`
under a server of ASGI 2.3): what makes the answer is cancelled. An answer that is not streamed then returns, and waits for nothing.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, MutableMapping
from typing import Any

from e2e.stub_engine import answers, asking
from e2e.stub_engine.asking import Asked, AskingError
from e2e.stub_engine.core import EngineCore, Request
from e2e.stub_engine.engine_client import EngineClient
from e2e.stub_engine.leaks import Leaks
from e2e.stub_engine.metrics import exposition

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

JSON, TEXT, EVENTS = b"application/json", b"text/plain; version=0.0.4", b"text/event-stream; charset=utf-8"


class State:
    """What middleware finds in `scope["app"].state`.

    Args:
        engine_client: The engine.
    """

    def __init__(self, engine_client: EngineClient) -> None:
        self.engine_client = engine_client


class Application:
    """The application.

    Args:
        core: The engine.
        models: Names that it serves.
        dev_mode: Whether `POST /reset_prefix_cache` is there.
        leaks: What it does wrong with salts; nothing by default.

    Attributes:
        state: What it shares.
    """

    def __init__(self, core: EngineCore, *, models: tuple[str, ...], dev_mode: bool = False, leaks: Leaks | None = None) -> None:
        self.state = State(EngineClient(core))
        self._leaks = leaks or Leaks()
        self._core = core
        self._models = models
        self._middleware: list[Callable[[App], App]] = []
        self._stack: App | None = None
        self._cancelled: set[asyncio.Task[None]] = set()
        self._routes: dict[tuple[str, str], App] = {
            ("GET", "/health"): self._health,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/v1/models"): self._list_models,
            ("POST", asking.CHAT): self._complete,
            ("POST", asking.COMPLETION): self._complete,
        }
        if dev_mode:
            self._routes["POST", "/reset_prefix_cache"] = self._reset_prefix_cache

    def add_middleware(self, middleware: Callable[[App], App]) -> None:
        """Put a middleware around what is there: the last one is the outermost."""
        if self._stack is not None:
            raise RuntimeError("middleware is added before the first event; add it right after the application is made")
        self._middleware.append(middleware)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI scope."""
        scope["app"] = self
        if self._stack is None:
            self._stack = self._route
            for middleware in self._middleware:
                self._stack = middleware(self._stack)
        await self._stack(scope, receive, send)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"the stub serves no {scope['type']}; send HTTP requests")
        handler = self._routes.get((scope["method"], scope["path"]))
        if handler is None:
            await _answer(send, b'{"detail":"Not Found"}', status=404)
        else:
            await handler(scope, receive, send)

    async def _health(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await _answer(send, b"")

    async def _metrics(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await _answer(send, exposition(self._core, self._models[0]), kind=TEXT)

    async def _list_models(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        models = [{"id": model, "object": "model", "created": 0, "owned_by": "vllm"} for model in self._models]
        await _answer(send, json.dumps({"object": "list", "data": models}).encode())

    async def _reset_prefix_cache(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        success = await self.state.engine_client.reset_prefix_cache()
        await _answer(send, json.dumps({"success": success}).encode())

    async def _complete(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            asked = asking.read(scope["path"], await _body(receive), self._models)
        except AskingError as error:
            await _answer(send, answers.error(str(error), error.status), status=error.status)
            return
        asked = self._leaks.applied(asked, scope["headers"])
        requests = [Request(_request_id(scope, asked), asked.prompt, asked.salt, asked.max_tokens) for _ in range(asked.answers)]
        if asked.stream:
            events = answers.streamed(asked, requests[0], self.state.engine_client.generate(requests[0]))
            await self._unless_gone(receive, _stream(send, events), wait=True)
        else:
            await self._whole(asked, requests, receive, send)

    async def _whole(self, asked: Asked, requests: list[Request], receive: Receive, send: Send) -> None:
        # What vLLM answers when its handler was cancelled.
        body = b"null"

        async def generate() -> None:
            nonlocal body
            answered: list[answers.Answered] = []
            for request in requests:
                made = self.state.engine_client.generate(request)
                answered.extend([(request, token) async for token in made if token.last])
            if len(answered) == len(requests):
                body = answers.whole(asked, answered)

        await self._unless_gone(receive, generate(), wait=False)
        await _answer(send, body)

    async def _unless_gone(self, receive: Receive, work: Coroutine[Any, Any, None], *, wait: bool) -> None:
        """Do work until it is done or the client is gone; then it is cancelled, and waited for or not."""
        tasks = [asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))]
        try:
            done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            done, pending = set(), set(tasks)
            raise
        finally:
            for task in pending:
                task.cancel()
                self._cancelled.add(task)
                task.add_done_callback(self._cancelled.discard)
        if wait:
            await asyncio.gather(*pending, return_exceptions=True)
        for task in done:
            task.result()


def _request_id(scope: Scope, asked: Asked) -> str:
    """The id that the client gave in a header, or a random one, with what vLLM puts around it."""
    given = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"x-request-id"), secrets.token_hex(16))
    return f"chatcmpl-{given}" if asked.chat else f"cmpl-{given}-0"


async def _stream(send: Send, events: AsyncIterator[bytes]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", EVENTS)]})
    async for event in events:
        await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _answer(send: Send, body: bytes, *, status: int = 200, kind: bytes = JSON) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _body(receive: Receive) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
