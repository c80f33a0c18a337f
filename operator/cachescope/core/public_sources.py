"""Public sources: texts that people approved for everybody, and whether the approval holds at a moment.

Rules:

- a source is one exact text, named by the SHA-256 of its UTF-8 bytes: what looks like it is another text;
- it is usable while somebody's approval holds: from `at` on and before `expires`, and never once it was withdrawn;
- the moment is a parameter: whoever asks has a clock, and asks for each use.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from cachescope.core.types import Digest


class Usability(str, Enum):
    """Whether a source may be used, and if not, why."""

    APPROVED = "Approved"
    NOT_APPROVED = "NotApproved"
    EXPIRED = "Expired"
    WITHDRAWN = "Withdrawn"


@dataclass(frozen=True, slots=True)
class Approval:
    """For how long somebody approved a source, in seconds since 1970; `expires` itself is too late."""

    at: float
    expires: float


@dataclass(frozen=True, slots=True)
class Source:
    """One text.

    Attributes:
        digest: SHA-256 of its UTF-8 bytes.
        approval: Somebody's approval, or `None`.
        withdrawn: Whether it was taken back.
    """

    digest: Digest
    approval: Approval | None = None
    withdrawn: bool = False

    def usability(self, now: float) -> Usability:
        """Whether it may be used at a moment, in seconds since 1970."""
        if self.withdrawn:
            return Usability.WITHDRAWN
        if self.approval is None or now < self.approval.at:
            return Usability.NOT_APPROVED
        return Usability.APPROVED if now < self.approval.expires else Usability.EXPIRED

    def next_change(self, now: float) -> float | None:
        """The next moment at which that changes by itself; `None` when it does not."""
        if self.withdrawn or self.approval is None:
            return None
        later = (moment for moment in (self.approval.at, self.approval.expires) if moment > now)
        return min(later, default=None)
