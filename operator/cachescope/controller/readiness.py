"""Whether a pool is `Ready`, and which of all that has to come together is missing: values in, one verdict out.

A pool is `Ready` only when a live gateway says that it routes to one of its pods: whatever else looks well is no proof.
"""

from __future__ import annotations

from cachescope.api.conditions import ConditionType, Reason
from cachescope.controller import pod_faults
from cachescope.controller.observed_pools import Observed, older
from cachescope.controller.verdicts import Verdict
from cachescope.core.labels import COMPONENT_LABEL, GATEWAY, POOL_LABEL

_OF_LEASES = {
    reason.value: reason
    for reason in (Reason.NO_GATEWAY, Reason.GUARD_WITHOUT_LEASE, Reason.GUARD_TOO_OLD, Reason.GUARD_NOT_PROVEN)
}


def readiness(seen: Observed) -> Verdict:
    """The verdict."""
    if seen.invalid:
        return _not_ready(Reason.INVALID_SPEC, seen.invalid)
    if seen.fault and seen.fault.reason is Reason.ROOT_KEYS_MISSING:
        return Verdict(ConditionType.READY, "Unknown", Reason.ROOT_KEYS_MISSING, f"no lease can be verified: {seen.fault.message}")
    if seen.elder and seen.elder.everywhere:
        return _not_ready(Reason.MODEL_NAME_TAKEN, name_taken(seen))
    if seen.routable:
        return Verdict(ConditionType.READY, "True", Reason.ROUTABLE, f"{seen.routable} of {seen.asked} engine pods are routed to")
    return _hindered(seen) or _without_pods(seen) or _unrouted(seen)


def name_taken(seen: Observed) -> str:
    """Who serves the model's name or those of adapters first, and what to do; empty for nobody else."""
    if seen.elder is None:
        return _adapters_taken(seen)
    whose = "their requests" if seen.elder.everywhere else "the requests of this namespace's tenants"
    return (
        f"the model name {seen.pool.spec.model.name!r} is served by the older pool {seen.elder.name!r} of this namespace, "
        f"which gets {whose}; change spec.model.name, or delete one of the two pools"
    )


def _adapters_taken(seen: Observed) -> str:
    if not seen.elders_of_adapters:
        return ""
    who = ", ".join(f"{name!r} by {elder!r}" for name, elder in sorted(seen.elders_of_adapters.items()))
    return (
        f"older pools of this namespace serve names of adapters, at least to its tenants: {who}; "
        "rename these in spec.engine.adapters, or take them out of one of the two pools"
    )


def _hindered(seen: Observed) -> Verdict | None:
    """What keeps the pool from being made. A cluster that fails for a while is no reason where there are pods."""
    fault = seen.fault
    if fault is None or (fault.reason is Reason.CLUSTER_ERROR and seen.deployment is not None):
        return None
    return _not_ready(fault.reason, fault.message)


def _without_pods(seen: Observed) -> Verdict | None:
    if seen.asked == 0 and (whose := seen.pool.spec.dedicated_to):
        message = (
            f"nobody asked its engines for a while; the next request starts them, unless the pool {whose.pool_name} asks for 0"
        )
        return _not_ready(Reason.SCALED_TO_ZERO, message)
    if seen.asked == 0:
        return _not_ready(Reason.SCALED_TO_ZERO, "no engine pods are asked for; raise spec.replicas to serve")
    if seen.ready:
        return None
    if name := pod_faults.first(seen.pods):
        look = f"`kubectl describe pod {name} -n {seen.pool.namespace}`"
        return _not_ready(
            Reason.NO_READY_POD, f"none of {seen.asked} engine pods is ready, {name} for one; see Degraded, and {look}"
        )
    look = f"`kubectl describe replicasets -n {seen.pool.namespace} -l {POOL_LABEL}={seen.pool.name}`"
    return _not_ready(Reason.NO_READY_POD, f"none of {seen.asked} engine pods is there; see Degraded, and {look}")


def _unrouted(seen: Observed) -> Verdict:
    """Why gateways do not route to the ready pods."""
    said = seen.said(ConditionType.READY)
    if seen.unsettled and said.get("reason") in _OF_LEASES:
        # The operator has just begun: what it said before is better than what it cannot know yet.
        return _not_ready(_OF_LEASES[said["reason"]], str(said.get("message", "")))
    ready = f"{seen.ready} engine pods are ready"
    if not seen.gateways:
        look = f"`kubectl get pods -n {seen.home} -l {COMPONENT_LABEL}={GATEWAY}`"
        return _not_ready(Reason.NO_GATEWAY, f"{ready} and no gateway holds a live lease; see {look}, and their logs")
    if not seen.ready_guards:
        look = f"`kubectl logs -n {seen.pool.namespace} -l {POOL_LABEL}={seen.pool.name} -c engine`"
        message = f"{ready} and no guard in them holds a live lease; can it reach the API server? See {look}"
        return _not_ready(Reason.GUARD_WITHOUT_LEASE, message)
    return _too_old(seen) or _not_ready(
        Reason.GUARD_NOT_PROVEN,
        f"{ready} and no gateway routes to one yet; /readyz of a gateway pod (namespace {seen.home}) names the reason for each",
    )


def _too_old(seen: Observed) -> Verdict | None:
    minimum, versions = seen.minimum_guard, {item.statement.version for item in seen.ready_guards if item.statement}
    if minimum is None or not all(older(version, minimum) for version in versions):
        return None
    message = (
        f"the guards are {', '.join(sorted(versions))}, and the installation takes {minimum} or newer (minimumGuardVersion); "
        "set spec.rollout.guardUpdates to Now"
    )
    return _not_ready(Reason.GUARD_TOO_OLD, message)


def _not_ready(reason: Reason, message: str) -> Verdict:
    return Verdict(ConditionType.READY, "False", reason, message)
