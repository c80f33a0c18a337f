"""The status of a pool, made from what was observed: values in, values out.

A pool is `Ready` only when a live gateway says that it routes to one of its pods: whatever else looks well is no proof.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packaging.version import InvalidVersion, Version

from cachescope.api.conditions import ConditionType, Reason
from cachescope.api.pools import ServingPool
from cachescope.api.statuses import EngineStatus, GuardStatus, RouteStatus, ServingPoolStatus
from cachescope.controller import pod_faults
from cachescope.controller.lease_book import Process
from cachescope.controller.verdicts import Verdict
from cachescope.engines.routes import Capability
from cachescope.engines.vllm import ROUTES, capability
from cachescope.kube.rest import Document
from cachescope.manifests.children import engine_selector
from cachescope.manifests.revisions import Revision


@dataclass(frozen=True)
class Observed:
    """What is known of a pool.

    Attributes:
        pool: The pool.
        deployment: Its Deployment.
        pods: Its engine pods.
        guards: Its guards, one a pod.
        routed: UIDs of the pods that a live gateway routes to.
        epoch: The epoch that stands.
        revision: The pod template in use.
        guard_version: The installation's guard.
        elder: Another pool of the namespace that serves the model's name first.
        fault: What the cluster refused, or could not do.
    """

    pool: ServingPool
    deployment: Document | None = None
    pods: Sequence[Document] = ()
    guards: Sequence[Process] = ()
    routed: frozenset[str] = frozenset()
    epoch: int | None = None
    revision: Revision | None = None
    guard_version: str = ""
    elder: str = ""
    fault: str = ""
    _ready: list[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Find the ready pods once."""
        object.__setattr__(self, "_ready", [pod["metadata"]["uid"] for pod in self.pods if pod_faults.ready(pod)])

    @property
    def ready(self) -> int:
        """Number of ready pods."""
        return len(self._ready)

    @property
    def routable(self) -> int:
        """Number of ready pods that a gateway routes to."""
        return len(self.routed.intersection(self._ready))

    def count(self, name: str) -> int:
        """A number of the Deployment's status."""
        return int(((self.deployment or {}).get("status") or {}).get(name) or 0)

    @property
    def asked(self) -> int:
        """Pods that are asked for."""
        found = ((self.deployment or {}).get("spec") or {}).get("replicas")
        return self.pool.spec.replicas if found is None else int(found)


def pool_status(seen: Observed) -> dict[str, Any]:
    """The status without its conditions."""
    mode, why = _mode(seen.pool)
    pods = {pod["metadata"]["uid"] for pod in seen.pods}
    guards = [guard for guard in seen.guards if guard.statement and guard.statement.pod_uid in pods]
    status = ServingPoolStatus(
        observed_generation=seen.pool.metadata.generation,
        mode=mode,
        mode_reason=why,
        epoch=seen.epoch,
        replicas=seen.count("replicas"),
        ready_replicas=seen.count("readyReplicas"),
        routable=seen.routable,
        selector=",".join(f"{name}={value}" for name, value in sorted(engine_selector(seen.pool).items())),
        routes=_routes(seen.pool),
        engines=_engines(guards),
        guards=tuple(_guard(guard) for guard in guards),
    )
    return status.model_dump(mode="json", by_alias=True, exclude={"conditions"}, exclude_none=True)


def pool_conditions(seen: Observed) -> list[Verdict]:
    """What holds of a pool."""
    return [_ready(seen), _progressing(seen), _degraded(seen), _guard_outdated(seen)]


def invalid(fault: str) -> list[Verdict]:
    """What holds of a pool whose spec cannot be obeyed; its children stay as they were."""
    return [Verdict(ConditionType.READY, "False", Reason.INVALID_SPEC, fault)]


def _mode(pool: ServingPool) -> tuple[Any, str]:
    found = capability(pool.spec.engine.version)
    engine = f"{pool.spec.engine.type} {pool.spec.engine.version}"
    if found is Capability.ENFORCED:
        return "Shared", f"{engine} enforces the salt of every request on all routes that are served"
    return "", f"what {engine} does with salts is {found.value}, so no request is routed; use a version that enforces them"


def _routes(pool: ServingPool) -> tuple[RouteStatus, ...]:
    found = capability(pool.spec.engine.version)
    return tuple(RouteStatus(route=path, capability=found.value) for _, path in sorted(ROUTES))


def _engines(guards: Sequence[Process]) -> tuple[EngineStatus, ...]:
    found = {guard.statement.engine for guard in guards if guard.live and guard.statement and guard.statement.engine}
    digests = sorted((item.model, item.tokenizer, item.runtime) for item in found)
    return tuple(EngineStatus(model=model, tokenizer=tokenizer, runtime=runtime) for model, tokenizer, runtime in digests)


def _guard(guard: Process) -> GuardStatus:
    statement = guard.statement
    if statement is None:
        raise RuntimeError("a guard without a statement is none; filter them first")
    seen = statement.heads.get(statement.pool_uid)
    return GuardStatus(pod=guard.pod, version=statement.version, sequence=seen.sequence if seen else 0, live=guard.live)


