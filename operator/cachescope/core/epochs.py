"""Epochs and targets: the numbers that make old state unreachable, and what carries them.

A vector is compared target by target and never merged by a maximum over targets; floors are in `cachescope.core.ledgers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cachescope.core.errors import SpecError
from cachescope.core.keys import Key
from cachescope.core.types import Epoch, TargetKind, TargetName

MAX_EPOCH = 2**53 - 1
FIRST_EPOCH = Epoch(0)


@dataclass(frozen=True)
class EpochRollback:
    """Somebody asked for less than the floor; nothing changed."""

    floor: Epoch
    asked: Epoch

    def __str__(self) -> str:
        """Both numbers, and what to do."""
        return f"the floor is {self.floor} and {self.asked} was asked; epochs never fall: declare at least {self.floor}"


def epoch(value: int) -> Epoch:
    """Check a number that claims to be an epoch.

    Raises:
        SpecError: It is negative or above 2**53 - 1.
    """
    if not 0 <= value <= MAX_EPOCH:
        raise SpecError(f"the epoch {value} is outside 0..{MAX_EPOCH}; correct the declaration")
    return Epoch(value)


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
