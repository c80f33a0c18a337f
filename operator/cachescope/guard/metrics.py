"""The guard's own metrics in Prometheus' text format; labels are from fixed lists, never a tenant's or a request's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from cachescope.core.heads import Heads
from cachescope.core.types import NO_CACHE
from cachescope.guard.histogram import Histogram
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
    rounds = process.keeper.outcomes if process.keeper else {}
    closing, cleanup = process.closing, process.cleanup
    lines = [
        *_family("requests_total", "counter", "Requests by outcome.", {"outcome": requests.by_outcome}),
        *_family("closed_total", "counter", "Admitted requests that were closed.", {"reason": process.in_flight.closed}),
        *_family("in_flight", "gauge", "Admitted requests that are not over.", {"state": process.in_flight.counts()}),
        *_family("confirmations_total", "counter", "Questions to the engine by how they ended.", {"outcome": closing.outcomes}),
        *_counter("confirmation_seconds_total", "Seconds that the engine took to confirm.", closing.seconds),
        *_family("cache_resets_total", "counter", "Resets of the engine's cache after fences.", {"outcome": cleanup.outcomes}),
        *_histogram("cache_reset_seconds", "From an acknowledgement to the reset after it, if it succeeded.", cleanup.seconds),
        *_gauge("used_permits", "Permits that are remembered as used.", len(process.used)),
        *_gauge("right_seconds", "Seconds until the right to reuse ends.", process.source.right_left_ms(now) / 1000),
        *_gauge("lease_seconds", "Length of a right; it is renewed every third of that.", process.settings.lease_ms / 1000),
        *_gauge("right_generation", "Number of the unbroken chain of rights; it rises after each gap.", process.source.generation),
        *_family("rounds_total", "counter", "Lease rounds by how they ended.", {"outcome": rounds}),
        *_family("head_sequence", "gauge", "Sequence of each applied ledger.", {"ledger": _sequences(process.source.heads)}),
        *_family("acknowledged_sequence", "gauge", "Sequence acknowledged of each.", {"ledger": _acknowledged(process)}),
        *_gauge(
            "bound", "Whether the pod's cache belongs to somebody, where the engine knows no salts.", int(process.cache != NO_CACHE)
        ),
        *_gauge("digests_known", "Whether the engine's digests are known.", int(process.loaded is not None)),
    ]
    return "\n".join(lines) + "\n"


def _sequences(heads: Heads | None) -> Mapping[str, int]:
    if heads is None:
        return {}
    return {"pool": heads.pool.sequence, "authorization": heads.authorization.sequence}


def _acknowledged(process: GuardProcess) -> Mapping[str, int]:
    """Sequences of what is acknowledged; 0 of an earlier lineage, whose numbers say nothing of the one that is applied."""
    applied, acknowledged = process.source.heads, process.acknowledged
    if applied is None or acknowledged is None:
        return _sequences(acknowledged)
    lineages = (
        acknowledged.pool.lineage == applied.pool.lineage,
        acknowledged.authorization.lineage == applied.authorization.lineage,
    )
    found = _sequences(acknowledged)
    return {name: found[name] if same else 0 for name, same in zip(("pool", "authorization"), lineages, strict=True)}


def _family(name: str, kind: str, text: str, values: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    yield from _header(name, kind, text)
    for label, counts in values.items():
        for value, count in sorted(counts.items()):
            yield f'cachescope_guard_{name}{{{label}="{value}"}} {count}'


def _histogram(name: str, text: str, values: Histogram) -> Iterator[str]:
    yield from _header(name, "histogram", text)
    count = 0
    for bound, count in values.buckets():
        yield f'cachescope_guard_{name}_bucket{{le="{bound}"}} {count}'
    yield f"cachescope_guard_{name}_sum {values.total}"
    yield f"cachescope_guard_{name}_count {count}"


def _counter(name: str, text: str, value: float) -> Iterator[str]:
    yield from _header(name, "counter", text)
    yield f"cachescope_guard_{name} {value}"


def _gauge(name: str, text: str, value: float) -> Iterator[str]:
    yield from _header(name, "gauge", text)
    yield f"cachescope_guard_{name} {value}"


def _header(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP cachescope_guard_{name} {text}"
    yield f"# TYPE cachescope_guard_{name} {kind}"
