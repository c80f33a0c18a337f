"""Rules by which the ledger of one pool changes: values in, values out.

Rules:

- nothing falls: a floor, a sequence and the number of a lineage only rise;
- an incident advances its target **once**: the id stays in the ledger, also when its declaration is deleted and made again;
- another pool, also one of the same name, is another target: its incidents and floors are its own;
- a floor that is declared below the standing epoch changes nothing and is held, with both numbers;
- a floor that is declared more than `MAX_JUMP` above it changes nothing and is held: a typo must not burn the counter;
- incidents come before floors, floors in ascending order, so that deciding twice is deciding once;
- a ledger that vanished, fell behind what was seen, or is full goes on in a new lineage: what was cached before is unreachable.

Reading and writing the object is left to `controller.epochs`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cachescope.core.epochs import Accepted, EpochRollback, Floors, advance, epoch
from cachescope.core.errors import SpecError
from cachescope.core.frames import frame
from cachescope.core.heads import Head, parse_head, write_head
from cachescope.core.types import Epoch, TargetName

MAX_JUMP = 1000
MAX_INCIDENTS = 256
MAX_FLOORS = 1024
FIRST_BASE = Epoch(1)


@dataclass(frozen=True)
class Ledger:
    """What an `EpochLedger` holds.

    Attributes:
        head: What guards and gateways read of it.
        incidents: The epoch that each incident was given, by `incident_key`.
    """

    head: Head
    incidents: Mapping[str, Epoch] = field(default_factory=dict)


@dataclass(frozen=True)
class Declaration:
    """What one `CacheEpoch` asks for.

    Attributes:
        name: Its name, for answers.
        floor: Lowest epoch that may stand, or `None`.
        incident: Id of the incident, or `None`.
    """

    name: str
    floor: Epoch | None = None
    incident: str | None = None


@dataclass(frozen=True)
class JumpTooLarge:
    """Somebody asked for too much at once; nothing changed."""

    floor: Epoch
    asked: Epoch

    def __str__(self) -> str:
        """Both numbers, and what to do."""
        return (
            f"the epoch that stands is {self.floor} and {self.asked} was asked; one step is at most {MAX_JUMP}: "
            f"declare at most {self.floor + MAX_JUMP}"
        )


Hold = EpochRollback | JumpTooLarge


@dataclass(frozen=True)
class Decision:
    """What the declarations of a target make of a ledger.

    Attributes:
        ledger: The ledger that must stand; the same one when nothing changed.
        epoch: The target's epoch in it.
        held: Why a declaration's floor was not taken, by its name.
        given: The epoch that a declaration's incident was given, by its name.
    """

    ledger: Ledger
    epoch: Epoch
    held: Mapping[str, Hold]
    given: Mapping[str, Epoch] = field(default_factory=dict)


def parse_ledger(spec: Any) -> Ledger:  # noqa: ANN401 - the parser is where untyped JSON ends
    """Read the spec of an `EpochLedger`.

    Raises:
        SpecError: A field is missing or of another type.
    """
    head = parse_head(spec)
    incidents = spec.get("incidents")
    if not isinstance(incidents, dict) or not all(type(value) is int for value in incidents.values()):
        raise SpecError("the incidents of the ledger cannot be read; restore the object, or delete it for a new lineage")
    return Ledger(head, {name: epoch(value) for name, value in incidents.items()})


def write_ledger(ledger: Ledger) -> dict[str, Any]:
    """A ledger as `parse_ledger` reads it."""
    return {**write_head(ledger.head), "incidents": dict(sorted(ledger.incidents.items()))}


def incident_key(target: TargetName, incident: str) -> str:
    """Under which the epoch of an incident is kept."""
    return hashlib.sha256(frame("cachescope/incident/v1", target, incident)).hexdigest()


def first_ledger(lineage: str, now_seconds: int) -> Ledger:
    """The ledger of a name that never had one.

    Args:
        lineage: 32 random hexadecimal digits.
        now_seconds: Seconds since 1970: above the number of every lineage that was made before.
    """
    return Ledger(Head(lineage, 1, Floors({}, FIRST_BASE), max(1, now_seconds)))


def next_lineage(known: Ledger, lineage: str, *, generation: int) -> Ledger:
    """A ledger that goes on where the known one ended, under another lineage, whose changes are counted from 1.

    Args:
        known: All that is known: its floors and incidents are kept.
        lineage: 32 random hexadecimal digits.
        generation: At least this number; it is above the known one in any case.
    """
    head = known.head
    return Ledger(replace(head, lineage=lineage, generation=max(generation, head.generation + 1), sequence=1), known.incidents)


def merged(known: Ledger, found: Ledger) -> Ledger:
    """The maximum of both, field by field, under the lineage of the later one."""
    later = max(known.head, found.head, key=lambda head: head.generation)
    floors = known.head.floors.raised_by(found.head.floors)[0]
    sequence = max(known.head.sequence, found.head.sequence)
    names = {*known.incidents, *found.incidents}
    incidents = {name: max(known.incidents.get(name, Epoch(0)), found.incidents.get(name, Epoch(0))) for name in names}
    return Ledger(replace(later, sequence=sequence, floors=floors), incidents)


def fell_behind(known: Ledger, found: Ledger) -> bool:
    """Whether the ledger holds less than what was seen of it: somebody put an old one back."""
    if found.head.lineage != known.head.lineage:
        return found.head.generation <= known.head.generation
    _, rollbacks = known.head.floors.raised_by(found.head.floors)
    return found.head.sequence < known.head.sequence or bool(rollbacks) or bool(known.incidents.keys() - found.incidents.keys())


def compacted(ledger: Ledger, target: TargetName, declarations: Sequence[Declaration], *, lineage: str) -> Ledger:
    """The ledger, or one of a new lineage without what nobody declares any more, when it has no room.

    Raises:
        SpecError: More incidents are declared than a ledger holds.
    """
    wanted = {incident_key(target, item.incident) for item in declarations if item.incident}
    if len(wanted) > MAX_INCIDENTS:
        raise SpecError(
            f"{len(wanted)} incidents are declared for one pool, and at most {MAX_INCIDENTS} fit; delete old CacheEpochs"
        )
    fits = len(wanted | ledger.incidents.keys()) <= MAX_INCIDENTS
    if fits and len({target, *ledger.head.floors.by_target}) <= MAX_FLOORS:
        return ledger
    kept = {name: value for name, value in ledger.incidents.items() if name in wanted}
    floors = Floors({target: ledger.head.floors.floor(target)}, ledger.head.floors.base)
    return next_lineage(Ledger(replace(ledger.head, floors=floors), kept), lineage, generation=1)


def decide(ledger: Ledger, target: TargetName, declarations: Iterable[Declaration]) -> Decision:
    """What the declarations of one target make of a ledger.

    Args:
        ledger: The ledger that stands.
        target: Name of the target.
        declarations: All that is declared for it, in any order.
    """
    asked = sorted(declarations, key=lambda item: item.name)
    start = standing = ledger.head.floors.floor(target)
    incidents = dict(ledger.incidents)
    for item in asked:
        if item.incident and (key := incident_key(target, item.incident)) not in incidents:
            incidents[key] = standing = epoch(standing + 1)
    for floor in sorted(item.floor for item in asked if item.floor is not None):
        if isinstance(advance(standing, floor), Accepted) and floor - standing <= MAX_JUMP:
            standing = floor
    held = {item.name: hold for item in asked if (hold := _hold(item, target, standing=standing, incidents=incidents))}
    given = {item.name: incidents[incident_key(target, item.incident)] for item in asked if item.incident}
    if len(incidents) == len(ledger.incidents) and standing == start:
        return Decision(ledger, standing, held, given)
    floors = replace(ledger.head.floors, by_target={**ledger.head.floors.by_target, target: standing})
    head = replace(ledger.head, floors=floors, sequence=ledger.head.sequence + 1)
    return Decision(Ledger(head, incidents), standing, held, given)


def _hold(item: Declaration, target: TargetName, *, standing: Epoch, incidents: Mapping[str, Epoch]) -> Hold | None:
    """Why its floor does not stand. That its own incident went beyond it is no reason."""
    if item.floor is None or item.floor == standing:
        return None
    if item.floor > standing:
        return JumpTooLarge(standing, item.floor)
    own = incidents.get(incident_key(target, item.incident)) if item.incident else None
    return None if own == standing else EpochRollback(standing, item.floor)
