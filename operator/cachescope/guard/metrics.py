"""The guard's own metrics in Prometheus' text format; labels are from fixed lists, never a tenant's or a request's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from cachescope.guard.process import GuardProcess

ADMITTED = "admitted"


class Requests:
    """Requests by outcome: `admitted`, or the code of the refusal."""

    def __init__(self) -> None:
        self.by_outcome: Counter[str] = Counter()

    def count(self, outcome: str) -> None:
        """Count one request."""
        self.by_outcome[outcome] += 1


def exposition(process: GuardProcess, requests: Requests) -> str:
    """All metrics of a guard as text."""
    now = process.clock()
    head = process.source.current(now)
    rounds = process.keeper.outcomes if process.keeper else {}
    lines = [
        *_family("requests_total", "counter", "Requests by outcome.", {"outcome": requests.by_outcome}),
        *_family("cut_total", "counter", "Admitted requests that were closed.", {"reason": process.in_flight.cuts}),
        *_family("in_flight", "gauge", "Admitted requests that have not ended.", {"state": process.in_flight.counts()}),
        *_gauge("used_permits", "Permits that are remembered as used.", len(process.used)),
        *_gauge("right_seconds", "Seconds until the right to serve ends.", process.source.right_left_ms(now) / 1000),
        *_gauge("right_generation", "Number of the unbroken chain of rights; it rises after each gap.", process.source.generation),
        *_family("rounds_total", "counter", "Lease rounds by how they ended.", {"outcome": rounds}),
        *_gauge("head_sequence", "Sequence of the ledger head; -1 without a right.", head.sequence if head else -1),
        *_gauge("digests_known", "Whether the engine's digests are known.", int(process.engine is not None)),
    ]
    return "\n".join(lines) + "\n"


def _family(name: str, kind: str, text: str, values: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    yield from _header(name, kind, text)
    for label, counts in values.items():
        for value, count in sorted(counts.items()):
            yield f'cachescope_guard_{name}{{{label}="{value}"}} {count}'


def _gauge(name: str, text: str, value: float) -> Iterator[str]:
    yield from _header(name, "gauge", text)
    yield f"cachescope_guard_{name} {value}"


def _header(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP cachescope_guard_{name} {text}"
    yield f"# TYPE cachescope_guard_{name} {kind}"
