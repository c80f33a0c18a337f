"""How far a CacheEpoch is, as people read it: pure, from what the API server has.

A condition of an older generation of the spec says nothing of what was asked last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from cachescope.api.conditions import ConditionType, Reason
from cachescope.api.statuses import CacheEpochStatus, Condition, FenceCounts

COLUMNS = ("OPEN EPOCH", "TARGET", "INCIDENT", "EPOCH", "STATE", "WHY")
UNSEEN = "waiting for the operator to look at it"


class State(Enum):
    """What became of a CacheEpoch."""

    UNSEEN = "Unseen"
    FENCING = "Fencing"
    FENCED = "Fenced"
    UNCONFIRMED = "Unconfirmed"
    REFUSED = "Refused"
    HELD = "Held"

    @property
    def over(self) -> bool:
        """Whether waiting longer changes nothing."""
        return self not in (State.UNSEEN, State.FENCING)


@dataclass(frozen=True)
class Progress:
    """How far it is.

    Attributes:
        state: What became of it.
        line: The same in one line.
        epoch: The epoch that stands, or `None`.
        seconds: From the write of the ledger, or the start of the operator, to the fence, or `None`.
    """

    state: State
    line: str
    epoch: int | None = None
    seconds: float | None = None

    @property
    def result(self) -> str:
        """The last line of a command that waited for it."""
        if self.state is State.UNCONFIRMED:
            return f"the ledger has it (epoch {self.epoch}), and nobody is served before the restore is confirmed"
        if self.state is not State.FENCED:
            return self.line
        took = "" if self.seconds is None else f" in {self.seconds:.1f} s"
        return f"fenced{took} (epoch {self.epoch})"


class EpochRow(BaseModel):
    """A CacheEpoch that is not fenced."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)

    namespace: str
    name: str
    kind: str
    target: str
    incident: str
    epoch: int | None
    state: str
    message: str


def progress(document: Mapping[str, Any]) -> Progress:
    """How far a CacheEpoch is."""
    status = CacheEpochStatus.model_validate(document.get("status") or {})
    found = _conditions(document, status)
    accepted, held = found.get(ConditionType.ACCEPTED), found.get(ConditionType.HELD)
    if accepted is None:
        return Progress(State.UNSEEN, UNSEEN)
    if accepted.status != "True":
        return Progress(State.REFUSED, f"refused ({accepted.reason}): {accepted.message}")
    if held is not None and held.status == "True":
        return Progress(State.HELD, f"held ({held.reason}): {held.message}", status.epoch)
    return _fence(status, found.get(ConditionType.FENCED))


def is_open(document: Mapping[str, Any]) -> bool:
    """Whether something older may still be used, for all that its status says."""
    status = CacheEpochStatus.model_validate(document.get("status") or {})
    fenced = _conditions(document, status).get(ConditionType.FENCED)
    return fenced is None or fenced.status != "True"


def epoch_row(document: Mapping[str, Any]) -> EpochRow:
    """A CacheEpoch as a row."""
    metadata, spec, found = document["metadata"], document["spec"], progress(document)
    return EpochRow(
        namespace=metadata["namespace"],
        name=metadata["name"],
        kind=spec["target"].get("kind", "ServingPool"),
        target=spec["target"].get("name", ""),
        incident=(spec.get("incident") or {}).get("id", ""),
        epoch=found.epoch,
        state=found.state.value,
        message=found.line,
    )


def cells(row: EpochRow) -> list[str]:
    """A row of the table."""
    epoch = "-" if row.epoch is None else str(row.epoch)
    return [row.name, f"{row.kind} {row.target}".rstrip(), row.incident or "-", epoch, row.state, row.message]


def _conditions(document: Mapping[str, Any], status: CacheEpochStatus) -> dict[str, Condition]:
    generation = document["metadata"].get("generation", 1)
    return {item.type: item for item in status.conditions if item.observed_generation >= generation}


def _fence(status: CacheEpochStatus, fenced: Condition | None) -> Progress:
    if fenced is None:
        return Progress(State.FENCING, "accepted", status.epoch)
    if fenced.reason == Reason.RESTORE_UNCONFIRMED:
        return Progress(State.UNCONFIRMED, fenced.message, status.epoch)
    state = State.FENCED if fenced.status == "True" else State.FENCING
    line = "; ".join(part for part in (_counts("guards", status.guards), _counts("gateways", status.gateways)) if part)
    told = "; ".join(part for part in (line, fenced.message) if part)
    return Progress(state, f"epoch {status.epoch}: {told}", status.epoch, status.seconds)


def _counts(what: str, counts: FenceCounts | None) -> str:
    if counts is None or (counts.total == 0 and what == "gateways"):
        return ""  # a fence of a cache waits for no gateway
    left = counts.total - counts.acknowledged - counts.expired
    return f"{what} {counts.acknowledged} acknowledged, {counts.expired} expired, {left} left"
