"""A budget of bytes that all requests share: what waits for the rest of its body must not fill the memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class ByteBudget:
    """Counts bytes that are held.

    Args:
        limit: Most bytes at once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0

    @contextmanager
    def share(self) -> Iterator[Share]:
        """One request's part; all of it is given back at the end, however that comes."""
        share = Share(self)
        try:
            yield share
        finally:
            self.held -= share.held

    def take(self, size: int) -> bool:
        """Take bytes, if there are so many left."""
        if self.held + size > self._limit:
            return False
        self.held += size
        return True


class Share:
    """What one request holds of a budget."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.held = 0

    def take(self, size: int) -> bool:
        """Take bytes for this request, if there are so many left."""
        taken = self._budget.take(size)
        self.held += size if taken else 0
        return taken
