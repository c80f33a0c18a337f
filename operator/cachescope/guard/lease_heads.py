"""The ledger head that a guard read from the Kubernetes API, under the right that its lease rounds keep.

Rules:

- only a round grants the right; a read between two rounds raises floors and nothing else;
- only a round takes a new lineage, and only one of a higher generation; any other lineage cannot be applied;
- what a process has seen never falls: neither a floor nor the sequence, whatever a later read says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from cachescope.core.errors import ClusterError, SpecError
from cachescope.core.heads import Head, parse_head
from cachescope.core.leases import Right

_LOG = logging.getLogger(__name__)
_REFRESH_AFTER_MS = 100


class LeaseHeads:
    """Implements `HeadSource` on a ledger that is read by quorum.

    Args:
        read: Reads the spec of the pool's `EpochLedger` by quorum.
        clock: Milliseconds since the process started.

    Attributes:
        right: The right to act on the head; the rounds grant it.
        applied: The head that was applied last, also without a right.
    """

    def __init__(self, read: Callable[[], Awaitable[object]], clock: Callable[[], int]) -> None:
        self.right = Right()
        self.applied: Head | None = None
        self._read = read
        self._clock = clock
        self._lock = asyncio.Lock()
        self._refreshed_at: int | None = None
        self._reported: set[str] = set()

    @property
    def generation(self) -> int:
        """Number of the unbroken chain of rights."""
        return self.right.generation

    def current(self, now_ms: int) -> Head | None:
        """The head under a live right."""
        return self.applied if self.right.live(now_ms) else None

    def right_left_ms(self, now_ms: int) -> int:
        """Milliseconds until the right ends."""
        return self.right.left_ms(now_ms)

    async def read(self) -> object:
        """Read the ledger for a round, one read at a time.

        Raises:
            ClusterError: It cannot be read.
        """
        async with self._lock:
            return await self._read()

    def apply(self, document: object) -> None:
        """Take over what a round read.

        Raises:
            SpecError: It is no head, or of a lineage that does not follow.
        """
        self._take(parse_head(document))

    async def refresh(self) -> None:
        """Read the ledger once and take over what rose, at most ten times a second; without a head this waits for a round."""
        asked_at = self._clock()
        async with self._lock:
            if self.applied is None or self._was_refreshed(asked_at):
                return
            self._refreshed_at = self._clock()
            try:
                newer = parse_head(await self._read())
                if newer.lineage == self.applied.lineage:
                    self._take(newer)
            except (ClusterError, SpecError) as error:
                _LOG.debug("the ledger cannot be read between two rounds", extra={"problem": str(error)})

    def _was_refreshed(self, asked_at: int) -> bool:
        """Whether a read began since somebody asked, or just before."""
        began_at = self._refreshed_at
        return began_at is not None and (began_at >= asked_at or self._clock() - began_at < _REFRESH_AFTER_MS)

    def _take(self, newer: Head) -> None:
        head, rollbacks = (newer, ()) if self.applied is None else self.applied.followed_by(newer)
        for problem in map(str, rollbacks):
            if problem not in self._reported:
                self._reported.add(problem)
                _LOG.warning("the ledger went back; what was seen stays", extra={"problem": problem})
        if head != self.applied:
            self.applied = head
