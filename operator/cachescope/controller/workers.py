"""Workers: take a key, reconcile it, and come back to it: soon after a failure, seldom otherwise."""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from cachescope.controller.metrics import Metrics
from cachescope.controller.store import Key
from cachescope.controller.work_queue import WorkQueue
from cachescope.core.errors import ClusterError
from cachescope.core.log_lines import name_in_logs
from cachescope.kube.rest import ConflictError
from cachescope.logs import fault_of

log = logging.getLogger(__name__)

WORKERS: Final = 8
RESYNC_SECONDS: Final = 600.0
FIRST_DELAY: Final = 0.2
LAST_DELAY: Final = 120.0

Reconcile = Callable[[Key, int], Awaitable[None]]
"""Reconciles a key; told how many attempts in a row failed before."""


class Workers:
    """Reconciles keys.

    Args:
        queue: The keys.
        reconcilers: By kind.
        metrics: Where results are counted.
        exists: Whether the object of a key is there; what is gone, and was dealt with, is not looked at again.
    """

    def __init__(
        self, queue: WorkQueue[Key], reconcilers: Mapping[str, Reconcile], metrics: Metrics, *, exists: Callable[[Key], bool]
    ) -> None:
        self._queue = queue
        self._reconcilers = reconcilers
        self._metrics = metrics
        self._exists = exists
        self._failures: dict[Key, int] = {}
        self._faults: dict[Key, str] = {}

    async def run(self, count: int = WORKERS) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = await self._queue.take()
            try:
                await self._reconcile(key)
            finally:
                self._queue.done(key)

    async def _reconcile(self, key: Key) -> None:
        failures = self._failures.get(key, 0)
        try:
            await self._reconcilers[key.kind](key, failures)
        except ConflictError as error:
            self._again(key, "Conflict", str(error), quiet=True)  # somebody was faster: the event is on its way
        except ClusterError as error:
            self._again(key, "ClusterError", str(error))
        except Exception as error:  # a fault of ours must not end the work on all other keys
            self._again(key, "Bug", str(fault_of(error)))
        else:
            self._failures.pop(key, None)
            self._faults.pop(key, None)
            self._metrics.reconciled(key.kind, "Done")
            if self._exists(key):
                self._queue.add_after(key, RESYNC_SECONDS * random.uniform(0.9, 1.1))  # noqa: S311 - it spreads work, no secret

    def _again(self, key: Key, result: str, fault: str, *, quiet: bool = False) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._metrics.reconciled(key.kind, result)
        if not quiet and self._faults.get(key) != fault:
            named = name_in_logs(*key)
            where = {"kind": key.kind, "namespace": key.namespace, "object": named}
            log.warning("not reconciled", extra={**where, "result": result, "fault": _with_name(fault, key.name, named)})
            self._faults[key] = fault
        delay = min(LAST_DELAY, FIRST_DELAY * 2 ** min(failures, 16))
        self._queue.add_after(key, delay * random.uniform(0.5, 1.0))  # noqa: S311 - it spreads work, no secret


def _with_name(fault: str, name: str, shown: str) -> str:
    """A fault, which may quote the API server and so the object, with the name that logs have for it."""
    return fault if shown == name else re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", shown, fault)
