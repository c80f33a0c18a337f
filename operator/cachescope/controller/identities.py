"""Which claims a Tenant holds: values in, values out.

Rules:

- who holds a claim keeps it, whatever others declare, until he declares it no more;
- a newcomer gets a claim that overlaps nothing that another Tenant, of any namespace, holds;
- among newcomers that overlap each other the oldest comes first, then the smallest UID; what is decided stands and is written next;
- what a deleted Tenant held is kept for ten minutes for one of the same namespace and name: a Tenant that is made anew, as GitOps
  tools do, loses nothing to one that waits;
- a Tenant that cannot be read wants nothing and keeps what its status says;
- what is accepted later has a later `since` than everything accepted before: of two that match, readers take the earlier.

Decisions are written one after another: `controller.tenants` sees to that.
"""

from __future__ import annotations

import heapq
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cachescope.api.claim_rules import ClaimRules, Refusal
from cachescope.api.claims import Claim, declared, read_claim
from cachescope.api.documents import parse
from cachescope.api.tenants import Tenant
from cachescope.controller.claim_index import ClaimIndex, Holding, Owner
from cachescope.core.errors import SpecError

RESERVED_SECONDS: Final = 600.0


@dataclass(frozen=True)
class Claimant:
    """A Tenant, as far as its claims go.

    Attributes:
        owner: Its namespace and name.
        uid: Its UID.
        created: When it was made (RFC 3339 in UTC, which sorts by time).
        wanted: What it declares, by the claims' texts.
        held: What it holds, and since when.
    """

    owner: Owner
    uid: str
    created: str
    wanted: Mapping[str, Claim] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Acceptance:
    """What becomes of a Tenant's claims.

    Attributes:
        accepted: Claims that it holds from now on, and since when.
        taken: Claims that another holds, or gets first.
        unknown: Claims on providers or trust domains that the installation does not have, or not for its namespace.
        foreign: Claims on ServiceAccounts of another namespace.
    """

    accepted: Mapping[str, int]
    taken: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()


