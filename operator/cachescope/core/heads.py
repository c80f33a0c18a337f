"""Heads: the two small ledgers that decide about a request, as one process holds them.

Cache epochs (pool, scope) stand in the ledger of the pool; authorization epochs (tenant, compartment, principal) in the
authorization head of the pool's namespace. A guard judges a permit by both. The authorization head lists only what changed lately:
a permit or a request in flight that saw less than that list reaches back to cannot be judged, and counts as behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from cachescope.core.epochs import EpochVector
from cachescope.core.ledgers import Ledger, Role, followed
from cachescope.core.types import Epoch, TargetName


@dataclass(frozen=True)
class Heads:
    """What a process holds for one pool.

    Attributes:
        pool: Ledger of the pool.
        authorization: Authorization head of its namespace.
    """

    pool: Ledger
    authorization: Ledger

    @property
    def seen(self) -> Seen:
        """Names these states."""
        return Seen(self.pool.lineage.id, self.pool.sequence, self.authorization.lineage.id, self.authorization.sequence)

    def followed_by(self, newer: Heads) -> Heads:
        """The heads after a later read.

        Raises:
            LedgerFork: One of them does not follow.
        """
        return Heads(followed(self.pool, newer.pool), followed(self.authorization, newer.authorization))


@dataclass(frozen=True, slots=True)
class Seen:
    """The states of both ledgers that a permit was made from.

    Attributes:
        lineage: Id of the pool ledger's lineage.
        sequence: Its sequence.
        authorization_lineage: Id of the authorization head's lineage.
        authorization_sequence: Its sequence.
    """

    lineage: str
    sequence: int
    authorization_lineage: str
    authorization_sequence: int

    @property
    def lineages(self) -> tuple[str, str]:
        """Both lineages."""
        return self.lineage, self.authorization_lineage


@dataclass(frozen=True, slots=True)
class Epochs:
    """The epochs of all targets of one request.

    Attributes:
        cache: Of pool and scope.
        authorization: Of tenant, compartment and principal.
    """

    cache: EpochVector
    authorization: EpochVector


class Standing(Enum):
    """How heads judge epochs."""

    CURRENT = "current"
    OTHER_LINEAGE = "other lineage"
    UNCONFIRMED = "unconfirmed"
    DENIED = "denied"
    BEHIND = "behind"
    AHEAD = "ahead"


def judge(heads: Heads, epochs: Epochs, seen: Seen) -> Standing:
    """How epochs stand that were taken from the states `seen`.

    `DENIED` comes before `BEHIND`: who was denied learns that, and not that he should try again.
    """
    pool, authorization = heads.pool, heads.authorization
    if seen.lineages != (pool.lineage.id, authorization.lineage.id):
        return Standing.OTHER_LINEAGE
    if authorization.unconfirmed:
        return Standing.UNCONFIRMED
    if authorization.denied(epochs.authorization):
        return Standing.DENIED
    if behind_of(heads, epochs, seen):
        return Standing.BEHIND
    unknown = seen.sequence > pool.sequence or seen.authorization_sequence > authorization.sequence
    ahead = pool.ahead(epochs.cache) or authorization.ahead(epochs.authorization)
    return Standing.AHEAD if unknown or ahead else Standing.CURRENT


def behind(authorization: Ledger, vector: EpochVector, sequence: int) -> bool:
    """Whether a vector made at a sequence fell behind, or can no longer be judged by what the head lists."""
    return sequence < authorization.reach or bool(authorization.below(vector))


def behind_of(heads: Heads, epochs: Epochs, seen: Seen) -> frozenset[Role]:
    """The ledgers that epochs fell behind of which were taken from the states `seen`."""
    fell = {
        Role.POOL: bool(heads.pool.below(epochs.cache)),
        Role.AUTHORIZATION: behind(heads.authorization, epochs.authorization, seen.authorization_sequence),
    }
    return frozenset(role for role, is_behind in fell.items() if is_behind)


def drain_seconds(heads: Heads, epochs: Epochs, seen: Seen) -> int | None:
    """For how long a request in flight that fell `BEHIND` may drain; `None` when it must be closed at once."""
    if seen.authorization_sequence < heads.authorization.reach:
        return None
    pairs = ((heads.pool, epochs.cache), (heads.authorization, epochs.authorization))
    answers = [may_drain(ledger, vector) for ledger, vector in pairs if ledger.below(vector)]
    return min((seconds for seconds in answers if seconds is not None), default=None) if None not in answers else None


def may_drain(ledger: Ledger, vector: EpochVector) -> int | None:
    """For how many seconds what is in flight with this vector may drain; `None` when it must be closed at once.

    A target that fell behind the base, and not its own floor, was folded away: nobody said that it may drain.
    """
    seconds = [_target_drains(ledger, target, value) for target, value in vector.entries if value < ledger.epoch(target)]
    return min((given for given in seconds if given is not None), default=None) if None not in seconds else None


def _target_drains(ledger: Ledger, target: TargetName, value: Epoch) -> int | None:
    floor = ledger.floors.get(target)
    if floor is None or floor.epoch < ledger.base or value < floor.abort_below:
        return None
    return floor.drain_seconds or None
