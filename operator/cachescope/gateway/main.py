"""Wires the gateway's processor together and runs it."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from cachescope.gateway.audit import Audit
from cachescope.gateway.challenges import PoolTrust
from cachescope.gateway.configuration import Configuration
from cachescope.gateway.decision import Decision
from cachescope.gateway.fleet import Fleet
from cachescope.gateway.health import Health, serve_health
from cachescope.gateway.http_challenger import HttpChallenger
from cachescope.gateway.identity.jwks_sources import key_session
from cachescope.gateway.key_sets import ProviderKeySets
from cachescope.gateway.processor import serve
from cachescope.kube.endpoint_slices import EndpointSlices

REFRESH_SECONDS = 1.0
DRAIN_SECONDS = 30.0


@dataclass(frozen=True)
class Options:
    """How the processor is started.

    Attributes:
        root: Folder of the configuration.
        socket: Unix socket for Envoy.
        port: Port of health and metrics.
        namespace: Namespace of the pools.
    """

    root: Path
    socket: str
    port: int
    namespace: str


async def run(options: Options) -> None:
    """Run the processor until SIGTERM or SIGINT."""
    stop = _stop_signal()
    async with key_session() as session:
        key_sets = ProviderKeySets(session)
        configuration = Configuration(options.root, key_sets, time.time)
        slices, challenger, registry = EndpointSlices(options.namespace), HttpChallenger(), CollectorRegistry()
        fleet = Fleet(slices, challenger, _boot_milliseconds)
        health = Health(configuration, fleet, slices.age, key_sets.problems)
        registry.register(health)
        runner = await serve_health(health, registry, options.port)
        background = [
            asyncio.create_task(_keep_fresh(configuration, key_sets)),
            asyncio.create_task(slices.run()),
            asyncio.create_task(fleet.watch(lambda: _trusts(configuration))),
        ]
        server = await serve(Decision(configuration.current, fleet, Audit(registry)), options.socket)
        await _first(stop.wait(), background)
        await server.stop(DRAIN_SECONDS)
        for task in background:
            task.cancel()
        await runner.cleanup()
        await challenger.close()


def _trusts(configuration: Configuration) -> Mapping[str, PoolTrust]:
    snapshot = configuration.current()
    return snapshot.trusts if snapshot else {}


async def _keep_fresh(configuration: Configuration, key_sets: ProviderKeySets) -> None:
    while True:
        # In a thread: reading and compiling thousands of tenants would hold up every request.
        await asyncio.to_thread(configuration.refresh)
        snapshot = configuration.current()
        if snapshot:
            key_sets.tend(snapshot.settings)
        await asyncio.sleep(REFRESH_SECONDS)


async def _first(stopped: Coroutine[Any, Any, bool], background: list[asyncio.Task[None]]) -> None:
    """Wait for the signal; a background task that ends takes the process down, and Kubernetes starts a whole one."""
    waiting = asyncio.create_task(stopped)
    await asyncio.wait([waiting, *background], return_when=asyncio.FIRST_COMPLETED)
    for task in background:
        if task.done():
            task.result()


def _stop_signal() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    return stop


def _boot_milliseconds() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
