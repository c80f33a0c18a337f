"""Heads: the small document that gateways and guards read to know which epochs stand.

A head is read from a port (`HeadSource` in the guard, the configuration in the gateway). This module parses it and keeps what a
process has seen from ever falling.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from cachescope.core.epochs import EpochRollback, Floors, epoch
from cachescope.core.errors import SpecError
from cachescope.core.types import TargetName

_TARGET = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True)
class Head:
    """The state of the ledger at one moment.

    Attributes:
        lineage: Random id of the ledger's history; it is in every salt.
        sequence: Number of the change that made this head; within a lineage it only rises.
        floors: The epochs that stand.
        generation: Number of the lineage; each is above all before it.
    """

    lineage: str
    sequence: int
    floors: Floors
    generation: int = 1

    def followed_by(self, newer: Head) -> tuple[Head, tuple[EpochRollback, ...]]:
        """The head that a process holds after it read `newer`.

        A lineage of a higher generation is taken over whole: no salt and no permit of the old one means anything in it.

        Raises:
            SpecError: The lineage differs, and is not a later one.
        """
        if newer.lineage != self.lineage:
            if newer.generation > self.generation:
                return newer, ()
            raise SpecError(
                f"the ledger went from lineage {self.lineage} ({self.generation}) to {newer.lineage} ({newer.generation}); "
                "a later lineage has a higher generation: look for who wrote the ledger"
            )
        floors, rollbacks = self.floors.raised_by(newer.floors)
        return replace(self, sequence=max(self.sequence, newer.sequence), floors=floors), rollbacks


def parse_head(document: Any) -> Head:  # noqa: ANN401 - the parser is where untyped JSON ends
    """Read a head from the spec of an `EpochLedger`.

    Args:
        document: An object with `lineage` (`generation`, an integer, and `id`, a text), `sequence` and `base` (integers), and
            `floors` (target name to integer). Other fields are passed over.

    Raises:
        SpecError: A field is missing or of another type.
    """
    try:
        floors = {_target(name): epoch(_integer(value)) for name, value in document["floors"].items()}
        lineage, generation = document["lineage"]["id"], _integer(document["lineage"]["generation"])
        if not isinstance(lineage, str) or not lineage or generation < 1:
            raise TypeError("a lineage has an id that is not empty, and a generation from 1")
        return Head(lineage, _integer(document["sequence"]), Floors(floors, epoch(_integer(document["base"]))), generation)
    except (KeyError, TypeError, AttributeError) as error:
        raise SpecError(f"the head cannot be read ({error!r}); it needs lineage, sequence, base and floors") from error


def write_head(head: Head) -> dict[str, Any]:
    """A head as `parse_head` reads it."""
    return {
        "lineage": {"generation": head.generation, "id": head.lineage},
        "sequence": head.sequence,
        "base": head.floors.base,
        "floors": dict(sorted(head.floors.by_target.items())),
    }


def _target(name: str) -> TargetName:
    if not _TARGET.match(name):
        raise TypeError(f"{name!r} names no target: its floor would hold for nobody")
    return TargetName(name)


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not an integer")
    return value
