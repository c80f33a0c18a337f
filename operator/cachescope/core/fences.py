"""Fences: when nothing below a ledger state can be admitted or used any more. Values in, values out; times are parameters.

Rules:

- every process that may act counts: it acknowledged the state (or a later one of the same history), or it was not heard of for the
  longest right that it declared, and a margin, counted on one clock from when its version was first seen;
- blindness is not expiry: what vanished, other than by the operator's own delete, counts as unchanged since that was noticed;
- after a start, a gap of the watch, or anything that went back, no fence is complete before every right of before has run out;
- the roster must have been told of everything up to the write of the state, or that long must have passed since;
- an expired guard may still serve `Fresh` with permits made before, and an expired gateway may still issue them: of authorization
  a fence waits for that too, of caches it need not, since `Fresh` uses nothing that was cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from cachescope.core.leases import GATEWAY, GUARD
from cachescope.core.ledgers import Ledger, Mark


def margin_ms(lease_ms: int) -> int:
    """What is waited beyond a right: one second, and two percent for clocks that do not run alike."""
    return 1000 + lease_ms // 50


def right_ms(lease_ms: int) -> int:
    """After which a right has surely ended, on any clock."""
    return lease_ms + margin_ms(lease_ms)


def after_right_ms(lease_ms: int, fresh_ms: int) -> int:
    """For how long a guard may go on after its right ended: a permit may be as old as a right is long, then comes the answer."""
    return right_ms(lease_ms) + fresh_ms if fresh_ms else 0


@dataclass(frozen=True, slots=True)
class Member:
    """One `FenceLease` as a list or a watch showed it.

    Attributes:
        uid: UID of the object.
        namespace: Its namespace.
        name: Its name.
        version: Its version, as a number.
        holder: `Guard` or `Gateway`.
        pool: Name of a guard's pool.
        lease_ms: Length of its right.
        fresh_ms: How long it may go on without a right.
        released: Whether it ended, and said so.
        acknowledged: What it acknowledged, by ledger.
    """

    uid: str
    namespace: str
    name: str
    version: int
    holder: str
    pool: str
    lease_ms: int
    fresh_ms: int = 0
    released: bool = False
    acknowledged: Mapping[str, Mark] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """A member, and since when it is as it is.

    Attributes:
        member: As last shown.
        since_ms: When that version was first seen.
        longest_ms: The longest right that it declared since it last expired.
        gone: Whether it vanished.
    """

    member: Member
    since_ms: int
    longest_ms: int
    gone: bool = False

    @property
    def expires_ms(self) -> int:
        """When its right has surely ended, if it stays as it is."""
        return self.since_ms + right_ms(self.longest_ms)

    @property
    def idle_ms(self) -> int:
        """When it has surely ended everything that it may do without a right."""
        if self.member.holder == GATEWAY:
            return self.expires_ms + self.member.fresh_ms
        return self.expires_ms + after_right_ms(self.longest_ms, self.member.fresh_ms)


class Roster:
    """Everybody who may act. Fed by a list and the watch that follows it without a gap.

    Attributes:
        position: The version up to which the watch told it of everything; a list proves nothing of what came and went before it.
        longest_ms: The longest right that anybody may have.
        fresh_ms: The longest that a guard may go on without a right. Not that of gateways: whoever was missed can issue what he
            likes, as long as no guard was missed that takes it.
    """

    def __init__(self) -> None:
        self.position = 0
        self.longest_ms = 0
        self.fresh_ms = 0
        self._entries: dict[str, Entry] = {}
        self._missed_ms: int | None = None

    def entries(self) -> Iterable[Entry]:
        """All, those that vanished and may still act included."""
        return self._entries.values()

    def allow(self, lease_ms: int, fresh_ms: int) -> None:
        """Somebody may have rights that long, by what is declared."""
        self.longest_ms, self.fresh_ms = max(self.longest_ms, lease_ms), max(self.fresh_ms, fresh_ms)

    def settle(self, now_ms: int) -> None:
        """Something was missed: complete nothing until whoever was missed can do nothing any more."""
        self._missed_ms = now_ms

    def unseen_ms(self, since_ms: int | None, *, idle: bool) -> int:
        """When somebody of whom nothing was heard since a moment can do nothing any more."""
        if since_ms is None:
            return 0
        return since_ms + right_ms(self.longest_ms) + (after_right_ms(self.longest_ms, self.fresh_ms) if idle else 0)

    def settled_ms(self, *, idle: bool) -> int:
        """When what was missed does not matter any more; `idle` also for what needs no right."""
        return self.unseen_ms(self._missed_ms, idle=idle)

    def saw(self, member: Member, now_ms: int) -> None:
        """A list or the watch showed a member."""
        known = self._entries.get(member.uid)
        self.allow(member.lease_ms, member.fresh_ms if member.holder == GUARD else 0)
        if known is None:
            self._entries[member.uid] = Entry(member, now_ms, member.lease_ms)
        elif member.version > known.member.version:
            longest = member.lease_ms if now_ms > known.expires_ms else max(known.longest_ms, member.lease_ms)
            self._entries[member.uid] = Entry(member, now_ms, longest)

    def judged(self, member: Member) -> None:
        """The same version of a member means something else now, since keys changed."""
        known = self._entries.get(member.uid)
        if known is not None and known.member.version == member.version:
            self._entries[member.uid] = replace(known, member=member)

    def reached(self, version: int) -> None:
        """The watch told of everything up to a version."""
        self.position = max(self.position, version)

    def vanished(self, uid: str, now_ms: int) -> None:
        """A member is gone, and nobody knows whether its process is."""
        known = self._entries.get(uid)
        if known is not None and not known.gone:
            self._entries[uid] = replace(known, since_ms=now_ms, gone=True)

    def deleted(self, uid: str) -> None:
        """The operator itself deleted a member, as it was when its right had ended."""
        self._entries.pop(uid, None)

    def forget(self, now_ms: int) -> None:
        """Drop those that vanished and may do nothing any more."""
        self._entries = {uid: entry for uid, entry in self._entries.items() if not (entry.gone and now_ms > entry.idle_ms)}


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
        if member.holder == GATEWAY:
            return not self.pool
        return member.namespace == self.namespace and self.pool in {"", member.pool}


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
        complete: Whether the fence is complete.
        settling: Whether it only waits for what may have been missed.
        due_ms: When it is complete at the latest if nobody is heard of any more.
    """

    guards: Counts
    gateways: Counts
    awaited: tuple[str, ...]
    complete: bool
    settling: bool
    due_ms: int


