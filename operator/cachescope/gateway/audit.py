"""The audit line and the metrics of decisions. Neither ever holds a prompt, a salt, a credential or a tenant's name."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter

from cachescope.core.classes import Reason
from cachescope.core.endpoints import pool_key
from cachescope.core.handles import Outcome
from cachescope.core.permits import Permit
from cachescope.core.types import Reuse
from cachescope.gateway.binding import Asker
from cachescope.gateway.exchange import Answer, RequestHead

log = logging.getLogger("cachescope.audit")

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Told:
    """What is told of a request beside its permit; all of it from fixed lists.

    Attributes:
        stripped: Names of fields that were removed.
        reasons: Which rules made its class what it is.
        context: Whether a trusted application said what it is made of.
        handle: What became of the handle that came with it, if one did.
    """

    stripped: Sequence[str] = ()
    reasons: Sequence[Reason] = ()
    context: bool = False
    handle: Outcome | None = None


class Audit:
    """Tells what was decided.

    Args:
        registry: Where the metrics are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._forwarded = Counter(
            "cachescope_requests_forwarded",
            "Requests sent to an engine with a permit.",
            ["pool_namespace", "pool", "scope_class"],
            registry=registry,
        )
        self._answered = Counter(
            "cachescope_requests_answered", "Requests that the gateway answered itself.", ["status", "reason"], registry=registry
        )
        self._stripped = Counter(
            "cachescope_fields_stripped", "Client fields removed because they could choose a cache.", ["field"], registry=registry
        )
        self._handles = Counter(
            "cachescope_handles_presented",
            "Handles that came with requests, by what became of them.",
            ["outcome"],
            registry=registry,
        )

    def forwarded(self, request_id: str, path: str, asker: Asker, permit: Permit, told: Told) -> None:
        """A request goes upstream."""
        self._forwarded.labels(asker.pool.namespace, asker.pool.name, permit.scope.value).inc()
        for name in told.stripped:
            self._stripped.labels(name).inc()
        if told.handle is not None:
            self._handles.labels(told.handle.value).inc()
        log.info(
            "forwarded",
            extra={
                "request_id": request_id,
                "path": path,
                "pool": pool_key(asker.pool.namespace, asker.pool.name),
                "pod_uid": permit.pod_uid,
                "scope_class": permit.scope.value,
                "reuse": permit.reuse.value,
                "scope_uid": asker.scope.uid,
                "policy_revision": asker.scope.policy_revision,
                "reasons": [reason.value for reason in told.reasons],
                "by_application": told.context,
                "handle": told.handle.value if told.handle else None,
                "namespace_digest": short(asker.namespace),
                "record_digest": permit.record_digest,
                "assigned_by": "nobody" if permit.reuse is Reuse.NONE else "cachescope-gateway",
            },
        )

    def answered(self, verdict: Answer, request_id: str, path: str) -> None:
        """The gateway answered itself; `path` is empty where the route is none that is known: it may hold anything."""
        self._answered.labels(str(verdict.status), verdict.reason).inc()
        log.info("answered", extra={"request_id": request_id, "path": path, "status": verdict.status, "reason": verdict.reason})


def request_id(head: RequestHead) -> str:
    """The id of a request, as far as it is one: what a client writes there goes into logs."""
    given = head.one("x-request-id") or ""
    return given if _REQUEST_ID.fullmatch(given) else ""


def short(namespace: str) -> str:
    """A short digest of a namespace: enough to compare two lines, too little to name a cache."""
    return hashlib.sha256(namespace.encode()).hexdigest()[:12]
