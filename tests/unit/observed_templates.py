"""Templates and the pools of their tenants as the operator observes them, for the tests of what a template says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cachescope.api.isolation import DedicatedTo
from cachescope.controller.isolation_plans import Plan
from cachescope.controller.observed_pools import Observed
from cachescope.controller.template_status import Members, template_conditions
from cachescope.controller.verdicts import Verdict
from cachescope.kube.rest import Document
from tests.unit.observed import observed
from tests.unit.pools import UID

PER_TENANT: Document = {"mode": "PerTenant"}
NO_ENGINES: Document = {"deployment": None, "pods": [], "guards": [], "gateways": [], "revision": None}


def of_tenant(tenant: str, *said: Document, replicas: int = 1, **status: Any) -> Document:
    """The pool of a tenant, with what it says beside its `Ready`."""
    whose = {"poolName": "tiny", "poolUid": UID, "tenantName": tenant, "tenantUid": f"tenant-uid-{tenant}"}
    metadata = {"name": f"tiny-{tenant}", "namespace": "models", "uid": f"pool-uid-{tenant}", "generation": 4}
    conditions = list({item["type"]: item for item in (saying("Ready", "True", "Routable"), *said)}.values())
    return {
        "metadata": metadata,
        "spec": {"replicas": replicas, "dedicatedTo": whose},
        "status": {"replicas": 1, "readyReplicas": 1, "routable": 1, "conditions": conditions, **status},
    }


def saying(kind: str, status: str, reason: str, message: str = "as it is", generation: int = 4) -> Document:
    """A condition."""
    return {"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": generation}


def members(*pools: Document, missing: Sequence[str] = (), unserved: Sequence[str] = ()) -> Members:
    """These pools, and names of those that are to be there and are not yet."""
    served = {item["metadata"]["name"]: DedicatedTo.model_validate(item["spec"]["dedicatedTo"]) for item in pools}
    later = [of_tenant(name) for name in missing]
    served |= {item["metadata"]["name"]: DedicatedTo.model_validate(item["spec"]["dedicatedTo"]) for item in later}
    return Members(Plan(served, unserved), pools)


def template(changes: Document | None = None, **seen: Any) -> Observed:
    """A template without engines of its own."""
    return observed({"isolation": PER_TENANT, **(changes or {})}, **{**NO_ENGINES, **seen})


def of_template(*tenants: str, unserved: Sequence[str] = (), changes: Document | None = None, **said: Any) -> list[Verdict]:
    """What a template says whose tenants' pools, if any, say no more than that they come up."""
    starts = saying("Ready", "False", "NoReadyPod")
    pools = [of_tenant(name, starts, **said) for name in tenants]
    return template_conditions(template(changes), members(*pools, unserved=unserved))
