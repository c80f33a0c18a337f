"""Metrics of the operator. Labels are bounded: kinds and results, never names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from cachescope.controller.isolation_metrics import IsolationMetrics


class Metrics:
    """What Prometheus sees.

    Args:
        settings_fault: What is wrong with the mounted settings; empty when nothing is.
    """

    def __init__(self, settings_fault: Callable[[], str] = str) -> None:
        self.registry = CollectorRegistry()
        self._reconciles = Counter(
            "cachescope_operator_reconciles", "Passes by kind and result.", ["kind", "result"], registry=self.registry
        )
        self._writes = Counter(
            "cachescope_operator_writes", "Writes that the API server answered.", ["verb", "kind"], registry=self.registry
        )
        self._leading = Gauge("cachescope_operator_leading", "1 while this process leads.", registry=self.registry)
        self._queue = Gauge("cachescope_operator_queue_depth", "Keys that are due.", registry=self.registry)
        self._fences = Histogram(
            "cachescope_operator_fence_seconds",
            "From the write of a ledger to its fence, by role of the ledger.",
            ["role"],
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1200),
            registry=self.registry,
        )
        self._renewed = Counter(
            "cachescope_operator_renewed_pods",
            "Engine pods of single tenants that were deleted to make room for a new cache identity.",
            registry=self.registry,
        )
        self.isolation = IsolationMetrics(self.registry)
        valid = Gauge(
            "cachescope_operator_settings_valid",
            "0 while the mounted settings have a fault and the last good ones are in force.",
            registry=self.registry,
        )
        valid.set_function(lambda: float(not settings_fault()))
        self._ages: Callable[[], Mapping[str, float]] = dict
        self.registry.register(self)

    def reconciled(self, kind: str, result: str) -> None:
        """A pass ended."""
        self._reconciles.labels(kind, result).inc()

    def wrote(self, verb: str, kind: str) -> None:
        """A write was answered."""
        self._writes.labels(verb, kind).inc()

    def renewed(self, pods: int) -> None:
        """Engine pods were deleted to make room for a new cache identity."""
        self._renewed.inc(pods)

    def fenced(self, role: str, seconds: float) -> None:
        """A fence is complete."""
        self._fences.labels(role).observe(seconds)

    def leads(self, ages: Callable[[], Mapping[str, float]], depth: Callable[[], int], fences: Collector) -> None:
        """This process leads from now on."""
        self._ages = ages
        self._queue.set_function(depth)
        self.registry.register(fences)
        self._leading.set(1)

    def collect(self) -> list[GaugeMetricFamily]:
        """Implements prometheus_client's `Collector`: age of each watch."""
        ages = GaugeMetricFamily(
            "cachescope_operator_watch_age_seconds", "Since the watch of a kind was known to be current.", labels=["kind"]
        )
        for kind, age in sorted(self._ages().items()):
            ages.add_metric([kind], age)
        return [ages]
