"""The status of a CacheEpoch: which epoch stands, whether it is held, and how far its fence is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from cachescope.api.conditions import ConditionType, Reason
from cachescope.api.epochs import CacheEpoch
from cachescope.api.statuses import CacheEpochStatus, FenceCounts, Phase
from cachescope.controller.declared_epochs import ledgers_of, missing, read_epoch
from cachescope.controller.fence_verdicts import counted_gateways, fence_verdict, named
from cachescope.controller.fences import Fence
from cachescope.controller.installation import Installation
from cachescope.controller.ledger_news import incident_text
from cachescope.controller.outcomes import Outcome
from cachescope.controller.store import Key
from cachescope.controller.verdicts import Verdict, fields_of, report
from cachescope.core.declarations import JumpTooLarge, MomentTooLate, Postponed, TakenBack
from cachescope.core.digests import digest
from cachescope.core.epochs import EpochRollback
from cachescope.core.errors import SpecError
from cachescope.core.fences import Counts
from cachescope.core.ledgers import short
from cachescope.kube.rest import Document

_HOLDS: Final = {
    EpochRollback: Reason.SPEC_BEHIND_LEDGER,
    TakenBack: Reason.SPEC_BEHIND_LEDGER,
    JumpTooLarge: Reason.JUMP_TOO_LARGE,
    MomentTooLate: Reason.MOMENT_TOO_LATE,
    Postponed: Reason.POSTPONED,
}

NO_POOL: Final = (
    "no pool of this namespace is concerned, so nothing is cached or served by it; create the pool, or delete this CacheEpoch"
)


@dataclass(frozen=True)
class CacheEpochs:
    """Reconciles CacheEpochs; ledgers are written elsewhere.

    Attributes:
        site: The installation.
        rulers: Namespaces whose authorization ledgers hold for the tenants of all.
    """

    site: Installation
    rulers: Sequence[str] = ()

    async def reconcile(self, key: Key, _failures: int) -> None:
        """Say what stands.

        Raises:
            ClusterError: It could not be written; try again later.
        """
        document = self.site.store.get(*key)
        if document is None:
            self.site.outcomes.forget(key)
            return
        try:
            epoch = read_epoch(document)
        except SpecError as error:
            await self._refuse(document, Reason.INVALID_SPEC, str(error))
            return
        if fault := missing(self.site.store, key, epoch):
            await self._refuse(document, Reason.REFERENCE_NOT_FOUND, fault)
            return
        metadata = epoch.metadata
        outcomes = {name: item for name, item in self.site.outcomes.of(key).items() if item.of(metadata.uid, metadata.generation)}
        if outcomes:
            await self._report(document, key, epoch, outcomes)
        elif not ledgers_of(self.site.store, self.rulers, key, epoch):
            # With ledgers, one of them has yet to speak; without, nobody ever would.
            await self._refuse(document, Reason.REFERENCE_NOT_FOUND, NO_POOL)

    async def _refuse(self, document: Document, reason: Reason, fault: str) -> None:
        verdict = Verdict(ConditionType.ACCEPTED, "False", reason, fault)
        await report(self.site.rest, document, fields_of(document), [verdict])

    async def _report(self, document: Document, key: Key, epoch: CacheEpoch, outcomes: Mapping[str, Outcome]) -> None:
        names = sorted(ledgers_of(self.site.store, self.rulers, key, epoch) | outcomes.keys())
        fences = [self._fence(name, outcomes.get(name)) for name in names]
        # Of several ledgers the status names the first, whichever speaks first.
        first = outcomes.get(names[0])
        states = [_state(name, outcomes.get(name)) for name in names]
        stays = _stays(document, states)
        fenced = _fenced(document, epoch, outcomes, fences, stays=stays)
        before = document.get("status") or {}
        made = fields_of(document) if stays else _fields(before, outcomes, first, fences, phase=_phase(outcomes, fenced))
        if fenced.status == "True" and not stays:
            made["fencedStates"] = states
        await report(self.site.rest, document, made, [_accepted(epoch, outcomes), *_held(outcomes), fenced])

    def _fence(self, name: str, outcome: Outcome | None) -> Fence | None:
        if outcome is None or outcome.lineage is None or not outcome.sequence:
            return None
        return self.site.fences.of(name, outcome.lineage, outcome.sequence)


def _accepted(epoch: CacheEpoch, outcomes: Mapping[str, Outcome]) -> Verdict:
    fault = next((item.fault for item in outcomes.values() if item.fault), "")
    if fault:
        return Verdict(ConditionType.ACCEPTED, "False", Reason.LEDGER_UNUSABLE, fault)
    given = max((item.given for item in outcomes.values() if item.given is not None), default=None)
    told = "" if given is None or epoch.spec.incident is None else incident_text(epoch.spec.incident, given)
    return Verdict(ConditionType.ACCEPTED, "True", Reason.ACCEPTED, told)


def _held(outcomes: Mapping[str, Outcome]) -> list[Verdict]:
    if any(item.fault for item in outcomes.values()):
        return []
    hold = next((item.hold for item in outcomes.values() if item.hold), None)
    if hold is None:
        return [Verdict(ConditionType.HELD, "False", Reason.NOT_HELD)]
    reason = next(reason for kind, reason in _HOLDS.items() if isinstance(hold, kind))
    return [Verdict(ConditionType.HELD, "True", reason, str(hold))]


def _fenced(
    document: Document, epoch: CacheEpoch, outcomes: Mapping[str, Outcome], fences: Sequence[Fence | None], *, stays: bool
) -> Verdict:
    refused = next((item.lineage.generation for item in outcomes.values() if item.unconfirmed and item.lineage), None)
    if refused is not None:
        return _unconfirmed(epoch, refused, fences)
    if stays:
        old = _condition(document, ConditionType.FENCED)
        return Verdict(ConditionType.FENCED, "True", Reason(old["reason"]), str(old.get("message", "")))
    return fence_verdict(fences)


def _unconfirmed(epoch: CacheEpoch, lineage: int, fences: Sequence[Fence | None]) -> Verdict:
    """What is waited for before anybody is served: somebody who confirms, and those who may know more than the ledger."""
    said = epoch.spec.restored
    how = f"all requests are refused in lineage {lineage} until `kubectl cachescope restored --confirm`"
    message = f"the cluster was restored: {how}"
    if said is not None and said.confirmed and said.lineage == lineage:
        return _waiting(fences)
    if said is not None and said.confirmed:
        message = f"this confirms lineage {said.lineage}, and the cluster was restored since: {how}"
        if said.lineage is None:
            message = f"this says not what it confirms, and confirms nothing: {how}, which sets restored.lineage"
    return Verdict(ConditionType.FENCED, "False", Reason.RESTORE_UNCONFIRMED, message)


def _waiting(fences: Sequence[Fence | None]) -> Verdict:
    awaited = sorted({name for item in fences if item for name in item.progress.awaited})
    if not awaited:
        message = "confirmed; before that counts, all who had a right before the operator began show what they know"
        return Verdict(ConditionType.FENCED, "False", Reason.SETTLING, message)
    message = f"confirmed; before that counts, FenceLeases show what they know, or their rights end, {named(awaited)}"
    return Verdict(ConditionType.FENCED, "False", Reason.WAITING_FOR_PROCESSES, message)


def _condition(document: Document, kind: ConditionType) -> Mapping[str, Any]:
    conditions = (document.get("status") or {}).get("conditions") or ()
    return next((item for item in conditions if item.get("type") == kind.value), {})


def _stays(document: Document, states: Sequence[str]) -> bool:
    """Whether what was complete stays complete: a process that started since has to hear of nobody again.

    The status names what was fenced, of each ledger. Where the target was made anew under its name, where an incident was counted
    again, or where a ledger came to those that are concerned, something else is to be fenced.
    """
    if _condition(document, ConditionType.FENCED).get("status") != "True":
        return False
    known = (document.get("status") or {}).get("fencedStates") or ()
    return all(state and state in known for state in states)


def _state(ledger: str, outcome: Outcome | None) -> str:
    """Names what a ledger holds of a CacheEpoch; empty while it does not hold all of it, or nobody can rely on it."""
    if outcome is None or outcome.lineage is None or not outcome.sequence or outcome.unconfirmed:
        return ""
    asked = outcome.version
    return short(digest([ledger, outcome.lineage.id, asked.uid, asked.generation, asked.target, outcome.given]))


def _phase(outcomes: Mapping[str, Outcome], fenced: Verdict) -> Phase:
    """Where a CacheEpoch is; `Fencing` only where waiting is enough."""
    if any(item.hold is not None and not isinstance(item.hold, EpochRollback) for item in outcomes.values()):
        return "Held"
    if fenced.reason is Reason.RESTORE_UNCONFIRMED:
        return "Unconfirmed"
    return "Fenced" if fenced.status == "True" else "Fencing"


def _fields(
    before: Mapping[str, Any],
    outcomes: Mapping[str, Outcome],
    first: Outcome | None,
    fences: Sequence[Fence | None],
    *,
    phase: Phase,
) -> dict[str, Any]:
    epochs = [item.epoch for item in outcomes.values() if item.epoch is not None]
    if not epochs:
        return {name: value for name, value in before.items() if name != "conditions"}
    known, done = [item for item in fences if item is not None], phase == "Fenced"
    told = first is not None and first.sequence > 0
    lineage = first.lineage.generation if first is not None and first.lineage is not None else None
    same = (before.get("lineage"), before.get("sequence")) == (lineage, first.sequence if first else None)
    status = CacheEpochStatus(
        epoch=max(epochs),
        phase=phase,
        sequence=first.sequence if first is not None and told else None,
        lineage=lineage if told else None,
        guards=_counts([item.progress.guards for item in known]),
        gateways=_counts([counted_gateways(item) for item in known]),
        committed_at=((before.get("committedAt") if same else "") or _now()) if told else "",
        fenced_at=_now() if done else "",
        seconds=max(item.seconds or 0.0 for item in known) if done else None,
    )
    return status.model_dump(
        mode="json", by_alias=True, exclude={"conditions", "observed_generation", "fenced_states"}, exclude_none=True
    )


def _counts(parts: Sequence[Counts]) -> FenceCounts:
    return FenceCounts(
        total=sum(item.total for item in parts),
        acknowledged=sum(item.acknowledged for item in parts),
        expired=sum(item.expired for item in parts),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
