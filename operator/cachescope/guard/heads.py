"""The ports through which a guard learns which epochs stand, and keeps its right to act on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cachescope.core.heads import Head


class HeadSource(Protocol):
    """The port through which a guard learns which epochs stand.

    A right runs for the length of the lease from before the read that it rests on; without one nothing passes. When a right had
    ended before the next one is granted, noticed or not, a new generation starts. What a process has seen never falls.
    """

    @property
    def generation(self) -> int:
        """Number of the unbroken chain of rights that holds now; 0 before the first right."""

    def current(self, now_ms: int) -> Head | None:
        """The head under a live right, the same object while nothing changed; `None` without a right."""

    def right_left_ms(self, now_ms: int) -> int:
        """Milliseconds until the right ends; 0 without one."""

    async def refresh(self) -> None:
        """Read again now, or return at once when that was just done; it never makes a right longer."""


class RightKeeper(Protocol):
    """What keeps the right of a guard alive beside its requests."""

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Rounds by how they ended."""

    async def run(self) -> None:
        """Keep the right until cancelled."""

    def hurry(self) -> None:
        """Publish soon what changed."""
