"""Ledgers: the objects that hold what stands, as values; written, digested, and never allowed to fall.

There are three roles. A **Pool** ledger holds the cache epochs of one pool (its own and those of its CacheScopes) and its incident
flags. The **Authorization** head of a namespace holds what changed lately for tenants and principals, the marks of the shards, and
the digest of the policy. A **Shard** holds all floors of the targets whose names begin with its digit. Guards and gateways read the
first two (the *heads*); gateways read shards too.

Rules:

- within a lineage nothing falls: every field is merged by its maximum, and what is written is at least what was read;
- a state is named by its `Mark`: lineage, sequence, and the digest of its content. The digest covers everything but the digests of
  earlier states and the MAC; incidents are in it, since after a restore another one may be given the number of one that was lost;
- the ledger lists the digests of its last states, so that whoever holds one of them can be told apart from one who holds a state
  that this history never had: that is a fork, and only a restore makes one.

Who may write what, and when, is in `pool_rules` and `authorization_rules`; restores are in `restores`, MACs in
`ledger_seals`, the parser in `ledger_documents`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from cachescope.core.digests import Plain, digest
from cachescope.core.epochs import FIRST_EPOCH, EpochVector
from cachescope.core.errors import SpecError
from cachescope.core.rights import NO_RIGHTS, Rights
from cachescope.core.types import Digest, Epoch, TargetName

AUTHORIZATION_HEAD = "authorization.head"
"""Name of a namespace's authorization head; no pool has a dot in its name."""

FIRST_BASE = Epoch(1)
"""Where every epoch begins."""

BIRTH_REACH = 1
"""Where the list of an authorization head begins in a new lineage: with all that changed since its first state."""

HISTORY = 256
"""Digests of earlier states that a ledger lists."""

AUTHORIZATION = "authorization/"
"""How the names of authorization heads begin in leases."""

_SHORT = 32
_SHARD_PREFIX = "authorization.shard-"


class Role(str, Enum):
    """What a ledger is for."""

    POOL = "Pool"
    AUTHORIZATION = "Authorization"
    SHARD = "Shard"


@dataclass(frozen=True, slots=True, order=True)
class Lineage:
    """One history of a ledger; a later one has a higher generation, and makes everything of before unreachable."""

    generation: int
    id: str

    def after(self, *others: Lineage) -> Lineage:
        """This lineage, with a generation above those of others where it is not already."""
        return replace(self, generation=max(self.generation, *(other.generation + 1 for other in others)))


@dataclass(frozen=True, slots=True)
class Mark:
    """Names one state of one ledger; an acknowledgement carries it.

    Attributes:
        lineage: Its lineage.
        sequence: Number of the change that made it.
        digest: Of its content.
    """

    lineage: Lineage
    sequence: int
    digest: Digest

    def followed_by(self, later: Mark | None) -> bool:
        """Whether another mark can be of the same or a later state."""
        if later is None or later.lineage != self.lineage:
            return later is not None and later.lineage.generation > self.lineage.generation
        return later.sequence >= self.sequence


@dataclass(frozen=True, slots=True)
class Floor:
    """What stands for one target. No field falls.

    Attributes:
        epoch: Lowest epoch that may be used.
        abort_below: What is in flight below this epoch is closed at once; from it up to `epoch` it may drain.
        drain_seconds: For how long it may drain.
        denied: Epoch of the last denial: credentials of the target are refused.
        readmitted: Epoch at which a denial was taken back.
        issued_before: Credentials issued before this second since 1970 are refused; 0 refuses none.
    """

    epoch: Epoch
    abort_below: Epoch = FIRST_EPOCH
    drain_seconds: int = 0
    denied: Epoch = FIRST_EPOCH
    readmitted: Epoch = FIRST_EPOCH
    issued_before: int = 0

    @property
    def denies(self) -> bool:
        """Whether every credential of the target is refused."""
        return self.denied > self.readmitted

    def joined(self, other: Floor) -> Floor:
        """The maximum of both, field by field; of two drains that of the higher epoch counts, else the shorter."""
        later, earlier = (self, other) if self.epoch >= other.epoch else (other, self)
        tie = later.epoch == earlier.epoch
        return Floor(
            epoch=later.epoch,
            abort_below=max(self.abort_below, other.abort_below),
            drain_seconds=min(later.drain_seconds, earlier.drain_seconds) if tie else later.drain_seconds,
            denied=max(self.denied, other.denied),
            readmitted=max(self.readmitted, other.readmitted),
            issued_before=max(self.issued_before, other.issued_before),
        )


