"""When engines of one tenant run: as long as somebody asks them, and some time after.

Rules:

- without `idleSeconds` they run all the time;
- what a gateway wants is started, and runs for at least `minWarmSeconds`;
- a pool is in use while a gateway wants it, when a guard admitted something, and as long as a guard of a ready pod is not heard of;
- times are this process's own: after a start each pool counts as used just now, so that none is stopped too early.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

from cachescope.api.isolation import Isolation
from cachescope.controller.lease_book import Life, Process


@dataclass
class _Run:
    started: float
    used: float


@dataclass(frozen=True, slots=True)
class Signs:
    """What is to be seen of one pool's use.

    Attributes:
        uid: UID of the pool.
        runs: Whether engines are asked for.
        wanted: Whether a gateway found none for a request.
        used: Tells when its guards had a request last, in seconds of the clock of leases; 0.0 for never.
    """

    uid: str
    runs: bool
    wanted: bool
    used: Callable[[], float]


class Warmth:
    """What is remembered of the pools of one template."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}

    def keep(self, uids: Container[str]) -> None:
        """Forget all pools but these."""
        self._runs = {uid: run for uid, run in self._runs.items() if uid in uids}

    def runs(self, signs: Signs, isolation: Isolation, now: float) -> bool:
        """Whether engines of a pool are to run.

        Args:
            signs: What is to be seen.
            isolation: What its template says.
            now: Seconds, on the clock of leases.
        """
        if not signs.runs:
            self._runs.pop(signs.uid, None)
            if not signs.wanted and isolation.idle_seconds is not None:
                return False
        run = self._runs.setdefault(signs.uid, _Run(now, now))
        if signs.wanted:
            run.used = now
        if self._lasts(signs.uid, isolation, now):
            return True
        run.used = max(run.used, signs.used())
        return self._lasts(signs.uid, isolation, now)

    def left(self, uid: str, isolation: Isolation, now: float) -> float | None:
        """Seconds until a pool that runs may be stopped, if nobody asks it; `None` where it never is."""
        run = self._runs.get(uid)
        if run is None or isolation.idle_seconds is None:
            return None
        return max(run.started + isolation.min_warm_seconds, run.used + isolation.idle_seconds) - now

    def _lasts(self, uid: str, isolation: Isolation, now: float) -> bool:
        left = self.left(uid, isolation, now)
        return left is None or left > 0


def last_used(guards: Iterable[Process], ready: Iterable[str], now: float) -> float:
    """When a pool was used last, as far as its guards say.

    Args:
        guards: Its guards.
        ready: UIDs of its ready pods.
        now: Seconds, on the clock of leases.
    """
    found = {item.statement.pod_uid: item for item in guards if item.statement is not None}
    return max((_used_at(found.get(uid), now) for uid in ready), default=0.0)


def _used_at(guard: Process | None, now: float) -> float:
    if guard is None or guard.statement is None or guard.life is not Life.LIVE:
        return now
    return guard.used_at
