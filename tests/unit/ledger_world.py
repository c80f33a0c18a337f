"""The ledgers of one namespace in a small model: an API with compare-and-swap, operators with stale reads, readers that follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from cachescope.core import authorization_rules, ledgers, pool_rules, restores
from cachescope.core.authorization_rules import Authorization, AuthorizationDecision
from cachescope.core.declarations import Declaration, Restoration, incident_key
from cachescope.core.epochs import EpochVector
from cachescope.core.errors import SpecError
from cachescope.core.heads import behind
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Floor, Ledger, LedgerFork, Lineage, Mark, followed, shard_name
from cachescope.core.lineages import naming, shard_taken, taken, told
from cachescope.core.pool_rules import Decision
from cachescope.core.types import Digest, TargetName

POOL_LEDGER = "pool"
POOL, SCOPE = TargetName("c" * 64), TargetName("d" * 64)
PEOPLE = tuple(TargetName(f"{shard}{number:063x}") for shard in "ab" for number in range(5))
NEVER_READMITTED = frozenset(PEOPLE[1::2])
FIELDS = ("epoch", "abort_below", "denied", "readmitted", "issued_before")
Objects = dict[str, Ledger]


def shards_of(objects: Mapping[str, Ledger]) -> dict[str, Ledger]:
    return {name: ledger for name, ledger in objects.items() if name not in (POOL_LEDGER, AUTHORIZATION_HEAD)}


def authorization_of(objects: Mapping[str, Ledger]) -> Authorization:
    return Authorization(objects[AUTHORIZATION_HEAD], shards_of(objects))


def lower(known: Floor, found: Floor) -> list[str]:
    return [name for name in FIELDS if getattr(found, name) < getattr(known, name)]


@dataclass
class Permit:
    """What a gateway vouched for."""

    vector: EpochVector
    lineage: str
    sequence: int


@dataclass
class Reader:
    """A guard and a gateway in one: it follows what it reads, and issues permits."""

    held: Objects = field(default_factory=dict)
    floors: dict[TargetName, Floor] = field(default_factory=dict)
    announced: dict[TargetName, Floor] = field(default_factory=dict)
    permits: list[Permit] = field(default_factory=list)
    stuck: set[str] = field(default_factory=set)
    used: Lineage | None = None

    def follow(self, world: World) -> None:
        """Read everything; what does not follow is not taken."""
        for name in (POOL_LEDGER, AUTHORIZATION_HEAD):
            self._read(world, name, taken)
        head = self.held[AUTHORIZATION_HEAD]
        for name, newer in shards_of(world.objects).items():
            known = self.held.get(name)
            if name in authorization_of(self.held).behind:
                if known is None or not authorization_rules.awaits_head(head, name, known, newer):
                    self._read(world, name, partial(shard_taken, used=self.used == head.lineage))
            elif known is None or known.lineage == newer.lineage:
                self._hint(name, newer)
        self._check()

    def _hint(self, name: str, newer: Ledger) -> None:
        """What the watch shows of a shard that is good enough, and maybe ahead of what any head announces."""
        known = self.held.get(name)
        if known is None or newer.sequence > known.sequence:
            with suppress(LedgerFork):
                self.held[name] = followed(known, newer)

    def _read(self, world: World, name: str, takes: Callable[[Ledger | None, Ledger], Ledger]) -> None:
        known, newer = self.held.get(name), world.objects[name]
        try:
            self.held[name] = takes(known, newer)
        except LedgerFork:
            assert known is not None
            assert not world.descends(name, known.mark, newer.mark), "an honest successor was taken for a fork"
            self.stuck.add(name)
            return
        self.stuck.discard(name)
        held = self.held[name]
        unheld = known is None or held.lineage != known.lineage or held.forgot(known.mark)
        assert unheld or known is None or world.descends(name, known.mark, held.mark), "a fork was accepted"

    def _check(self) -> None:
        state = authorization_of(self.held)
        if state.behind:
            return
        if self.used != state.head.lineage:
            # With another lineage come other salts. What no head announced may be lost with the one before.
            self.used, self.floors = state.head.lineage, dict(self.announced)
        if state.head.unconfirmed:
            return
        for target in PEOPLE:
            found = state.floor(target)
            fell = lower(self.floors.get(target, Floor(found.epoch)), found)
            assert not fell, f"{fell} of {target[0]}{target[-1]} fell for a reader"
            self.floors[target] = found
        if state.head.shards == {name: shard.mark for name, shard in state.shards.items()}:
            self.announced = dict(self.floors)
        self.announced |= {target: state.head.floor(target) for target in state.head.floors}
        vector = EpochVector.of({target: state.floor(target).epoch for target in PEOPLE})
        self.permits = [*self.permits[-20:], Permit(vector, state.head.lineage.id, state.head.sequence)]


@dataclass
class World:
    """The objects, and what was promised about them."""

    objects: Objects = field(default_factory=dict)
    parents: dict[tuple[str, Mark], Mark] = field(default_factory=dict)
    declared: dict[str, Declaration] = field(default_factory=dict)
    restorations: dict[str, Restoration] = field(default_factory=dict)
    resume_after: str | None = None
    policy: dict[str, Digest] = field(default_factory=dict)
    given: dict[tuple[TargetName, str], int] = field(default_factory=dict)
    denied: dict[TargetName, int] = field(default_factory=dict)
    readmissions: dict[tuple[TargetName, str], int] = field(default_factory=dict)
    latest: list[str] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=lambda: [Reader(), Reader(), Reader()])
    lineages: int = 0
    restores: int = 0

    def __post_init__(self) -> None:
        self.objects[POOL_LEDGER] = pool_rules.first_ledger(self.fresh())
        self.objects[AUTHORIZATION_HEAD] = authorization_rules.first_head(self.fresh())

    def fresh(self) -> Lineage:
        self.lineages += 1
        return Lineage(self.lineages, f"{self.lineages:032x}")

    def put(self, name: str, before: Ledger | None, after: Ledger) -> bool:
        """Compare and swap, by the rules that the API server holds."""
        if self.objects.get(name) is not before:
            return False
        if before is None or before.lineage != after.lineage:
            assert (after.sequence, after.previous) == (1, ""), "a lineage begins with sequence 1"
            assert before is None or after.lineage.generation > before.lineage.generation
        else:
            assert (after.sequence, after.previous) == (before.sequence + 1, before.digest), "every change is the next sequence"
            self.parents[name, after.mark] = before.mark
        self.objects[name] = after
        assert self.restores or not after.unconfirmed, "everything is refused although nothing was put back"
        if after.unconfirmed or (before is not None and after.confirmed > before.confirmed):
            self._pardon()
        return True

    def _pardon(self) -> None:
        """Everything is refused until people confirm, and what they did not revoke anew is over then."""
        self.denied = {}
        for reader in self.readers:
            reader.floors, reader.announced = {}, {}

    def descends(self, name: str, ancestor: Mark, mark: Mark) -> bool:
        """Whether a state came from another one, in truth."""
        at: Mark | None = mark
        while at is not None and at != ancestor:
            at = self.parents.get((name, at))
        return at is not None

    def people(self) -> list[Declaration]:
        return [item for item in self.declared.values() if item.target in PEOPLE]

    def caches(self) -> list[Declaration]:
        return [item for item in self.declared.values() if item.target not in PEOPLE]

    def witnesses(self, name: str) -> list[Ledger]:
        """What leases say: ledgers without what stands beside their content."""
        return [replace(reader.held[name], history=(), ancestors=()) for reader in self.readers if name in reader.held]

    def shards_held(self) -> dict[str, list[Mark]]:
        """What leases say: shards from which nothing follows that was read since."""
        names = {name for reader in self.readers for name in reader.stuck if ledgers.is_shard(name)}
        return {name: [reader.held[name].mark for reader in self.readers if name in reader.stuck] for name in names}

    def promise(self, given: Mapping[str, int], declared: Iterable[Declaration]) -> None:
        """What was given is kept: once, and for ever."""
        for item in declared:
            if item.name in given and item.incident:
                known = self.given.setdefault((item.target, item.incident), given[item.name])
                assert known == given[item.name], f"incident {item.incident} advanced twice"

    def readmit(self) -> None:
        """A readmission takes back what was denied before its incident was first counted as one, and nothing else."""
        for item in (item for item in self.people() if item.readmit):
            shard, key = self.objects.get(shard_name(item.target)), item.key
            if shard is not None and key is not None and key in shard.incidents:
                first = self.readmissions.setdefault((item.target, key), shard.incidents[key])
                if first > self.denied.get(item.target, first):
                    del self.denied[item.target]

    def deny(self, decision: AuthorizationDecision) -> None:
        """What is declared and not held is in force."""
        for item in (item for item in self.people() if item.name in decision.given and item.name not in decision.held):
            floor = decision.state.floor(item.target)
            assert floor.denies or not item.deny, f"{item.name} is not held and denies nobody"
            assert not (item.readmit and floor.denies), f"{item.name} is not held and readmits nobody"
            assert item.issued_before <= floor.issued_before, f"{item.name} is not held and refuses nothing"
            if item.deny:
                self.denied[item.target] = floor.denied

    def switch(self, before: Ledger, decision: Decision) -> None:
        """A flag that is declared and not held is on; it falls when people resume after the latest incident, and no otherwise."""
        after = decision.ledger.flags
        for item in sorted(
            (item for item in self.caches() if item.name in decision.given), key=lambda item: decision.given[item.name]
        ):
            if item.target == POOL and item.incident and item.incident not in self.latest:
                self.latest.append(item.incident)
        for item in (item for item in self.caches() if item.name in decision.given and item.name not in decision.held):
            assert after.bypasses or not item.bypass, f"{item.name} is not held and nothing is off"
            assert after.stops_public or not item.stop_public, f"{item.name} is not held and nothing is off"
        fell = (before.flags.bypasses and not after.bypasses) or (before.flags.stops_public and not after.stops_public)
        assert not fell or self.resume_after == self.latest[-1], f"{self.resume_after} is not the latest of {self.latest}"

    def compact(self) -> None:
        """After a compaction incidents may count again."""
        self.given = {}

    def restore(self, backup: Objects) -> None:
        """Put back old objects. What a head announced to a reader that is left must stand, or nothing may be served."""
        self.objects = dict(backup)
        self.restores += 1
        self.given = {}
        known = {target for reader in self.readers for target, floor in reader.announced.items() if floor.denies}
        # Of what was counted since the backup only the outcome is known: a readmission that comes again counts again.
        self.denied = {target: epoch for target, epoch in self.denied.items() if target in known & NEVER_READMITTED}
        self.readmissions = {}
        copies = [self.objects[POOL_LEDGER], *(reader.held[POOL_LEDGER] for reader in self.readers if POOL_LEDGER in reader.held)]
        self.latest = [name for name in self.latest if any(incident_key(POOL, name) in item.incidents for item in copies)]

    def check(self) -> None:
        """What holds whenever an operator wrote all that it decided."""
        state = authorization_of(self.objects)
        if state.head.unconfirmed or state.behind:
            return
        for target in self.denied:
            assert state.floor(target).denies, f"{target[:3]} is no longer denied"
        for permit in (item for reader in self.readers for item in reader.permits if item.lineage == state.head.lineage.id):
            old = any(value < state.floor(target).epoch for target, value in permit.vector.entries)
            assert not old or behind(state.head, permit.vector, permit.sequence), "a guard takes an epoch that fell behind"


@dataclass
class Operator:
    """Decides on what it read, which may be long ago."""

    read: Objects = field(default_factory=dict)

    def look(self, world: World) -> None:
        self.read = dict(world.objects)

    def pool(self, world: World) -> None:
        """One turn for the pool: a restore, room, or what is declared."""
        found = self.read[POOL_LEDGER]
        witnesses = world.witnesses(POOL_LEDGER)
        try:
            if any(restores.is_restore(found, item) for item in witnesses):
                self._one(world, POOL_LEDGER, restores.merged(found, witnesses, fresh=world.fresh()))
                return
            if (said := restores.said(found, world.restorations.values(), fresh=world.fresh())) is not found:
                self._one(world, POOL_LEDGER, said)
                return
            resumed = world.resume_after
            small = pool_rules.compacted(found, world.caches(), pool=POOL, resume_after=resumed, fresh=world.fresh())
        except SpecError:
            return
        if small is not found:
            world.compact() if self._one(world, POOL_LEDGER, small) else None
            return
        decision = pool_rules.decide(found, world.caches(), pool=POOL, resume_after=world.resume_after)
        written = decision.ledger is found or self._one(world, POOL_LEDGER, decision.ledger)
        if written and world.objects[POOL_LEDGER] is decision.ledger:
            world.promise(decision.given, world.caches())
            world.switch(found, decision)

    def people(self, world: World, *, writes: int) -> None:
        """One turn for tenants and principals, that ends after so many writes."""
        state = authorization_of(self.read)
        witnesses = world.witnesses(AUTHORIZATION_HEAD)
        lost = restores.taken_back(state, world.shards_held(), witnesses)
        if state.lost or lost or any(restores.is_restored(state, item) for item in witnesses):
            merged = restores.merged_authorization(state, witnesses, fresh=world.fresh(), doubt=bool(lost))
            self._all(world, state, replace(merged, head=naming(merged.head, lost)), writes)
            return
        head = restores.said(state.head, world.restorations.values(), fresh=world.fresh())
        if head is not state.head:
            shards = {
                name: restores.said(item, world.restorations.values(), fresh=world.fresh()) for name, item in state.shards.items()
            }
            self._all(world, state, Authorization(head, shards), writes)
            return
        head = told(state.head, restores.apart(state.head, witnesses))
        if head is not state.head:
            self._all(world, state, Authorization(head, state.shards), writes)
            return
        small = authorization_rules.compacted(state, world.people(), fresh=world.fresh())
        if small != state:
            world.compact()
            self._all(world, state, small, writes)
            return
        decision = authorization_rules.decide(state, world.people(), policy=world.policy, fresh=world.fresh(), now=0, step=4)
        done = self._all(world, state, decision.state, writes)
        world.readmit()
        if done:
            world.promise(decision.given, world.people())
            world.deny(decision)
            world.check()

    def fold(self, world: World) -> None:
        """Drop what a fenced base made needless: fenced is what every reader holds."""
        state = authorization_of(self.read)
        held = [reader.held.get(AUTHORIZATION_HEAD) for reader in world.readers]
        bases = [item.base for item in held if item is not None and item.lineage == state.head.lineage]
        restored = any(restores.is_restore(state.head, item) for item in world.witnesses(AUTHORIZATION_HEAD))
        if len(bases) == len(held) and not state.lost and not restored:
            self._all(world, state, authorization_rules.folded(state, fenced_base=min(bases)), 99)

    def _one(self, world: World, name: str, after: Ledger) -> bool:
        done = world.put(name, self.read.get(name), after)
        if done:
            self.read[name] = after
        return done

    def _all(self, world: World, before: Authorization, after: Authorization, limit: int) -> bool:
        steps = authorization_rules.writes(before, after)
        done = all(self._one(world, name, ledger) for name, ledger in steps[:limit]) and len(steps) <= limit
        return done and authorization_of(world.objects) == after
