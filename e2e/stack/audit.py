"""The API server's audit log: who wrote what; only where its process is ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from e2e.stack.paths import LAYOUT

LOG = LAYOUT.log / "audit.log"


@dataclass(frozen=True, slots=True)
class Write:
    """One write that the API server carried out.

    Attributes:
        user: Who asked.
        verb: create, update, patch, delete or deletecollection.
        resource: Plural of the kind, with its subresource.
        name: Name of the object.
    """

    user: str
    verb: str
    resource: str
    name: str


def position() -> int:
    """Where the log ends now."""
    return LOG.stat().st_size


def writes(since: int, user: str) -> Iterator[Write]:
    """What a user wrote after that position.

    Raises:
        RuntimeError: The log was rotated meanwhile: nothing can be said.
    """
    if position() < since:
        raise RuntimeError(f"{LOG} was rotated meanwhile; run the test again")
    with LOG.open("rb") as log:
        log.seek(since)
        events = [json.loads(line) for line in log if line.endswith(b"\n")]
    for event in events:  # whoever could not be authenticated has no name
        if event["user"].get("username") == user and event.get("responseStatus", {}).get("code", 0) < 400:
            yield _write(event)


def _write(event: dict[str, Any]) -> Write:
    target = event["objectRef"]
    resource = "/".join(filter(None, (target["resource"], target.get("subresource"))))
    return Write(event["user"]["username"], event["verb"], resource, target.get("name", ""))
