"""Metrics of the isolation probe."""

from __future__ import annotations

from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge

Result = Literal["Verified", "Leak", "Failed"]
RESULTS: Final[tuple[Result, ...]] = ("Verified", "Leak", "Failed")


class IsolationMetrics:
    """What Prometheus sees of it.

    Args:
        registry: Where the metrics are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._probes = Counter(
            "cachescope_operator_isolation_probes", "Runs of the isolation probe by result.", ["result"], registry=registry
        )
        for result in RESULTS:
            self._probes.labels(result)
        self._leaking = Gauge(
            "cachescope_operator_leaking_pools", "Pools in which the probe found a leak, not shown to be over.", registry=registry
        )
        self._unproven = Gauge(
            "cachescope_operator_unproven_engines",
            "Engine processes that serve and were not shown to keep tenants apart: they reuse nothing.",
            registry=registry,
        )

    def probed(self, result: Result) -> None:
        """A run ended."""
        self._probes.labels(result).inc()

    def standing(self, *, leaking: int, unproven: int) -> None:
        """How many pools leak, and how many processes are not proven."""
        self._leaking.set(leaking)
        self._unproven.set(unproven)
