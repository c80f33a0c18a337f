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
from dataclasses import dataclass, field, replace
from enum import Enum

from cachescope.core.leases import GATEWAY, GUARD, fresh_for_ms
from cachescope.core.ledgers import Ledger, Mark
from cachescope.core.rights import Rights


def margin_ms(lease_ms: int) -> int:
    """What is waited beyond a right: one second, and two percent for clocks that do not run alike."""
    return 1000 + lease_ms // 50


def right_ms(lease_ms: int) -> int:
    """After which a right has surely ended, on any clock."""
    return lease_ms + margin_ms(lease_ms)


def silent_ms(fresh_ms: int) -> int:
    """After which a guard without a right serves nothing at all, on any clock, counted from the end of its right."""
    silent = fresh_for_ms(fresh_ms)
    return silent + margin_ms(silent) if fresh_ms else 0


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
        fresh_ms = self.member.fresh_ms
        return self.expires_ms + (fresh_ms if self.member.holder == GATEWAY else silent_ms(fresh_ms))


class Roster:
    """Everybody who may act. Fed by a list and the watch that follows it without a gap.

    Attributes:
        position: The version up to which the watch told it of everything; a list proves nothing of what came and went before it.
        longest_ms: The longest right that a guard may have.
        issuing_ms: The longest right that a gateway may have.
        fresh_ms: The longest that a guard may answer without a right.
        stale_ms: The longest that a gateway may go on without a right.
        missed_ms: When something was missed last; `None` if nothing ever was.
    """

    def __init__(self) -> None:
        self.position = 0
        self.longest_ms = 0
        self.issuing_ms = 0
        self.fresh_ms = 0
        self.stale_ms = 0
        self.missed_ms: int | None = None
        self._entries: dict[str, Entry] = {}

    def entries(self) -> Iterable[Entry]:
        """All, those that vanished and may still act included."""
        return self._entries.values()

    def allow(self, lease_ms: int, fresh_ms: int) -> None:
        """A guard may have rights that long, by what is declared or was recorded."""
        self.longest_ms, self.fresh_ms = max(self.longest_ms, lease_ms), max(self.fresh_ms, fresh_ms)

    def allow_gateways(self, lease_ms: int, stale_ms: int) -> None:
        """A gateway may. Nobody waits for that but who waits for what it issues."""
        self.issuing_ms, self.stale_ms = max(self.issuing_ms, lease_ms), max(self.stale_ms, stale_ms)

    def most(self, *, pool: tuple[str, str] | None) -> Rights:
        """The longest rights of those that are known: of the guards of a pool (namespace and name), or of all gateways."""
        found = [item for item in self.entries() if _of_pool(item.member) == pool]
        rights = (Rights(-(-item.longest_ms // 1000), -(-item.member.fresh_ms // 1000)) for item in found)
        return Rights().joined(*rights)

    def knows_all(self, now_ms: int) -> bool:
        """Whether whoever is not in it can do nothing any more."""
        if self.missed_ms is None:
            return False
        return now_ms > self.missed_ms + self.silent_ms

    @property
    def silent_ms(self) -> int:
        """For how long somebody who was not heard of again may still act, reusing nothing at the end."""
        guards, gateways = right_ms(self.longest_ms) + silent_ms(self.fresh_ms), right_ms(self.issuing_ms) + self.stale_ms
        return max(guards, gateways)

    def settle(self, now_ms: int) -> None:
        """Something was missed: complete nothing until whoever was missed can do nothing any more."""
        self.missed_ms = now_ms

    def saw(self, member: Member, now_ms: int) -> None:
        """A list or the watch showed a member."""
        known = self._entries.get(member.uid)
        allow = self.allow if member.holder == GUARD else self.allow_gateways
        allow(member.lease_ms, member.fresh_ms)
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
        """The operator itself deleted a member, as it was when its right had ended: it stays as it is, and may serve `Fresh`."""
        known = self._entries.get(uid)
        if known is not None:
            self._entries[uid] = replace(known, gone=True)

    def forget(self, now_ms: int) -> None:
        """Drop those that vanished and may do nothing any more."""
        self._entries = {uid: entry for uid, entry in self._entries.items() if not (entry.gone and now_ms > entry.idle_ms)}


def _of_pool(member: Member) -> tuple[str, str] | None:
    return None if member.holder == GATEWAY else (member.namespace, member.pool)


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
    entries = [entry for entry in roster.entries() if wanted.concerns(entry.member) or entry.member.holder == GATEWAY]
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
    return Progress(
        guards=_counts(states, entries, GUARD),
        gateways=_counts(states, entries, GATEWAY),
        awaited=tuple(sorted(entry.member.name for entry in awaited))[:_NAMED],
        heard=not unheard and now_ms >= max(rights_ms, issuing_ms),
        clear=clear,
        complete=complete,
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
    return after_right_ms(entry.longest_ms, entry.member.fresh_ms) if entry.member.holder == GUARD else 0


def _takers(roster: Roster, wanted: Wanted, expired: Iterable[Entry], now_ms: int) -> list[int]:
    """For how long each guard may go on with the last permit that takes `Fresh` ones from before, and is not silent yet."""
    if wanted.pool:
        return []
    found = [(entry.idle_ms, _takes(entry)) for entry in expired if _takes(entry)]
    missed_ms = _missed_ms(roster, wanted)
    if missed_ms is not None and roster.fresh_ms:
        silent = missed_ms + right_ms(roster.longest_ms) + silent_ms(roster.fresh_ms)
        found.append((silent, after_right_ms(roster.longest_ms, roster.fresh_ms)))
    return [takes for silent, takes in found if now_ms <= silent]


def _ends_ms(entry: Entry, wanted: Wanted) -> int:
    """Until when it is waited for: a guard for its right alone, and a gateway for all that it may issue."""
    return entry.expires_ms if wanted.pool or entry.member.holder == GUARD else entry.idle_ms


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
    issuing_ms = missed_ms + right_ms(roster.issuing_ms)
    return missed_ms + right_ms(roster.longest_ms), issuing_ms, issuing_ms + roster.stale_ms


def _counts(states: Mapping[str, State], entries: Iterable[Entry], holder: str) -> Counts:
    found = [states[entry.member.uid] for entry in entries if entry.member.holder == holder]
    return Counts(len(found), found.count(State.ACKNOWLEDGED), found.count(State.EXPIRED))
