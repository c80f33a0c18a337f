"""Fences: when nothing below a ledger state can be admitted or used any more. Values in, values out; times are parameters.

Rules:

- every process that may act counts: it acknowledged the state (or a later one of the same history), or it was not heard of for the
  longest right that it declared, and a margin, counted on one clock from when its version was first seen;
- blindness is not expiry: what vanished, other than by the operator's own delete, counts as unchanged since that was noticed;
- after a start, a gap of the watch, or anything that went back, no fence is complete before every right of before has run out;
- the roster must have been told of everything up to the write of the state, or that long must have passed since;
- an expired guard may still serve `Fresh` with permits made before, and an expired gateway may still issue them. Of caches a fence
  need not wait for that, since `Fresh` uses nothing that was cached. Of authorization it is first *clear*: nobody issues any more
  what is below. Then it waits as long as a permit may be old and an answer take, if there may be a guard that takes it;
- such a guard is silent some time after its right ended, and counts no more; before that it counts also if its lease is gone,
  whoever deleted it, and after a start or a gap there may be one of which nobody knows.

A thousand processes and hundreds of open fences are looked at together: each process is judged once for each ledger, by the latest
state that it acknowledged, and the fences of that ledger are found by comparison.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cachescope.core.leases import GATEWAY
from cachescope.core.ledgers import Ledger
from cachescope.core.rosters import Entry, Roster, after_right_ms, right_ms


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be fenced.

    Attributes:
        key: Of the ledger, as leases name it.
        sequence: Of the state.
        version: Version of the object that was written with it.
        written_ms: When it was written, or first seen by a process that did not write it.
        namespace: Of the ledger.
        pool: Name of the pool whose cache it is about; empty for authorization.
        written: Whether this process wrote it, so that the moment is that of the write.
    """

    key: str
    sequence: int
    version: int
    written_ms: int
    namespace: str
    pool: str = ""
    written: bool = True


