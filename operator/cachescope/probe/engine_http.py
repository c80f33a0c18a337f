"""Speaks to one engine over HTTP: sends a question, and reads the engine's counter before and after it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from cachescope.core.errors import SpecError
from cachescope.probe.counters import found_tokens, rise
from cachescope.probe.questions import Question
from cachescope.probe.running import EVENTS, Reply


class Engine:
    """One engine, that nobody else uses meanwhile.

    Args:
        session: Of aiohttp, with the engine's URL as its base.
    """

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._counted: bool | None = None

    async def ask(self, question: Question) -> Reply:
        """Send a question; an engine that does not answer is status 0."""
        before = await self.counter()
        started = time.monotonic()
        try:
            async with self._session.post(question.path, json=question.body, headers=question.headers) as answer:
                content, kind = await answer.read(), answer.content_type
        except (aiohttp.ClientError, TimeoutError):
            return Reply(0, seconds=time.monotonic() - started)
        seconds = time.monotonic() - started
        return Reply(answer.status, content, kind == EVENTS, rise(before, await self.counter()), seconds)

    async def counter(self) -> int | None:
        """Tokens that were found so far; `None` if the engine counts none, which is asked once."""
        if self._counted is False:
            return None
        found = await self._text("/metrics")
        number = found_tokens(found) if found else None
        self._counted = self._counted or number is not None
        return number

    async def document(self, path: str) -> Mapping[str, Any] | None:
        """What the engine says at a path, if that is a JSON object."""
        try:
            async with self._session.get(path) as answer:
                found = await answer.json(content_type=None) if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    async def _text(self, path: str) -> str | None:
        try:
            async with self._session.get(path) as answer:
                return await answer.text() if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return None


@asynccontextmanager
async def engine(url: str, *, api_key: str | None = None, seconds: float = 600) -> AsyncIterator[Engine]:
    """An engine.

    Args:
        url: Its URL, without the routes' `/v1`.
        api_key: Sent as a bearer token, if the engine asks for one.
        seconds: For one answer.

    Raises:
        SpecError: The URL is none.
    """
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    timeout = aiohttp.ClientTimeout(total=seconds)
    try:
        # A server may close a connection that was kept just when the next request begins.
        connector = aiohttp.TCPConnector(force_close=True)
        session = aiohttp.ClientSession(url, headers=headers, timeout=timeout, connector=connector)
    except ValueError as error:
        raise SpecError(f"{url} is no URL of an engine ({error}); write one such as http://127.0.0.1:8000") from error
    async with session:
        yield Engine(session)
