"""A real Envoy for the tests of the gateway: one process for a session, the processor and the engine anew for each test."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from cachescope.gateway.envoy import EnvoySettings, bootstrap
from cachescope.gateway.exchange import Answer, Forward, RequestHead
from cachescope.gateway.processor import serve
from tests.integration.http_wire import Engine, running_engine
from tests.integration.ports import free_port

ENVOY = Path(sys.executable).with_name("envoy")
KEPT = frozenset({"content-type", "accept"})


@dataclass(frozen=True)
class Envoy:
    """A running Envoy."""

    settings: EnvoySettings
    pid: int

    @property
    def port(self) -> int:
        return self.settings.listen_port

    def admin(self, path: str) -> str:
        url = f"http://127.0.0.1:{self.settings.admin_port}{path}"
        with urllib.request.urlopen(url, timeout=5) as reply:
            return str(reply.read().decode())

    def config(self) -> dict[str, Any]:
        """What Envoy says that it runs, by kind."""
        dump = json.loads(self.admin("/config_dump"))
        return {entry["@type"].rpartition(".")[2]: entry for entry in dump["configs"]}


@contextmanager
def running_envoy(folder: Path, **changes: Any) -> Iterator[Envoy]:
    """Start Envoy with its socket and files in `folder`."""
    base = EnvoySettings(processor_socket=str(folder / "processor.sock"), listen_address="127.0.0.1")
    settings = replace(base, listen_port=free_port(), admin_port=free_port(), **changes)
    config = folder / "envoy.json"
    config.write_text(json.dumps(bootstrap(settings)))
    log = folder / "envoy.log"
    command: list[str | Path] = [
        ENVOY,
        "-c",
        config,
        "--concurrency",
        "1",
        "--use-dynamic-base-id",
        "--log-path",
        log,
        "-l",
        "warning",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            envoy = Envoy(settings, process.pid)
            _wait_ready(envoy, process, log)
            yield envoy
        finally:
            process.kill()


def _wait_ready(envoy: Envoy, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if envoy.admin("/ready").strip() == "LIVE":
                return
        except OSError:
            time.sleep(0.02)
    pytest.fail(f"Envoy did not start: {log.read_text()[-2000:]}")


@dataclass
class StubGate:
    """A decision that forwards everything to one engine, unless a test says otherwise."""

    endpoint: str
    max_request_bytes: int = 16 * 1024 * 1024
    on_admit: Callable[[RequestHead], Awaitable[object]] | None = None
    on_decide: Callable[[RequestHead, bytes], Awaitable[Forward | Answer]] | None = None
    heads: list[RequestHead] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    forwards: list[Forward] = field(default_factory=list)
    ended: list[Forward] = field(default_factory=list)

    async def admit(self, head: RequestHead) -> object:
        self.heads.append(head)
        return head if self.on_admit is None else await self.on_admit(head)

    async def decide(self, admitted: object, body: bytes) -> Forward | Answer:
        assert isinstance(admitted, RequestHead)
        self.bodies.append(body)
        verdict = self.forward(body) if self.on_decide is None else await self.on_decide(admitted, body)
        if isinstance(verdict, Forward):
            self.forwards.append(verdict)
        return verdict

    def finished(self, forward: Forward) -> None:
        self.ended.append(forward)

    def forward(self, body: bytes) -> Forward:
        return Forward(self.endpoint, "/v1/chat/completions", {"x-cachescope-permit": "sealed"}, KEPT, body)


@dataclass
class Gateway:
    """Everything that one test needs."""

    envoy: Envoy
    gate: StubGate
    engine: Engine

    @property
    def port(self) -> int:
        return self.envoy.port


@asynccontextmanager
async def running_gateway(envoy: Envoy, *, decision_seconds: float = 5.0) -> AsyncIterator[Gateway]:
    """A processor and an engine behind an Envoy."""
    async with running_engine() as engine:
        gate = StubGate(engine.endpoint)
        server = await serve(gate, envoy.settings.processor_socket, decision_seconds=decision_seconds)
        try:
            yield Gateway(envoy, gate, engine)
        finally:
            await server.stop(None)


@pytest.fixture(scope="session")
def envoy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Envoy]:
    """One Envoy with short times, for all tests."""
    times = {"frozen_seconds": 2.0, "connect_seconds": 1.0}
    with running_envoy(tmp_path_factory.mktemp("envoy"), **times) as running:
        yield running


@pytest_asyncio.fixture
async def gateway(envoy: Envoy) -> AsyncIterator[Gateway]:
    """A working gateway."""
    async with running_gateway(envoy) as running:
        yield running
