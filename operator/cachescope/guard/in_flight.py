"""Requests in flight: what was admitted and is not answered yet, and what has to be closed when the ledger moves on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from cachescope.core.admission import Refusal
from cachescope.core.epochs import EpochVector, Floors
from cachescope.core.heads import Head


class Flight:
    """One admitted request.

    Attributes:
        epochs: Its epoch vector.
        generation: The generation of rights under which it was admitted.
        head: The last head that it was compared with, and was not below.
        aborted: Set when it was closed.
        reason: Why it was closed, or `None`.
    """

    __slots__ = ("aborted", "epochs", "generation", "head", "reason")

    def __init__(self, epochs: EpochVector, generation: int, head: Head) -> None:
        self.epochs = epochs
        self.generation = generation
        self.head = head
        self.aborted = asyncio.Event()
        self.reason: Refusal | None = None


class InFlight:
    """All admitted requests of the process."""

    def __init__(self) -> None:
        self._flights: set[Flight] = set()
        self.cuts: Counter[str] = Counter()

    def enter(self, flight: Flight) -> None:
        """Register a request in the step that admits it."""
        self._flights.add(flight)

    def leave(self, flight: Flight) -> None:
        """Forget a request that ended."""
        self._flights.discard(flight)

    def abort(self, flight: Flight, reason: Refusal) -> None:
        """Close one request; the first reason stays."""
        if flight.reason is None:
            flight.reason = reason
            flight.aborted.set()
            self.cuts[reason.code] += 1

    def abort_below(self, floors: Floors) -> int:
        """Close every request that has a target below its floor; how many."""
        return self._abort_where(lambda flight: bool(floors.below(flight.epochs)), Refusal.BEHIND)

    def abort_lineage(self, other_than: str) -> int:
        """Close every request of another lineage, where its epochs mean nothing; how many."""
        return self._abort_where(lambda flight: flight.head.lineage != other_than, Refusal.BEHIND)

    def abort_generation(self, older_than: int) -> int:
        """Close every request of an older generation of rights; how many."""
        return self._abort_where(lambda flight: flight.generation < older_than, Refusal.NO_RIGHT)

    def abort_all(self) -> int:
        """Close every request, since the right ended; how many."""
        return self._abort_where(lambda _: True, Refusal.NO_RIGHT)

    def counts(self) -> dict[str, int]:
        """Requests by state: `open`, and `closing` once they were aborted and have not returned."""
        closing = sum(1 for flight in self._flights if flight.reason is not None)
        return {"open": len(self._flights) - closing, "closing": closing}

    def _abort_where(self, condition: Callable[[Flight], bool], reason: Refusal) -> int:
        found = [flight for flight in self._flights if flight.reason is None and condition(flight)]
        for flight in found:
            self.abort(flight, reason)
        return len(found)
