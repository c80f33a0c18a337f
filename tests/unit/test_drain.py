"""The end of a gateway's pod: Envoy waits for its requests, the processor for Envoy, and neither for ever."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from cachescope.gateway.drain import ADMIN, PERIOD_SECONDS, REMOVAL_SECONDS, HttpAdmin, Waiting, active, drain, outlive
from cachescope.gateway.envoy import EnvoySettings
from tests.unit.http_server import http_server

STAT = "http.clients.downstream_rq_active"


@dataclass
class Envoy:
    """Answers as its admin interface does, one reading after the other; the last one stays."""

    readings: list[str | None]
    asked: list[tuple[str, str]] = field(default_factory=list)

    def ask(self, method: str, path: str) -> str | None:
        self.asked.append((method, path))
        if method == "POST":
            return "OK"
        return self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]


@dataclass
class Time:
    """Seconds that pass only in pauses."""

    now: float = 0.0

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def waiting(self, limit: float = 60) -> Waiting:
        return Waiting(limit, lambda: self.now, self.pause)


def test_envoy_serves_on_asks_clients_to_leave_and_waits_for_the_last() -> None:
    envoy, time = Envoy([f"{STAT}: 2\n", f"{STAT}: 1\n", f"{STAT}: 0\n"]), Time()
    assert drain(envoy, time.waiting())
    assert envoy.asked[0] == ("POST", "/healthcheck/fail")
    assert time.now == REMOVAL_SECONDS + 2 * PERIOD_SECONDS


def test_a_request_that_does_not_end_is_waited_for_up_to_the_limit() -> None:
    time = Time()
    assert not drain(Envoy([f"{STAT}: 1\n"]), time.waiting(60))
    assert time.now == REMOVAL_SECONDS + 60


def test_the_processor_waits_until_envoy_is_gone_whatever_it_answers() -> None:
    time = Time()
    assert outlive(Envoy(["LIVE", "", "DRAINING", None]), time.waiting())
    assert time.now == 3 * PERIOD_SECONDS
    assert not outlive(Envoy(["LIVE"]), time.waiting(10))


@pytest.mark.parametrize(("stats", "count"), [(None, 0), (f"{STAT}: 7\n", 7), ("", None), ("http.admin.x: 0\n", None)])
def test_an_answer_that_says_nothing_is_not_taken_for_nothing_under_way(stats: str | None, count: int | None) -> None:
    assert active(stats) == count


def test_nobody_listening_is_gone() -> None:
    assert HttpAdmin("http://127.0.0.1:1").ask("GET", "/ready") is None


def test_the_admin_interface_is_where_envoy_has_it() -> None:
    assert ADMIN.endswith(f":{EnvoySettings(processor_socket='x').admin_port}")


@pytest.mark.parametrize("status", [200, 503])
async def test_whatever_status_envoy_answers_with_it_is_there(status: int) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=f"{request.method} {request.path}")

    async with http_server(answer) as (address, _):
        assert await asyncio.to_thread(HttpAdmin(f"http://{address}").ask, "POST", "/healthcheck/fail") == "POST /healthcheck/fail"


async def test_a_connection_that_breaks_says_nothing_and_not_that_envoy_is_gone() -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with http_server(broken) as (address, _):
        assert await asyncio.to_thread(HttpAdmin(f"http://{address}").ask, "GET", "/ready") == ""
