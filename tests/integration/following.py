"""Watches on the real API server: a namespace, requests, and an end that leaves no connection open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cachescope.kube import watched as watched_module
from cachescope.kube.rest import Rest
from e2e.stack.paths import KUBECONFIG
from tests.integration.api_server import namespace

__all__ = ["namespace", "rest", "running", "until"]

SECONDS = 30


@pytest.fixture
async def rest(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rest]:
    monkeypatch.setenv("KUBECONFIG", str(KUBECONFIG))
    # Short watches and pages, so that every test also crosses the gaps between two of them.
    monkeypatch.setattr(watched_module, "WATCH_SECONDS", 2)
    monkeypatch.setattr(watched_module, "PAGE", "2")
    async with Rest() as found:
        yield found
    transports: Any = asyncio.get_running_loop()
    # aiohttp ends TLS connections a moment after their session.
    await until(lambda: all(transport._sock is None for transport in transports._transports.values()))


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run something beside the test, and end it."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what follows the API server, with a deadline."""
    async with asyncio.timeout(SECONDS):
        while not holds():  # noqa: ASYNC110 - a watch has no event to wait for
            await asyncio.sleep(0.02)