class Claimants:
    """All Tenants, and what stands between them: what they hold, what is promised to them, and what is reserved.

    Args:
        rules: Which claims the installation takes.
        clock: Seconds of a clock that only rises.

    Attributes:
        latest: The latest `since` that was ever seen.
        index: The claims that stand.
    """

    def __init__(self, rules: ClaimRules, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rules = rules
        self._clock = clock
        self._by_owner: dict[Owner, Claimant] = {}
        self._standing: defaultdict[Owner, set[str]] = defaultdict(set)
        self._reserved: defaultdict[Owner, dict[str, float]] = defaultdict(dict)
        self._ends: deque[tuple[float, Owner]] = deque()
        self._queue: list[tuple[str, str, Owner]] = []
        self._undecided: set[Owner] = set()
        self._waiting: defaultdict[Holding, set[Owner]] = defaultdict(set)
        self._blockers: dict[Owner, set[Holding]] = {}
        self.index = ClaimIndex(rules.lists)
        self.latest = 0

    def put(self, claimant: Claimant) -> set[Owner]:
        """Take over a Tenant as it is now; returns who waits for what is free now, or is reserved from now on."""
        known = self._by_owner.get(claimant.owner)
        if known == claimant:
            return set()
        waiting = self._reserve(known) if known is not None and known.uid != claimant.uid else set()
        self._by_owner[claimant.owner] = claimant
        self._give_back(claimant)
        self.latest = max([self.latest, *claimant.held.values()])
        self._ask(claimant.owner)
        return waiting | self._settle(claimant.owner)

    def remove(self, owner: Owner) -> set[Owner]:
        """Forget a Tenant that is gone, but for what is reserved; returns who waits, as `put` does."""
        known = self._by_owner.pop(owner, None)
        self._undecided.discard(owner)
        self._wait_no_more(owner)
        waiting = self._reserve(known) if known else set()
        return waiting | self._settle(owner)

    def expire(self) -> set[Owner]:
        """End what was reserved long enough; returns who waited for it."""
        freed: set[Owner] = set()
        while self._ends and self._ends[0][0] <= self._clock():
            moment, owner = self._ends.popleft()
            left = {text: until for text, until in self._reserved.pop(owner, {}).items() if until > moment}
            if left:
                self._reserved[owner] = left
            freed |= self._settle(owner)
        return freed

    def decide(self, at_most: int) -> bool:
        """Decide for some of those that are undecided, the oldest first; whether there are more."""
        while self._undecided and at_most > 0:
            *_, owner = heapq.heappop(self._queue)
            if owner in self._undecided:
                self._undecided.discard(owner)
                self._decide(self._by_owner[owner])
                at_most -= 1
        if not self._undecided:
            self._queue.clear()
        return bool(self._undecided)

    def acceptance(self, owner: Owner, since: int) -> Acceptance:
        """What became of a Tenant's claims; call `decide` before.

        Args:
            owner: The Tenant.
            since: For what is accepted now; later than all before.
        """
        claimant = self._by_owner[owner]
        refused = {text: self._rules.refusal(claim, owner.namespace) for text, claim in claimant.wanted.items()}
        # Kept also while its provider is missing: a slip in the settings must not hand an identity to somebody else.
        kept = {text for text in refused if text in claimant.held or (not refused[text] and text in self._standing[owner])}
        return Acceptance(
            {text: claimant.held.get(text, since) for text in refused if text in kept},
            tuple(text for text in refused if not refused[text] and text not in kept),
            tuple(text for text in refused if refused[text] is Refusal.UNKNOWN),
            tuple(text for text in refused if refused[text] is Refusal.FOREIGN),
        )

    def waits(self, owner: Owner) -> float | None:
        """In how many seconds what a Tenant waits for could be reserved no longer; `None` when nothing is reserved."""
        ends = [self._reserved.get(item.owner, {}).get(item.text) for item in self._blockers.get(owner, ())]
        return max(0.0, min(found) - self._clock()) if (found := [end for end in ends if end is not None]) else None

    def _decide(self, claimant: Claimant) -> None:
        owner = claimant.owner
        self._wait_no_more(owner)
        for text, claim in claimant.wanted.items():
            if text in self._standing[owner] or self._rules.refusal(claim, owner.namespace):
                continue
            blocker = self.index.blocker(owner, claim)
            if blocker is None:
                self._stand(owner, text, claim)
            else:
                self._waiting[blocker].add(owner)
                self._blockers.setdefault(owner, set()).add(blocker)

    def _settle(self, owner: Owner) -> set[Owner]:
        """Let stand what an owner holds, has reserved, or was promised and still wants; who waited for the rest."""
        claimant = self._by_owner.get(owner)
        wanted, held = (claimant.wanted, claimant.held) if claimant else ({}, {})
        kept = {*held, *self._reserved.get(owner, ()), *(self._standing[owner] & wanted.keys())}
        freed: set[Owner] = set()
        for text in self._standing[owner] - kept:
            self.index.remove(Holding(owner, text))
            freed |= self._waiting.pop(Holding(owner, text), set())
        self._standing[owner] &= kept
        for text in sorted(kept - self._standing[owner]):
            self._stand(owner, text, wanted.get(text) or _read(text))
        if not self._standing[owner]:
            del self._standing[owner]
        for other in freed:
            self._ask(other)
        return freed

    def _stand(self, owner: Owner, text: str, claim: Claim | None) -> None:
        self._standing[owner].add(text)
        self.index.add(Holding(owner, text), claim)

    def _ask(self, owner: Owner) -> None:
        claimant = self._by_owner[owner]
        self._undecided.add(owner)
        heapq.heappush(self._queue, (claimant.created, claimant.uid, owner))

    def _wait_no_more(self, owner: Owner) -> None:
        for blocker in self._blockers.pop(owner, ()):
            waiting = self._waiting.get(blocker, set())
            waiting.discard(owner)
            if not waiting:
                self._waiting.pop(blocker, None)

    def _reserve(self, gone: Claimant) -> set[Owner]:
        """Keep what a Tenant held; who waits for it."""
        if gone.held:
            until = self._clock() + RESERVED_SECONDS
            self._reserved[gone.owner].update(dict.fromkeys(gone.held, until))
            self._ends.append((until, gone.owner))
        return {owner for text in gone.held for owner in self._waiting.get(Holding(gone.owner, text), ())}

    def _give_back(self, claimant: Claimant) -> None:
        """What is held again is reserved no longer: giving it up by an edit frees it at once, as before."""
        if reserved := self._reserved.pop(claimant.owner, None):
            left = {text: until for text, until in reserved.items() if text not in claimant.held}
            if left:
                self._reserved[claimant.owner] = left


def claimant_of(document: Mapping[str, Any]) -> Claimant:
    """A Tenant's claims, and what its status says that it holds. One that cannot be read, or that is going, wants nothing."""
    metadata = document["metadata"]
    owner = Owner(metadata.get("namespace", ""), metadata["name"])
    return Claimant(owner, metadata["uid"], metadata.get("creationTimestamp") or "", _wanted(document), held_by(document))


def held_by(document: Mapping[str, Any]) -> dict[str, int]:
    """What the status of a Tenant says that it holds, and since when, also of one that cannot be read."""
    status = document.get("status")
    accepted = status.get("accepted") if isinstance(status, Mapping) else None
    items = [item for item in accepted if isinstance(item, Mapping)] if isinstance(accepted, list) else []
    found = [(item.get("claim"), item.get("since")) for item in items]
    return {claim: since for claim, since in found if isinstance(claim, str) and isinstance(since, int)}


def _wanted(document: Mapping[str, Any]) -> dict[str, Claim]:
    if "deletionTimestamp" in document["metadata"]:
        return {}
    try:
        return {str(claim): claim for claim in declared(parse(Tenant, dict(document), "Tenant"))}
    except SpecError:
        return {}


def _read(text: str) -> Claim | None:
    try:
        return read_claim(text)
    except SpecError:
        return None  # of a kind that a newer operator wrote: it holds its own text and nothing else
