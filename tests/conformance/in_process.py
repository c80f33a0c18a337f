"""The stub engine in this process, asked without a network: what the suite runs on is the same application that pods run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from cachescope.probe.conformance.profiles import Profile
from cachescope.probe.conformance.suite import Declared, Report, run
from cachescope.probe.counters import found_tokens
from cachescope.probe.questions import Question
from cachescope.probe.running import Reply
from e2e.stub_engine.application import Application, Message
from e2e.stub_engine.core import EngineCore
from e2e.stub_engine.leaks import Leak, Leaks

SEED = "0123456789abcdef"
VERSION = "0.32.0"


class InProcess:
    """An engine that can be asked, as `cachescope.probe.engine_http.Engine` is.

    Args:
        app: Its application.
        counts: Whether its counters can be read.
    """

    def __init__(self, app: Application, *, counts: bool = True) -> None:
        self._app = app
        self._counts = counts

    async def ask(self, question: Question) -> Reply:
        before = await self.counter()
        headers = [(name.encode(), value.encode()) for name, value in question.headers.items()]
        status, kind, content = await self._send("POST", question.path, json.dumps(question.body).encode(), headers)
        after = await self.counter()
        return Reply(status, content, b"event-stream" in kind, None if before is None or after is None else after - before)

    async def counter(self) -> int | None:
        return found_tokens((await self._send("GET", "/metrics"))[2].decode()) if self._counts else None

    async def document(self, path: str) -> Mapping[str, Any] | None:
        status, _, content = await self._send("GET", path)
        return json.loads(content) if status == 200 else None

    async def _send(
        self, method: str, path: str, body: bytes = b"", headers: Iterable[tuple[bytes, bytes]] = ()
    ) -> tuple[int, bytes, bytes]:
        unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[Message] = []

        async def receive() -> Message:
            if not unread:
                await asyncio.Event().wait()
            return unread.pop()

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {"type": "http", "method": method, "path": path, "headers": list(headers)}
        await self._app(scope, receive, send)
        kind = dict(sent[0]["headers"])[b"content-type"]
        return sent[0]["status"], kind, b"".join(message.get("body", b"") for message in sent)


@asynccontextmanager
async def stub(*leaks: Leak, restarted: bool = False, counts: bool = True) -> AsyncIterator[InProcess]:
    """A stub engine with leaks; without any it is honest."""
    core = EngineCore(token_seconds=0)
    loop = asyncio.ensure_future(core.run())
    app = Application(core, models=("tiny",), leaks=Leaks(frozenset(leaks), restarted=restarted))
    yield InProcess(app, counts=counts)
    assert not loop.done(), "the engine's loop ended"
    loop.cancel()


async def report(*leaks: Leak, profile: Profile = Profile.SALTED, restarted: bool = False, counts: bool = True) -> Report:
    """What the suite finds of a stub engine."""
    async with stub(*leaks, restarted=restarted, counts=counts) as target:
        return await run(target, Declared("stub", VERSION, profile), seed=SEED, tries=4)
