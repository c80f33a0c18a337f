"""Where a guard gets the ledger head and the right to act on it.

Rules:

- a right runs from before the read that it rests on, for the length of the lease; without one nothing passes;
- when a right had ended before the next one is granted, noticed or not, a new generation starts, and everything of an older
  generation is aborted;
- what a process has seen never falls, and another lineage is no successful read.

`FileHeads` reads a mounted file. A source that holds a lease in the Kubernetes API has the same port.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from cachescope.core.errors import SpecError
from cachescope.core.heads import Head, parse_head

_LOG = logging.getLogger(__name__)
_REFRESH_AFTER_MS = 100


class HeadSource(Protocol):
    """The port through which a guard learns which epochs stand."""

    @property
    def generation(self) -> int:
        """Number of the unbroken chain of rights that holds now; 0 before the first right."""

    def current(self, now_ms: int) -> Head | None:
        """The head under a live right, the same object while nothing changed; `None` without a right."""

    def right_left_ms(self, now_ms: int) -> int:
        """Milliseconds until the right ends; 0 without one."""

    async def refresh(self) -> None:
        """Read again now, or return at once when that was just done."""


class FileHeads:
    """A head in a file, as a ConfigMap mounts it.

    Args:
        path: The file.
        lease_ms: How long one read is good, in milliseconds.
        clock: Milliseconds on the boot clock.
    """

    def __init__(self, path: Path, lease_ms: int, clock: Callable[[], int]) -> None:
        self._path = path
        self._lease_ms = lease_ms
        self._clock = clock
        self._lock = asyncio.Lock()
        self._head: Head | None = None
        self._read_at = 0
        self._asked_at: int | None = None
        self._generation = 0

    @property
    def generation(self) -> int:
        """Number of the unbroken chain of rights."""
        return self._generation

    def current(self, now_ms: int) -> Head | None:
        """The head under a live right."""
        return self._head if now_ms - self._read_at < self._lease_ms else None

    def right_left_ms(self, now_ms: int) -> int:
        """Milliseconds until the right ends."""
        return max(0, self._read_at + self._lease_ms - now_ms) if self._head else 0

    async def refresh(self) -> None:
        """Read the file, one read at a time and at most ten a second."""
        async with self._lock:
            now = self._clock()
            if self._asked_at is not None and now - self._asked_at < _REFRESH_AFTER_MS:
                return
            self._asked_at = now
            try:
                self._take(await asyncio.to_thread(_read, self._path), now)
            except (OSError, ValueError, RecursionError, SpecError) as error:
                _LOG.warning("the ledger head cannot be read; the right runs out", extra={"problem": str(error)})

    def _take(self, newer: Head, read_at: int) -> None:
        head, rollbacks = (newer, ()) if self._head is None else self._head.followed_by(newer)
        for rollback in rollbacks:
            _LOG.warning("the ledger head went back; what was seen stays", extra={"problem": str(rollback)})
        if self._head is None or self._clock() - self._read_at >= self._lease_ms:
            self._generation += 1
        if head != self._head:
            self._head = head
        self._read_at = read_at


def _read(path: Path) -> Head:
    return parse_head(json.loads(path.read_bytes()))
