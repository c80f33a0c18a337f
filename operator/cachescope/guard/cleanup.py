"""Cleanup: the engine forgets its prefix cache once a fence made all of it unreachable.

Rules:

- it begins after the acknowledgement, and nothing waits for it: what it cannot do changes no right and no acknowledgement, and what
  stays in the engine is unreachable all the same, by its salt;
- it follows what cools the whole pool, an epoch of the pool or another lineage, and not what cools a tenant or a scope: the engine
  has one reset, for all of them;
- vLLM answers `False` while a block is in use (`BlockPool.reset_prefix_cache` of 0.32), and never says when it no longer is: it is
  asked again until it did, or until its time is over. Running requests are not preempted for it.

Only an engine in this process can be asked; the HTTP route for it exists in a mode that guarded engines never run in.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from cachescope.core.heads import Heads
from cachescope.core.log_lines import fault_of
from cachescope.core.types import TargetName
from cachescope.guard.histogram import Histogram
from cachescope.guard.wire import Scope
from cachescope.leases.waiting import within

_LOG = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.5
BOUND_MS = 60_000
"""How long it is asked after a fence. A pool that is always busy has blocks in use at any moment."""
_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0)

SUCCESS, BUSY, FAILED, UNANSWERED = "success", "busy", "failed", "unanswered"


class Cleanup:
    """Resets the engine's cache after fences.

    Args:
        pool: Target of the pool.
        enabled: Whether it does anything.
        clock: Milliseconds since the process started.
        sleep: Waits between two questions, in seconds.
        bound_ms: How long it asks after one fence, and waits for one answer.

    Attributes:
        outcomes: Resets by how they ended: `success`, `busy` (blocks were in use to the end), `failed` (the engine raised, or
            cannot be asked), `unanswered`.
        seconds: From the acknowledgement to the reset, of those that succeeded.
    """

    def __init__(
        self,
        pool: TargetName,
        *,
        enabled: bool,
        clock: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        bound_ms: int = BOUND_MS,
    ) -> None:
        self.outcomes: Counter[str] = Counter()
        self.seconds = Histogram(_BUCKETS)
        self._pool = pool
        self._enabled = enabled
        self._clock = clock
        self._sleep = sleep
        self._bound_ms = bound_ms
        self._application: object = None
        self._before: Heads | None = None
        self._since = 0
        self._due = asyncio.Event()

    def saw(self, scope: Scope) -> None:
        """Remember where the engine is; Starlette puts its application into the scope."""
        self._application = scope.get("app", self._application)

    def acknowledged(self, heads: Heads | None) -> None:
        """Everything older than these heads is closed. The first ones cool nothing: the engine began with this process."""
        if self._enabled and self._before is not None and heads is not None and self._cooled(self._before, heads):
            self._since = self._clock()
            self._due.set()
        self._before = heads

    async def run(self) -> None:
        """Reset after each such fence, until cancelled; fences that come while it asks share one more reset."""
        while True:
            await self._due.wait()
            self._due.clear()
            await self._reset(self._since)

    def _cooled(self, before: Heads, now: Heads) -> bool:
        return before.seen.lineages != now.seen.lineages or before.pool.epoch(self._pool) < now.pool.epoch(self._pool)

    async def _reset(self, since: int) -> None:
        ends, outcome = self._clock() + self._bound_ms, await self._asked()
        while outcome != SUCCESS and self._clock() < ends:
            await self._sleep(_PAUSE_SECONDS)
            outcome = await self._asked()
        seconds = (self._clock() - since) / 1000
        self.outcomes[outcome] += 1
        if outcome == SUCCESS:
            self.seconds.observe(seconds)
            _LOG.info("the engine's prefix cache was reset after a fence", extra={"seconds": seconds})
        else:
            _LOG.warning(
                "the engine's prefix cache was not reset after a fence; it is unreachable all the same, and evicted in its time",
                extra={"outcome": outcome, "seconds": seconds},
            )

    async def _asked(self) -> str:
        """One question to the engine, and how it ended."""
        client: Any = getattr(getattr(self._application, "state", None), "engine_client", None)
        call = await within(_reset_by(client), self._bound_ms / 1000)  # vLLM bears that it is ended
        if not call.done():
            return UNANSWERED
        return FAILED if call.cancelled() else call.result()  # an engine that ends cancels what waits for it


async def _reset_by(client: Any) -> str:  # noqa: ANN401 - vLLM's AsyncLLM
    try:
        return SUCCESS if await client.reset_prefix_cache() is True else BUSY
    except Exception as error:  # whatever vLLM raises
        _LOG.debug("the engine cannot reset its prefix cache", extra=fault_of(error))
        return FAILED
