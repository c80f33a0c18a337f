"""Fences in progress: who has to be heard of before nothing older than a ledger state can be used any more.

A fence is told of by whoever wrote the ledger, looked at after every event of a lease, and completed by a list that is read by
quorum after the write. What is complete stays complete: a later state of the same lineage includes the earlier ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from cachescope.controller.lease_book import LeaseBook
from cachescope.core.errors import ClusterError
from cachescope.core.fences import Progress, Wanted, progress
from cachescope.core.ledgers import Ledger, Lineage

LOOK_SECONDS: Final = 0.5
"""How often is looked at what only time completes."""
TOLD_MS: Final = 500
"""How often progress is told at most."""
LEAST_PAUSE_SECONDS: Final = 0.01
MOST_PAUSE_SECONDS: Final = 0.25


@dataclass(frozen=True)
class Fence:
    """The fence of one ledger state.

    Attributes:
        wanted: What is to be fenced.
        progress: Who did what, when it was last looked at.
        fenced_ms: When it was complete; `None` before.
        clear_ms: When a list first showed that it was clear; `None` before.
    """

    wanted: Wanted
    progress: Progress
    fenced_ms: int | None = None
    clear_ms: int | None = None

    @property
    def seconds(self) -> float | None:
        """From the write of the ledger, or from when this process first saw it, to the fence."""
        return None if self.fenced_ms is None else round((self.fenced_ms - self.wanted.written_ms) / 1000, 3)


@dataclass
class _Ledger:
    """What is known of the fences of one ledger.

    Attributes:
        ledger: As it stands.
        open: Fences that are not complete, by sequence.
        done: The latest that is.
    """

    ledger: Ledger
    open: dict[int, Fence]
    done: Fence | None = None


class Fences:
    """All fences.

    Args:
        book: Knows the processes.
        refresh: Lists all leases by quorum into the book.
        told: Called with the name of a ledger whose fences moved on.
        completed: Called with each complete fence of a state that this process wrote: of others nobody knows since when.
    """

    def __init__(
        self,
        book: LeaseBook,
        refresh: Callable[[], Awaitable[object]],
        *,
        told: Callable[[str], None],
        completed: Callable[[Fence], None] = lambda _: None,
    ) -> None:
        self._book = book
        self._refresh = refresh
        self._told = told
        self._completed = completed
        self._ledgers: dict[str, _Ledger] = {}
        self._told_ms: dict[str, int] = {}
        self._wake = asyncio.Event()

    def stands(self, key: str, ledger: Ledger) -> None:
        """A ledger stands as it is; a later lineage makes fences of before meaningless."""
        known = self._ledgers.get(key)
        if known is None or known.ledger.lineage != ledger.lineage:
            self._ledgers[key] = _Ledger(ledger, {})
        elif ledger.sequence >= known.ledger.sequence:
            known.ledger = ledger

    def want(self, wanted: Wanted) -> None:
        """Fence a state of a ledger that stands."""
        known = self._ledgers[wanted.key]
        done = known.done is not None and known.done.wanted.sequence >= wanted.sequence
        if not done and wanted.sequence not in known.open:
            known.open[wanted.sequence] = Fence(wanted, self._progress(known, wanted, None))
            self._wake.set()

    def of(self, key: str, lineage: Lineage, sequence: int) -> Fence | None:
        """The fence that covers a state: a complete one, or the one in progress; `None` when nobody asked for it."""
        known = self._ledgers.get(key)
        if known is None or known.ledger.lineage != lineage:
            return None
        if known.done is not None and known.done.wanted.sequence >= sequence:
            return known.done
        return next((known.open[number] for number in sorted(known.open) if number >= sequence), None)

    def waiting(self) -> list[Fence]:
        """Fences that are not complete."""
        return [fence for _, fence in self._every_open()]

    def standing(self) -> dict[str, Ledger]:
        """The ledgers, as they stand."""
        return {key: known.ledger for key, known in self._ledgers.items()}

    def looked(self) -> None:
        """A lease changed."""
        self._wake.set()

    async def run(self) -> None:
        """Look at fences until cancelled."""
        while True:
            # Not `wait_for`: before Python 3.12 it loses a cancellation that comes together with what it waits for.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS if self._open() else None):
                    await self._wake.wait()
            self._wake.clear()
            started = time.monotonic()
            with contextlib.suppress(ClusterError):  # the next look comes soon
                await self.look()
            # A thousand leases move at once: they are looked at together, and the events themselves need the time.
            await asyncio.sleep(min(MOST_PAUSE_SECONDS, max(LEAST_PAUSE_SECONDS, 9 * (time.monotonic() - started))))

    async def look(self) -> None:
        """Complete what can be completed.

        Raises:
            ClusterError: Leases cannot be listed.
        """
        asked = list(self._every_open())
        listed = any(self._needs_list(known, fence) for known, fence in asked)
        if listed:
            # Watches are hints: what they show may be old, and a list that was begun after the write may not.
            await self._refresh()
        for known, fence in asked:
            self._judge(known, fence, listed=listed)

    def _needs_list(self, known: _Ledger, fence: Fence) -> bool:
        found = self._progress(known, fence.wanted, self._clear_ms(fence))
        return found.complete or (found.clear and self._clear_ms(fence) is None)

    def _clear_ms(self, fence: Fence) -> int | None:
        """When it was clear, unless somebody may have been missed since."""
        missed_ms = self._book.roster.missed_ms
        return None if fence.clear_ms is None or (missed_ms or 0) > fence.clear_ms else fence.clear_ms

    def _judge(self, known: _Ledger, fence: Fence, *, listed: bool) -> None:
        number, now, clear_ms = fence.wanted.sequence, self._book.now_ms(), self._clear_ms(fence)
        if self._ledgers.get(fence.wanted.key) is not known or known.open.get(number) is not fence:
            return  # another lineage began meanwhile
        found = self._progress(known, fence.wanted, clear_ms)
        if listed and found.clear and clear_ms is None:
            clear_ms = now
            found = self._progress(known, fence.wanted, clear_ms)
        seen = replace(fence, clear_ms=clear_ms)
        known.open[number] = seen
        if found.complete and listed:
            del known.open[number]
            complete = replace(seen, progress=found, fenced_ms=now)
            if known.done is None or known.done.wanted.sequence < number:
                known.done = complete
            if fence.wanted.written:
                self._completed(complete)
            self._tell(fence.wanted.key, at_once=True)
        elif found != fence.progress and self._tell(fence.wanted.key, at_once=found.heard != fence.progress.heard):
            known.open[number] = replace(seen, progress=found)

    def _tell(self, key: str, *, at_once: bool) -> bool:
        """Tell of progress now and then, and of an end always; whether it was told."""
        now = self._book.now_ms()
        if not at_once and now - self._told_ms.get(key, -TOLD_MS) < TOLD_MS:
            return False
        self._told_ms[key] = now
        self._told(key)
        return True

    def _progress(self, known: _Ledger, wanted: Wanted, clear_ms: int | None) -> Progress:
        return progress(self._book.roster, wanted, known.ledger, self._book.now_ms(), clear_ms=clear_ms)

    def _every_open(self) -> Iterator[tuple[_Ledger, Fence]]:
        for known in list(self._ledgers.values()):
            for fence in list(known.open.values()):
                yield known, fence

    def _open(self) -> bool:
        return any(known.open for known in self._ledgers.values())