@dataclass(frozen=True, slots=True)
class Flags:
    """What incidents switched off in a pool, as epochs of the pool: a flag is on until something later takes it back.

    Attributes:
        public_stopped: Epoch of the last incident that stopped public sharing.
        bypassed: Epoch of the last incident that switched reuse off.
        resumed: Epoch of the incident after which people resumed.
    """

    public_stopped: Epoch = FIRST_EPOCH
    bypassed: Epoch = FIRST_EPOCH
    resumed: Epoch = FIRST_EPOCH

    @property
    def stops_public(self) -> bool:
        """Whether nothing is shared publicly."""
        return self.public_stopped > self.resumed

    @property
    def bypasses(self) -> bool:
        """Whether nothing is reused at all."""
        return self.bypassed > self.resumed

    def joined(self, other: Flags) -> Flags:
        """The maximum of both."""
        return Flags(*(max(getattr(self, name), getattr(other, name)) for name in self.__slots__))


@dataclass(frozen=True)
class Ledger:
    """One ledger.

    Attributes:
        role: What it is for.
        lineage: Its history.
        sequence: Number of the change that made this state.
        base: Epoch of every target without a floor of its own.
        floors: What stands, by target. Of an authorization head: what changed since `reach`.
        flags: Of a pool.
        reach: Of an authorization head: every change after this sequence is in `floors`.
        changed: Of an authorization head or a shard: its sequence at which each of `floors` changed last.
        shards: Of an authorization head: the state of each shard that it announces, by the shard's name.
        policy: Of an authorization head: digests of the policy's inputs, by kind.
        restored: Times that somebody said the cluster was restored from a backup.
        confirmed: How many of them somebody confirmed afterwards: until then all requests are refused.
        previous: Digest of the state before; empty for the first of a lineage.
        history: Short digests of the last states, this one last. Not content.
        incidents: The epoch that each incident was given, by `incident_key`.
        ancestors: Short digests of states of earlier lineages that it holds all of (`lineages`), or `None`. Not content.
        longest: The longest right that anybody may have: of a pool its guards, of an authorization head gateways. Not content.
    """

    role: Role
    lineage: Lineage
    sequence: int
    base: Epoch = FIRST_BASE
    floors: Mapping[TargetName, Floor] = field(default_factory=dict)
    flags: Flags = Flags()
    reach: int = 0
    changed: Mapping[TargetName, int] = field(default_factory=dict)
    shards: Mapping[str, Mark] = field(default_factory=dict)
    policy: Mapping[str, Digest] = field(default_factory=dict)
    restored: int = 0
    confirmed: int = 0
    previous: str = ""
    history: tuple[str, ...] = ()
    incidents: Mapping[str, Epoch] = field(default_factory=dict)
    ancestors: tuple[str, ...] | None = ()
    longest: Rights = NO_RIGHTS

    def __post_init__(self) -> None:
        """End the history with this state."""
        own = short(self.digest)
        if not self.history or self.history[-1] != own:
            object.__setattr__(self, "history", (*self.history, own)[-HISTORY:])

    @property
    def digest(self) -> Digest:
        """Digest of the content; computed once."""
        known: Digest | None = self.__dict__.get("_digest")
        if known is None:
            known = digest(content(self))
            object.__setattr__(self, "_digest", known)
        return known

    @property
    def mark(self) -> Mark:
        """Names this state."""
        return Mark(self.lineage, self.sequence, self.digest)

    @property
    def unconfirmed(self) -> bool:
        """Whether a restore was said and not confirmed: everything is refused."""
        return self.restored > self.confirmed

    def floor(self, target: TargetName) -> Floor:
        """What stands for a target; below the base nothing drains."""
        found, base = self.floors.get(target), Floor(self.base, self.base)
        if found is None or (found.epoch >= self.base and found.abort_below >= self.base):
            return found or base
        return found.joined(base)

    def epoch(self, target: TargetName) -> Epoch:
        """The epoch that stands for a target."""
        found = self.floors.get(target)
        return self.base if found is None else max(found.epoch, self.base)

    def below(self, vector: EpochVector) -> tuple[TargetName, ...]:
        """Targets of a vector that fell behind: what carries them must not be used."""
        return tuple(target for target, value in vector.entries if value < self.epoch(target))

    def ahead(self, vector: EpochVector) -> tuple[TargetName, ...]:
        """Targets of a vector with a floor here, above it: whoever made the vector saw a newer ledger."""
        return tuple(target for target, value in vector.entries if target in self.floors and value > self.epoch(target))

    def denied(self, vector: EpochVector) -> bool:
        """Whether a target of the vector is refused altogether."""
        return any(self.floors[target].denies for target, _ in vector.entries if target in self.floors)

    def vector(self, *targets: TargetName) -> EpochVector:
        """The vector of a new request: every target at its floor."""
        return EpochVector.of({target: self.epoch(target) for target in targets})

    def knows(self, mark: Mark) -> bool:
        """Whether its history has that state; one of before its listed history is unknown."""
        back = self.sequence - mark.sequence
        listed = mark.lineage == self.lineage and 0 <= back < len(self.history)
        return listed and self.history[-1 - back] == short(mark.digest)

    def forgot(self, mark: Mark) -> bool:
        """Whether a state is of this lineage and older than the history that it lists."""
        return mark.lineage == self.lineage and self.sequence - mark.sequence >= max(1, len(self.history))


