"""Verdicts on a resource, and how they are written: a status only when it says something new, an Event on each flip."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from cachescope.api.conditions import ConditionType, Reason
from cachescope.api.statuses import Condition
from cachescope.kube.events import post
from cachescope.kube.rest import Document, Rest
from cachescope.kube.statuses import conditions, write_status

_GOOD_WHEN_FALSE = frozenset({ConditionType.PROGRESSING, ConditionType.DEGRADED, ConditionType.GUARD_OUTDATED, ConditionType.HELD})
_EXPECTED_AT_FIRST = frozenset({Reason.NO_READY_POD, Reason.SCALED_TO_ZERO})
MAX_MESSAGE = 1024


@dataclass(frozen=True)
class Verdict:
    """What holds of a resource.

    Attributes:
        type: The condition.
        status: Whether it holds.
        reason: Why.
        message: For people.
    """

    type: ConditionType
    status: Literal["True", "False", "Unknown"]
    reason: Reason
    message: str = ""

    @property
    def warns(self) -> bool:
        """Whether somebody has to look."""
        return self.status == ("True" if self.type in _GOOD_WHEN_FALSE else "False") and self.type is not ConditionType.PROGRESSING


async def report(rest: Rest, live: Document, fields: Mapping[str, Any], verdicts: Sequence[Verdict]) -> bool:
    """Write a status, if it says something new, and post an Event for every condition that flipped.

    Args:
        rest: The API.
        live: The resource that it was made from.
        fields: The status without its conditions.
        verdicts: Its conditions.

    Returns:
        Whether it was written.
    """
    old = (live.get("status") or {}).get("conditions") or []
    generation = live["metadata"].get("generation", 0)
    made = conditions(old, [_condition(item, generation) for item in verdicts])
    written = await write_status(rest, live, {**fields, "observedGeneration": generation, "conditions": made})
    if written:
        for verdict in flipped(old, verdicts):
            level: Literal["Normal", "Warning"] = "Warning" if verdict.warns else "Normal"
            note = verdict.message or f"{verdict.type.value} is {verdict.status}"
            await post(rest, live, type=level, reason=verdict.reason.value, message=note, action=f"Set{verdict.type.value}")
    return written


def flipped(old: Iterable[Mapping[str, Any]], verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Verdicts whose status or reason is another than before. What every resource says at first is no news."""
    before = {item["type"]: (item["status"], item["reason"]) for item in old}
    changed = [item for item in verdicts if before.get(item.type.value) != (item.status, item.reason.value)]
    return [item for item in changed if item.type.value in before or (item.warns and item.reason not in _EXPECTED_AT_FIRST)]


def _condition(verdict: Verdict, generation: int) -> Condition:
    return Condition(
        type=verdict.type.value,
        status=verdict.status,
        observed_generation=generation,
        last_transition_time=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        reason=verdict.reason.value,
        message=verdict.message[:MAX_MESSAGE],
    )
