"""Whether the gateway may decide now, and if not, why.

Rules:

- it decides with a configuration, under a live right, and while no watch was older than two minutes when that right was last
  renewed: what it does not know of may have been taken away;
- it decides nothing while it knows that its policy is older than an authorization head that it read;
- once its right ran out it goes on for a bounded time, `fresh_only`: without reuse, and not for tenants of sensitivity High. A
  right that was never there, or that was revoked with its lease, is followed by nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from cachescope.core.leases import Right
from cachescope.gateway.configuration import Configuration
from cachescope.gateway.snapshot import Snapshot

MAX_AGE_SECONDS = 120.0
SETTLE_SECONDS = 2.0

State = Literal["with_right", "fresh_only", "stopped"]
STATES: Final[tuple[State, ...]] = ("with_right", "fresh_only", "stopped")


@dataclass(frozen=True, slots=True)
class InForce:
    """What decisions are made with.

    Attributes:
        snapshot: The snapshot.
        fresh_only: Whether the right ran out.
    """

    snapshot: Snapshot
    fresh_only: bool = False


@dataclass(frozen=True)
class Standing:
    """What a decision needs before anything else.

    Attributes:
        configuration: The configuration.
        right: The gateway's own right.
        clock: The clock of the right, in milliseconds.
        ages: Seconds since the API server last answered, by watch; `None` before the first answer.
        fresh_ms: For how long the gateway goes on once its right ran out: what its leases say.
        lease_ms: How long its rights last: what its leases say, whatever the settings say since; 0 before the first.
    """

    configuration: Configuration
    right: Right
    clock: Callable[[], int]
    ages: Callable[[], Mapping[str, float | None]]
    fresh_ms: Callable[[], int] = lambda: 0
    lease_ms: Callable[[], int] = lambda: 0

    def in_force(self) -> InForce | None:
        """What to decide with, or `None` when nothing may be decided."""
        snapshot, state = self.configuration.current(), self.state()
        return InForce(snapshot, state == "fresh_only") if snapshot is not None and state != "stopped" else None

    async def settled(self) -> None:
        """Wait a moment for policy that is being loaded; nothing else is waited for."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                await self.configuration.loading.complete()

    def state(self) -> State:
        """How far the gateway may decide."""
        now = self.clock()
        if self.configuration.current() is None or self.configuration.stale or self._old(now):
            return "stopped"
        if self.right.live(now):
            return "with_right"
        return "fresh_only" if self.fresh_left_ms() else "stopped"

    def fresh_left_ms(self) -> int:
        """Milliseconds for which the gateway still decides without a right; 0 with one."""
        lapsed = self.right.lapsed_ms(self.clock())
        return max(0, self.fresh_ms() - lapsed) if lapsed is not None else 0

    def problems(self) -> Iterator[str]:
        """Why nothing may be decided; empty when all is well."""
        now = self.clock()
        if self.configuration.current() is None:
            yield self.configuration.fault or "no configuration is in force yet"
        if not self.right.live(now) and not self.fresh_left_ms():
            yield "the gateway has no live right; see its FenceLease, and whether the API server answers"
        if self.configuration.stale:
            yield f"policy is older than an authorization head: {', '.join(self.configuration.stale)}; it is listed anew"
        if old := self._old(now):
            yield f"not followed for two minutes, or never: {', '.join(old)}; see the gateway's rights, and the API server"

    def _old(self, now: int) -> list[str]:
        """Watches that were too old when the right was last renewed; since then an outage may have made all of them older."""
        most = MAX_AGE_SECONDS + (self.right.age_ms(now) or 0) / 1000
        return sorted(kind for kind, age in self.ages().items() if age is None or age > most)
