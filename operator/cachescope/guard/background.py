"""What a guard does beside requests: keeps its right, closes and cleans up, reads keys, digests the model, serves metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from cachescope.core.log_lines import fault_of
from cachescope.guard.metrics import Requests, exposition
from cachescope.guard.metrics_port import MetricsPort, engine_metrics
from cachescope.guard.process import GuardProcess
from cachescope.guard.wire import App, Scope

_LOG = logging.getLogger(__name__)
POLL_SECONDS = 1.0


class Background:
    """The tasks of one guard process.

    Args:
        process: Its state.
        requests: Its counts of requests.
        sleep: Waits between two polls, in seconds.
    """

    def __init__(
        self, process: GuardProcess, requests: Requests, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._process = process
        self._requests = requests
        self._sleep = sleep
        self._tasks: list[asyncio.Task[None]] = []
        self._app: App | None = None
        self._port = MetricsPort(process.settings.metrics_port, self._metrics)

    def ensure_started(self, app: App, scope: Scope) -> None:
        """Start once; the app that saw the latest event is the one whose metrics are served, and that confirms."""
        self._app = app
        self._process.closing.confirmation.saw(app, scope)
        self._process.cleanup.saw(scope)
        if not self._tasks:
            works = (self._keep, self._poll, self._close, self._process.cleanup.run, self._digest, self._serve_metrics)
            self._tasks = [asyncio.ensure_future(work()) for work in works]

    async def stop(self) -> None:
        """End all tasks; a later event starts them again."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._port.close()

    async def poll_once(self) -> None:
        """Close what right or time ended, and read the keys; nothing that fails here ends the loop."""
        try:
            self._process.apply()
            await self._process.keys.reload_if_due()
        except Exception as error:
            _LOG.error("a poll of the guard failed; what is in flight is still checked at each message", extra=fault_of(error))

    async def _keep(self) -> None:
        if self._process.keeper is not None:
            await self._process.keeper.run()

    async def _close(self) -> None:
        while True:
            try:
                await self._process.keep_closing()
            except Exception as error:
                _LOG.error("closing failed; nothing is acknowledged until it works", extra=fault_of(error))
            await self._sleep(POLL_SECONDS)

    async def _poll(self) -> None:
        while True:
            await self.poll_once()
            await self._sleep(POLL_SECONDS)

    async def _digest(self) -> None:
        if self._process.loaded is not None:
            return
        try:
            self._process.loaded = await asyncio.to_thread(self._process.digests)
        except Exception as error:  # whatever it is, this process can never name what it loaded
            self._process.problem = str(error) or type(error).__name__
            _LOG.error(
                "the engine's digests cannot be computed; the guard refuses everything",
                extra={"problem": self._process.problem, **fault_of(error)},
            )
        if self._process.keeper is not None:
            self._process.keeper.hurry()  # gateways wait for the digests

    async def _serve_metrics(self) -> None:
        if self._process.settings.metrics_port:
            try:
                await self._port.open()
            except OSError as error:
                _LOG.error("the metrics port cannot be opened; requests are served without metrics", extra={"problem": str(error)})

    async def _metrics(self) -> bytes:
        engine = await engine_metrics(self._app) if self._app else b""
        return exposition(self._process, self._requests).encode() + engine
