"""Requests in flight: what was admitted and is not over yet, and what becomes of it when heads, rights or time move on.

Rules:

- a request is compared with every head that is applied: of another lineage, denied, behind, or no longer to be judged, it is
  closed; only what fell behind a `Drain` alone goes on, until its time is over, and only under the right that admitted it;
- the time of a drain begins when the head is applied, and a later head can only shorten it;
- what drains holds up the acknowledgement of the ledger that it fell behind, and of no other: a pool's drain delays no revocation;
- what reuses ends with the right that admitted it, and everything ends when another right follows; what is `Fresh` goes on
  without a right until its time is over, counted from its admission;
- what was closed is not over when its application returns: the engine has to confirm it, see `closing`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

from cachescope.core.admission import REFUSED, Refusal, switched_off
from cachescope.core.heads import Heads, Standing, behind_of, drain_seconds, judge
from cachescope.core.ledgers import Role
from cachescope.core.permits import Permit
from cachescope.core.types import Reuse


class Flight:
    """One admitted request.

    Args:
        permit: What admitted it.
        heads: What it was compared with.
        generation: The generation of rights under which it was admitted.
        now: The present, in milliseconds of the process's clock.

    Attributes:
        drain_until: When its drain is over, or `None` while nothing of it fell behind.
        behind: The ledgers that it fell behind of while it drains.
        aborted: Set when it was closed.
        returned: Set when its application returned.
        reason: Why it was closed, or `None`.
    """

    __slots__ = ("aborted", "admitted_at", "behind", "drain_until", "generation", "heads", "permit", "reason", "returned", "seen")

    def __init__(self, permit: Permit, heads: Heads, *, generation: int, now: int) -> None:
        self.permit = permit
        self.heads = heads
        self.seen = permit.seen
        self.generation = generation
        self.admitted_at = now
        self.drain_until: int | None = None
        self.behind: frozenset[Role] = frozenset()
        self.aborted = asyncio.Event()
        self.returned = asyncio.Event()
        self.reason: Refusal | None = None

    def follow(self, heads: Heads, now: int) -> Refusal | None:
        """Compare it with heads that were just applied; why it must be closed at once, or `None`."""
        if heads is self.heads:
            return None
        self.heads = heads
        standing = judge(heads, self.permit.epochs, self.seen)
        if standing is Standing.BEHIND:
            return self._drain(heads, now)
        if standing is not Standing.CURRENT:
            return REFUSED[standing]
        # What stands at these heads needs no change of before them to be judged by later ones.
        self.seen = heads.seen
        return switched_off(self.permit, heads)

    def ended(self, now: int, *, generation: int, right: bool, fresh_ms: int) -> Refusal | None:
        """Whether right or time ended it.

        Args:
            now: The present.
            generation: The generation of rights.
            right: Whether there is a right now.
            fresh_ms: For how long a `Fresh` request may take without a right; 0 when nothing is served without one.
        """
        if generation != self.generation:
            return Refusal.LEASE_LOST
        if right:
            return Refusal.BEHIND if self.drain_until is not None and now >= self.drain_until else None
        if fresh_ms == 0:
            return Refusal.NO_RIGHT
        if self.permit.reuse is Reuse.SALTED or self.drain_until is not None:
            return Refusal.LEASE_LOST
        return Refusal.FRESH_OVER if now >= self.admitted_at + fresh_ms else None

    def _drain(self, heads: Heads, now: int) -> Refusal | None:
        seconds = drain_seconds(heads, self.permit.epochs, self.seen)
        if seconds is None:
            return Refusal.BEHIND
        until = now + seconds * 1000
        self.drain_until = until if self.drain_until is None else min(until, self.drain_until)
        self.behind |= behind_of(heads, self.permit.epochs, self.seen)
        return None


class InFlight:
    """All admitted requests of the process.

    Attributes:
        closed: How many were closed, by the code of the reason.
    """

    def __init__(self) -> None:
        self._flights: set[Flight] = set()
        self._unconfirmed: set[Flight] = set()
        self.closed: Counter[str] = Counter()

    def enter(self, flight: Flight) -> None:
        """Register a request in the step that admits it."""
        self._flights.add(flight)

    def leave(self, flight: Flight) -> None:
        """A request's application returned; one that was closed stays unconfirmed."""
        self._flights.discard(flight)
        flight.returned.set()

    def abort(self, flight: Flight, reason: Refusal) -> None:
        """Close one request; the first reason stays."""
        if flight.reason is None:
            flight.reason = reason
            flight.aborted.set()
            self.closed[reason.code] += 1
            self._unconfirmed.add(flight)

    def abort_all(self, reason: Refusal = Refusal.LEASE_LOST) -> int:
        """Close every request; how many."""
        found = self.open()
        for flight in found:
            self.abort(flight, reason)
        return len(found)

    def open(self) -> tuple[Flight, ...]:
        """Requests that were not closed."""
        return tuple(flight for flight in self._flights if flight.reason is None)

    def unconfirmed(self) -> tuple[Flight, ...]:
        """Requests that were closed, and of which the engine may know yet."""
        return tuple(self._unconfirmed)

    def confirm(self, flights: Iterable[Flight]) -> None:
        """The engine knows nothing of these any more."""
        self._unconfirmed.difference_update(flights)

    def drain_ends(self) -> int | None:
        """When the next drain is over; `None` when nothing drains."""
        return min((flight.drain_until for flight in self.open() if flight.drain_until is not None), default=None)

    def held_up(self) -> frozenset[Role]:
        """The ledgers that something draining is behind of."""
        return frozenset[Role]().union(*(flight.behind for flight in self.open()))

    def counts(self) -> dict[str, int]:
        """Requests by state: `open`, `draining`, and `closing` until the engine has confirmed what was closed."""
        states = Counter("open" if flight.drain_until is None else "draining" for flight in self.open())
        return {"open": states["open"], "draining": states["draining"], "closing": len(self._unconfirmed)}
