"""Statuses: written only when they say something new, under the version that they were made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cachescope.core.labels import FIELD_MANAGER
from cachescope.kube.kinds import path_of
from cachescope.kube.rest import Document, Rest


class ConditionLike(Protocol):
    """A condition with the time of now; `cachescope.api.statuses.Condition` is one."""

    @property
    def type(self) -> str: ...  # noqa: D102 - as in `metav1.Condition`

    @property
    def status(self) -> str: ...  # noqa: D102

    @property
    def observed_generation(self) -> int: ...  # noqa: D102

    @property
    def last_transition_time(self) -> str: ...  # noqa: D102

    @property
    def reason(self) -> str: ...  # noqa: D102

    @property
    def message(self) -> str: ...  # noqa: D102


def conditions(old: Sequence[Mapping[str, Any]], wanted: Sequence[ConditionLike]) -> list[dict[str, Any]]:
    """All conditions as they are written: one that keeps its status keeps the time since when it has it.

    Args:
        old: Those in the status now.
        wanted: Those that hold, each with the time of now (RFC 3339). What is not among them goes.
    """
    known = {item["type"]: item for item in old}
    return [_condition(known.get(item.type), item) for item in wanted]


async def write_status(rest: Rest, live: Document, status: Mapping[str, Any]) -> bool:
    """Write a status, if it differs from the one that is there.

    Args:
        rest: The API.
        live: The resource that the status was made from.
        status: The whole status; a field that is `None` is left out.

    Returns:
        Whether the API server took something new.

    Raises:
        ConflictError: The resource changed since; its event brings the next attempt.
        ApiError: The API server refused, or did not answer.
    """
    wanted = _without_nulls(status)
    if wanted == live.get("status", {}):
        return False
    # Replaced whole, under the version: a merge would leave what a newer operator wrote, and let an old leader write over a new.
    written = await rest.replace(f"{path_of(live)}/status", {**live, "status": wanted}, fieldManager=FIELD_MANAGER)
    return bool(written["metadata"]["resourceVersion"] != live["metadata"]["resourceVersion"])


def _condition(old: Mapping[str, Any] | None, new: ConditionLike) -> dict[str, Any]:
    unchanged = old is not None and old.get("status") == new.status
    return {
        "type": new.type,
        "status": new.status,
        "observedGeneration": new.observed_generation,
        "lastTransitionTime": old["lastTransitionTime"] if old is not None and unchanged else new.last_transition_time,
        "reason": new.reason,
        "message": new.message,
    }


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, Mapping):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_without_nulls(item) for item in value]
    return value
