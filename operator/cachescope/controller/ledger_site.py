"""What every writer of ledgers shares: how one is read and written, what is remembered of it, and whose word counts about it."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from cachescope.controller.fences import Fences
from cachescope.controller.lease_book import LeaseBook
from cachescope.controller.ledger_objects import LedgerObjects, Place, Stored
from cachescope.controller.outcomes import Outcome, Outcomes, Version
from cachescope.controller.root_keys import RootKeys
from cachescope.controller.store import Store
from cachescope.core.errors import ClusterError
from cachescope.core.fences import Wanted
from cachescope.core.keys import Key as SecretKey
from cachescope.core.ledgers import Ledger, Lineage, Role, advanced
from cachescope.core.rights import Rights
from cachescope.core.types import TargetName
from cachescope.kube.rest import ConflictError, Rest

T = TypeVar("T")

log = logging.getLogger(__name__)

ATTEMPTS: Final = 8


@dataclass
class LedgerSite:
    """One installation, as writers of ledgers see it.

    Attributes:
        rest: The API.
        store: Objects as last seen.
        objects: Ledgers in the API.
        keys: The root keys.
        leases: What processes say of themselves.
        fences: Who has to be heard of.
        outcomes: Where is told what became of CacheEpochs.
        now: Seconds since 1970; it only has to be above what it was when the last lineage was made.
    """

    rest: Rest
    store: Store
    objects: LedgerObjects
    keys: RootKeys
    leases: LeaseBook
    fences: Fences
    outcomes: Outcomes
    now: Callable[[], float]
    known: dict[str, Ledger] = field(default_factory=dict)

    @property
    def targets(self) -> SecretKey:
        """The key that names targets.

        Raises:
            ClusterError: There is none.
        """
        return self.keys.targets

    def witnesses(self, place: Place) -> list[Ledger]:
        """Everything that is known to have stood: by this process, and by copies in leases that carry the operator's seal."""
        good, _ = self.objects.witnessed(place, self.leases.witnesses(place.key))
        known = self.known.get(place.key)
        return [*good, known] if known else good

    def fresh(self, place: Place, stored: Stored) -> Lineage:
        """A lineage above all that were seen."""
        witnesses = (item.lineage.generation for item in self.witnesses(place))
        seen = [self.leases.generation(place.key), stored.generation, *witnesses]
        return Lineage(max(1, int(self.now()), *(number + 1 for number in seen)), secrets.token_hex(16))

    def stands(self, place: Place, stored: Stored, ledger: Ledger, *, pool: str = "") -> None:
        """A ledger stands: remember it, and see to it that nothing older is used.

        Args:
            place: Where it is.
            stored: As it was read or written.
            ledger: What it says.
            pool: Name of the pool whose cache it is about.
        """
        self.known[place.key] = ledger
        self.fences.stands(place.key, ledger)
        self.fences.want(
            Wanted(
                place.key,
                ledger.sequence,
                stored.version,
                self.leases.now_ms(),
                namespace=place.namespace,
                pool=pool,
                written=stored.written,
            )
        )


async def until_written(step: Callable[[], Awaitable[T | None]], what: str) -> T:
    """Read, decide and write, and again where somebody was faster.

    Args:
        step: Does it once; `None` where something is still to be decided.
        what: Names the ledger.

    Raises:
        ClusterError: It cannot be written.
    """
    for _ in range(ATTEMPTS):
        try:
            done = await step()
        except ConflictError:
            log.info("somebody was faster; the ledger is read and decided again", extra={"ledger": what})
            continue
        if done is not None:
            return done
    raise ClusterError(f"{what} is written by somebody else all the time; find out by whom")


def told_of(before: Ledger, after: Ledger, rights: Rights, *, lowers: bool, known: Ledger | None) -> Ledger:
    """The ledger that tells of the longest right; one sequence on where nothing else changed.

    Args:
        before: As it was read.
        after: As it is to be written, or the same.
        rights: The longest that anybody may be given from now on.
        lowers: Whether nobody can have a longer one any more.
        known: What this process wrote last: an older CRD drops what it does not know, and then writing it again is in vain.
    """
    standing = known.longest if known is not None and known.mark == before.mark else before.longest
    longest = rights if lowers else standing.joined(rights)
    if longest == standing:
        return after if after is before else replace(after, longest=standing)
    return replace(after if after is not before else advanced(after), longest=longest)


def sealed_anew(before: Stored, after: Ledger) -> Ledger:
    """The ledger as it is to be written, one sequence on where nothing changed but the key of seals.

    A seal of a key that was dropped proves nothing: neither the ledger nor a copy of it in a lease would be believed.
    """
    return advanced(after) if before.outdated and after is before.ledger else after


def announced_at(ledger: Ledger, version: Version, before: Outcome | None) -> int:
    """A state of a ledger that holds all that a CacheEpoch asks, where the ledger as it stands does.

    Args:
        ledger: As it stands.
        version: What is asked.
        before: What this process made of the CacheEpoch last; it goes on naming the state that it named.
    """
    if before is not None and before.sequence and (before.version, before.lineage) == (version, ledger.lineage):
        return before.sequence
    if ledger.role is Role.AUTHORIZATION and version.target:
        return max(1, ledger.changed.get(TargetName(version.target), ledger.reach))
    return ledger.sequence
