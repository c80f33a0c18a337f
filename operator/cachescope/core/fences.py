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
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from cachescope.core.ledgers import Ledger
from cachescope.core.rosters import Entry, Member, Roster, after_right_ms, right_ms


class State(Enum):
    """How a process stands to a wanted state."""

    ACKNOWLEDGED = "acknowledged"
    EXPIRED = "expired"
    AWAITED = "awaited"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be fenced.

    Attributes:
        key: Of the ledger, as leases name it.
        sequence: Of the state.
        version: Version of the object that was written with it.
        written_ms: When it was written.
        namespace: Of the ledger.
        pool: Name of the pool whose cache it is about; empty for authorization.
    """

    key: str
    sequence: int
    version: int
    written_ms: int
    namespace: str
    pool: str = ""

    def concerns(self, member: Member) -> bool:
        """Whether a process may use or issue what is below."""
        if member.issues and not self.pool:
            return True
        return member.serves and member.namespace == self.namespace and self._is_of(member)

    def _is_of(self, member: Member) -> bool:
        """Whether a guard of the namespace is of the pool. By its UID: those of an earlier pool of that name use another cache."""
        if member.pool_uid:
            return not self.pool or member.pool_uid == self.key
        return not self.pool or member.pool in {"", self.pool}


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
        settling: Whether it only waits for what may have been missed, or was let in before.
        due_ms: When it is complete at the latest if nobody is heard of any more.
    """

    guards: Counts
    gateways: Counts
    awaited: tuple[str, ...]
    heard: bool
    clear: bool
    complete: bool
    settling: bool
    due_ms: int


_NAMED = 3


def progress(roster: Roster, wanted: Wanted, ledger: Ledger, now_ms: int, *, clear_ms: int | None = None) -> Progress:
    """How far the fence of a state is.

    Args:
        roster: Everybody who may act.
        wanted: What is to be fenced.
        ledger: The ledger as it stands now: its history tells which acknowledgements count.
        now_ms: The present, on the clock of the roster.
        clear_ms: When it was first found to be clear, if it was.
    """
    entries = [entry for entry in roster.entries() if wanted.concerns(entry.member) or entry.member.issues]
    states = {entry.member.uid: state(entry, wanted, ledger, now_ms) for entry in entries}
    concerned = [entry for entry in entries if wanted.concerns(entry.member)]
    awaited = [entry for entry in concerned if states[entry.member.uid] is State.AWAITED]
    takers = _takers(roster, wanted, [entry for entry in concerned if states[entry.member.uid] is State.EXPIRED], now_ms)
    rights_ms, issuing_ms, issued_ms = _missed_until(roster, wanted)
    # Whoever was missed may issue what he likes, as long as there is no guard that takes it.
    blind_ms = max(rights_ms, issued_ms) if takers else rights_ms
    clear = not awaited and now_ms >= blind_ms
    last_ms = now_ms if clear_ms is None else clear_ms
    complete = clear and now_ms >= last_ms + max(takers, default=0)
    unheard = [entry for entry in awaited if now_ms <= entry.expires_ms]
    latest_ms = max([blind_ms, last_ms, *(_ends_ms(entry, wanted) for entry in awaited)])
    return Progress(
        guards=_counts(states, [entry for entry in entries if entry.member.serves]),
        gateways=_counts(states, [entry for entry in entries if not entry.member.serves]),
        awaited=tuple(sorted(entry.member.name for entry in awaited))[:_NAMED],
        heard=not unheard and now_ms >= max(rights_ms, issuing_ms),
        clear=clear,
        complete=complete,
        settling=not awaited and not complete,
        due_ms=latest_ms if wanted.pool else latest_ms + max((_takes(entry) for entry in awaited), default=0),
    )


def state(entry: Entry, wanted: Wanted, ledger: Ledger, now_ms: int) -> State:
    """How one process stands."""
    mark = entry.member.acknowledged.get(wanted.key)
    if entry.member.released:
        return State.ACKNOWLEDGED
    if mark is not None and mark.sequence >= wanted.sequence and ledger.knows(mark):
        return State.ACKNOWLEDGED
    return State.EXPIRED if now_ms > _ends_ms(entry, wanted) else State.AWAITED


def _takes(entry: Entry) -> int:
    """For how long a guard may go on with what was issued for it before."""
    return after_right_ms(entry.longest_ms, entry.member.fresh_ms) if entry.member.serves else 0


def _takers(roster: Roster, wanted: Wanted, expired: Iterable[Entry], now_ms: int) -> list[int]:
    """For how long each guard may go on with the last permit that takes `Fresh` ones from before, and is not silent yet."""
    if wanted.pool:
        return []
    found = [(entry.idle_ms, _takes(entry)) for entry in expired if _takes(entry)]
    missed_ms = _missed_ms(roster, wanted)
    longest = roster.guards(wanted.namespace)
    if missed_ms is not None and longest.fresh_ms:
        found.append((missed_ms + longest.serves_ms, after_right_ms(longest.lease_ms, longest.fresh_ms)))
    return [takes for silent, takes in found if now_ms <= silent]


def _ends_ms(entry: Entry, wanted: Wanted) -> int:
    """Until when it is waited for: a guard for its right alone, and a gateway for all that it may issue."""
    return entry.idle_ms if entry.member.issues and not wanted.pool else entry.expires_ms


def _missed_ms(roster: Roster, wanted: Wanted) -> int | None:
    """Since when there may be somebody of whom the roster was never told; `None` when there is nobody."""
    since = [] if roster.missed_ms is None else [roster.missed_ms]
    if roster.position < wanted.version:
        since.append(wanted.written_ms)
    return max(since, default=None)


def _missed_until(roster: Roster, wanted: Wanted) -> tuple[int, int, int]:
    """Until when those who may have been missed have rights, guards and gateways, and until when such a gateway issues."""
    missed_ms = _missed_ms(roster, wanted)
    if missed_ms is None:
        return 0, 0, 0
    rights_ms = missed_ms + right_ms(roster.guards(wanted.namespace, wanted.pool).lease_ms)
    return rights_ms, missed_ms + right_ms(roster.gateways.lease_ms), missed_ms + roster.gateways.issues_ms


def _counts(states: Mapping[str, State], entries: Iterable[Entry]) -> Counts:
    found = [states[entry.member.uid] for entry in entries]
    return Counts(len(found), found.count(State.ACKNOWLEDGED), found.count(State.EXPIRED))
