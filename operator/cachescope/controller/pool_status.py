"""The status of a pool, made from what was observed: values in, values out. Whether it is `Ready` is in `readiness`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from cachescope.api.conditions import ConditionType, Reason
from cachescope.api.pools import ServingPool
from cachescope.api.statuses import AdapterStatus, EngineStatus, GuardStatus, ModeName, RouteStatus, ServingPoolStatus
from cachescope.controller import pod_faults
from cachescope.controller.fence_verdicts import fence_verdict
from cachescope.controller.isolation_verdicts import isolation_verdicts, leak_of
from cachescope.controller.lease_book import Process
from cachescope.controller.observed_pools import Observed, older
from cachescope.controller.readiness import name_taken, readiness
from cachescope.controller.verdicts import Verdict
from cachescope.core.labels import POOL_LABEL
from cachescope.core.ledgers import FIRST_BASE
from cachescope.engines.facts import Mode
from cachescope.engines.pool_modes import choice_of, is_template, verdict_of
from cachescope.manifests.children import engine_selector

_OF_SPEC: Final = ("mode", "modeReason", "routes", "selector", "isolation")
_MODES: Final[Mapping[Mode, ModeName]] = {Mode.SHARED: "Shared", Mode.PER_TENANT: "PerTenant", Mode.DISABLED: "Disabled"}
_OF_LEDGER: Final = ("epoch", "lineage", "bypassed", "publicStopped", "latestIncident")
_OF_LEASES: Final = ("routable", "guards", "engines")


def pool_status(seen: Observed) -> dict[str, Any]:
    """The status without its conditions."""
    status = ServingPoolStatus(
        observed_generation=seen.pool.metadata.generation,
        mode=_mode(seen.pool),
        mode_reason=_mode_reason(seen),
        epoch=seen.epoch,
        lineage=seen.lineage,
        bypassed=seen.flags.bypasses,
        public_stopped=seen.flags.stops_public,
        latest_incident=seen.latest_incident,
        replicas=seen.count("replicas"),
        ready_replicas=seen.count("readyReplicas"),
        routable=seen.routable,
        selector=_selector(seen.pool),
        routes=_routes(seen.pool),
        engines=_engines(seen.live_guards),
        isolation=seen.isolation,
        guards=tuple(_guard(guard, live=seen.lives(guard)) for guard in seen.guards),
    )
    made = status.model_dump(mode="json", by_alias=True, exclude={"conditions"}, exclude_none=True)
    return {**{name: value for name, value in made.items() if name not in kept(seen)}, **_before(seen)}


def pool_conditions(seen: Observed) -> list[Verdict]:
    """What holds of a pool; of one that never had pods, because its spec cannot be obeyed, that alone."""
    ready = readiness(seen)
    if seen.invalid and seen.revision is None and seen.fault is None:
        return [ready]
    return [ready, _progressing(seen), _degraded(seen), *isolation_verdicts(seen), *fenced(seen), *_guard_outdated(seen)]


def kept(seen: Observed) -> tuple[str, ...]:
    """Fields that say what they said before: the spec is not obeyed, the ledger was not read, or nobody can verify leases."""
    unverified = seen.fault is not None and seen.fault.reason is Reason.ROOT_KEYS_MISSING
    unread = _OF_LEDGER if seen.epoch is None else ()
    # One that never had a mode says why it has none.
    refused = seen.readable and choice_of(seen.pool).mode is None and not seen.before.get("mode")
    return (*(_OF_SPEC if seen.invalid and not refused else ()), *unread, *(_OF_LEASES if unverified else ()))


def _before(seen: Observed) -> Mapping[str, Any]:
    return {name: seen.before[name] for name in kept(seen) if name in seen.before}


def _mode(pool: ServingPool) -> ModeName:
    if pool.spec.dedicated_to is not None:
        return "Dedicated"
    mode = choice_of(pool).mode
    return "" if mode is None else _MODES[mode]


def _selector(pool: ServingPool) -> str:
    """None of a template: an autoscaler would find no pod by it, and refuses to work without one."""
    selected = {} if is_template(pool) else engine_selector(pool)
    return ",".join(f"{name}={value}" for name, value in sorted(selected.items()))


def _mode_reason(seen: Observed) -> str:
    whose = seen.pool.spec.dedicated_to
    why = f"it has the engines of one tenant of the pool {whose.pool_name}" if whose else choice_of(seen.pool).why
    if seen.shared or not seen.pool.spec.allowed_tenants.namespaces.match_labels:
        return why
    return f"{why}; allowedTenants counts for nothing: its namespace is not in the installation's sharedPoolNamespaces"


def _routes(pool: ServingPool) -> tuple[RouteStatus, ...]:
    found = sorted(verdict_of(pool).routes, key=lambda item: item.path)
    return tuple(RouteStatus(route=item.path, capability=item.capability.value) for item in found)


def _engines(guards: Sequence[Process]) -> tuple[EngineStatus, ...]:
    said = [guard.statement for guard in guards if guard.statement]
    found = {(item.engine, item.engine_version, tuple(sorted(item.adapters.items()))) for item in said if item.engine}
    digests = sorted((engine.model, engine.tokenizer, engine.runtime, version, adapters) for engine, version, adapters in found)
    return tuple(
        EngineStatus(model=model, tokenizer=tokenizer, runtime=runtime, version=version, adapters=_adapters(adapters))
        for model, tokenizer, runtime, version, adapters in digests
    )


def _adapters(named: Iterable[tuple[str, str]]) -> tuple[AdapterStatus, ...]:
    return tuple(AdapterStatus(name=name, digest=digest) for name, digest in named)


def _guard(guard: Process, *, live: bool) -> GuardStatus:
    statement = guard.statement
    if statement is None:
        raise RuntimeError("a guard without a statement is none; filter them first")
    seen = statement.acknowledged.get(statement.pool_uid)
    return GuardStatus(pod=guard.pod, version=statement.version, sequence=seen.sequence if seen else 0, live=live)


def _progressing(seen: Observed) -> Verdict:
    if _rolled_out(seen):
        return Verdict(ConditionType.PROGRESSING, "False", Reason.ROLLED_OUT, "all engine pods are of the newest template")
    message = (
        f"{min(seen.count('updatedReplicas'), seen.asked)} of {seen.asked} engine pods are of the newest template and available"
    )
    if seen.count("updatedReplicas") == seen.asked:
        message = f"{seen.count('availableReplicas')} of {seen.asked} engine pods are available"
    return Verdict(ConditionType.PROGRESSING, "True", Reason.ROLLING_OUT, message)


def fenced(seen: Observed) -> list[Verdict]:
    """Whether nothing older than the pool's latest incident is used. What was complete stays so until epoch or lineage move on."""
    conditions: Sequence[Mapping[str, Any]] = seen.before.get("conditions") or ()
    old = next((item for item in conditions if item.get("type") == ConditionType.FENCED.value), None)
    # A status of an older operator says nothing of the lineage.
    same = seen.before.get("epoch") == seen.epoch and seen.before.get("lineage", seen.lineage) == seen.lineage
    complete = old is not None and old["status"] == "True" and same
    if old is not None and (seen.epoch is None or complete):
        return [Verdict(ConditionType.FENCED, old["status"], Reason(old["reason"]), str(old.get("message", "")))]
    return [fence_verdict([seen.fence, *seen.fences_of_tenants])] if seen.epoch is not None and seen.epoch > FIRST_BASE else []


