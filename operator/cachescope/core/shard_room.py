"""Room in the shards of a namespace, which belong to everybody: who may add to one, and whose turn it is.

Rules:

- a shard holds `MAX_FLOORS` entries and `MAX_INCIDENTS` incidents; what does not fit is postponed, and changes nothing;
- what one namespace declares fills at most a `SHARE` of either. What it declares no more is not charged to it: an entry says not
  whose it was. Nothing that refuses somebody is dropped to make room;
- a decision changes at most `MAX_STEP` targets. Each declaring namespace has its turn, with its denials first: the bulk of one
  holds up the others by one of theirs.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from cachescope.core.declarations import Declaration, Postponed
from cachescope.core.types import TargetName

MAX_FLOORS = 1024
MAX_INCIDENTS = 256
MAX_STEP = 64
SHARE = 1 / 2


@dataclass(frozen=True, slots=True)
class Taken:
    """What is taken of a shard.

    Attributes:
        floors: Entries.
        incidents: Incidents.
    """

    floors: int
    incidents: int

    @classmethod
    def by(cls, declarations: Iterable[Declaration], floors: Container[TargetName], incidents: Container[str]) -> Taken:
        """What declarations take of what is there."""
        items = list(declarations)
        targets, keys = {item.target for item in items}, {item.key for item in items if item.key}
        return cls(sum(target in floors for target in targets), sum(key in incidents for key in keys))

    def __add__(self, other: Taken) -> Taken:
        """Both."""
        return Taken(self.floors + other.floors, self.incidents + other.incidents)


def no_room(shard: Taken, own: Taken, more: Taken, namespace: str) -> Postponed | None:
    """Why something does not fit.

    Args:
        shard: What is taken of the shard.
        own: What the declarations of one namespace take of it.
        more: What one of them would take besides.
        namespace: Its name.
    """
    mine, whole = own + more, shard + more
    charged = f"the CacheEpochs of namespace {namespace} take"
    if more.floors and mine.floors > MAX_FLOORS * SHARE:
        return Postponed(
            f"{charged} {own.floors} of the {MAX_FLOORS} tenants and principals that a shard holds for everybody, and may take no "
            "more: suspend the Tenant instead of denying its principals one by one"
        )
    if more.incidents and mine.incidents > MAX_INCIDENTS * SHARE:
        return Postponed(
            f"{charged} {own.incidents} of the {MAX_INCIDENTS} incidents that a shard holds for everybody, and may take no more: "
            "delete those of incidents that are over"
        )
    if whole.floors > MAX_FLOORS:
        return Postponed(
            f"a shard holds {MAX_FLOORS} tenants and principals; folding makes room as soon as its fence is complete. If this "
            "stays, too many were denied one by one: suspend the Tenant instead"
        )
    if whole.incidents > MAX_INCIDENTS:
        return Postponed(f"{MAX_INCIDENTS} incidents are declared for one shard; delete CacheEpochs of incidents that are over")
    return None


@dataclass(frozen=True, slots=True)
class Change:
    """A target that declarations change.

    Attributes:
        namespace: Of who declares it.
        denies: Whether it is refused from then on.
    """

    namespace: str
    denies: bool


def late(changes: Mapping[TargetName, Change], step: int) -> list[TargetName]:
    """The targets whose turn is in a later decision."""
    turns: dict[str, int] = {}
    order: dict[TargetName, int] = {}
    for target in sorted(changes, key=lambda target: (not changes[target].denies, target)):
        namespace = changes[target].namespace
        order[target] = turns[namespace] = turns.get(namespace, 0) + 1
    return sorted(changes, key=lambda target: (order[target], target))[step:]
