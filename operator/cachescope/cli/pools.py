"""Pools as `status` shows them: pure, from what the API server has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from cachescope.api.conditions import ConditionType
from cachescope.api.pools import ServingPool
from cachescope.api.statuses import Condition, GuardStatus, ServingPoolStatus
from cachescope.cli.epochs import EpochRow, epoch_row

NOT_OBSERVED = "NotObserved"
COLUMNS = ("POOL", "MODE", "READY", "REASON", "EPOCH", "FENCED", "ROUTABLE/READY/ASKED", "GUARDS", "WHY")


class PoolRow(BaseModel):
    """One pool."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)

    namespace: str
    name: str
    mode: str
    mode_reason: str
    ready: str
    reason: str
    message: str
    epoch: int | None
    fenced: str
    fenced_message: str
    bypassed: bool
    public_stopped: bool
    latest_incident: str
    routable: int
    ready_replicas: int
    replicas: int
    guards: tuple[GuardStatus, ...]
    conditions: tuple[Condition, ...]
    open_epochs: tuple[EpochRow, ...]


def pool_row(document: Mapping[str, Any], opened: Sequence[Mapping[str, Any]] = ()) -> PoolRow:
    """A pool from its resource; what the operator has not looked at yet is not ready, whatever an older status says.

    Args:
        document: It.
        opened: CacheEpochs that are not fenced; those that concern it are named.
    """
    status = ServingPoolStatus.model_validate(document.get("status") or {})
    generation = document["metadata"].get("generation", 1)
    conditions = {item.type: item for item in status.conditions}
    ready, fenced = conditions.get(ConditionType.READY), conditions.get(ConditionType.FENCED)
    seen = ready is not None and status.observed_generation >= generation
    return PoolRow(
        namespace=document["metadata"]["namespace"],
        name=document["metadata"]["name"],
        mode=status.mode,
        mode_reason=status.mode_reason,
        ready=ready.status if ready and seen else "Unknown",
        reason=ready.reason if ready and seen else NOT_OBSERVED,
        message=ready.message if ready and seen else f"the operator has not looked at generation {generation} yet",
        epoch=status.epoch,
        fenced=fenced.status if fenced else "-",
        fenced_message=fenced.message if fenced else "",
        bypassed=status.bypassed,
        public_stopped=status.public_stopped,
        latest_incident=status.latest_incident,
        routable=status.routable,
        ready_replicas=status.ready_replicas,
        replicas=document["spec"].get("replicas", 1),
        guards=status.guards,
        conditions=status.conditions,
        open_epochs=tuple(epoch_row(item) for item in opened if _concerns(item, document)),
    )


def cells(row: PoolRow) -> list[str]:
    """A pool as a row of the table."""
    counts = f"{row.routable}/{row.ready_replicas}/{row.replicas}"
    why = "; ".join(part for part in (row.mode_reason, row.message, *_isolation(row), *_incident(row)) if part)
    epoch = "-" if row.epoch is None else str(row.epoch)
    return [row.name, row.mode or "-", row.ready, row.reason, epoch, row.fenced, counts, guards(row.guards), why]


def _isolation(row: PoolRow) -> Iterator[str]:
    """What the probe has not shown."""
    shown = next((item for item in row.conditions if item.type == ConditionType.ISOLATION_VERIFIED), None)
    if shown is not None and shown.status == "False":
        yield f"isolation not verified ({shown.reason}): {shown.message}"


def _incident(row: PoolRow) -> Iterator[str]:
    """What an incident switched off, and whether something older may still be used."""
    if row.fenced == "False":
        yield f"not fenced: {row.fenced_message}"
    off = [name for name, stopped in (("reuse", row.bypassed), ("public sharing", row.public_stopped)) if stopped]
    if off:
        incident = row.latest_incident or "the id of its latest incident"
        yield f"{' and '.join(off)} switched off until spec.sharing.resumeAfter is {incident}"


def _concerns(epoch: Mapping[str, Any], pool: Mapping[str, Any]) -> bool:
    """Whether a CacheEpoch is about a pool, its namespace, or somebody in it."""
    target, metadata = epoch["spec"]["target"], pool["metadata"]
    # What is declared for a pool holds for those that were made of it.
    name = (pool["spec"].get("dedicatedTo") or {}).get("poolName", metadata["name"])
    another = target.get("kind", ServingPool.KIND) == ServingPool.KIND and target.get("name") != name
    return bool(epoch["metadata"]["namespace"] == metadata["namespace"]) and not another


def guards(found: Sequence[GuardStatus]) -> str:
    """Guards by liveness and version, such as `2 live (0.2.0), 1 silent (0.1.0)`."""
    counts = Counter((not guard.live, guard.version) for guard in found)
    named = (f"{count} {'silent' if silent else 'live'} ({version})" for (silent, version), count in sorted(counts.items()))
    return ", ".join(named) or "-"
