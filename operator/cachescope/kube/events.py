"""Events of Kubernetes: what happened, for people, and never a flood.

Rules:

- the same reason and message of an object is one Event, whose count is raised at most every ten minutes;
- after an hour without it, it is a new Event (the API server has dropped the old one by then);
- an Event that cannot be posted is logged once and hinders nothing.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary

from cachescope.core.errors import ClusterError
from cachescope.core.labels import FIELD_MANAGER
from cachescope.kube.kinds import collection_of
from cachescope.kube.rest import ConflictError, Document, NotFoundError, Rest

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 600.0
FORGET_SECONDS: Final = 3600.0
MAX_NOTE_BYTES: Final = 1024
_REMEMBERED: Final = 10_000
_CONTROLLER: Final = "cachescope.dev/operator"


@dataclass
class _Posted:
    at: float
    count: int


class Recorder:
    """Posts the Events of one process.

    Args:
        rest: The API.
        clock: Seconds of a clock that only goes forward.
    """

    def __init__(self, rest: Rest, clock: Callable[[], float] = time.monotonic) -> None:
        self._rest = rest
        self._clock = clock
        self._posted: OrderedDict[str, _Posted] = OrderedDict()

    async def post(self, regarding: Document, *, type: str, reason: str, message: str, action: str) -> None:
        """Post an Event, or count it; see `post`."""
        event = _event(regarding, type=type, reason=reason, message=message, action=action)
        name, now = event["metadata"]["name"], self._clock()
        known = self._posted.get(name)
        if known is not None and now - known.at >= FORGET_SECONDS:
            known = None
        seen = known or _Posted(now - AGAIN_SECONDS, 0)
        seen.count += 1
        self._posted[name] = seen
        if len(self._posted) > _REMEMBERED:
            self._posted.popitem(last=False)
        if now - seen.at < AGAIN_SECONDS:
            return
        # Noted before it is sent: what fails is not tried with every pass.
        seen.at = now
        try:
            await self._send(event, seen)
        except ClusterError as error:
            log.warning("event not posted", extra={"reason": reason, "fault": str(error)})

    async def _send(self, event: dict[str, Any], seen: _Posted) -> None:
        path = collection_of("Event", event["metadata"]["namespace"])
        if seen.count == 1:
            try:
                await self._rest.create(path, event, fieldManager=FIELD_MANAGER)
            except ConflictError:
                # Posted by a process before this one.
                there = await self._rest.get(f"{path}/{event['metadata']['name']}")
                seen.count += int((there.get("series") or {}).get("count", 1))
            else:
                return
        series = {"count": seen.count, "lastObservedTime": _now()}
        try:
            await self._rest.merge(f"{path}/{event['metadata']['name']}", {"series": series}, fieldManager=FIELD_MANAGER)
        except NotFoundError:
            seen.count = 1
            await self._rest.create(path, event, fieldManager=FIELD_MANAGER)


_RECORDERS: WeakKeyDictionary[Rest, Recorder] = WeakKeyDictionary()


async def post(
    rest: Rest,
    regarding: Document,
    *,
    type: Literal["Normal", "Warning"],
    reason: str,
    message: str,
    action: str,
) -> None:
    """Post an Event of an object; the same one again within ten minutes is only counted.

    Args:
        rest: The API; what was posted through it is remembered as long as it lives.
        regarding: The object, with kind, name, namespace and UID.
        type: Whether somebody has to look.
        reason: One of `cachescope.api.conditions.Reason`, or another word in CamelCase.
        message: For people; cut at 1,024 bytes.
        action: What was done or tried, in CamelCase.
    """
    recorder = _RECORDERS.setdefault(rest, Recorder(rest))
    await recorder.post(regarding, type=type, reason=reason, message=message, action=action)


def _event(regarding: Mapping[str, Any], *, type: str, reason: str, message: str, action: str) -> dict[str, Any]:
    meta = regarding["metadata"]
    identity = hashlib.sha256("\0".join((meta["uid"], type, reason, action, message)).encode()).hexdigest()[:16]
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name'][:236]}.{identity}", "namespace": meta["namespace"]},
        "eventTime": _now(),
        "type": type,
        "reason": reason,
        "action": action,
        "note": message.encode()[:MAX_NOTE_BYTES].decode(errors="ignore"),
        "reportingController": _CONTROLLER,
        "reportingInstance": os.environ.get("HOSTNAME", "operator")[:128],
        "regarding": {
            "apiVersion": regarding["apiVersion"],
            "kind": regarding["kind"],
            **{name: meta[name] for name in ("name", "namespace", "uid")},
        },
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
