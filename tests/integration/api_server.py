"""A namespace of its own on the real API server, and requests as the operator sends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from cachescope.kube.rest import Rest
from e2e.stack.paths import KUBECONFIG
from tests.integration import namespaces

SECONDS = 30


@pytest.fixture
def namespace() -> Iterator[str]:
    with namespaces.made("test") as name:
        yield name


@pytest.fixture
async def rest(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rest]:
    monkeypatch.setenv("KUBECONFIG", str(KUBECONFIG))
    async with Rest() as api:
        yield api


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what only the API server knows, with a deadline."""
    async with asyncio.timeout(SECONDS):
        while not await holds():  # noqa: ASYNC110 - the API server has no event of ours to wait for
            await asyncio.sleep(0.1)
