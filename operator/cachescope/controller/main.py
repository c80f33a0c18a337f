"""`cachescope operator`: wins the Lease, then works until it is lost or the process is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Coroutine
from typing import Any, Final

from cachescope.controller.health import Health, serve_health
from cachescope.controller.metrics import Metrics
from cachescope.controller.mounted_settings import MountedSettings
from cachescope.controller.options import LEASE_NAME, Options
from cachescope.controller.process import Process
from cachescope.core.errors import ClusterError
from cachescope.kube.election import Election
from cachescope.kube.rest import Rest

__all__ = ["Options", "operate", "run"]

log = logging.getLogger(__name__)

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def run(options: Options) -> None:
    """Run the operator until it is told to stop.

    Raises:
        ClusterError: The Lease was lost, or a part ended; the process has to be started anew.
        SpecError: The settings are not valid, and were not before either.
    """
    asyncio.run(operate(options))


async def operate(options: Options) -> None:
    """As `run`, in a running event loop."""
    settings = MountedSettings(options.read_settings)  # a fault in them is said before anything begins
    stop = asyncio.Event()
    _take_signals(stop)
    health, metrics = Health(settings_fault=lambda: settings.fault), Metrics(settings_fault=lambda: settings.fault)
    runner = await serve_health(health, metrics.registry, options.port)
    try:
        async with Rest() as rest:
            election = Election(rest, options.namespace, LEASE_NAME, options.identity or os.environ.get("HOSTNAME", "operator"))
            health.role = "Standby"
            if await _came_first(election.won(), stop):
                settings.look()  # they may have changed while another one led
                process = Process(options, settings.good, health, metrics, watching=lambda: _take_signals(stop))
                await _lead(election, process, settings, stop)
            await election.release()
    finally:
        await runner.cleanup()


async def _lead(election: Election, process: Process, settings: MountedSettings, stop: asyncio.Event) -> None:
    """Work until the Lease is lost, a part ends, the settings change, or the process is told to stop."""
    held, work, *others = tasks = [
        asyncio.create_task(election.held(), name="lease"),
        asyncio.create_task(process.run(), name="work"),
        asyncio.create_task(settings.changed(), name="settings"),
        asyncio.create_task(stop.wait(), name="stop"),
    ]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    # Writes end before the Lease is given away.
    for task in (work, held, *others):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if work in done and (error := work.exception()):
        await election.release()
        raise error
    if held in done and not stop.is_set():
        raise ClusterError(f"the Lease {LEASE_NAME} was lost; the process is started anew")


async def _came_first(waited: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Wait for something, or to be stopped; whether it came first."""
    wanted, stopped = asyncio.create_task(waited), asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait({wanted, stopped}, return_when=asyncio.FIRST_COMPLETED)
    for task in (wanted, stopped):
        task.cancel()
    await asyncio.gather(wanted, stopped, return_exceptions=True)
    return wanted in done


def _take_signals(stop: asyncio.Event) -> None:
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
