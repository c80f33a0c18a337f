"""Work to be done, by key: each key at most once in the queue and by one worker at a time.

Rules:

- a key that is added while it is worked on is worked on again afterwards;
- of several times at which a key is due, the earliest counts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class WorkQueue(Generic[Item]):
    """A deduplicating queue with delays, for the tasks of one event loop."""

    def __init__(self) -> None:
        self._ready: deque[Item] = deque()
        self._queued: set[Item] = set()
        self._active: set[Item] = set()
        self._again: set[Item] = set()
        self._timers: dict[Item, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, item: Item) -> None:
        """Make an item due now."""
        self._cancel_timer(item)
        if item in self._active:
            self._again.add(item)
        elif item not in self._queued:
            self._queued.add(item)
            self._ready.append(item)
            self._wake.set()

    def add_after(self, item: Item, seconds: float) -> None:
        """Make an item due later, unless it is due earlier."""
        loop = asyncio.get_running_loop()
        known = self._timers.get(item)
        if known is not None and known.when() <= loop.time() + seconds:
            return
        self._cancel_timer(item)
        self._timers[item] = loop.call_later(seconds, self.add, item)

    async def take(self) -> Item:
        """Wait for an item; call `done` with it afterwards."""
        while not self._ready:
            self._wake.clear()
            await self._wake.wait()
        item = self._ready.popleft()
        self._queued.discard(item)
        self._active.add(item)
        return item

    def done(self, item: Item) -> None:
        """End the work on an item."""
        self._active.discard(item)
        if item in self._again:
            self._again.discard(item)
            self.add(item)

    def _cancel_timer(self, item: Item) -> None:
        if timer := self._timers.pop(item, None):
            timer.cancel()
