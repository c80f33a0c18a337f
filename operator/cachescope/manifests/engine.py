"""The pod template of a pool's engines.

Nothing in it may depend on the operator's version but what `revisions` freezes: a template is built once for what people decided.
"""

from __future__ import annotations

from collections.abc import Iterator

from cachescope.api.pools import PodTemplate, ServingPool
from cachescope.core.errors import SpecError
from cachescope.core.types import TargetName
from cachescope.manifests.children import engine_account, labels
from cachescope.manifests.engine_command import HOME, command, engine_of, files, is_sidecar, variables
from cachescope.manifests.engine_files import file_annotations, file_mounts, file_volumes
from cachescope.manifests.engine_resources import engine_resources, without_devices
from cachescope.manifests.guard import (
    OWN_FIELDS,
    code_mount,
    guard_container,
    guard_ports,
    guard_variables,
    guard_volumes,
    key_and_state_mounts,
)
from cachescope.manifests.model_files import fetch_containers, model_mounts, model_volumes
from cachescope.manifests.parts import (
    HUNG_GRACE_SECONDS,
    Manifest,
    container_security,
    empty_dirs,
    environment,
    http_probe,
    liveness_probe,
    pod_security,
)
from cachescope.manifests.platform import Platform
from cachescope.manifests.sidecar import engine_probe, sidecar_container

ENDPOINT_REMOVAL_SECONDS = 5
"""How long an engine serves on until no gateway routes to it any more."""
DRAIN_SECONDS = 100
"""How long its running requests may take after that; vLLM's default is to abort them at once."""
GRACE_SECONDS = ENDPOINT_REMOVAL_SECONDS + DRAIN_SECONDS + 15
STARTUP_PERIOD_SECONDS = 5
STARTUP_SECONDS = 1800
"""How long an engine may load its model. One that fails ends by itself; this is for one that hangs."""

_STARTUP_FAILURES = STARTUP_SECONDS // STARTUP_PERIOD_SECONDS
_LIVENESS_FAILURES = 6
_OWN_PREFIX = "cachescope.dev/"
_OWN_LABELS = frozenset({"pod-template-hash"})


def pod_template(platform: Platform, pool: ServingPool, pool_target: TargetName) -> Manifest:
    """The template.

    Args:
        platform: The installation.
        pool: The pool.
        pool_target: Name of the pool's epoch target.

    Raises:
        SpecError: The pool cannot be guarded, or its fields contradict one another.
    """
    extra = pool.spec.pod_template
    _check(pool, extra)
    meta: Manifest = {"labels": {**dict(sorted(extra.labels.items())), **labels(pool)}}
    if annotations := {**dict(sorted(extra.annotations.items())), **file_annotations(files(pool))}:
        meta["annotations"] = annotations
    engine = _engine(pool)
    if is_sidecar(pool):
        beside, guarded = sidecar_container(platform, pool, pool_target), _reached_by_its_guard(pool, engine)
    else:
        beside, guarded = guard_container(platform), _with_guard(engine, guard_variables(platform, pool, pool_target))
    return {"metadata": meta, "spec": {**_pod(platform, pool, guarded, guard=beside), **_placement(extra)}}


def _check(pool: ServingPool, extra: PodTemplate) -> None:
    taken = {*labels(pool), *_OWN_LABELS}
    found = [f"label {name}" for name in sorted(extra.labels) if name in taken or name.startswith(_OWN_PREFIX)]
    found += [f"annotation {name}" for name in sorted(extra.annotations) if name.startswith(_OWN_PREFIX)]
    if found:
        raise SpecError(f"ServingPool {pool.name!r}: podTemplate sets {', '.join(found)}, which the operator uses; remove it")


def _pod(platform: Platform, pool: ServingPool, engine: Manifest, *, guard: Manifest) -> Manifest:
    return {
        "serviceAccountName": engine_account(pool),
        # The one container that needs a token mounts it itself.
        "automountServiceAccountToken": False,
        # A Service named `vllm` would otherwise set VLLM_PORT, which the engine reads.
        "enableServiceLinks": False,
        "securityContext": {**pod_security(), **_identity(platform)},
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "initContainers": _init_containers(guard, fetch_containers(pool, without_devices(engine["resources"]))),
        "containers": [engine],
        "volumes": [
            *guard_volumes(pool),
            *empty_dirs(("home", "tmp")),
            _shared_memory(pool),
            *model_volumes(pool),
            *file_volumes(files(pool)),
        ],
    }


