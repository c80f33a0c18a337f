"""Epochs, targets and floors: what makes old state unreachable.

Rules:

- a floor only rises; the same value again is a quiet no-op, and a lower one is an `EpochRollback` that changes nothing;
- a target that vanishes keeps its floor;
- a vector is compared target by target and never merged by a maximum over targets;
- a target without a floor of its own stands at `base`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cachescope.core.errors import SpecError
from cachescope.core.keys import Key
from cachescope.core.types import Epoch, TargetKind, TargetName

MAX_EPOCH = 2**53 - 1
FIRST_EPOCH = Epoch(0)


@dataclass(frozen=True)
class Accepted:
    """The floor rose."""

    previous: Epoch
    epoch: Epoch


@dataclass(frozen=True)
class Unchanged:
    """The floor was there already."""

    epoch: Epoch


@dataclass(frozen=True)
class EpochRollback:
    """Somebody asked for less than the floor; nothing changed."""

    floor: Epoch
    asked: Epoch

    def __str__(self) -> str:
        """Both numbers, and what to do."""
        return f"the floor is {self.floor} and {self.asked} was asked; epochs never fall: declare at least {self.floor}"


Advance = Accepted | Unchanged | EpochRollback


def epoch(value: int) -> Epoch:
    """Check a number that claims to be an epoch.

    Raises:
        SpecError: It is negative or above 2**53 - 1.
    """
    if not 0 <= value <= MAX_EPOCH:
        raise SpecError(f"the epoch {value} is outside 0..{MAX_EPOCH}; correct the declaration")
    return Epoch(value)


def advance(floor: Epoch, asked: Epoch) -> Advance:
    """What asking for an epoch does to a floor."""
    if asked > floor:
        return Accepted(floor, asked)
    return Unchanged(floor) if asked == floor else EpochRollback(floor, asked)


def target_name(key: Key, kind: TargetKind, *identity: str) -> TargetName:
    """The name of a target in permits and ledgers.

    Args:
        key: The target key; server-side only.
        kind: What the target is.
        *identity: Its UID, or what separates it (a principal: tenant UID, credential kind, issuer, subject).
    """
    return TargetName(key.mac("cachescope/target/v1", kind.value, list(identity)).hex())


@dataclass(frozen=True)
class EpochVector:
    """The epochs of all targets of one request, sorted by target, each target once."""

    entries: tuple[tuple[TargetName, Epoch], ...]

    @classmethod
    def of(cls, epochs: Mapping[TargetName, Epoch]) -> EpochVector:
        """The vector of a mapping."""
        return cls(tuple(sorted(epochs.items())))

    def get(self, target: TargetName) -> Epoch | None:
        """The epoch of a target, or `None`."""
        return dict(self.entries).get(target)


@dataclass(frozen=True)
class Floors:
    """The lowest epochs that may still be used."""

    by_target: Mapping[TargetName, Epoch] = field(default_factory=dict)
    base: Epoch = FIRST_EPOCH

    def floor(self, target: TargetName) -> Epoch:
        """The floor of a target."""
        return max(self.by_target.get(target, self.base), self.base)

    def below(self, vector: EpochVector) -> tuple[TargetName, ...]:
        """Targets of the vector that fell behind: what carries them must not be used."""
        return tuple(target for target, value in vector.entries if value < self.floor(target))

    def ahead(self, vector: EpochVector) -> tuple[TargetName, ...]:
        """Targets of the vector that are above the floor: whoever made it has seen a newer ledger."""
        return tuple(target for target, value in vector.entries if value > self.floor(target))

    def raised_by(self, newer: Floors) -> tuple[Floors, tuple[EpochRollback, ...]]:
        """Take over what is higher in `newer`; report what is lower, and keep it."""
        targets = {*self.by_target, *newer.by_target}
        steps = {target: advance(self.floor(target), newer.floor(target)) for target in targets}
        merged = {target: max(self.floor(target), newer.floor(target)) for target in targets}
        rollbacks = [step for step in (advance(self.base, newer.base), *steps.values()) if isinstance(step, EpochRollback)]
        return Floors(merged, max(self.base, newer.base)), tuple(rollbacks)


def vector_at(floors: Floors, targets: Iterable[TargetName]) -> EpochVector:
    """The vector of a new request: every target at its floor."""
    return EpochVector.of({target: floors.floor(target) for target in targets})
