"""When engines of one tenant run: as long as somebody asks them, and some time after.

Rules:

- without `idleSeconds` they run all the time;
- what a gateway wants is started, and runs for at least `minWarmSeconds`;
- a pool is in use while a gateway wants it, when a guard admitted something, and as long as a guard of a ready pod is not heard of;
- times are this process's own: after a start each pool counts as used just now, so that none is stopped too early.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from cachescope.api.pools import Isolation
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
        guards: Its guards.
        ready: UIDs of its ready pods.
    """

    uid: str
    runs: bool
    wanted: bool
    guards: Iterable[Process] = ()
    ready: frozenset[str] = frozenset()


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
        run.used = now if signs.wanted else max(run.used, _used(signs, now))
        left = self.left(signs.uid, isolation, now)
        return left is None or left > 0

    def left(self, uid: str, isolation: Isolation, now: float) -> float | None:
        """Seconds until a pool that runs may be stopped, if nobody asks it; `None` where it never is."""
        run = self._runs.get(uid)
        if run is None or isolation.idle_seconds is None:
            return None
        return max(run.started + isolation.min_warm_seconds, run.used + isolation.idle_seconds) - now


def _used(signs: Signs, now: float) -> float:
    """When it was used last, as far as guards say; 0.0 for never."""
    guards = {item.statement.pod_uid: item for item in signs.guards if item.statement is not None}
    silent = any(uid not in guards or guards[uid].life is not Life.LIVE for uid in signs.ready)
    return now if silent else max((_used_at(guards[uid]) for uid in signs.ready), default=0.0)


def _used_at(guard: Process) -> float:
    statement = guard.statement
    if statement is None or not statement.used_ms:
        return 0.0
    return guard.moved_at - max(0, statement.tick - statement.used_ms) / 1000
