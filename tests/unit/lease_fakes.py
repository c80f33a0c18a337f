"""An API server for leases in memory, which loses, delays, refuses and deletes as a test says, and a process that holds one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any

from cachescope.core.errors import ClusterError
from cachescope.core.leases import Right
from cachescope.leases.ports import LeaseConflict, LeaseGone, LostAnswer, ServerBusy, Stored
from cachescope.leases.rounds import Rounds

LEASE_MS = 60_000
HOP_MS = 7
SLOW_MS = 9_000
UNREADABLE = ClusterError("the ledger cannot be read; look at the API server")
BUSY = ServerBusy("the API server is busy; it is asked again", 2.0)


class Clock:
    """Milliseconds that only a test and the requests of the fakes move."""

    def __init__(self, now: int = 1000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class Fault(Enum):
    """What happens to one write."""

    NONE = auto()
    LOST_AFTER = auto()  # committed, and the answer lost
    LOST_BEFORE = auto()  # it never arrives
    LATE = auto()  # the answer is lost, and it is committed after the next read
    CONFLICT = auto()  # somebody else wrote just before
    DELETED = auto()  # somebody deleted the lease just before
    MARKED = auto()  # somebody marked it for deletion just before
    REFUSED = auto()  # a Role or a schema says no
    SLOW = auto()  # both ways take long
    BUSY = auto()  # the API server has no time for it
    BUSY_AFTER = auto()  # it says so of one that it committed all the same


@dataclass(frozen=True)
class Commit:
    """A write that the store took."""

    name: str
    tick: int
    at: int


@dataclass
class FakeStore:
    """Implements `LeaseStore`, with optimistic locking as the API server has it.

    Attributes:
        faults: What happens to the next writes.
        unreadable: How many of the next reads fail.
        watched: What watches bring next, by the name of a ledger.
    """

    clock: Clock
    leases: dict[str, Stored] = field(default_factory=dict)
    specs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    unreadable: int = 0
    ticks: list[int] = field(default_factory=list)
    reads: int = 0
    closed: int = 0
    watched: dict[str, asyncio.Queue[object]] = field(default_factory=dict)
    _late: list[Callable[[], Stored]] = field(default_factory=list)

    async def watch_ledger(self, name: str) -> AsyncIterator[object]:
        events = self.watched.setdefault(name, asyncio.Queue())
        while True:
            yield await events.get()

    async def create(self, name: str, spec: Mapping[str, Any]) -> Stored:
        return await self._write(name, spec, None)

    async def replace(self, name: str, spec: Mapping[str, Any], resource_version: str) -> Stored:
        return await self._write(name, spec, resource_version)

    async def get(self, name: str) -> Stored | None:
        await self.hop()
        self.reads += 1
        if self.unreadable:
            self.unreadable -= 1
            raise ClusterError("the lease cannot be read; try later")
        shown = self.leases.get(name)
        await self.hop()
        self._arrive()
        await self.hop()
        return shown

    async def close(self) -> None:
        self.closed += 1

    def delete(self, name: str) -> None:
        self.leases.pop(name, None)

    async def hop(self, milliseconds: int = HOP_MS) -> None:
        self.clock.now += milliseconds
        await asyncio.sleep(0)

    async def _write(self, name: str, spec: Mapping[str, Any], version: str | None) -> Stored:
        fault = self.faults.pop(0) if self.faults else Fault.NONE
        hop = SLOW_MS if fault is Fault.SLOW else HOP_MS
        self.ticks.append(spec["tick"])
        await self.hop(hop)
        self._arrive()
        self._disturb(fault, name)
        commit = partial(self._commit, name, spec, version)
        if fault is Fault.LATE:
            self._late.append(commit)
        if fault in {Fault.LATE, Fault.LOST_BEFORE}:
            raise LostAnswer("lost on the way there")
        stored = commit()
        await self.hop(hop)
        if fault is Fault.LOST_AFTER:
            raise LostAnswer("lost on the way back")
        if fault is Fault.BUSY_AFTER:
            raise BUSY
        return stored

    def _disturb(self, fault: Fault, name: str) -> None:
        known = self.leases.get(name)
        if fault is Fault.REFUSED:
            raise ClusterError("the Role does not allow it; check the Role")
        if fault is Fault.BUSY:
            raise BUSY
        if fault is Fault.DELETED:
            self.delete(name)
        elif known is not None and fault in {Fault.CONFLICT, Fault.MARKED}:
            self.leases[name] = Stored(self._next(known), known.tick, fault is Fault.MARKED)

    def _commit(self, name: str, spec: Mapping[str, Any], version: str | None) -> Stored:
        known = self.leases.get(name)
        if version is not None and known is None:
            raise LeaseGone("not there")
        if (known.resource_version if known else None) != version:
            raise LeaseConflict("another version")
        if known is not None and self.specs[name] == spec:
            return known
        stored = Stored(self._next(known), spec["tick"], known.deleting if known else False)
        self.leases[name], self.specs[name] = stored, spec
        self.commits.append(Commit(name, spec["tick"], self.clock()))
        return stored

    def _next(self, known: Stored | None) -> str:
        return str(int(known.resource_version) + 1) if known else "1"

    def _arrive(self) -> None:
        late, self._late = self._late, []
        for commit in late:
            try:
                commit()
            except ClusterError:
                continue  # it came too late for its version


class FakeHolder:
    """Implements `Holder`; it says in which order it was called.

    Attributes:
        closes: Cleared while something cannot be closed.
        ended: Whether it was released.
    """

    def __init__(self, store: FakeStore) -> None:
        self._store = store
        self.boots = 1
        self.calls: list[str] = []
        self.read_faults: list[Exception] = []
        self.apply_faults: list[Exception] = []
        self.spec_faults: list[Exception] = []
        self.applied_read_began_at: int | None = None
        self.closes = asyncio.Event()
        self.closes.set()
        self.ended = False

    def lease_name(self) -> str:
        return f"pod.{self.boots}"

    def spec(self, tick: int) -> Mapping[str, Any]:
        self.calls.append("spec")
        _raise_next(self.spec_faults)
        return {"tick": tick, "released": self.ended}

    async def read_heads(self) -> object:
        self.calls.append("read")
        began_at = self._store.clock()
        await self._store.hop()
        _raise_next(self.read_faults)
        await self._store.hop()
        return began_at

    async def apply(self, heads: object) -> None:
        self.calls.append("apply")
        _raise_next(self.apply_faults)
        assert isinstance(heads, int)
        await self.closes.wait()
        self.applied_read_began_at = heads

    def restarted(self) -> None:
        self.calls.append("restarted")
        self.boots += 1

    async def released(self) -> None:
        self.calls.append("released")
        await self.closes.wait()
        self.ended = True


class LeasedProcess:
    """A process with its rounds, and the rule that its right must always keep."""

    def __init__(self, rounds: type[Rounds] = Rounds) -> None:
        self.clock = Clock()
        self.store = FakeStore(self.clock)
        self.holder = FakeHolder(self.store)
        self.right = Right()
        self.lapses: list[int] = []
        self.grants: list[int] = []
        self.waits: list[float] = []
        self.rounds = rounds(
            self.store,
            self.holder,
            right=self.right,
            clock=self.clock,
            lease_ms=LEASE_MS,
            lapsed=lambda: self.lapses.append(self.right.generation),
            granted=lambda: self.grants.append(self.right.generation),
        )
        self.rounds._chance = lambda: 1.0
        self.rounds._sleep = self._waits  # between the attempts of one round; its pace goes by the event loop

    async def round(self, *faults: Fault) -> None:
        """One round whose writes meet these faults."""
        self.store.faults = list(faults)
        await self.rounds.round()
        self.check()

    async def acknowledge(self, *faults: Fault) -> bool:
        """One acknowledging write that meets these faults; whether it succeeded."""
        self.store.faults = list(faults)
        done = await self.rounds.acknowledge()
        self.check()
        return done

    async def _waits(self, seconds: float) -> None:
        self.waits.append(seconds)
        await self.store.hop(int(1000 * seconds))

    def check(self) -> None:
        """What an operator rests on: it waits a lease from the last commit before the read that the process applied."""
        left = self.right.left_ms(self.clock())
        if not left:
            return
        read_at = self.holder.applied_read_began_at
        assert read_at is not None
        seen = [commit.at for commit in self.store.commits if commit.name == self.holder.lease_name() and commit.at <= read_at]
        assert seen, "a right without a committed write before the read"
        assert self.clock() + left <= seen[-1] + LEASE_MS, "a right that outlasts what an operator waits for"

    @property
    def left(self) -> int:
        return self.right.left_ms(self.clock())


def _raise_next(faults: list[Exception]) -> None:
    if faults:
        raise faults.pop(0)
