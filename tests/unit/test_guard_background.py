"""What runs beside requests: polling, digests, the metrics port, and one state for all instances of the middleware."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from cachescope.core.admission import Refusal
from cachescope.core.record import Loaded
from cachescope.guard import logs
from cachescope.guard.asgi import Guard, Running
from cachescope.guard.background import Background
from cachescope.guard.closing import Closing
from cachescope.guard.confirmation import EngineConfirmation
from cachescope.guard.in_flight import Flight
from cachescope.guard.metrics import exposition
from cachescope.guard.metrics_port import MetricsPort, engine_metrics
from cachescope.guard.start import shared_process
from cachescope.guard.wire import Receive, Scope, Send
from tests.unit.guard_fakes import ENGINE, Engine, FakeKeeper, Server, World, head_at, until

ROOT = Path(__file__).parents[2]
LIFESPAN: Scope = {"type": "lifespan"}


async def _metrics_app(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - the signature of ASGI
    status = 200 if (scope["method"], scope["path"]) == ("GET", "/metrics") else 404
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b"vllm:prefix_cache_hits 7\n"})


async def _broken_app(*_: object) -> None:
    raise ValueError("broken")


class Sleeps:
    """Counts the pauses of a loop, and lets a test wait for one."""

    def __init__(self) -> None:
        self.count = 0
        self.reached = asyncio.Event()

    async def __call__(self, _: float) -> None:
        self.count += 1
        self.reached.set()
        await asyncio.sleep(0)


async def test_the_poll_closes_what_lost_its_right_and_survives_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    background = Background(world.process, world.running.requests)
    flight = Flight(world.permit(), head_at(), generation=1, now=world.clock())
    world.process.in_flight.enter(flight)
    await background.poll_once()
    assert flight.reason is None
    world.source.left_ms = 0
    await background.poll_once()
    assert flight.reason is Refusal.LEASE_LOST
    monkeypatch.setattr(world.process, "apply", lambda: 1 / 0)
    await background.poll_once()


async def test_the_right_is_kept_beside_the_requests_and_digests_are_published_soon() -> None:
    world = World()
    world.process.loaded = None
    keeper = world.process.keeper = FakeKeeper()
    guard = Guard(world.engine, Running(world.process, Sleeps()))
    await guard(world.scope(), Server([b""]).receive, Server([]).send)
    await asyncio.wait_for(keeper.hurried.wait(), 5)
    assert "cachescope_guard_digests_known 1" in exposition(world.process, world.running.requests)
    assert keeper.running
    await guard(LIFESPAN, Server([]).receive, Server([]).send)
    assert not keeper.running


async def test_the_first_event_starts_one_background_for_all_instances() -> None:
    world = World()
    world.process.loaded = None
    sleeps = Sleeps()
    running = Running(world.process, sleeps)
    guards = [Guard(world.engine, running), Guard(world.engine, running)]
    assert (sleeps.count, world.process.loaded) == (0, None)
    await asyncio.gather(*(guard(world.scope(), Server([b""]).receive, Server([]).send) for guard in guards))
    await asyncio.wait_for(sleeps.reached.wait(), 5)
    async with asyncio.timeout(5):
        while world.process.loaded != Loaded(ENGINE):  # noqa: ASYNC110 - what it waits for has no event, and the wait has a deadline
            await asyncio.sleep(0)
    await guards[0](LIFESPAN, Server([]).receive, Server([]).send)
    stopped = sleeps.count
    await asyncio.sleep(0)
    assert sleeps.count == stopped


async def test_a_permit_used_at_one_instance_is_used_at_the_other() -> None:
    world = World()
    permit = world.permit()
    assert (await world.ask(permit)).status == 200
    world.serve(world.engine)
    assert (await world.ask(permit)).status == 403


async def test_digests_that_fail_refuse_everything_and_say_why() -> None:
    world = World()
    world.process.loaded = None
    world.process.digests = lambda: (_ for _ in ()).throw(OSError("no such model"))
    running = Running(world.process, Sleeps())
    guard = Guard(world.engine, running)
    async with asyncio.timeout(5):
        await guard(world.scope(), Server([b""]).receive, Server([]).send)
        while world.process.problem is None:  # noqa: ASYNC110 - what it waits for has no event, and the wait has a deadline
            await asyncio.sleep(0)
    server = Server([b""])
    await guard(world.scope(method="GET", path="/health"), server.receive, server.send)
    assert (server.status, server.code) == (503, "guard_misconfigured")
    assert "no such model" in server.body.decode()
    await guard(LIFESPAN, server.receive, server.send)


def test_instances_without_a_state_share_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "install", lambda: None)  # the logger belongs to the whole test run
    assert shared_process() is shared_process()
    Guard(Engine())  # constructing needs no loop, and starts nothing


async def test_metrics_count_what_happened() -> None:
    world = World()
    world.process.keeper = FakeKeeper()
    await world.ask(world.permit())
    await world.ask()
    text = exposition(world.process, world.running.requests)
    assert 'cachescope_guard_requests_total{outcome="admitted"} 1' in text
    assert 'cachescope_guard_requests_total{outcome="permit_required"} 1' in text
    assert "cachescope_guard_used_permits 1" in text
    assert 'cachescope_guard_head_sequence{ledger="pool"} 1' in text
    assert 'cachescope_guard_head_sequence{ledger="authorization"} 1' in text
    assert "cachescope_guard_acknowledged_sequence{" not in text
    assert 'cachescope_guard_in_flight{state="open"} 0' in text
    assert 'cachescope_guard_in_flight{state="draining"} 0' in text
    assert 'cachescope_guard_rounds_total{outcome="failed"} 2' in text
    assert "cachescope_guard_right_seconds 1.0" in text
    assert "cachescope_guard_right_generation 1" in text


async def test_metrics_count_what_was_closed_confirmed_and_acknowledged() -> None:
    world = World()
    flight = Flight(world.permit(), head_at(), generation=1, now=world.clock())
    world.process.in_flight.enter(flight)
    world.source.heads = head_at(tenant=2, sequence=2)
    world.process.apply()
    text = exposition(world.process, world.running.requests)
    assert 'cachescope_guard_closed_total{reason="permit_behind"} 1' in text
    assert 'cachescope_guard_in_flight{state="closing"} 1' in text
    world.process.leave(flight)
    await world.process.closed()
    text = exposition(world.process, world.running.requests)
    assert 'cachescope_guard_in_flight{state="closing"} 0' in text
    assert 'cachescope_guard_confirmations_total{outcome="confirmed"} 1' in text
    assert float(text.split("\ncachescope_guard_confirmation_seconds_total ")[1].split()[0]) > 0
    assert 'cachescope_guard_acknowledged_sequence{ledger="authorization"} 2' in text


async def test_what_was_acknowledged_of_an_earlier_lineage_is_behind_whatever_its_number() -> None:
    world = World()
    world.source.heads = head_at(sequence=9)
    world.process.apply()
    await world.process.closed()
    assert 'acknowledged_sequence{ledger="pool"} 9' in exposition(world.process, world.running.requests)
    heads, other = head_at(sequence=1), head_at(sequence=1, lineage="later", generation=2)
    world.source.heads = replace(heads, pool=other.pool)
    text = exposition(world.process, world.running.requests)
    assert 'acknowledged_sequence{ledger="pool"} 0' in text
    assert 'acknowledged_sequence{ledger="authorization"} 9' in text, "control: of the same lineage its number counts"


async def test_what_is_closed_is_acknowledged_beside_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    closes = world.process.keep_closing
    failures = [ZeroDivisionError("injected")]

    async def keep_closing() -> None:
        if failures:
            raise failures.pop()
        await closes()

    monkeypatch.setattr(world.process, "keep_closing", keep_closing)
    guard = Guard(world.engine, Running(world.process, Sleeps()))
    await guard(world.scope(), Server([b""]).receive, Server([]).send)
    world.process.apply()
    await until(lambda: world.process.acknowledged is world.source.heads)
    await guard(LIFESPAN, Server([]).receive, Server([]).send)


async def test_the_engine_is_found_by_the_events_that_reach_it() -> None:
    world = World()
    confirmation = EngineConfirmation(lambda: 0)
    world.process.closing = Closing(world.process.in_flight, confirmation)
    client = SimpleNamespace(is_sleeping=Calls())
    guard = Guard(world.engine, Running(world.process, Sleeps()))
    scope = {**LIFESPAN, "app": SimpleNamespace(state=SimpleNamespace(engine_client=client))}
    await guard(scope, Server([]).receive, Server([]).send)
    await confirmation.confirmed([])
    assert client.is_sleeping.calls == 1


class Calls:
    """A call that is counted."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self) -> bool:
        self.calls += 1
        return False


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async def metrics() -> bytes:
        return b"own 1\n" + await engine_metrics(_metrics_app)

    served = MetricsPort(0, metrics, "127.0.0.1")
    yield await served.open()
    await served.close()


