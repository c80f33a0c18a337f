"""Key sets over HTTP, from a real server on loopback: bounds, redirects, outages."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from cachescope.gateway.identity import jwks_sources
from cachescope.gateway.identity.credentials import KeysUnavailable
from cachescope.gateway.identity.jwks_sources import UrlKeySet, http_fetch, key_session
from tests.unit.http_server import Answer, http_server
from tests.unit.jwt_issuer import document, ec_key, jwk

GOOD = document(jwk(ec_key("one"), kid="one"))


@asynccontextmanager
async def served(answer: Answer) -> AsyncIterator[tuple[UrlKeySet, str, web.AppRunner]]:
    """A key set that is fetched from a server which answers so."""
    async with http_server(answer) as (address, runner), key_session() as session:
        url = f"http://{address}/jwks"
        yield UrlKeySet(http_fetch(session, url, allow_insecure=True), time.monotonic, source="test"), url, runner


def bytes_of(content: bytes, status: int = 200, encoding: str = "identity") -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=content, status=status, headers={"content-encoding": encoding})

    return answer


async def test_keys_are_fetched() -> None:
    async with served(bytes_of(GOOD)) as (keys, _, _):
        assert await keys.find("one", "ES256") is not None
        assert keys.problem is None


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" " * 65536)


async def redirected(request: web.Request) -> web.StreamResponse:
    if request.path == "/jwks":
        raise web.HTTPFound("/elsewhere")
    return web.Response(body=GOOD)


async def broken_off(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-length": "100000"})
    await response.prepare(request)
    await response.write(GOOD)
    assert request.transport is not None
    request.transport.abort()
    return response


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(bytes_of(GOOD, 500), "answers 500", id="error"),
        pytest.param(bytes_of(GOOD, 204), "answers 204", id="no content"),
        pytest.param(redirected, "answers 302", id="redirect"),
        pytest.param(endless, "larger than 1048576", id="endless"),
        pytest.param(bytes_of(b" " * 2**20 + GOOD), "larger than 1048576", id="large"),
        pytest.param(bytes_of(gzip.compress(b" " * 2**24), encoding="gzip"), "not UTF-8", id="compressed bomb"),
        pytest.param(bytes_of(b"<html>"), "is not JSON", id="a web page"),
        pytest.param(bytes_of(b'{"keys": []}'), "no usable key", id="empty set"),
        pytest.param(broken_off, "test: ", id="broken off"),
    ],
)
async def test_an_answer_that_is_no_key_set_loads_nothing(answer: Answer, problem: str) -> None:
    async with served(answer) as (keys, _, _):
        with pytest.raises(KeysUnavailable):
            await keys.find("one", "ES256")
        assert problem in str(keys.problem)


async def test_a_server_that_does_not_answer_is_asked_once_by_all_and_left_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks_sources, "TIMEOUT_SECONDS", 0.3)
    released, asked = asyncio.Event(), []

    async def silent(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        await released.wait()
        return web.Response(body=GOOD)

    async with served(silent) as (keys, _, _):
        results = await asyncio.gather(*(keys.find("one", "ES256") for _ in range(20)), return_exceptions=True)
        released.set()
        assert all(isinstance(result, KeysUnavailable) for result in results)
        assert len(asked) <= 1
        assert "TimeoutError" in str(keys.problem)


async def test_a_server_that_is_gone_leaves_the_last_good_set() -> None:
    async with served(bytes_of(GOOD)) as (keys, _, runner):
        await keys.refresh()
        assert keys.problem is None
        await runner.cleanup()
        await keys.refresh()
        assert keys.problem is not None
        assert await keys.find("one", "ES256") is not None


async def test_run_keeps_the_set_fresh_until_it_is_cancelled() -> None:
    asked = asyncio.Semaphore(0)

    async def answer(_: web.Request) -> web.StreamResponse:
        asked.release()
        return web.Response(body=GOOD)

    async with served(answer) as (_, url, _), aiohttp.ClientSession() as session:
        fetch = http_fetch(session, url, allow_insecure=True)
        keys = UrlKeySet(fetch, time.monotonic, source="test", refresh_seconds=0.01)
        task = asyncio.create_task(keys.run())
        async with asyncio.timeout(5):
            for _ in range(3):
                await asked.acquire()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await keys.find("one", "ES256") is not None
