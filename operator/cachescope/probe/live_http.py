"""Asks one process through a gateway, and reads the engine's counter where the guard shows it."""

from __future__ import annotations

import time
from typing import Final

import aiohttp

from cachescope.probe.counters import found_tokens, rise
from cachescope.probe.questions import Question
from cachescope.probe.running import EVENTS, Reply

MOST_BYTES: Final = 8 * 1024 * 1024
"""Of an answer. Whoever owns a pool chooses its engine, which may send what it likes to the operator."""


class LiveProcess:
    """One process of a pool.

    Args:
        session: Of aiohttp.
        gateway: URL of the gateway.
        metrics: URL of the guard's metrics; empty where nobody may read them.
    """

    def __init__(self, session: aiohttp.ClientSession, gateway: str, metrics: str = "") -> None:
        self._session = session
        self._gateway = gateway.rstrip("/")
        self._metrics = metrics
        self._counted: int | None = None
        self._begun = False

    async def ask(self, question: Question) -> Reply:
        """Send a question; what is not answered, or with more than `MOST_BYTES`, is status 0. No redirect is followed."""
        if not self._begun:
            self._begun, self._counted = True, await self._counter()
        before, started = self._counted, time.monotonic()
        try:
            url, headers = self._gateway + question.path, question.headers
            async with self._session.post(url, json=question.body, headers=headers, allow_redirects=False) as answer:
                status, content, kind = answer.status, await _content(answer), answer.content_type
        except (aiohttp.ClientError, TimeoutError):
            return Reply(0, seconds=time.monotonic() - started)
        seconds = time.monotonic() - started
        # One that was not counted before is not counted at all: a part of an experiment tells nothing.
        self._counted = None if before is None else await self._counter()
        return Reply(status, content, kind == EVENTS, rise(before, self._counted), seconds)

    async def _counter(self) -> int | None:
        if not self._metrics:
            return None
        try:
            async with self._session.get(self._metrics, allow_redirects=False) as answer:
                return found_tokens((await _content(answer)).decode()) if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, ValueError, OverflowError):
            return None


async def _content(answer: aiohttp.ClientResponse) -> bytes:
    """The body.

    Raises:
        aiohttp.ClientPayloadError: It is too long, or it broke off.
    """
    content = bytearray()
    async for part in answer.content.iter_any():
        content += part
        if len(content) > MOST_BYTES:
            raise aiohttp.ClientPayloadError(f"the answer has more than {MOST_BYTES} bytes; see the pool's engine")
    return bytes(content)
