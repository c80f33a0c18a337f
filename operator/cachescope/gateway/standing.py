"""Whether the gateway may decide now, and if not, why.

Rules:

- it decides with a configuration, under a live right, and while no watch is older than two minutes: what it does not know of may
  have been taken away;
- an outage of the API server that ends before the right does stops nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from cachescope.core.leases import Right
from cachescope.gateway.configuration import Configuration
from cachescope.gateway.snapshot import Snapshot

MAX_AGE_SECONDS = 120.0


@dataclass(frozen=True)
class Standing:
    """What a decision needs before anything else.

    Attributes:
        configuration: The configuration.
        right: The gateway's own right.
        clock: The clock of the right, in milliseconds.
        ages: Seconds since the API server last answered, by watch; `None` before the first answer.
    """

    configuration: Configuration
    right: Right
    clock: Callable[[], int]
    ages: Callable[[], Mapping[str, float | None]]

    def in_force(self) -> Snapshot | None:
        """The snapshot to decide with, or `None` when nothing may be decided."""
        if not self.right.live(self.clock()) or any(_too_old(age) for age in self.ages().values()):
            return None
        return self.configuration.current()

    def problems(self) -> Iterator[str]:
        """Why nothing may be decided; empty when all is well."""
        if self.configuration.current() is None:
            yield self.configuration.fault or "no configuration is in force yet"
        if not self.right.live(self.clock()):
            yield "the gateway has no live right; see its FenceLease, and whether the API server answers"
        old = sorted(kind for kind, age in self.ages().items() if _too_old(age))
        if old:
            yield f"not followed for two minutes, or never: {', '.join(old)}; see the gateway's rights, and the API server"


def _too_old(age: float | None) -> bool:
    return age is None or age > MAX_AGE_SECONDS