def _identity(platform: Platform) -> Manifest:
    if platform.run_as_user is None:
        return {}
    user = platform.run_as_user
    return {"runAsUser": user, "fsGroup": user, "fsGroupChangePolicy": "OnRootMismatch"}


def _init_containers(guard: Manifest, fetch: list[Manifest]) -> list[Manifest]:
    """A guard that goes on reads the model, so it comes after what fetches it."""
    return [*fetch, guard] if "restartPolicy" in guard else [guard, *fetch]


def _engine(pool: ServingPool) -> Manifest:
    """The engine's container, whoever guards it."""
    return {
        "name": "engine",
        "image": pool.spec.engine.image,
        "imagePullPolicy": "IfNotPresent",
        **_started_by(pool),
        "env": environment(dict(sorted(variables(pool).items()))),
        "resources": engine_resources(pool),
        "securityContext": container_security(),
        # The endpoint leaves the EndpointSlice while the engine still serves what it has; some engines cut it when told to stop.
        "lifecycle": {"preStop": {"sleep": {"seconds": _pre_stop_seconds(pool)}}},
        "volumeMounts": [*_own_mounts(), *model_mounts(pool), *file_mounts(files(pool))],
    }


def _started_by(pool: ServingPool) -> Manifest:
    """An engine without a program of its own is started by its image's entry point."""
    words = [*command(pool), *engine_of(pool).shutdown(DRAIN_SECONDS)]
    return {"command" if engine_of(pool).program else "args": words}


def _pre_stop_seconds(pool: ServingPool) -> int:
    return engine_of(pool).pre_stop_seconds(removal=ENDPOINT_REMOVAL_SECONDS, drain=DRAIN_SECONDS)


def _with_guard(engine: Manifest, values: dict[str, str]) -> Manifest:
    """The engine that loads the guard."""
    own = {item["name"]: item["value"] for item in engine["env"]}
    return {
        **engine,
        "env": environment(dict(sorted({**own, **values}.items())), **OWN_FIELDS),
        "ports": guard_ports(),
        "startupProbe": http_probe("/health", "http", period=STARTUP_PERIOD_SECONDS, failures=_STARTUP_FAILURES),
        "readinessProbe": http_probe("/health", "http"),
        "livenessProbe": liveness_probe("/health", "http", failures=_LIVENESS_FAILURES),
        "volumeMounts": [code_mount(), *key_and_state_mounts(), *engine["volumeMounts"]],
    }


def _reached_by_its_guard(pool: ServingPool, engine: Manifest) -> Manifest:
    """The engine that only the guard beside it reaches."""
    liveness = engine_probe(pool, period=10, failures=_LIVENESS_FAILURES)
    return {
        **engine,
        "startupProbe": engine_probe(pool, period=STARTUP_PERIOD_SECONDS, failures=_STARTUP_FAILURES),
        "livenessProbe": {**liveness, "terminationGracePeriodSeconds": HUNG_GRACE_SECONDS},
    }


def _own_mounts() -> list[Manifest]:
    return [
        {"name": "home", "mountPath": HOME},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - an emptyDir of this pod
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - shared memory between the engine's processes
    ]


def _shared_memory(pool: ServingPool) -> Manifest:
    limit = {"sizeLimit": pool.spec.shared_memory} if pool.spec.shared_memory else {}
    return {"name": "shm", "emptyDir": {"medium": "Memory", **limit}}


def _placement(extra: PodTemplate) -> Manifest:
    return dict(_placed(extra))


def _placed(extra: PodTemplate) -> Iterator[tuple[str, object]]:
    """Fields that are not set stay away: an empty one could differ from what an earlier version wrote."""
    fields = {
        "nodeSelector": dict(sorted(extra.node_selector.items())),
        "tolerations": list(extra.tolerations),
        "affinity": extra.affinity,
        "priorityClassName": extra.priority_class_name,
        "runtimeClassName": extra.runtime_class_name,
        "imagePullSecrets": [{"name": name} for name in extra.image_pull_secrets],
    }
    yield from ((name, value) for name, value in fields.items() if value)
