"""What people are told when a ledger was written: Events, posted after the write and never again for it.

Whoever waits for an incident to stand finds it in the condition too; an Event can be lost with the process that was to post it.
"""

from __future__ import annotations

from collections.abc import Iterable

from cachescope.api.epochs import Incident
from cachescope.controller.declared_epochs import Declared
from cachescope.core.ledgers import Ledger
from cachescope.core.pool_rules import Decision
from cachescope.core.types import Epoch
from cachescope.kube.events import post
from cachescope.kube.rest import Document, Rest

ADVANCED = "EpochAdvanced"
NEW_LINEAGE = "NewLineage"
_ACTION = "WriteLedger"


async def announce_lineage(rest: Rest, regarding: Document, ledger: Ledger, fault: str) -> None:
    """Post that a ledger goes on in a new lineage, and why."""
    message = f"{fault}: it goes on in lineage {ledger.lineage.generation}, and everything cached before is unreachable"
    await post(rest, regarding, type="Warning", reason=NEW_LINEAGE, message=message, action=_ACTION)


async def announce(rest: Rest, pool: Document, declared: Iterable[Declared], before: Ledger, decision: Decision) -> None:
    """Post what CacheEpochs changed in the ledger of a pool."""
    for item in declared:
        if message := news(item, before, decision.given.get(item.declaration.name), decision.epochs[item.declaration.name]):
            for regarding in (_document(item), pool):
                await post(rest, regarding, type="Normal", reason=ADVANCED, message=message, action=_ACTION)


def news(item: Declared, before: Ledger, given: Epoch | None, standing: Epoch) -> str:
    """What a CacheEpoch changed; empty for nothing.

    Args:
        item: The CacheEpoch.
        before: What it was decided on: the incidents in it are old.
        given: The epoch of its incident.
        standing: The epoch of its target.
    """
    declaration, incident = item.declaration, item.epoch.spec.incident
    if incident is not None and given is not None and declaration.key not in before.incidents:
        return incident_text(incident, given)
    if before.epoch(declaration.target) < standing == declaration.floor:
        return f"the floor of CacheEpoch {item.key.name}: epoch {standing} stands"
    return ""


def incident_text(incident: Incident, given: Epoch) -> str:
    """What stands for an incident, and why, in its author's words."""
    reason = incident.reason.strip()
    return f"incident {incident.id}: epoch {given}" + (f", {reason}" if reason else "")


def _document(item: Declared) -> Document:
    metadata = item.epoch.metadata
    named = {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid}
    return {"apiVersion": item.epoch.api_version, "kind": item.epoch.kind, "metadata": named}
