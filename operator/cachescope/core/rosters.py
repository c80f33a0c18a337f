"""The roster: every process that may act, since when it is as it is, and what may have been missed. Times are parameters.

Rules:

- a right has ended once nothing was heard for its length and a margin, counted on one clock from when a version was first seen, and
  for the longest right that the process declared since it last expired;
- blindness is not expiry: what vanished, other than by the operator's own delete, counts as unchanged since that was noticed;
- an expired guard may still serve `Fresh`, and an expired gateway issue it; both end at some time, and count no more then. The
  margin is that of the whole time, since clocks run apart in all of it;
- who may have been missed had the longest right of his place: of the gateways, or of the guards of one pool. Others' are not his.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from cachescope.core.leases import GATEWAY, GUARD, fresh_for_ms
from cachescope.core.ledgers import Mark
from cachescope.core.rights import Rights

ANYBODY = "Anybody"
"""The holder of a lease that nobody can make out: it counts as a guard and as a gateway."""


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
    return right_ms(lease_ms + fresh_ms) if fresh_ms else 0


Pool = tuple[str, str]
"""Namespace and name of a pool."""


@dataclass(frozen=True, slots=True)
class Longest:
    """The longest of some rights.

    Attributes:
        lease_ms: Length of the right.
        fresh_ms: A guard's longest answer without one, or how long a gateway goes on without.
    """

    lease_ms: int = 0
    fresh_ms: int = 0

    def joined(self, *others: Longest) -> Longest:
        """The maximum of all, field by field."""
        every = (self, *others)
        return Longest(max(item.lease_ms for item in every), max(item.fresh_ms for item in every))

    @property
    def serves_ms(self) -> int:
        """For how long a guard that was not heard of again may serve anything."""
        return right_ms(self.lease_ms) + silent_ms(self.fresh_ms)

    @property
    def issues_ms(self) -> int:
        """For how long a gateway that was not heard of again may issue anything."""
        return right_ms(self.lease_ms + self.fresh_ms)


@dataclass(frozen=True, slots=True)
class Member:
    """One `FenceLease` as a list or a watch showed it.

    Attributes:
        uid: UID of the object.
        namespace: Its namespace.
        name: Its name.
        version: Its version, as a number.
        holder: `Guard`, `Gateway`, or `ANYBODY`.
        pool: Name of a guard's pool; empty for any of its namespace.
        lease_ms: Length of its right.
        fresh_ms: How long it may go on without a right.
        released: Whether it ended, and said so.
        acknowledged: What it acknowledged, by ledger.
        pool_uid: UID of a guard's pool; empty while it is not known.
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
    pool_uid: str = ""

    @property
    def serves(self) -> bool:
        """Whether it may be a guard."""
        return self.holder != GATEWAY

    @property
    def issues(self) -> bool:
        """Whether it may be a gateway."""
        return self.holder != GUARD


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
        longest = Longest(self.longest_ms, self.member.fresh_ms)
        return self.since_ms + (longest.issues_ms if self.member.holder == GATEWAY else longest.serves_ms)


class Roster:
    """Everybody who may act. Fed by a list and the watch that follows it without a gap.

    Attributes:
        position: The version up to which the watch told it of everything; a list proves nothing of what came and went before it.
        gateways: The longest right that a gateway may have.
        missed_ms: When something was missed last; `None` if nothing ever was.
    """

    def __init__(self) -> None:
        self.position = 0
        self.gateways = Longest()
        self.missed_ms: int | None = None
        self._guards: dict[Pool, Longest] = {}
        self._entries: dict[str, Entry] = {}

    def entries(self) -> Iterable[Entry]:
        """All, those that vanished and may still act included."""
        return self._entries.values()

    def allow(self, pool: Pool, lease_ms: int, fresh_ms: int) -> None:
        """A guard of a pool may have rights that long, by what is declared or was recorded."""
        self._guards[pool] = self._guards.get(pool, Longest()).joined(Longest(lease_ms, fresh_ms))

    def allow_gateways(self, lease_ms: int, stale_ms: int) -> None:
        """A gateway may. Nobody waits for that but who waits for what it issues."""
        self.gateways = self.gateways.joined(Longest(lease_ms, stale_ms))

    def guards(self, namespace: str, pool: str = "") -> Longest:
        """The longest right that a guard of a pool may have, or of any pool of a namespace."""
        if pool:
            return self._guards.get((namespace, pool), Longest())
        return Longest().joined(*(item for (place, _), item in self._guards.items() if place == namespace))

    def presumed(self, holder: str, namespace: str, pool: str = "") -> Longest:
        """The right of somebody who cannot be made out: as long as any that there may be in his place."""
        serves, issues = self.guards(namespace, pool), self.gateways
        return issues if holder == GATEWAY else serves.joined(issues) if holder == ANYBODY else serves

    def most(self, *, pool: Pool | None) -> Rights:
        """The longest rights of those that are known: of the guards of a pool, or of all gateways."""
        found = [item for item in self.entries() if _of_pool(item.member) == pool]
        rights = (Rights(-(-item.longest_ms // 1000), -(-item.member.fresh_ms // 1000)) for item in found)
        return Rights().joined(*rights)

    def knows_all(self, now_ms: int, *, pool: Pool | None) -> bool:
        """Whether a guard of a pool, or a gateway, that is not in it can do nothing any more."""
        if self.missed_ms is None:
            return False
        return now_ms > self.missed_ms + (self.guards(*pool).serves_ms if pool else self.gateways.issues_ms)

    def settle(self, now_ms: int) -> None:
        """Something was missed: complete nothing until whoever was missed can do nothing any more."""
        self.missed_ms = now_ms

    def saw(self, member: Member, now_ms: int) -> None:
        """A list or the watch showed a member."""
        known = self._entries.get(member.uid)
        if member.holder == GATEWAY:
            self.allow_gateways(member.lease_ms, member.fresh_ms)
        elif member.holder == GUARD:
            self.allow((member.namespace, member.pool), member.lease_ms, member.fresh_ms)
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


def _of_pool(member: Member) -> Pool | None:
    return None if member.holder == GATEWAY else (member.namespace, member.pool)
