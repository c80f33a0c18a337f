"""The status of a template: what its tenants' pools say, as one: values in, values out.

Rules:

- it is `Ready` when the engines of each tenant that it serves are, or rest because nobody asks them;
- what is wrong with one of them is said with its name, and with how many tenants are served all the same;
- tenants that get no engines are said, with the remedy;
- a fence is complete once it is in every pool.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cachescope.api.conditions import SAID, ConditionType, Reason
from cachescope.controller.dedicated_pools import rests, serves, unfinished
from cachescope.controller.isolation_plans import Plan
from cachescope.controller.isolation_verdicts import one_cache_per_pod
from cachescope.controller.observed_pools import Observed
from cachescope.controller.pool_status import fenced, kept, pool_status
from cachescope.controller.readiness import name_taken
from cachescope.controller.verdicts import Verdict
from cachescope.kube.rest import Document

_SUMMED = ("replicas", "readyReplicas", "routable")
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Members:
    """The pools of a template.

    Attributes:
        plan: Which there are to be.
        pools: Which there are, by name.
    """

    plan: Plan
    pools: Sequence[Document]

    @property
    def waiting(self) -> list[str]:
        """Names of those that are to be there, and neither serve nor rest."""
        return unfinished(self.pools, self.plan.served)

    def said(self, kind: ConditionType) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """What those that are to be there say of something, with their names."""
        for pool in self.pools:
            if pool["metadata"]["name"] in self.plan.served:
                conditions = (pool.get("status") or {}).get("conditions") or ()
                yield from ((pool["metadata"]["name"], item) for item in conditions if item.get("type") == kind.value)


def template_status(seen: Observed, pools: Sequence[Document]) -> dict[str, Any]:
    """The status without its conditions, of a template or of what was one: numbers are those of all pools together.

    Args:
        seen: What is known of it.
        pools: Those that were made of it.
    """
    own, before = pool_status(seen), kept(seen)
    counts = {name: own.get(name, 0) + sum(_count(pool, name) for pool in pools) for name in _SUMMED if name not in before}
    return {**own, **counts}


def template_conditions(seen: Observed, members: Members) -> list[Verdict]:
    """What holds of a template."""
    shown = [one_cache_per_pod()] if seen.deployment is None else []
    own = [_ready(seen, members), _progressing(seen, members), _degraded(seen, members)]
    return [*own, *shown, *fenced(seen), _guard_outdated(members)]


def _count(pool: Document, name: str) -> int:
    return int((pool.get("status") or {}).get(name) or 0)


def _ready(seen: Observed, members: Members) -> Verdict:
    if seen.fault is not None and not members.pools:
        return Verdict(ConditionType.READY, "False", seen.fault.reason, seen.fault.message)
    if seen.elder is not None and seen.elder.everywhere:
        return Verdict(ConditionType.READY, "False", Reason.MODEL_NAME_TAKEN, name_taken(seen))
    if not members.plan.served:
        message = "it has engines for no tenant; create a Tenant that isolation.tenants selects, or see Degraded"
        return Verdict(ConditionType.READY, "False", Reason.NO_TENANTS, message)
    if members.waiting:
        message = f"{_served(members)}; not those of {_names(members.waiting)}: see their status"
        return Verdict(ConditionType.READY, "False", Reason.TENANTS_NOT_READY, message)
    return Verdict(ConditionType.READY, "True", Reason.ROUTABLE, _served(members))


def _served(members: Members) -> str:
    """How many tenants are served. Who rests is served at the next request."""
    mine = [pool for pool in members.pools if pool["metadata"]["name"] in members.plan.served]
    routed, resting = sum(map(serves, mine)), sum(rests(pool) and not serves(pool) for pool in mine)
    told = f"{routed} of {len(members.plan.served)} tenants have engines that are routed to"
    return f"{told}, {resting} get theirs with their next request" if resting else told


def _progressing(seen: Observed, members: Members) -> Verdict:
    missing = members.plan.served.keys() - {pool["metadata"]["name"] for pool in members.pools}
    if missing:
        message = f"{len(missing)} pools of tenants are not made yet, {_names(sorted(missing))}"
        return Verdict(ConditionType.PROGRESSING, "True", Reason.ROLLING_OUT, message)
    if seen.deployment is not None:
        whose = _names(members.waiting) or "all tenants"
        message = f"the pool's own engines stay until every gateway routes to those of {whose}"
        return Verdict(ConditionType.PROGRESSING, "True", Reason.ROLLING_OUT, message)
    for name, item in members.said(ConditionType.PROGRESSING):
        if item.get("status") == "True":
            return Verdict(ConditionType.PROGRESSING, "True", Reason.ROLLING_OUT, f"{name}: {item.get('message', '')}")
    return Verdict(
        ConditionType.PROGRESSING, "False", Reason.ROLLED_OUT, "all engine pods of all tenants are of the newest template"
    )


def _degraded(seen: Observed, members: Members) -> Verdict:
    for reason, message in _faults(seen, members):
        if message:
            return Verdict(ConditionType.DEGRADED, "True", reason, message)
    return Verdict(ConditionType.DEGRADED, "False", Reason.HEALTHY, "")


def _faults(seen: Observed, members: Members) -> Iterator[tuple[Reason, str]]:
    if seen.fault is not None:
        yield seen.fault.reason, seen.fault.message
    for name, item in members.said(ConditionType.DEGRADED):
        if item.get("status") == "True":
            yield _reason(item, Reason.FEWER_THAN_ASKED), f"{_served(members)}; {name}: {_of_tenant(seen, item)}"
    yield Reason.TOO_MANY_TENANTS, _unserved(seen, members)
    yield Reason.MODEL_NAME_TAKEN, name_taken(seen)
    yield Reason.OTHER_NAMESPACES, _others(seen)


def _of_tenant(seen: Observed, item: Mapping[str, Any]) -> str:
    """What is wrong with one tenant's engines; GPUs that the pool's own still have are free once those go."""
    message = str(item.get("message", ""))
    if seen.deployment is None or item.get("reason") not in (Reason.UNSCHEDULABLE, Reason.NO_SPARE_GPU):
        return message
    return (
        f"{message}. The pool's own engines stay until all tenants have theirs; with rollout.strategy InPlace they go first, "
        "and nobody is served meanwhile"
    )


def _unserved(seen: Observed, members: Members) -> str:
    left = members.plan.unserved
    if not left:
        return ""
    most = seen.pool.spec.isolation.max_isolated_pools
    return (
        f"{len(left)} tenants get no engines and are not served, {_names(left)}; {most} others do: raise "
        "isolation.maxIsolatedPools, or select fewer by isolation.tenants"
    )


def _others(seen: Observed) -> str:
    labels = seen.pool.spec.allowed_tenants.namespaces.match_labels
    if not labels or not seen.shared:
        return ""
    return (
        "tenants of other namespaces are not served: engines are made for tenants of the pool's own namespace alone; take "
        "allowedTenants away, and give each of these namespaces a pool"
    )


def _guard_outdated(members: Members) -> Verdict:
    for name, item in members.said(ConditionType.GUARD_OUTDATED):
        if item.get("status") == "True":
            reason = _reason(item, Reason.OLD_GUARD_RUNNING)
            return Verdict(ConditionType.GUARD_OUTDATED, "True", reason, f"{name}: {item.get('message', '')}")
    return Verdict(ConditionType.GUARD_OUTDATED, "False", Reason.GUARDS_CURRENT, "")


def _reason(item: Mapping[str, Any], otherwise: Reason) -> Reason:
    """The reason of a pool's condition; a newer operator may have had others."""
    said = {reason.value for kind, status, reason in SAID if (kind.value, status) == (item["type"], item["status"])}
    return Reason(item["reason"]) if item.get("reason") in said else otherwise


def _names(names: Sequence[str]) -> str:
    """Some names: the first ones stay the same while nothing changes."""
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