async def _fetch(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    writer.write_eof()
    try:
        return await asyncio.wait_for(reader.read(), 5)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_the_metrics_port_serves_both_metrics(port: int) -> None:
    answer = await _fetch(port, b"GET /metrics?x=y HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain")
    assert body == b"own 1\nvllm:prefix_cache_hits 7\n"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 404"),
        (b"GET /v1/models HTTP/1.1\r\n\r\n", b"HTTP/1.1 404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 405"),
        (b"GET /metrics", b""),
        (b"GET /" + b"x" * 40_000 + b"\r\n\r\n", b""),
        (b"\x00\xff\r\n\r\n", b"HTTP/1.1 404"),
    ],
)
async def test_the_metrics_port_serves_nothing_else(port: int, request_bytes: bytes, status: bytes) -> None:
    assert (await _fetch(port, request_bytes)).startswith(status)
    if not status:
        assert await _fetch(port, request_bytes) == b""


async def test_an_engine_without_metrics_leaves_the_guards_own() -> None:
    assert await engine_metrics(_broken_app) == b""
    assert await engine_metrics(Engine()) == b"answer"


def test_a_process_has_one_state_and_starts_it_at_its_first_event() -> None:
    script = (
        "import asyncio, json, sys\n"
        "from cachescope.guard.asgi import Guard\n"
        "async def app(scope, receive, send): raise SystemExit('reached')\n"
        "seen = []\n"
        "async def send(message): seen.append(message)\n"
        "async def receive(): return {'type': 'http.request'}\n"
        "guards = [Guard(app), Guard(app)]\n"
        "scope = {'type': 'http', 'method': 'GET', 'path': '/health', 'headers': []}\n"
        "for guard in guards: asyncio.run(guard(dict(scope), receive, send))\n"
        "sys.exit(0 if [m['status'] for m in seen if 'status' in m] == [503, 503] else 1)\n"
    )
    environment = {"PYTHONPATH": str(ROOT / "operator"), "PATH": os.environ["PATH"]}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=30)