_NAMED = 3


def progress(roster: Roster, wanted: Wanted, ledger: Ledger, now_ms: int) -> Progress:
    """How far the fence of a state is.

    Args:
        roster: Everybody who may act.
        wanted: What is to be fenced.
        ledger: The ledger as it stands now: its history tells which acknowledgements count.
        now_ms: The present, on the clock of the roster.
    """
    entries = [entry for entry in roster.entries() if wanted.concerns(entry.member) or entry.member.holder == GATEWAY]
    states = {entry.member.uid: state(entry, wanted, ledger, now_ms) for entry in entries}
    concerned = [entry for entry in entries if wanted.concerns(entry.member)]
    awaited = [entry for entry in concerned if states[entry.member.uid] is State.AWAITED]
    blind_ms = _blind_until(roster, wanted)
    complete = not awaited and now_ms >= blind_ms
    return Progress(
        guards=_counts(states, entries, GUARD),
        gateways=_counts(states, entries, GATEWAY),
        awaited=tuple(sorted(entry.member.name for entry in awaited))[:_NAMED],
        complete=complete,
        settling=not awaited and not complete,
        due_ms=max([blind_ms, *(_ends_ms(entry, wanted) for entry in awaited)]),
    )


def state(entry: Entry, wanted: Wanted, ledger: Ledger, now_ms: int) -> State:
    """How one process stands."""
    mark = entry.member.acknowledged.get(wanted.key)
    if entry.member.released:
        return State.ACKNOWLEDGED
    if mark is not None and mark.sequence >= wanted.sequence and ledger.knows(mark):
        return State.ACKNOWLEDGED
    return State.EXPIRED if now_ms > _ends_ms(entry, wanted) else State.AWAITED


def _ends_ms(entry: Entry, wanted: Wanted) -> int:
    return entry.expires_ms if wanted.pool else entry.idle_ms


def _blind_until(roster: Roster, wanted: Wanted) -> int:
    """Until when somebody may act of whom the roster was never told."""
    idle = not wanted.pool
    settled = roster.settled_ms(idle=idle)
    return settled if roster.position >= wanted.version else max(settled, roster.unseen_ms(wanted.written_ms, idle=idle))


def _counts(states: Mapping[str, State], entries: Iterable[Entry], holder: str) -> Counts:
    found = [states[entry.member.uid] for entry in entries if entry.member.holder == holder]
    return Counts(len(found), found.count(State.ACKNOWLEDGED), found.count(State.EXPIRED))