@dataclass(frozen=True, slots=True)
class Counts:
    """Processes of one kind, by how they stand."""

    total: int = 0
    acknowledged: int = 0
    expired: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a fence is.

    Attributes:
        guards: Guards.
        gateways: Gateways; of a cache they are counted and not waited for.
        awaited: Names of some leases that are waited for.
        heard: Whether everybody acknowledged it or has no right any more, those who may have been missed too.
        clear: Whether nobody issues any more what is below.
        complete: Whether the fence is complete.
    """

    guards: Counts
    gateways: Counts
    awaited: tuple[str, ...]
    heard: bool
    clear: bool
    complete: bool


_NAMED: Final = 3
_ALL: Final = 2**63
"""What a process acknowledged that ended, and said so."""


def progress(roster: Roster, wanted: Wanted, ledger: Ledger, now_ms: int, *, clear_ms: int | None = None) -> Progress:
    """How far the fence of a state is.

    Args:
        roster: Everybody who may act.
        wanted: What is to be fenced.
        ledger: The ledger as it stands now: its history tells which acknowledgements count.
        now_ms: The present, on the clock of the roster.
        clear_ms: When it was first found to be clear, if it was.
    """
    return Census(roster, now_ms).stand(wanted, ledger).progress(wanted, clear_ms=clear_ms)


class Census:
    """Everybody at one moment, ordered by what can concern them.

    Args:
        roster: Everybody who may act.
        now_ms: The moment, on its clock.
    """

    def __init__(self, roster: Roster, now_ms: int) -> None:
        self.roster = roster
        self.now_ms = now_ms
        self.issuers: list[Entry] = []
        self._of_namespace: defaultdict[str, list[Entry]] = defaultdict(list)
        self._of_pool: defaultdict[tuple[str, str, str], list[Entry]] = defaultdict(list)
        for entry in roster.entries():
            member = entry.member
            if member.issues:
                self.issuers.append(entry)
            if member.serves:
                self._of_namespace[member.namespace].append(entry)
                self._of_pool[member.namespace, member.pool_uid, "" if member.pool_uid else member.pool].append(entry)

    def stand(self, wanted: Wanted, ledger: Ledger) -> Stand:
        """How everybody stands to a ledger.

        Args:
            wanted: The fence of one of its states.
            ledger: It, as it stands now.
        """
        return Stand(self, wanted, ledger)

    def concerned(self, wanted: Wanted) -> list[Entry]:
        """Who may use or issue what is below a state.

        The guards of a pool are known by its UID: those of an earlier pool of that name use another cache. Of whom that is not
        known the name counts, and nobody's name is everybody's.
        """
        place = wanted.namespace
        if wanted.pool:
            names = ((place, wanted.key, ""), (place, "", wanted.pool), (place, "", ""))
            return [entry for name in names for entry in self._of_pool.get(name, ())]
        guards = self._of_namespace.get(place, ())
        return [*self.issuers, *(entry for entry in guards if not entry.member.issues)]


@dataclass(frozen=True, slots=True)
class _Behind:
    """Those who acknowledged no state as late as some.

    Attributes:
        guards: How many guards, and how many of them have no right any more.
        gateways: The same of gateways.
        awaited: Names of some who have.
        unheard: Whether one of those has a right, and may not only go on without.
        takes_ms: For how long a guard without a right may go on with what is issued for it.
    """

    guards: tuple[int, int] = (0, 0)
    gateways: tuple[int, int] = (0, 0)
    awaited: tuple[str, ...] = ()
    unheard: bool = False
    takes_ms: int = 0

    def joined(self, other: _Behind) -> _Behind:
        return _Behind(
            (self.guards[0] + other.guards[0], self.guards[1] + other.guards[1]),
            (self.gateways[0] + other.gateways[0], self.gateways[1] + other.gateways[1]),
            tuple(sorted((*self.awaited, *other.awaited))[:_NAMED]),
            self.unheard or other.unheard,
            max(self.takes_ms, other.takes_ms),
        )


class Stand:
    """How everybody stands to the states of one ledger at one moment.

    Attributes:
        now_ms: The moment.

    Args:
        census: Everybody, and the moment.
        wanted: The fence of one of its states: which one it is does not matter.
        ledger: It, as it stands now.
    """

    def __init__(self, census: Census, wanted: Wanted, ledger: Ledger) -> None:
        self._roster = census.roster
        self.now_ms = census.now_ms
        self._of_pool = bool(wanted.pool)
        self._longest = census.roster.guards(wanted.namespace, wanted.pool)
        entries = [(entry, True) for entry in census.concerned(wanted)]
        entries += [(entry, False) for entry in census.issuers if self._of_pool and entry.member.holder == GATEWAY]
        by_sequence: defaultdict[int, list[tuple[Entry, bool]]] = defaultdict(list)
        for item in entries:
            by_sequence[_acknowledged(item[0], wanted.key, ledger)].append(item)
        self._sequences = sorted(by_sequence)
        self._behind = [_Behind()]
        for sequence in self._sequences:
            self._behind.append(self._behind[-1].joined(self._judged(by_sequence[sequence])))

    def progress(self, wanted: Wanted, *, clear_ms: int | None = None) -> Progress:
        """How far the fence of one of the states is.

        Args:
            wanted: The fence.
            clear_ms: When it was first found to be clear, if it was.
        """
        behind, now_ms = self._behind[bisect_left(self._sequences, wanted.sequence)], self.now_ms
        missed_ms = self._missed_ms(wanted)
        rights_ms, issuing_ms, issued_ms = self._missed_until(missed_ms)
        takes_ms = max(behind.takes_ms, self._missed_takes_ms(missed_ms))
        # Whoever was missed may issue what he likes, as long as there is no guard that takes it.
        clear = not behind.awaited and now_ms >= (max(rights_ms, issued_ms) if takes_ms else rights_ms)
        last_ms = now_ms if clear_ms is None else clear_ms
        return Progress(
            guards=_counts(self._behind[-1].guards, behind.guards),
            gateways=_counts(self._behind[-1].gateways, behind.gateways),
            awaited=behind.awaited,
            heard=not behind.unheard and now_ms >= max(rights_ms, issuing_ms),
            clear=clear,
            complete=clear and now_ms >= last_ms + takes_ms,
        )

    def _judged(self, entries: Iterable[tuple[Entry, bool]]) -> _Behind:
        """What those make who acknowledged the same, each with whether it is concerned or only counted."""
        items = [(entry, concerned, self.now_ms > self._ends_ms(entry)) for entry, concerned in entries]
        guards = [expired for entry, _, expired in items if entry.member.serves]
        gateways = [expired for entry, _, expired in items if not entry.member.serves]
        awaited = [entry for entry, concerned, expired in items if concerned and not expired]
        return _Behind(
            (len(guards), sum(guards)),
            (len(gateways), sum(gateways)),
            tuple(sorted(entry.member.name for entry in awaited)[:_NAMED]),
            any(self.now_ms <= entry.expires_ms for entry in awaited),
            max((self._takes_ms(entry) for entry, concerned, expired in items if concerned and expired), default=0),
        )

    def _ends_ms(self, entry: Entry) -> int:
        """Until when it is waited for: a guard for its right alone, and a gateway for all that it may issue."""
        return entry.idle_ms if entry.member.issues and not self._of_pool else entry.expires_ms

    def _takes_ms(self, entry: Entry) -> int:
        """For how long a guard may go on with the last permit that takes `Fresh` ones from before; 0 once it is silent."""
        if self._of_pool or not entry.member.serves or self.now_ms > entry.idle_ms:
            return 0
        return after_right_ms(entry.longest_ms, entry.member.fresh_ms)

    def _missed_takes_ms(self, missed_ms: int | None) -> int:
        """The same of a guard of which the roster was never told."""
        if self._of_pool or missed_ms is None or self.now_ms > missed_ms + self._longest.serves_ms:
            return 0
        return after_right_ms(self._longest.lease_ms, self._longest.fresh_ms)

    def _missed_ms(self, wanted: Wanted) -> int | None:
        """Since when there may be somebody of whom the roster was never told; `None` when there is nobody."""
        since = [] if self._roster.missed_ms is None else [self._roster.missed_ms]
        if self._roster.position < wanted.version:
            since.append(wanted.written_ms)
        return max(since, default=None)

    def _missed_until(self, missed_ms: int | None) -> tuple[int, int, int]:
        """Until when those who may have been missed have rights, guards and gateways, and until when such a gateway issues."""
        if missed_ms is None:
            return 0, 0, 0
        gateways = self._roster.gateways
        return missed_ms + right_ms(self._longest.lease_ms), missed_ms + right_ms(gateways.lease_ms), missed_ms + gateways.issues_ms


def _acknowledged(entry: Entry, key: str, ledger: Ledger) -> int:
    """The latest state of a ledger that a process acknowledged; 0 for none of its history."""
    if entry.member.released:
        return _ALL
    mark = entry.member.acknowledged.get(key)
    return mark.sequence if mark is not None and ledger.knows(mark) else 0


def _counts(all_of_them: tuple[int, int], behind: tuple[int, int]) -> Counts:
    return Counts(all_of_them[0], all_of_them[0] - behind[0], behind[1])
