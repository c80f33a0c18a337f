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
        sequence: Number of the change that made this head; it only rises.
        floors: The epochs that stand.
    """

    lineage: str
    sequence: int
    floors: Floors

    def followed_by(self, newer: Head) -> tuple[Head, tuple[EpochRollback, ...]]:
        """The head that a process holds after it read `newer`.

        Raises:
            SpecError: The lineage differs; only a restart takes a new one, since old state must be unreachable.
        """
        if newer.lineage != self.lineage:
            raise SpecError(
                f"the lineage changed from {self.lineage} to {newer.lineage}; restart the processes that hold the old one"
            )
        floors, rollbacks = self.floors.raised_by(newer.floors)
        return replace(self, sequence=max(self.sequence, newer.sequence), floors=floors), rollbacks


def parse_head(document: Any) -> Head:  # noqa: ANN401 - the parser is where untyped JSON ends
    """Read a head from parsed JSON.

    Args:
        document: An object with `lineage` (text), `sequence` (integer), `base` (integer) and `floors` (target name to integer).

    Raises:
        SpecError: A field is missing or of another type.
    """
    try:
        floors = {_target(name): epoch(_integer(value)) for name, value in document["floors"].items()}
        lineage = document["lineage"]
        if not isinstance(lineage, str) or not lineage:
            raise TypeError("lineage must be text that is not empty")
        return Head(lineage, _integer(document["sequence"]), Floors(floors, epoch(_integer(document["base"]))))
    except (KeyError, TypeError, AttributeError) as error:
        raise SpecError(f"the head cannot be read ({error!r}); it needs lineage, sequence, base and floors") from error


def _target(name: str) -> TargetName:
    if not _TARGET.match(name):
        raise TypeError(f"{name!r} names no target: its floor would hold for nobody")
    return TargetName(name)


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not an integer")
    return value
