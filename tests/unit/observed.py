"""Pods, Deployments, guards and gateways as the operator observes them, for the tests of what it says."""

from __future__ import annotations

from typing import Any

from cachescope.api.conditions import ConditionType
from cachescope.controller.lease_book import Life, Process
from cachescope.controller.lease_speakers import Speaker
from cachescope.controller.observed_pools import Observed
from cachescope.controller.pool_status import pool_conditions
from cachescope.controller.verdicts import Verdict
from cachescope.core.digests import sha256
from cachescope.core.leases import GATEWAY, GUARD, LeaseStatement
from cachescope.core.ledgers import Lineage, Mark
from cachescope.core.record import EngineDigests
from cachescope.kube.rest import Document
from cachescope.manifests.revisions import Revision
from tests.unit.pools import UID, pool


def pod(name: str = "p", *, ready: bool = True, **status: Any) -> Document:
    conditions = [{"type": "Ready", "status": str(ready)}, *status.pop("conditions", [])]
    metadata = {"name": name, "namespace": "models", "uid": f"uid-{name}"}
    return {"metadata": metadata, "status": {"conditions": conditions, **status}}


def deployment(asked: int = 1, **status: Any) -> Document:
    counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas", "readyReplicas"), asked)
    return {"metadata": {"generation": 3}, "spec": {"replicas": asked}, "status": {"observedGeneration": 3, **counts, **status}}


def guard(name: str = "p", life: Life = Life.LIVE, *, version: str = "0.1.0", boot: str = "b", says: str = "") -> Process:
    digests = EngineDigests(sha256(b"m"), sha256(b"t"), sha256(b"r"))
    seen = {UID: Mark(Lineage(1, "l"), 4, sha256(b"ledger"))}
    statement = LeaseStatement(
        GUARD, f"uid-{name}", boot, 7, 60_000, version, seen, pool_uid=UID, engine=digests, engine_version=says
    )
    return Process(f"lease-{name}", name, "", 60, 0, statement, Speaker(GUARD, "", UID, proven=True), life)


def gateway(*pods: str, life: Life = Life.LIVE) -> Process:
    routable = {UID: tuple(f"uid-{name}" for name in pods)}
    statement = LeaseStatement(GATEWAY, "uid-g", "b", 7, 60_000, "0.1.0", routable=routable)
    return Process("lease-g", "g", "", 60, 0, statement, Speaker(GATEWAY, proven=True), life)


def revision(guard_version: str = "0.1.0") -> Revision:
    return Revision("i", {}, "image", guard_version)


def observed(changes: Document | None = None, **seen: Any) -> Observed:
    """A pool with one pod, which serves."""
    defaults = {
        "deployment": deployment(),
        "pods": [pod()],
        "guards": [guard()],
        "gateways": [gateway("p")],
        "revision": revision(),
        "guard_version": "0.1.0",
        "home": "cachescope-system",
    }
    return Observed(pool(changes), **{**defaults, **seen})


def said(kind: ConditionType, changes: Document | None = None, **seen: Any) -> Verdict:
    """What is said of that pool."""
    return next(item for item in pool_conditions(observed(changes, **seen)) if item.type is kind)
