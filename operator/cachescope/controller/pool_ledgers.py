"""The ledger of each pool: decided by the pure rules, written by compare-and-swap before anybody uses it.

In a steady state what was last seen is enough to find that nothing is to be done. A change is decided anew on a quorum read, and
that is what is written; when somebody was faster it is read and decided again. A ledger that begins holds at once what is declared;
one that goes on in a new lineage is written as it is first, and decided upon afterwards. Events are posted after a write alone, so
that none is posted twice; what stands, and why, is in the conditions.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cachescope.controller.declared_epochs import Declared, of_pool, of_restores
from cachescope.controller.ledger_news import announce, announce_lineage
from cachescope.controller.ledger_objects import Place, Stored
from cachescope.controller.ledger_site import LedgerSite, announced_at, sealed_anew, told_of, until_written
from cachescope.controller.outcomes import Outcome
from cachescope.core.declarations import Restoration, incident_key
from cachescope.core.errors import SpecError
from cachescope.core.ledgers import Flags, Floor, Ledger, Lineage
from cachescope.core.pool_rules import Decision, compacted, decide, first_ledger
from cachescope.core.restores import is_restore, merged, said
from cachescope.core.rights import NO_RIGHTS, Rights
from cachescope.core.types import Epoch, TargetName
from cachescope.kube.rest import Document

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Asked:
    """What is asked of one ledger.

    Attributes:
        place: Where it is.
        pool: The pool.
        target: Name of the pool's target.
        resume_after: The incident after which people resume.
        declared: CacheEpochs that concern it.
        restores: What is said of restores.
        rights: The longest rights that guards of the pool may be given from now on.
        lowers: Whether nobody can have a longer one any more.
        known: The ledger as this process wrote or read it last.
    """

    place: Place
    pool: Document
    target: TargetName
    resume_after: str | None
    declared: Sequence[Declared]
    restores: Sequence[Restoration]
    rights: Rights
    lowers: bool
    known: Ledger | None

    def decide(self, ledger: Ledger) -> Decision:
        """What it makes of a ledger."""
        declarations = [item.declaration for item in self.declared]
        decision = decide(ledger, declarations, pool=self.target, resume_after=self.resume_after)
        return replace(decision, ledger=told_of(ledger, decision.ledger, self.rights, lowers=self.lowers, known=self.known))

    def compacted(self, ledger: Ledger, fresh: Lineage) -> Ledger:
        """The ledger, with room for what is declared.

        Raises:
            SpecError: More is declared than a ledger holds.
        """
        declarations = [item.declaration for item in self.declared]
        return compacted(ledger, declarations, pool=self.target, resume_after=self.resume_after, fresh=fresh)


@dataclass
class PoolLedgers:
    """The ledgers of all pools.

    Attributes:
        site: What ledgers are written with.
    """

    site: LedgerSite

    async def stand(
        self, pool: Document, target: TargetName, *, resume_after: str | None, rights: Rights = NO_RIGHTS, lowers: bool = False
    ) -> Ledger:
        """What stands for a pool, written if it was not; outcomes and fences are told.

        Args:
            pool: The pool.
            target: Name of its target.
            resume_after: The incident after which people resume, as the pool declares.
            rights: The longest rights that its guards may be given once this is written.
            lowers: Whether nobody can have a longer one any more.

        Raises:
            SpecError: More is declared than a ledger holds.
            ClusterError: It cannot be written.
        """
        metadata, store = pool["metadata"], self.site.store
        place = Place(metadata["namespace"], metadata["name"], metadata["uid"])
        declared = list(of_pool(store, self.site.targets, pool))
        restores = [item for _, item in of_restores(store, place.namespace)]
        known = self.site.known.get(place.key)
        asked = Asked(place, pool, target, resume_after, declared, restores, rights, lowers, known)
        try:
            stored, decision = await self._stand(asked)
        except SpecError as error:
            self.site.outcomes.told(place.key, {item.key: Outcome(item.version, fault=str(error)) for item in declared})
            raise
        self.site.stands(place, stored, decision.ledger, pool=place.name)
        self.site.outcomes.told(place.key, {item.key: self._outcome(place.key, item, decision) for item in declared})
        return decision.ledger

    async def _stand(self, asked: Asked) -> tuple[Stored, Decision]:
        seen = self.site.objects.seen(asked.place)
        if seen.ledger is not None and self._begun(asked, seen, seen.ledger) is None:
            decision = self._decide(asked, seen, seen.ledger)
            if decision.ledger is seen.ledger:
                return seen, decision
        return await until_written(lambda: self._step(asked), f"the ledger {asked.place.namespace}/{asked.place.name}")

    async def _step(self, asked: Asked) -> tuple[Stored, Decision] | None:
        """Read and decide; `None` when a first state was written, and what is declared is still to be decided."""
        stored = await self.site.objects.read(asked.place)
        begun = self._begun(asked, stored, stored.ledger)
        if begun is not None:
            return await self._begin(asked, stored, *begun)
        if stored.ledger is None:
            raise RuntimeError("a ledger that says nothing begins anew; decide upon that one")
        decision = self._decide(asked, stored, stored.ledger)
        if decision.ledger is stored.ledger:
            return stored, decision
        return await self._write_decision(asked, stored, stored.ledger, decision)

    def _decide(self, asked: Asked, stored: Stored, ledger: Ledger) -> Decision:
        decision = asked.decide(ledger)
        return replace(decision, ledger=sealed_anew(stored, decision.ledger))

    async def _begin(self, asked: Asked, stored: Stored, ledger: Ledger, fault: str) -> tuple[Stored, Decision] | None:
        """Write a first state. Where there was no ledger it holds at once what is declared, as if that had been in it."""
        if stored.ledger is not None:
            await self._write(asked, ledger, stored)
            await announce_lineage(self.site.rest, asked.pool, ledger, fault)
            return None
        decision = asked.decide(ledger)
        if decision.ledger is not ledger:
            decision = replace(decision, ledger=replace(decision.ledger, sequence=1, previous="", history=()))
        done = await self._write_decision(asked, stored, ledger, decision)
        if fault:
            await announce_lineage(self.site.rest, asked.pool, ledger, fault)
        return done

    async def _write_decision(self, asked: Asked, stored: Stored, before: Ledger, decision: Decision) -> tuple[Stored, Decision]:
        written = await self._write(asked, decision.ledger, stored)
        await announce(self.site.rest, asked.pool, asked.declared, before, decision)
        return written, decision

    async def _write(self, asked: Asked, ledger: Ledger, over: Stored) -> Stored:
        written = await self.site.objects.write(asked.place, ledger, over)
        where = {"namespace": asked.place.namespace, "ledger": asked.place.name}
        log.info("ledger written", extra={**where, "lineage": ledger.lineage.generation, "sequence": ledger.sequence})
        return written

    def _begun(self, asked: Asked, stored: Stored, ledger: Ledger | None) -> tuple[Ledger, str] | None:
        """The first state of a ledger or lineage, and why; `None` when the ledger goes on as it is."""
        witnesses = self.site.witnesses(asked.place)
        fresh = self.site.fresh(asked.place, stored)
        if ledger is None:
            begun, fault = self._found_again(asked, stored, witnesses, fresh)
            return asked.compacted(begun, fresh), fault
        if any(is_restore(ledger, item) for item in witnesses):
            return merged(ledger, witnesses, fresh=fresh), "somebody put an older ledger back"
        after = said(ledger, asked.restores, fresh=fresh)
        if after is not ledger:
            return after, "somebody said that the cluster was restored"
        after = asked.compacted(ledger, fresh)
        return None if after is ledger else (after, "it was full of incidents and floors that nobody declares any more")

    def _found_again(self, asked: Asked, stored: Stored, witnesses: Sequence[Ledger], fresh: Lineage) -> tuple[Ledger, str]:
        """The first state of a ledger that is not there, or that nobody can rely on."""
        fault = f"it cannot be relied on ({stored.fault})" if stored.fault else "somebody deleted the ledger"
        if witnesses:
            latest = max(witnesses, key=lambda item: (item.lineage, item.sequence))
            return merged(latest, witnesses, fresh=fresh), fault
        said_of_it = self.site.leases.generation(asked.place.key, beside=stored.generation)
        known = (asked.pool.get("status") or {}).get("epoch") or said_of_it
        if not known:
            return first_ledger(fresh), ""  # also where a pool of this name had another: its ledger is not this one's
        return lost_ledger(fresh, asked.target), f"{fault}, and nobody knows what incidents had switched off: all of it is off"

    def _outcome(self, ledger: str, item: Declared, decision: Decision) -> Outcome:
        name = item.declaration.name
        given, hold = decision.given.get(name), decision.held.get(name)
        at = announced_at(decision.ledger, item.version, self.site.outcomes.of(item.key).get(ledger))
        return Outcome(
            item.version,
            epoch=decision.epochs[name],
            given=given,
            hold=hold,
            lineage=decision.ledger.lineage,
            sequence=at if item.stands(given, hold) else 0,
        )


LOST = "ledger-lost"
"""The incident of a ledger that nobody remembers; `resumeAfter` names it."""


def lost_ledger(lineage: Lineage, target: TargetName) -> Ledger:
    """The ledger of a pool whose incidents nobody remembers: whatever they can have switched off is off."""
    ledger = first_ledger(lineage)
    epoch = Epoch(ledger.base + 1)
    flags = Flags(public_stopped=epoch, bypassed=epoch)
    return replace(
        ledger, floors={target: Floor(epoch, epoch)}, flags=flags, incidents={incident_key(target, LOST): epoch}, history=()
    )
