"""What is to be seen of fences that are not complete, and of restores that nobody confirmed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from cachescope.controller.fences import Fences
from cachescope.controller.lease_book import LeaseBook
from cachescope.core.fences import Wanted
from cachescope.core.ledgers import Role
from cachescope.core.rosters import Roster, after_right_ms, right_ms

SLACK_MS = 5000
"""What a busy operator may take beyond the bound before somebody is told."""

WAITING, OVERDUE = "waiting", "overdue"


def is_overdue(roster: Roster, wanted: Wanted, now_ms: int) -> bool:
    """Whether a fence took longer than silence alone can make it: somebody renews a right, and acknowledges nothing.

    Args:
        roster: Everybody who may act.
        wanted: What is to be fenced.
        now_ms: The present.
    """
    guards = roster.guards(wanted.namespace, wanted.pool)
    right = right_ms(guards.lease_ms)
    if not wanted.pool:
        # Who expired may still issue, or serve, what reuses nothing, and then comes an answer: revocations wait for that too.
        right = max(guards.serves_ms, roster.gateways.issues_ms) + after_right_ms(guards.lease_ms, guards.fresh_ms)
    vanished = [entry.since_ms for entry in roster.entries() if entry.gone]
    began = max(wanted.written_ms, roster.missed_ms or 0, *vanished, 0)
    return now_ms > began + right + SLACK_MS


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
        found, now = Counter[tuple[str, str]](), self._book.now_ms()
        for fence in self._fences.waiting():
            state = OVERDUE if is_overdue(self._book.roster, fence.wanted, now) else WAITING
            found["Pool" if fence.wanted.pool else "Authorization", state] += 1
        metric = GaugeMetricFamily(
            "cachescope_operator_open_fences",
            "Fences that are not complete; overdue: longer than rights last.",
            labels=["role", "state"],
        )
        for role in ("Pool", "Authorization"):
            for state in (WAITING, OVERDUE):
                metric.add_metric([role, state], found[role, state])
        yield metric
        unconfirmed = sum(ledger.role is Role.AUTHORIZATION and ledger.unconfirmed for ledger in self._fences.standing())
        yield GaugeMetricFamily(
            "cachescope_operator_unconfirmed_restores", "Namespaces that refuse everything until somebody confirms.", unconfirmed
        )
