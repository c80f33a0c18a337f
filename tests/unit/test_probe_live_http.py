"""What an engine that is its owner's own may do to the operator that asks it: nothing."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web

from cachescope.probe import live_http
from cachescope.probe.live_http import LiveProcess
from cachescope.probe.questions import Question
from tests.unit.http_server import http_server

COUNTER = "vllm:prefix_cache_hits_total 7"
ASKED = "/v1/completions"


async def test_no_redirect_is_followed() -> None:
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response(status=307, headers={"location": "/elsewhere"})

    async with http_server(answer) as (address, _), aiohttp.ClientSession() as session:
        process = LiveProcess(session, f"http://{address}", f"http://{address}/metrics")
        reply = await process.ask(Question(ASKED, {}, {}))
    assert (reply.status, reply.counted_tokens, seen) == (307, None, ["/metrics", ASKED])


@pytest.mark.parametrize(("more", "status", "rise"), [(0, 200, 0), (1, 0, None)])
async def test_an_answer_without_end_is_none(monkeypatch: pytest.MonkeyPatch, more: int, status: int, rise: int | None) -> None:
    monkeypatch.setattr(live_http, "MOST_BYTES", 100)

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=COUNTER if request.method == "GET" else "x" * (100 + more))

    async with http_server(answer) as (address, _), aiohttp.ClientSession() as session:
        process = LiveProcess(session, f"http://{address}", f"http://{address}/metrics")
        reply = await process.ask(Question(ASKED, {}, {}))
    assert (reply.status, reply.counted_tokens) == (status, rise)


@pytest.mark.parametrize(("more", "rise"), [(0, 0), (1, None)])
async def test_metrics_without_end_count_nothing(monkeypatch: pytest.MonkeyPatch, more: int, rise: int | None) -> None:
    monkeypatch.setattr(live_http, "MOST_BYTES", 100)

    async def answer(request: web.Request) -> web.Response:
        padding = "#" * (100 + more - len(COUNTER) - 1)
        return web.Response(text=f"{COUNTER}\n{padding}" if request.method == "GET" else "x")

    async with http_server(answer) as (address, _), aiohttp.ClientSession() as session:
        process = LiveProcess(session, f"http://{address}", f"http://{address}/metrics")
        assert (await process.ask(Question(ASKED, {}, {}))).counted_tokens == rise
