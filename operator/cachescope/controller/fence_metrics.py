"""What is to be seen of fences that are not complete, and of restores that nobody confirmed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from cachescope.controller.fences import Fences
from cachescope.controller.lease_book import LeaseBook
from cachescope.core.fences import Wanted
from cachescope.core.ledgers import Ledger, Role
from cachescope.core.rosters import Roster, after_right_ms, right_ms

SLACK_MS = 5000
"""What a busy operator may take beyond the bound before somebody is told."""

WAITING, OVERDUE = "waiting", "overdue"


def is_overdue(roster: Roster, wanted: Wanted, now_ms: int, *, drain_ms: int = 0) -> bool:
    """Whether a fence took longer than silence and drains can make it: somebody renews a right, and acknowledges nothing.

    Args:
        roster: Everybody who may act.
        wanted: What is to be fenced.
        now_ms: The present.
        drain_ms: For how long a guard may let answers end before it acknowledges.
    """
    guards = roster.guards(wanted.namespace, wanted.pool)
    right = right_ms(guards.lease_ms)
    if not wanted.pool:
        # Who expired may still issue, or serve, what reuses nothing, and then comes an answer: revocations wait for that too.
        right = max(guards.serves_ms, roster.gateways.issues_ms) + after_right_ms(guards.lease_ms, guards.fresh_ms)
    vanished = [entry.since_ms for entry in roster.entries() if entry.gone]
    began = max(wanted.written_ms, roster.missed_ms or 0, *vanished, 0)
    return now_ms > began + right + drain_ms + SLACK_MS


def drain_ms(ledger: Ledger) -> int:
    """The longest drain that a ledger asks for: meanwhile guards do not acknowledge that ledger."""
    return 1000 * max((floor.drain_seconds for floor in ledger.floors.values()), default=0)


class FenceMetrics(Collector):
    """Implements prometheus_client's `Collector`.

    Args:
        fences: All fences.
        book: Knows the processes.
    """

    def __init__(self, fences: Fences, book: LeaseBook) -> None:
        self._fences = fences
        self._book = book

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Fences that are not complete, by role of the ledger and state; namespaces that refuse everything."""
        found, standing = Counter[tuple[str, str]](), self._fences.standing()
        for fence in self._fences.waiting():
            found["Pool" if fence.wanted.pool else "Authorization", self._state(fence.wanted, standing)] += 1
        metric = GaugeMetricFamily(
            "cachescope_operator_open_fences",
            "Fences that are not complete; overdue: longer than silence and drains can make them.",
            labels=["role", "state"],
        )
        for role in ("Pool", "Authorization"):
            for state in (WAITING, OVERDUE):
                metric.add_metric([role, state], found[role, state])
        yield metric
        unconfirmed = sum(ledger.role is Role.AUTHORIZATION and ledger.unconfirmed for ledger in standing.values())
        yield GaugeMetricFamily(
            "cachescope_operator_unconfirmed_restores", "Namespaces that refuse everything until somebody confirms.", unconfirmed
        )

    def _state(self, wanted: Wanted, standing: Mapping[str, Ledger]) -> str:
        drain = drain_ms(standing[wanted.key])
        return OVERDUE if is_overdue(self._book.roster, wanted, self._book.now_ms(), drain_ms=drain) else WAITING
