"""Pools as `status` shows them: pure, from what the API server has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from cachescope.api.conditions import ConditionType
from cachescope.api.statuses import Condition, GuardStatus, ServingPoolStatus

NOT_OBSERVED = "NotObserved"
COLUMNS = ("POOL", "MODE", "READY", "REASON", "EPOCH", "ROUTABLE/READY/ASKED", "GUARDS", "WHY")


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
    routable: int
    ready_replicas: int
    replicas: int
    guards: tuple[GuardStatus, ...]
    conditions: tuple[Condition, ...]


def pool_row(document: Mapping[str, Any]) -> PoolRow:
    """A pool from its resource; what the operator has not looked at yet is not ready, whatever an older status says."""
    status = ServingPoolStatus.model_validate(document.get("status") or {})
    generation = document["metadata"].get("generation", 1)
    ready = next((item for item in status.conditions if item.type == ConditionType.READY), None)
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
        routable=status.routable,
        ready_replicas=status.ready_replicas,
        replicas=document["spec"].get("replicas", 1),
        guards=status.guards,
        conditions=status.conditions,
    )


def cells(row: PoolRow) -> list[str]:
    """A pool as a row of the table."""
    counts = f"{row.routable}/{row.ready_replicas}/{row.replicas}"
    why = "; ".join(part for part in (row.mode_reason, row.message) if part)
    epoch = "-" if row.epoch is None else str(row.epoch)
    return [row.name, row.mode or "-", row.ready, row.reason, epoch, counts, guards(row.guards), why]


def guards(found: Sequence[GuardStatus]) -> str:
    """Guards by liveness and version, such as `2 live (0.2.0), 1 silent (0.1.0)`."""
    counts = Counter((not guard.live, guard.version) for guard in found)
    named = (f"{count} {'silent' if silent else 'live'} ({version})" for (silent, version), count in sorted(counts.items()))
    return ", ".join(named) or "-"
