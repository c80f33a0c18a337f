"""Fences in progress: who has to be heard of before nothing older than a ledger state can be used any more.

A fence is told of by whoever wrote the ledger, looked at after every event of a lease, and completed by a list that is read by
quorum after the write. What is complete stays complete: a later state of the same lineage includes the earlier ones.

Each head step opens a fence, and hundreds may be open while one process is silent. So a look takes one census of everybody, stands
it against each ledger once, and finds the fences of that ledger by comparison. Who asks is told of a ledger, and seldom.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from cachescope.controller.lease_book import LeaseBook
from cachescope.core.errors import ClusterError
from cachescope.core.fences import Census, Progress, Stand, Wanted
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
        untold: Whether progress was made of which nobody was told.
        told_ms: When somebody was told last.
    """

    ledger: Ledger
    open: dict[int, Fence]
    done: Fence | None = None
    untold: bool = False
    told_ms: int | None = None

    def stand(self, census: Census) -> Stand:
        """How everybody stands to it; there is an open fence."""
        return census.stand(next(iter(self.open.values())).wanted, self.ledger)


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
            known.open[wanted.sequence] = Fence(wanted, self._census().stand(wanted, known.ledger).progress(wanted))
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
        return [fence for _, known in self._every_open() for fence in known.open.values()]

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
        asked = {key: list(known.open.values()) for key, known in self._every_open()}
        stands = self._stands(asked)
        listed = any(self._needs_list(stands[key], fence) for key, fences in asked.items() for fence in fences)
        if listed:
            # Watches are hints: what they show may be old, and a list that was begun after the write may not.
            await self._refresh()
            stands = self._stands(asked)
        for key, stand in stands.items():
            self._judge(key, stand, asked[key], listed=listed)

    def _stands(self, keys: Iterable[str]) -> dict[str, Stand]:
        """How everybody stands now to those ledgers that have open fences."""
        census, ledgers = self._census(), {key: self._ledgers.get(key) for key in keys}
        return {key: known.stand(census) for key, known in ledgers.items() if known is not None and known.open}

    def _census(self) -> Census:
        return Census(self._book.roster, self._book.now_ms())

    def _needs_list(self, stand: Stand, fence: Fence) -> bool:
        clear_ms = self._clear_ms(fence)
        found = stand.progress(fence.wanted, clear_ms=clear_ms)
        return found.complete or (found.clear and clear_ms is None)

    def _clear_ms(self, fence: Fence) -> int | None:
        """When it was clear, unless somebody may have been missed since."""
        missed_ms = self._book.roster.missed_ms
        return None if fence.clear_ms is None or (missed_ms or 0) > fence.clear_ms else fence.clear_ms

    def _judge(self, key: str, stand: Stand, asked: Iterable[Fence], *, listed: bool) -> None:
        known = self._ledgers[key]
        ended = False
        for fence in asked:
            if known.open.get(fence.wanted.sequence) is fence:  # otherwise another lineage began meanwhile
                ended |= self._moved(known, fence, stand, listed=listed)
        self._tell(known, key, at_once=ended)

    def _moved(self, known: _Ledger, fence: Fence, stand: Stand, *, listed: bool) -> bool:
        """Take over how far one fence is; whether it, or the wait for those who have rights, came to an end."""
        clear_ms = self._clear_ms(fence)
        found = stand.progress(fence.wanted, clear_ms=clear_ms)
        if listed and found.clear and clear_ms is None:
            clear_ms = stand.now_ms
            found = stand.progress(fence.wanted, clear_ms=clear_ms)
        known.untold = known.untold or found != fence.progress
        known.open[fence.wanted.sequence] = replace(fence, progress=found, clear_ms=clear_ms)
        if found.complete and listed:
            self._complete(known, fence.wanted.sequence, stand.now_ms)
            return True
        return found.heard != fence.progress.heard

    def _complete(self, known: _Ledger, number: int, now_ms: int) -> None:
        done = replace(known.open.pop(number), fenced_ms=now_ms)
        if known.done is None or known.done.wanted.sequence < number:
            known.done = done
        if done.wanted.written:
            self._completed(done)

    def _tell(self, known: _Ledger, key: str, *, at_once: bool) -> None:
        """Tell of progress now and then, of all fences of a ledger at once, and of an end always."""
        now = self._book.now_ms()
        recently = known.told_ms is not None and now - known.told_ms < TOLD_MS
        if at_once or (known.untold and not recently):
            known.untold, known.told_ms = False, now
            self._told(key)

    def _every_open(self) -> Iterator[tuple[str, _Ledger]]:
        return ((key, known) for key, known in self._ledgers.items() if known.open)

    def _open(self) -> bool:
        return any(self._every_open())
