"""What stands for the tenants and principals of one namespace: its authorization head, and the shards that the head announces.

Rules:

- the head lists what changed lately, the shards hold everything; of both, the higher counts, field by field;
- while a shard is not at or above the state that the head announces, nobody knows what stands: nothing is issued then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cachescope.core.epochs import EpochVector
from cachescope.core.heads import Heads
from cachescope.core.ledgers import Floor, Ledger, Mark, shard_name
from cachescope.core.types import TargetName


@dataclass(frozen=True)
class Authorization:
    """The state of one namespace.

    Attributes:
        head: Its authorization head.
        shards: Its shards by name, as far as they were read.
    """

    head: Ledger
    shards: Mapping[str, Ledger] = field(default_factory=dict)

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the shards that are not at or above what the head announces."""
        return tuple(name for name, mark in self.head.shards.items() if not reaches(self.shards.get(name), mark))

    def floor(self, target: TargetName) -> Floor:
        """What stands for a target."""
        shard = self.shards.get(shard_name(target))
        found = self.head.floor(target)
        return found if shard is None else found.joined(shard.floor(target))

    def vector(self, *targets: TargetName) -> EpochVector:
        """The vector of a new request: every target where it stands."""
        return EpochVector.of({target: self.floor(target).epoch for target in targets})


@dataclass(frozen=True)
class PoolState:
    """What stands for the requests to one pool.

    Attributes:
        pool: Ledger of the pool.
        authorization: State of its namespace.
    """

    pool: Ledger
    authorization: Authorization

    @property
    def heads(self) -> Heads:
        """The heads that permits name."""
        return Heads(self.pool, self.authorization.head)


def reaches(shard: Ledger | None, mark: Mark) -> bool:
    """Whether a shard is the state of that mark, or a later one of a history that holds it."""
    return shard is not None and (shard.knows(mark) or shard.forgot(mark))
