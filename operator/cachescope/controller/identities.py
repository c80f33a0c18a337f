"""Which claims a Tenant holds: values in, values out.

Rules:

- who holds a claim keeps it, whatever others declare, until he declares it no more;
- a newcomer gets a claim that overlaps nothing that another Tenant, of any namespace, holds;
- among newcomers that overlap each other the oldest comes first, then the smallest UID;
- what is accepted later has a later `since` than everything accepted before: of two that match, readers take the earlier.

Decisions must be made one after another, each after the one before is written: `controller.tenants` sees to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cachescope.api.claims import JwtClaim, claims_of, overlaps, read_claim
from cachescope.api.tenants import Tenant
from cachescope.core.errors import SpecError


@dataclass(frozen=True)
class Claimant:
    """A Tenant, as far as its claims go.

    Attributes:
        uid: Its UID.
        created: When it was made (RFC 3339 in UTC, which sorts by time).
        wanted: What it declares, each claim once.
        held: What it holds, and since when.
    """

    uid: str
    created: str
    wanted: tuple[str, ...] = ()
    held: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Acceptance:
    """What becomes of a Tenant's claims.

    Attributes:
        accepted: Claims that it holds from now on, and since when.
        taken: Claims that another holds, or gets first.
        unknown: Claims on providers that the installation does not have.
    """

    accepted: Mapping[str, int]
    taken: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class Claimants:
    """All Tenants, found by what their claims are about: only claims of one subject can overlap."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Claimant] = {}
        self._by_subject: dict[str, set[str]] = {}

    def put(self, claimant: Claimant) -> None:
        """Take over a Tenant as it is now."""
        self.remove(claimant.uid)
        self._by_uid[claimant.uid] = claimant
        for subject in _subjects(claimant):
            self._by_subject.setdefault(subject, set()).add(claimant.uid)

    def remove(self, uid: str) -> None:
        """Forget a Tenant."""
        if known := self._by_uid.pop(uid, None):
            for subject in _subjects(known):
                self._by_subject[subject].discard(uid)
                if not self._by_subject[subject]:
                    del self._by_subject[subject]

    def rivals(self, claimant: Claimant) -> list[Claimant]:
        """Tenants whose claims could overlap."""
        uids = {uid for subject in _subjects(claimant) for uid in self._by_subject.get(subject, ())}
        return [self._by_uid[uid] for uid in sorted(uids - {claimant.uid})]

    @property
    def latest(self) -> int:
        """The latest `since` of all."""
        return max((since for item in self._by_uid.values() for since in item.held.values()), default=0)


def claimant_of(tenant: Tenant) -> Claimant:
    """A Tenant's claims, and what its status says that it holds."""
    held = {item.claim: item.since for item in tenant.status.accepted} if tenant.status else {}
    return Claimant(tenant.uid, tenant.metadata.creation_timestamp, claims_of(tenant), held)


def decide(claimant: Claimant, rivals: Iterable[Claimant], *, providers: Iterable[str], since: int) -> Acceptance:
    """What becomes of a Tenant's claims.

    Args:
        claimant: The Tenant.
        rivals: Others whose claims could overlap.
        providers: Names of the installation's identity providers.
        since: For what is accepted now; later than all before.
    """
    known = frozenset(providers)
    others = [item for item in rivals if item.uid != claimant.uid]
    accepted: dict[str, int] = {}
    taken, unknown = [], []
    for claim in claimant.wanted:
        if not _has_provider(claim, known):
            unknown.append(claim)
        if claim in claimant.held:
            # Kept also while its provider is missing: a slip in the settings must not hand an identity to somebody else.
            accepted[claim] = claimant.held[claim]
        elif claim not in unknown:
            if _free(claim, claimant, others):
                accepted[claim] = since
            else:
                taken.append(claim)
    return Acceptance(accepted, tuple(taken), tuple(unknown))


def _free(claim: str, claimant: Claimant, others: list[Claimant]) -> bool:
    """Whether nobody holds what overlaps the claim, and no older newcomer gets it first."""
    holders = [(item.uid, held) for item in others for held in item.held]
    if any(_overlap(claim, held) for _, held in holders):
        return False
    # Older newcomers in their order: one that is refused itself stands in nobody's way.
    mine = [(claimant.uid, held) for held in claimant.held]
    winners = [*holders, *mine]
    for item in sorted(others, key=_age):
        if _age(item) < _age(claimant):
            wins = [want for want in item.wanted if want not in item.held and not _blocked(want, item.uid, winners)]
            winners += [(item.uid, want) for want in wins]
    return not _blocked(claim, claimant.uid, winners)


def _blocked(claim: str, uid: str, winners: list[tuple[str, str]]) -> bool:
    return any(other != uid and _overlap(claim, held) for other, held in winners)


def _age(claimant: Claimant) -> tuple[str, str]:
    return claimant.created, claimant.uid


def _overlap(left: str, right: str) -> bool:
    try:
        return overlaps(left, right)
    except SpecError:
        return left == right  # of a kind that a newer operator wrote: it holds its own text and nothing else


def _has_provider(claim: str, providers: frozenset[str]) -> bool:
    parsed = read_claim(claim)
    return not isinstance(parsed, JwtClaim) or parsed.provider in providers


def _subjects(claimant: Claimant) -> set[str]:
    return {_subject(claim) for claim in (*claimant.wanted, *claimant.held)}


def _subject(claim: str) -> str:
    """What a claim is about; claims about different things never overlap."""
    try:
        parsed = read_claim(claim)
    except SpecError:
        return claim
    return f"{parsed.provider}\n{parsed.audience}" if isinstance(parsed, JwtClaim) else claim
