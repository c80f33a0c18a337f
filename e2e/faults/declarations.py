"""CacheEpochs of tests, and what they say."""

from __future__ import annotations

from typing import Any

from cachescope.api.conditions import ConditionType
from e2e.stack import api, kubectl
from e2e.stack.tenancy import object_of

POOL = "pool"
FENCED = ConditionType.FENCED.value


def rollback_of(name: str, **incident: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of any kind
    """A CacheEpoch that rolls the pool forward once."""
    told = {"id": name, "reason": "fault test", **incident}
    return object_of("CacheEpoch", name, {"target": {"kind": "ServingPool", "name": POOL}, "incident": told})


def denial_of(name: str, tenant: str) -> dict[str, Any]:
    """A CacheEpoch that denies a tenant."""
    target = {"kind": "Tenant", "name": tenant}
    return object_of("CacheEpoch", name, {"target": target, "incident": {"id": name, "reason": "fault test"}, "deny": True})


def is_true(namespace: str, name: str, condition: str) -> bool:
    """Whether a CacheEpoch has a condition; not while the API server does not answer."""
    found = _found(name, namespace)
    return found is not None and kubectl.condition(found, condition).get("status") == "True"


def status_of(namespace: str, name: str) -> dict[str, Any] | None:
    """The status of a CacheEpoch that is fenced; `None` while it is not, and while the API server does not answer."""
    found = _found(name, namespace)
    if found is None or kubectl.condition(found, FENCED).get("status") != "True":
        return None
    status: dict[str, Any] = found["status"]
    return status


def _found(name: str, namespace: str) -> dict[str, Any] | None:
    try:
        return api.get("cacheepochs", name, namespace)
    except api.UnreadError:
        return None