class LedgerFork(SpecError):  # noqa: N818 - it says what was found
    """Two states that no one history holds: a restore happened, and nobody has dealt with it yet."""


def followed(known: Ledger | None, newer: Ledger) -> Ledger:
    """The ledger that a process holds after a read that began after the one that brought `known`.

    A lineage of a higher generation is taken over whole; whether it holds all that was known is left to `lineages.taken`.

    Raises:
        LedgerFork: The history of `newer` does not hold `known`, or something in it fell.
    """
    if known is None or newer.lineage.generation > known.lineage.generation:
        return newer
    if newer.lineage != known.lineage:
        raise LedgerFork(
            f"the ledger went from lineage {known.lineage.generation} to {newer.lineage.generation} without being later; "
            "run `cachescope restored` if the cluster was restored from a backup"
        )
    if not (newer.knows(known.mark) or newer.forgot(known.mark)) or fell(known, newer):
        raise LedgerFork(
            f"sequence {known.sequence} was read before, and sequence {newer.sequence} does not follow from it: the ledger was "
            "restored or edited; the operator starts a new lineage: see the pool's events"
        )
    return newer


def fell(known: Ledger, newer: Ledger) -> bool:
    """Whether something that stood in `known` stands lower in `newer`, of the same lineage."""
    if newer.sequence < known.sequence or newer.base < known.base or newer.reach < known.reach:
        return True
    if newer.restored < known.restored or newer.confirmed < known.confirmed or newer.flags.joined(known.flags) != newer.flags:
        return True
    if any(not mark.followed_by(newer.shards.get(name)) for name, mark in known.shards.items()):
        return True
    if newer.role is Role.AUTHORIZATION:  # it lists what changed lately; older changes leave it for good
        return any(lower(known.floors[target], newer.floors[target]) for target in known.floors.keys() & newer.floors.keys())
    return any(_lost(floor, newer, target) for target, floor in known.floors.items())


def _lost(known: Floor, newer: Ledger, target: TargetName) -> bool:
    if target in newer.floors:
        return lower(known, newer.floors[target])
    # Folded into the base: that keeps an epoch, and nothing else.
    return newer.base < known.epoch or known.denies or known.issued_before > 0


