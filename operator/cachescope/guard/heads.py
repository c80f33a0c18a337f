"""The ports through which a guard learns which epochs stand, and keeps its right to act on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cachescope.core.heads import Heads


class HeadSource(Protocol):
    """The port through which a guard learns which epochs stand.

    A right runs for the length of the lease from before the read that it rests on; nothing is served before the first. When a
    right had ended before the next one is granted, noticed or not, a new generation starts. What a process has seen never falls.
    """

    @property
    def generation(self) -> int:
        """Number of the unbroken chain of rights that holds now; 0 before the first right."""

    @property
    def heads(self) -> Heads | None:
        """What was applied last, also without a right, the same object while nothing changed; `None` before the first right."""

    def right_left_ms(self, now_ms: int) -> int:
        """Milliseconds until the right ends; 0 without one."""

    def over_ms(self, now_ms: int) -> int:
        """Milliseconds since the last right ended, or would have ended; a fork ends one before its time."""

    async def refresh(self) -> None:
        """Read both ledgers again now, or return at once when that was just done; it never makes a right longer."""


class RightKeeper(Protocol):
    """What keeps the right of a guard alive beside its requests."""

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Rounds and acknowledgements by how they ended."""

    async def run(self) -> None:
        """Keep the right until cancelled; then say in the lease that the process ended."""

    def hurry(self) -> None:
        """Publish at once what changed."""
