"""When a process writes its lease next: whole rounds when they are due, acknowledgements at once.

Rules:

- a whole round comes when it is due, or sooner when one is wished, but never sooner than a second after the last;
- an acknowledgement comes at once when there is something new to say, at most twenty times a second; what comes meanwhile is said
  together;
- a process that may not acknowledge now makes a whole round instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

LEAST_SECONDS = 1.0
"""Between two whole rounds."""
BETWEEN_SECONDS = 0.05
"""Between two writes of any kind."""


class Pace:
    """The waits of one process.

    Args:
        sleep: Waits, in seconds.
    """

    def __init__(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._sleep = sleep
        self._wanted = asyncio.Event()
        self._whole = False
        self._due: asyncio.Future[None] | None = None
        self._rest: asyncio.Future[None] | None = None

    def hurry(self, *, whole: bool = False) -> None:
        """Wish for a write; for a whole round if `whole`."""
        self._whole = self._whole or whole
        self._wanted.set()

    def begin(self, *, whole: bool) -> None:
        """A write begins, or a whole round: it fulfils the wishes of before."""
        self._wanted.clear()
        self._whole = self._whole and not whole

    def arm(self, seconds: float) -> None:
        """The next whole round is due in so many seconds."""
        self.stop()
        self._due = asyncio.ensure_future(self._sleep(seconds))
        self._rest = asyncio.ensure_future(self._sleep(min(LEAST_SECONDS, seconds)))

    async def acknowledges(self, allowed: Callable[[], bool]) -> bool:
        """Wait for the next write; whether it is an acknowledgement, and no whole round."""
        await self._until(self._sleep(BETWEEN_SECONDS))
        await self._until(self._wanted.wait())
        if self._due is None or self._due.done():
            return False
        if not self._whole and allowed():
            return True
        if self._rest is not None:
            await self._until(self._rest)
        return False

    def stop(self) -> None:
        """End what was armed."""
        for waiting in (self._due, self._rest):
            if waiting is not None:
                waiting.cancel()

    async def _until(self, awaited: Awaitable[object]) -> None:
        """Wait for something, but not longer than until the next whole round is due."""
        if self._due is None:
            raise RuntimeError("nothing is due; arm the pace first")
        waiting = asyncio.ensure_future(awaited)
        try:
            await asyncio.wait((waiting, self._due), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
