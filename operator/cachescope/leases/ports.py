"""The two sides of lease rounds: the store, which speaks to the API server, and the holder, which is the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cachescope.core.errors import ClusterError


class LeaseConflict(ClusterError):  # noqa: N818 - it says what happened
    """Somebody wrote first, or the lease is there already (409)."""


class LeaseGone(ClusterError):  # noqa: N818 - the same
    """A lease that was written is not there any more, or is being deleted."""


class LostAnswer(ClusterError):  # noqa: N818 - the same
    """Nobody knows whether the write was committed: no answer, an error of the server (5xx), or one that cannot be read."""


class ServerBusy(ClusterError):  # noqa: N818 - the same
    """The API server has no time for a request now (429): it was not looked at, and may be made again, as another attempt.

    Attributes:
        seconds: When, as the API server asks.
    """

    def __init__(self, message: str, seconds: float = 1.0) -> None:
        super().__init__(message)
        self.seconds = seconds


@dataclass(frozen=True)
class Stored:
    """A lease as the API server shows it.

    Attributes:
        resource_version: Its version.
        tick: The tick in it.
        deleting: Whether it is marked for deletion.
    """

    resource_version: str
    tick: int
    deleting: bool = False


Written = Stored
"""What the answer to a write shows."""


class LeaseStore(Protocol):
    """The port to the API server. It sends every request once: a client's own retries are off."""

    async def create(self, name: str, spec: Mapping[str, Any]) -> Written:
        """Create a lease.

        Raises:
            LeaseConflict: It is there already.
            LostAnswer: It may have been created.
            ServerBusy: It was not looked at.
            ClusterError: It was refused.
        """

    async def replace(self, name: str, spec: Mapping[str, Any], resource_version: str) -> Written:
        """Replace a lease that still has that version.

        Raises:
            LeaseConflict: It has another version.
            LeaseGone: It is not there.
            LostAnswer: It may have been replaced.
            ServerBusy: It was not looked at.
            ClusterError: It was refused.
        """

    async def get(self, name: str) -> Stored | None:
        """Read a lease by quorum; `None` when it is not there.

        Raises:
            ClusterError: It could not be read.
        """


class Holder(Protocol):
    """The process that holds the lease."""

    def lease_name(self) -> str:
        """Name of its lease; another one after `restarted`."""

    def spec(self, tick: int) -> Mapping[str, Any]:
        """Spec of its lease, with the statement signed for that tick.

        Raises:
            SpecError: It cannot be signed now.
        """

    async def read_heads(self) -> object:
        """Read the heads by quorum.

        Raises:
            ClusterError: They cannot be read.
        """

    async def apply(self, heads: object) -> None:
        """Take over what was read, and wait until what it makes old is closed, however long that takes.

        It calls `hurry` when its lease has something new to say then.

        Raises:
            LedgerFork: It does not follow from what was read before; there is no right then.
            SpecError: It cannot be applied; there is no right then either.
        """

    def restarted(self) -> None:
        """The lease is gone: abort everything, and take a new boot id."""

    async def released(self) -> None:
        """The process ends, and has no right any more: close everything for good. From then on `spec` says that it is released."""
