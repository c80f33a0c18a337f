"""Declarations: what people ask of one target's epoch, and what that makes of its floor.

Rules, for pools, scopes, tenants and principals alike:

- nothing falls, and a target that nobody declares any more keeps what stands;
- an incident advances its target **once**: its id stays in the ledger, also when its declaration is deleted and made again;
- a floor that is declared below the standing epoch changes nothing and is held, with both numbers;
- a floor that is declared more than `MAX_JUMP` above it changes nothing and is held: a typo must not burn the counter;
- incidents come before floors, floors in ascending order, denials after all other incidents: deciding twice is deciding once, and
  of a denial and a readmission that come together the denial stands;
- what an incident says beyond its epoch (it denies, it readmits, it cuts instead of draining) holds from that epoch on, also when
  it was added to the declaration later. Where guards would not see that from what they judge by, as of a moment before which
  credentials are refused, the epoch advances once more: what was let in before is cut too;
- a moment more than `MAX_AHEAD_SECONDS` after now is held: it is never taken back, and a typo must lock nobody out for good;
- a readmission takes back denials of lower epochs, and never the one of its own incident;
- what was taken back since is held and changes nothing: who declares it again names another incident. So a denial or readmission
  that is declared and not held is in force;
- what is below a new epoch is cut at once, unless its incident drains.

Which ledger holds the floors is left to `pool_rules` and `authorization_rules`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import lru_cache

from cachescope.core.epochs import FIRST_EPOCH, MAX_EPOCH, EpochRollback
from cachescope.core.frames import frame
from cachescope.core.ledgers import Floor
from cachescope.core.types import Epoch, TargetName

MAX_JUMP = 1000
MAX_AHEAD_SECONDS = 86_400
"""How long after now the moment may be before which credentials are refused: clocks differ."""
NAMESPACE = TargetName("0" * 64)
"""Whose incidents restores are."""

_PREFIX, _KEY = 16, 64


@dataclass(frozen=True, slots=True)
class Declaration:
    """What one `CacheEpoch` asks for.

    Attributes:
        name: Its namespace and name, for answers.
        target: What it is about.
        floor: Lowest epoch that may stand, or `None`.
        incident: Id of the incident, or `None`.
        stop_public: Of a pool: its incident stops public sharing.
        bypass: Of a pool: its incident switches reuse off.
        drain_seconds: For how long what is in flight may drain; 0 cuts it.
        deny: Of a tenant, principal or compartment: its credentials are refused.
        readmit: Of a tenant, principal or compartment: takes back every denial of before.
        issued_before: Of these three: credentials issued before this second since 1970 are refused; 0 refuses none.
    """

    name: str
    target: TargetName
    floor: Epoch | None = None
    incident: str | None = None
    stop_public: bool = False
    bypass: bool = False
    drain_seconds: int = 0
    deny: bool = False
    readmit: bool = False
    issued_before: int = 0

    @property
    def namespace(self) -> str:
        """Of who declares it."""
        return self.name.rpartition("/")[0]

    @property
    def key(self) -> str | None:
        """Under which the epoch of its incident is kept."""
        return incident_key(self.target, self.incident) if self.incident else None


@dataclass(frozen=True, slots=True)
class Restoration:
    """What a `CacheEpoch` of a namespace says: that the cluster was restored from a backup.

    Attributes:
        name: Its name.
        incident: Id of the restore.
        confirmed: Whether revocations made since the backup were made anew.
        lineage: In which lineage of the authorization head that was looked at: it confirms nothing that was said later.
    """

    name: str
    incident: str
    confirmed: bool = False
    lineage: int | None = None


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class MomentTooLate:
    """Credentials were to be refused that nobody can have issued yet; of those none are."""

    asked: int

    def __str__(self) -> str:
        """The moment, and what to do."""
        moment = datetime.fromtimestamp(self.asked, timezone.utc).isoformat()
        return f"credentialsIssuedBefore is {moment}, more than a day after now; it could never be taken back: correct it"


@dataclass(frozen=True, slots=True)
class Postponed:
    """The ledger cannot hold what was asked, or not yet; nothing changed."""

    why: str

    def __str__(self) -> str:
        """What is in the way, and what to do."""
        return self.why


@dataclass(frozen=True, slots=True)
class TakenBack:
    """Something later took back what was declared, or people resumed after it; nothing changed."""

    why: str

    def __str__(self) -> str:
        """What took it back, and what to do."""
        return self.why


Superseded = EpochRollback | TakenBack
"""Something later stands in its place, for good: there is nothing to wait for."""

Hold = Superseded | JumpTooLarge | MomentTooLate | Postponed
"""Why a declaration changed nothing."""

READMITTED = TakenBack(
    "this denial was taken back by a readmission since, and denies nobody; to deny again, name another incident id"
)
DENIED = TakenBack("a denial that this readmission does not come after stands; to take it back, readmit under another incident id")

EXHAUSTED = Postponed(f"the epoch stands at {MAX_EPOCH}, and no number is left; make the object anew, under another UID")


@dataclass(frozen=True)
class Raised:
    """What the declarations of one target make of it.

    Attributes:
        floor: What stands.
        counted: The epochs of incidents that were not counted before, by their keys.
        held: Why a declaration changed nothing, by its name.
        given: The epoch that a declaration's incident was given, by its name.
    """

    floor: Floor
    counted: Mapping[str, Epoch]
    held: Mapping[str, Hold]
    given: Mapping[str, Epoch]


@lru_cache(maxsize=4096)
def incident_key(target: TargetName, incident: str) -> str:
    """Under which the epoch of an incident is kept. Its beginning is that of its target: see `of_target`."""
    whole = hashlib.sha256(frame("cachescope/incident/v2", target, incident)).hexdigest()
    return target[:_PREFIX] + whole[: _KEY - _PREFIX]


def of_target(incidents: Mapping[str, Epoch], target: TargetName) -> Mapping[str, Epoch]:
    """The incidents of one target, also those that nobody declares any more."""
    return {key: value for key, value in incidents.items() if key.startswith(target[:_PREFIX])}


def by_target(declarations: Iterable[Declaration]) -> Mapping[TargetName, Sequence[Declaration]]:
    """Declarations by their target, each in the order in which they are decided."""
    found: dict[TargetName, list[Declaration]] = {}
    for item in sorted(declarations, key=lambda item: (item.target, item.deny, item.name)):
        found.setdefault(item.target, []).append(item)
    return found


def raised(
    floor: Floor,
    incidents: Mapping[str, Epoch],
    asked: Sequence[Declaration],
    *,
    above: Epoch = FIRST_EPOCH,
    now: int = 0,
) -> Raised:
    """What the declarations of one target make of it.

    Args:
        floor: What stands.
        incidents: The epochs of all incidents that were counted.
        asked: All that is declared for the target, as `by_target` orders it.
        above: An incident is given an epoch above this one.
        now: Seconds since 1970; of a tenant or principal.
    """
    made, counted = _counted(floor, incidents, asked, above=above)
    made = _floored(made, asked)
    known = {**incidents, **counted}
    timely = [item for item in asked if item.key in known and item.issued_before <= now + MAX_AHEAD_SECONDS]
    made = _timed(_latched(made, asked, known), timely, incidents)
    held = {item.name: hold for item in asked if (hold := _hold(item, made, known))}
    given = {item.name: known[item.key] for item in asked if item.key in known}
    return Raised(made, counted, held, given)


def is_met(item: Declaration, floor: Floor) -> bool:
    """Whether what stands is all that a declaration says beyond its incident."""
    refused = floor.denies if item.deny else not (item.readmit and floor.denies)
    return refused and (item.floor or 0) <= floor.epoch and item.issued_before <= floor.issued_before


def rolled(floor: Floor, item: Declaration) -> Floor:
    """The floor one epoch on, for what was added to an incident that had its epoch before: what was let in since is old too."""
    return _advanced(floor, Epoch(min(floor.epoch + 1, MAX_EPOCH)), item)


def _counted(
    floor: Floor, incidents: Mapping[str, Epoch], asked: Sequence[Declaration], *, above: Epoch
) -> tuple[Floor, dict[str, Epoch]]:
    counted: dict[str, Epoch] = {}
    for item in asked:
        next_epoch = max(floor.epoch, above) + 1
        if item.key and item.key not in incidents and item.key not in counted and next_epoch <= MAX_EPOCH:
            counted[item.key] = Epoch(next_epoch)
            floor = _advanced(floor, counted[item.key], item)
    return floor, counted


def _floored(floor: Floor, asked: Sequence[Declaration]) -> Floor:
    for item in sorted(asked, key=lambda item: item.floor or 0):
        if item.floor is not None and 0 < item.floor - floor.epoch <= MAX_JUMP:
            floor = _advanced(floor, item.floor, item)
    return floor


def _advanced(floor: Floor, epoch: Epoch, item: Declaration) -> Floor:
    abort_below = floor.abort_below if item.drain_seconds else epoch
    return replace(floor, epoch=epoch, abort_below=abort_below, drain_seconds=item.drain_seconds)


def _latched(floor: Floor, asked: Sequence[Declaration], known: Mapping[str, Epoch]) -> Floor:
    """What incidents say beyond their epochs; of one id that is denied and readmitted at once the denial stands."""
    deniers = {item.key for item in asked if item.deny}
    for item in asked:
        epoch = known.get(item.key or "", FIRST_EPOCH)
        if epoch and item.readmit:
            own = item.key in deniers or floor.denied == epoch
            floor = replace(floor, readmitted=max(floor.readmitted, Epoch(epoch - own)))
        if item.deny and epoch > floor.readmitted:
            floor = replace(floor, denied=max(floor.denied, epoch))
        if epoch > floor.abort_below and floor.drain_seconds and not item.drain_seconds:
            floor = replace(floor, abort_below=epoch)
    return floor


def _timed(floor: Floor, asked: Sequence[Declaration], incidents: Mapping[str, Epoch]) -> Floor:
    """The moments before which credentials are refused. Guards judge by epochs, so that each comes with one of its own."""
    for item in asked:
        if item.issued_before > floor.issued_before:
            floor = rolled(floor, item) if item.key in incidents else floor
            floor = replace(floor, issued_before=item.issued_before)
    return floor


def _hold(item: Declaration, standing: Floor, known: Mapping[str, Epoch]) -> Hold | None:
    """Why it changed nothing, or not all that it says; what may yet come before what never will."""
    if item.key and item.key not in known:
        return EXHAUSTED
    if item.floor is not None and item.floor > standing.epoch:
        return JumpTooLarge(standing.epoch, item.floor)
    if item.issued_before > standing.issued_before:
        return MomentTooLate(item.issued_before)
    if item.deny and not standing.denies:
        return READMITTED
    if item.readmit and standing.denies:
        return DENIED
    return _behind(item, standing.epoch, known)


def _behind(item: Declaration, standing: Epoch, known: Mapping[str, Epoch]) -> EpochRollback | None:
    """That its floor is below what stands. That its own incident went beyond its floor is no reason."""
    if item.floor is None or item.floor == standing or (item.key and known[item.key] == standing):
        return None
    return EpochRollback(standing, item.floor)
