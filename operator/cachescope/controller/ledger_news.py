"""What people are told when a ledger was written: Events, posted after the write and never again for it.

Whoever waits for an incident to stand finds it in the condition too; an Event can be lost with the process that was to post it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cachescope.core.ledger_rules import Decision, Ledger, incident_key
from cachescope.core.types import Epoch, TargetName
from cachescope.kube.events import post
from cachescope.kube.rest import Document, Rest

ADVANCED = "EpochAdvanced"
NEW_LINEAGE = "NewLineage"
_ACTION = "WriteLedger"


@dataclass(frozen=True)
class Change:
    """A ledger that was written.

    Attributes:
        before: What it was decided on.
        decision: What stands now.
        target: Whose epochs it is about.
        fault: Why it went on in a new lineage; empty when it did not.
    """

    before: Ledger
    decision: Decision
    target: TargetName
    fault: str = ""


async def announce(rest: Rest, pool: Document, epochs: Iterable[Document], change: Change) -> None:
    """Post the Events of a change.

    Args:
        rest: The API.
        pool: The pool.
        epochs: The CacheEpochs that declare something for it.
        change: What was written.
    """
    if change.fault:
        number = change.decision.ledger.head.generation
        message = f"{change.fault}: it goes on in lineage {number}, and everything cached before is unreachable"
        await post(rest, pool, type="Warning", reason=NEW_LINEAGE, message=message, action=_ACTION)
    for document in epochs:
        if message := news(document, change):
            for regarding in (document, pool):
                await post(rest, regarding, type="Normal", reason=ADVANCED, message=message, action=_ACTION)


def news(epoch: Document, change: Change) -> str:
    """What a CacheEpoch changed in the ledger; empty for nothing."""
    name, spec, decision = epoch["metadata"]["name"], epoch.get("spec") or {}, change.decision
    given = decision.given.get(name)
    if given is not None and incident_key(change.target, spec["incident"]["id"]) not in change.before.incidents:
        return incident_text(epoch, given)
    if change.before.head.floors.floor(change.target) < decision.epoch == spec.get("floor"):
        return f"the floor of CacheEpoch {name}: epoch {decision.epoch} stands"
    return ""


def incident_text(document: Document, given: Epoch) -> str:
    """What stands for the incident of a CacheEpoch, and why, in its author's words."""
    incident = document["spec"]["incident"]
    reason = str(incident.get("reason") or "").strip()
    return f"incident {incident['id']}: epoch {given}" + (f", {reason}" if reason else "")
