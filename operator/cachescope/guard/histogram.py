"""A histogram as Prometheus has it; guards run in an engine's interpreter, where they cannot count on its client."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate


class Histogram:
    """Counts observations by upper bounds.

    Args:
        bounds: The upper bounds, rising.

    Attributes:
        total: The sum of what was observed.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.total = 0.0
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, value: float) -> None:
        """Count one."""
        self.total += value
        self._counts[bisect_left(self._bounds, value)] += 1

    def buckets(self) -> Iterator[tuple[str, int]]:
        """How many were at most each bound, the last bound being `+Inf`."""
        return zip([*map(str, self._bounds), "+Inf"], accumulate(self._counts), strict=True)