def _ready(seen: Observed) -> Verdict:
    asked = seen.asked
    if seen.routable:
        return Verdict(ConditionType.READY, "True", Reason.ROUTABLE, f"{seen.routable} of {asked} engine pods are routed to")
    if asked == 0:
        return _not_ready(Reason.SCALED_TO_ZERO, "no engine pods are asked for; raise spec.replicas to serve")
    if not seen.ready:
        return _not_ready(Reason.NO_READY_POD, f"none of {asked} engine pods is ready; see Degraded and the pods")
    return _not_ready(
        Reason.GUARD_NOT_PROVEN,
        f"{seen.ready} engine pods are ready and no live gateway routes to one; see whether gateways run, and their logs",
    )


def _not_ready(reason: Reason, message: str) -> Verdict:
    return Verdict(ConditionType.READY, "False", reason, message)


def _progressing(seen: Observed) -> Verdict:
    if _rolled_out(seen):
        return Verdict(ConditionType.PROGRESSING, "False", Reason.ROLLED_OUT, "all engine pods are of the newest template")
    message = (
        f"{min(seen.count('updatedReplicas'), seen.asked)} of {seen.asked} engine pods are of the newest template and available"
    )
    if seen.count("updatedReplicas") == seen.asked:
        message = f"{seen.count('availableReplicas')} of {seen.asked} engine pods are available"
    return Verdict(ConditionType.PROGRESSING, "True", Reason.ROLLING_OUT, message)


def _rolled_out(seen: Observed) -> bool:
    if seen.deployment is None or seen.count("observedGeneration") < seen.deployment["metadata"].get("generation", 0):
        return False
    counts = {seen.count(name) for name in ("updatedReplicas", "replicas", "availableReplicas")}
    return counts == {seen.asked}


def _degraded(seen: Observed) -> Verdict:
    for reason, message in (
        (Reason.CLUSTER_ERROR, seen.fault),
        (Reason.POD_FAILING, pod_faults.failing(seen.pods) or pod_faults.not_created(seen.deployment)),
        _unplaced(seen),
        (Reason.FEWER_THAN_ASKED, _fewer(seen)),
        (Reason.MODEL_NAME_TAKEN, seen.elder and _taken(seen)),
    ):
        if message:
            return Verdict(ConditionType.DEGRADED, "True", reason, message)
    return Verdict(ConditionType.DEGRADED, "False", Reason.HEALTHY, "")


def _unplaced(seen: Observed) -> tuple[Reason, str]:
    said = pod_faults.unschedulable(seen.pods)
    gpus = seen.pool.spec.gpus
    spare = seen.pool.spec.rollout.strategy == "SpareFirst" and seen.count("replicas") > seen.asked
    if gpus and spare and f"Insufficient {gpus.resource_name}" in said:
        return Reason.NO_SPARE_GPU, (
            f"the rollout needs {gpus.count} free {gpus.resource_name} for a new pod before an old one goes, and no node has them; "
            "set spec.rollout.strategy to InPlace, or add a node"
        )
    return Reason.UNSCHEDULABLE, f"no node takes an engine pod ({said}); add nodes, or ask for less" if said else ""


def _fewer(seen: Observed) -> str:
    conditions = ((seen.deployment or {}).get("status") or {}).get("conditions") or ()
    late = any(item.get("type") == "Progressing" and item.get("reason") == "ProgressDeadlineExceeded" for item in conditions)
    return f"{seen.ready} of {seen.asked} engine pods became ready in time; look at their logs" if late else ""


def _taken(seen: Observed) -> str:
    return (
        f"the model name {seen.pool.spec.model.name!r} is served by the older pool {seen.elder!r} of this namespace, "
        "which gets the requests; rename the model, or delete one of the pools"
    )


def _guard_outdated(seen: Observed) -> Verdict:
    frozen = seen.revision.guard_version if seen.revision else seen.guard_version
    if not _older(frozen, seen.guard_version):
        return Verdict(ConditionType.GUARD_OUTDATED, "False", Reason.GUARDS_CURRENT, "")
    message = (
        f"the pods' guard is {frozen} and {seen.guard_version} is installed; it comes with the next change of the pods, "
        "or set spec.rollout.guardUpdates to Now"
    )
    return Verdict(ConditionType.GUARD_OUTDATED, "True", Reason.NEWER_GUARD_AVAILABLE, message)


def _older(version: str, than: str) -> bool:
    try:
        return Version(version) < Version(than)
    except InvalidVersion:
        return version != than


def elder_of(pool: ServingPool, others: Sequence[Mapping[str, Any]]) -> str:
    """Name of the pool of the namespace that serves the same model name first; empty when it is this one."""

    def age(metadata: Mapping[str, Any]) -> tuple[str, str]:
        return metadata.get("creationTimestamp", ""), metadata["uid"]

    mine = (pool.metadata.creation_timestamp, pool.uid)
    rivals = [
        item["metadata"] for item in others if _model_name(item) == pool.spec.model.name and item["metadata"]["uid"] != pool.uid
    ]
    older = sorted((item for item in rivals if age(item) < mine), key=age)
    return str(older[0]["name"]) if older else ""


def _model_name(document: Mapping[str, Any]) -> Any:  # noqa: ANN401 - what a document holds
    return ((document.get("spec") or {}).get("model") or {}).get("name")
