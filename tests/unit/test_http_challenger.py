"""Challenges over HTTP: what is sent is a request without a permit, and what comes back is read and never followed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from cachescope.core.errors import ClusterError
from cachescope.core.statements import CHALLENGE_HEADER, STATEMENT_HEADER
from cachescope.gateway.challenges import ChallengeAnswer
from cachescope.gateway.http_challenger import PATH, HttpChallenger
from tests.unit.http_server import http_server


@pytest.fixture
async def challenger() -> AsyncIterator[HttpChallenger]:
    found = HttpChallenger()
    yield found
    await found.close()


async def guard(request: web.Request) -> web.StreamResponse:
    """Says back what it was asked, as a guard does."""
    said = f"{request.method} {request.path} {request.headers[CHALLENGE_HEADER]} {await request.text()}"
    return web.Response(status=401, headers={STATEMENT_HEADER: said})


async def test_a_guard_is_asked_for_what_it_must_refuse_and_its_statement_is_read(challenger: HttpChallenger) -> None:
    async with http_server(guard) as (address, _):
        assert await challenger.challenge(address, "a nonce") == ChallengeAnswer(401, f"POST {PATH} a nonce {{}}")


async def test_an_engine_without_a_guard_answers_without_a_statement(challenger: HttpChallenger) -> None:
    async def open_engine(_: web.Request) -> web.StreamResponse:
        return web.json_response({})

    async with http_server(open_engine) as (address, _):
        assert await challenger.challenge(address, "a nonce") == ChallengeAnswer(200, None)


async def test_a_redirect_is_not_followed_to_a_guard_elsewhere(challenger: HttpChallenger) -> None:
    async with http_server(guard) as (elsewhere, _):

        async def redirect(_: web.Request) -> web.StreamResponse:
            raise web.HTTPTemporaryRedirect(f"http://{elsewhere}{PATH}")

        async with http_server(redirect) as (address, _):
            assert await challenger.challenge(address, "a nonce") == ChallengeAnswer(307, None)
        assert (await challenger.challenge(elsewhere, "a nonce")).status == 401


async def test_an_engine_that_is_gone_is_said_by_its_address(challenger: HttpChallenger) -> None:
    async with http_server(guard) as (address, runner):
        await runner.cleanup()
        with pytest.raises(ClusterError, match=address):
            await challenger.challenge(address, "a nonce")