def lower(known: Floor, newer: Floor) -> bool:
    """Whether something that stands for a target in one stands lower in the other."""
    names = ("epoch", "abort_below", "denied", "readmitted", "issued_before")
    return any(getattr(newer, name) < getattr(known, name) for name in names)


def advanced(ledger: Ledger, **changes: Any) -> Ledger:  # noqa: ANN401 - the fields of a Ledger
    """The next state of a ledger: the given fields changed, one sequence on."""
    return replace(ledger, sequence=ledger.sequence + 1, previous=ledger.digest, **changes)


def reborn(ledger: Ledger, lineage: Lineage, **changes: Any) -> Ledger:  # noqa: ANN401 - the fields of a Ledger
    """The first state of another lineage, with what stood before. Changes of an older lineage mean nothing in it.

    Raises:
        ValueError: The lineage is not later.
    """
    if lineage.generation <= ledger.lineage.generation:
        raise ValueError(f"lineage {lineage.generation} does not come after {ledger.lineage.generation}; number it higher")
    recent = {"floors": {}, "changed": {}, "reach": BIRTH_REACH} if ledger.role is Role.AUTHORIZATION else {}
    first = {"lineage": lineage, "sequence": 1, "previous": "", "history": ()}
    ancestors = (*(ledger.ancestors or ()), *ledger.history)[-HISTORY:]
    return replace(ledger, **{**first, "ancestors": ancestors, **recent, **changes})


def short(value: Digest) -> str:
    """The part of a digest that a history lists: 128 bits."""
    return value.removeprefix("sha256:")[:_SHORT]


def shard_name(target: TargetName) -> str:
    """Name of the shard that holds a target."""
    return f"{_SHARD_PREFIX}{target[0]}"


def is_shard(name: str) -> bool:
    """Whether an object of that name is a shard."""
    return name.startswith(_SHARD_PREFIX)


def authorization_key(namespace: str) -> str:
    """By what leases name the authorization head of a namespace; a pool's ledger is named by the pool's UID."""
    return f"{AUTHORIZATION}{namespace}"


def content(ledger: Ledger) -> dict[str, Plain]:
    """What the digest covers, as the spec of an `EpochLedger` holds it."""
    floors = dict(sorted(ledger.floors.items()))
    return {
        "role": ledger.role.value,
        "lineage": _written_lineage(ledger.lineage),
        "sequence": ledger.sequence,
        "previousDigest": ledger.previous,
        "base": ledger.base,
        "floors": {target: int(floor.epoch) for target, floor in floors.items()},
        "abortBelow": {target: floor.abort_below for target, floor in floors.items() if floor.abort_below},
        "drainSeconds": {target: floor.drain_seconds for target, floor in floors.items() if floor.drain_seconds},
        "denied": {target: floor.denied for target, floor in floors.items() if floor.denied},
        "readmitted": {target: floor.readmitted for target, floor in floors.items() if floor.readmitted},
        "issuedBefore": {target: floor.issued_before for target, floor in floors.items() if floor.issued_before},
        "flags": {
            "publicStopped": ledger.flags.public_stopped,
            "bypassed": ledger.flags.bypassed,
            "resumed": ledger.flags.resumed,
        },
        "reach": ledger.reach,
        "changed": dict(sorted(ledger.changed.items())),
        "shards": {name: write_mark(mark) for name, mark in sorted(ledger.shards.items())},
        "policy": dict(sorted(ledger.policy.items())),
        "restored": ledger.restored,
        "confirmed": ledger.confirmed,
        "incidents": dict(sorted(ledger.incidents.items())),
    }


def write_mark(mark: Mark) -> dict[str, Plain]:
    """A mark, as `parse_mark` reads it."""
    return {"lineage": _written_lineage(mark.lineage), "sequence": mark.sequence, "digest": mark.digest}


def _written_lineage(lineage: Lineage) -> dict[str, Plain]:
    return {"generation": lineage.generation, "id": lineage.id}
