"""Verdicts on a resource, and how they are written: a status only when it says something new, an Event on each flip."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from cachescope.api.conditions import SAID, ConditionType, Reason, State
from cachescope.api.documents import AnyResource, parse
from cachescope.api.statuses import Condition
from cachescope.core.errors import SpecError
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
    status: State
    reason: Reason
    message: str = ""

    def __post_init__(self) -> None:
        """Say nothing that the reference does not explain."""
        if (self.type, self.status, self.reason) not in SAID:
            raise RuntimeError(f"{self.type} is never {self.status} {self.reason}; add it to `SAID` and to the reference")

    @property
    def warns(self) -> bool:
        """Whether somebody has to look."""
        good = "False" if self.type in _GOOD_WHEN_FALSE else "True"
        return self.status != good and self.type is not ConditionType.PROGRESSING


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


async def accepted_spec(rest: Rest, kind: type[AnyResource], document: Document) -> AnyResource | None:
    """A resource as it is declared; `None` for one that cannot be read, which is said, while what it has stays its own.

    Args:
        rest: The API.
        kind: Its kind.
        document: It.

    Raises:
        ClusterError: The verdict could not be written.
    """
    try:
        return parse(kind, document, f"{kind.KIND} {document['metadata']['name']}")
    except SpecError as error:
        verdict = Verdict(ConditionType.ACCEPTED, "False", Reason.INVALID_SPEC, str(error))
        await report(rest, document, fields_of(document), [verdict])
        return None


def fields_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The status without its conditions, as it is."""
    return {name: value for name, value in (document.get("status") or {}).items() if name != "conditions"}


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