def _rolled_out(seen: Observed) -> bool:
    if seen.deployment is None or seen.count("observedGeneration") < seen.deployment["metadata"].get("generation", 0):
        return False
    counts = {seen.count(name) for name in ("updatedReplicas", "replicas", "availableReplicas")}
    return counts == {seen.asked}


def _degraded(seen: Observed) -> Verdict:
    for reason, message in _faults(seen):
        if message:
            return Verdict(ConditionType.DEGRADED, "True", reason, message)
    return Verdict(ConditionType.DEGRADED, "False", Reason.HEALTHY, "")


def _faults(seen: Observed) -> Iterator[tuple[Reason, str]]:
    if seen.fault:
        yield seen.fault.reason, seen.fault.message
    yield Reason.LEAK, leak_of(seen)
    yield Reason.POD_FAILING, pod_faults.failing(seen.pods) or _not_created(seen)
    yield _unplaced(seen)
    yield Reason.FEWER_THAN_ASKED, _fewer(seen)
    yield Reason.OTHER_VERSION, seen.other_version
    yield Reason.MODEL_NAME_TAKEN, name_taken(seen)


def _not_created(seen: Observed) -> str:
    said = pod_faults.not_created(seen.deployment)
    return f"{said}; see `kubectl describe replicasets {_selected(seen)}`" if said else ""


def _unplaced(seen: Observed) -> tuple[Reason, str]:
    pod, said = pod_faults.unschedulable(seen.pods)
    gpus = seen.pool.spec.gpus
    spare = seen.pool.spec.rollout.strategy == "SpareFirst" and seen.count("replicas") > seen.asked
    if gpus and spare and f"Insufficient {gpus.resource_name}" in said:
        return Reason.NO_SPARE_GPU, (
            f"the rollout needs {gpus.count} free {gpus.resource_name} for the new pod {pod} before an old one goes, and no node "
            "has them; set spec.rollout.strategy to InPlace, or add a node"
        )
    message = f"no node takes the engine pod {pod} ({said}); add nodes, or ask for less in spec.resources, gpus or podTemplate"
    return Reason.UNSCHEDULABLE, message if pod else ""


def _fewer(seen: Observed) -> str:
    conditions = ((seen.deployment or {}).get("status") or {}).get("conditions") or ()
    late = any(item.get("type") == "Progressing" and item.get("reason") == "ProgressDeadlineExceeded" for item in conditions)
    look = f"see `kubectl describe pods {_selected(seen)}` and `kubectl logs {_selected(seen)} -c engine --previous`"
    return f"{seen.ready} of {seen.asked} engine pods became ready in time; {look}" if late else ""


def _selected(seen: Observed) -> str:
    return f"-n {seen.pool.namespace} -l {POOL_LABEL}={seen.pool.name}"


def _guard_outdated(seen: Observed) -> list[Verdict]:
    """Nothing is said while no template is known: there may be old pods."""
    if seen.revision is None:
        return []
    newest, frozen = seen.guard_version, seen.revision.guard_version
    if older(frozen, newest):
        message = (
            f"the pods' template has guard {frozen} and {newest} is installed; it comes with the next change of the pods, "
            "or set spec.rollout.guardUpdates to Now"
        )
        return [Verdict(ConditionType.GUARD_OUTDATED, "True", Reason.NEWER_GUARD_AVAILABLE, message)]
    old = {
        item.pod: item.statement.version for item in seen.live_guards if item.statement and older(item.statement.version, newest)
    }
    if not old:
        return [Verdict(ConditionType.GUARD_OUTDATED, "False", Reason.GUARDS_CURRENT, "")]
    pod = min(old)
    message = (
        f"{len(old)} engine pods still run an older guard than {newest}, {pod} ({old[pod]}) for one; the rollout replaces them: "
        "where it does not go on, see Degraded"
    )
    return [Verdict(ConditionType.GUARD_OUTDATED, "True", Reason.OLD_GUARD_RUNNING, message)]
