"""The Deployment and the headless Service of a pool."""

from __future__ import annotations

from collections.abc import Mapping

from cachescope.api.resources import ServingPool
from cachescope.core.labels import ENGINE, ENGINE_PORT, GUARD_METRICS_PORT, POOL_LABEL
from cachescope.core.types import TargetName
from cachescope.manifests.engine_command import GUARD_FOLDER, HOME, command, variables
from cachescope.manifests.parts import (
    Manifest,
    Site,
    container_security,
    empty_dirs,
    environment,
    http_probe,
    liveness_probe,
    metadata,
    pod_security,
    selector,
)

PERMIT_KEYS_FOLDER = "/etc/cachescope/permit-keys"
HEAD_FOLDER = "/etc/cachescope/head"
ENDPOINT_REMOVAL_SECONDS = 5
"""How long an engine serves on until no gateway routes to it any more."""
DRAIN_SECONDS = 100
"""How long its running requests may take after that; vLLM's default is to abort them at once."""
GRACE_SECONDS = ENDPOINT_REMOVAL_SECONDS + DRAIN_SECONDS + 15

# The gateway writes each body anew. Text never grows by that, a number does: `9e15,` becomes `9000000000000000.0,`.
_BODY_GROWTH = 4
_SALT_BYTES = 2**20


def deployment(site: Site, pool: ServingPool, *, pool_target: TargetName, max_request_bytes: int) -> Manifest:
    """The engines of a pool, guarded.

    Args:
        site: Where they go, and the guard's image.
        pool: The pool.
        pool_target: Name of the pool's epoch target.
        max_request_bytes: Largest body that gateways take from a client.
    """
    labels = {**selector(pool.name, ENGINE), POOL_LABEL: pool.name}
    guard = _guard_variables(pool, pool_target, guard_body_bytes(max_request_bytes))
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(site, pool.name, ENGINE, **{POOL_LABEL: pool.name}),
        "spec": {
            "replicas": pool.spec.replicas,
            "selector": {"matchLabels": labels},
            # A new engine serves before an old one goes, which needs room for one more: without a spare GPU the new pod waits.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": labels}, "spec": _pod(site, pool, guard)},
        },
    }


def service(site: Site, pool: ServingPool) -> Manifest:
    """A headless Service: its EndpointSlices tell the gateway which pods are ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(site, pool.name, ENGINE, **{POOL_LABEL: pool.name}),
        "spec": {
            "clusterIP": "None",
            "selector": {**selector(pool.name, ENGINE), POOL_LABEL: pool.name},
            "ports": [{"name": "http", "port": ENGINE_PORT, "targetPort": "http"}],
        },
    }


def secret_name(pool: ServingPool) -> str:
    """Name of the Secret with the pool's permit keys."""
    return f"{pool.name}-permit-keys"


def head_name(pool: ServingPool) -> str:
    """Name of the ConfigMap with the head that the pool's guards read."""
    return f"{pool.name}-head"


def guard_body_bytes(max_request_bytes: int) -> int:
    """The guard's limit: whatever a gateway makes of a body that it accepted passes."""
    return _BODY_GROWTH * max_request_bytes + _SALT_BYTES


def _pod(site: Site, pool: ServingPool, guard: Mapping[str, str]) -> Manifest:
    return {
        "automountServiceAccountToken": False,
        # A Service named `vllm` would otherwise set VLLM_PORT, which the engine reads.
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "initContainers": [_guard(site)],
        "containers": [_engine(pool, guard)],
        "volumes": _volumes(pool),
    }


def _guard(site: Site) -> Manifest:
    return {
        "name": "guard",
        "image": site.guard_image,
        "imagePullPolicy": "IfNotPresent",
        "args": [GUARD_FOLDER],
        "securityContext": container_security(),
        "volumeMounts": [{"name": "guard", "mountPath": GUARD_FOLDER}],
    }


def _guard_variables(pool: ServingPool, pool_target: TargetName, max_body_bytes: int) -> dict[str, str]:
    return {
        "CACHESCOPE_POOL_UID": pool.uid,
        "CACHESCOPE_POOL_TARGET": pool_target,
        "CACHESCOPE_PERMIT_KEYS_DIR": PERMIT_KEYS_FOLDER,
        "CACHESCOPE_HEADS_FILE": f"{HEAD_FOLDER}/head.json",
        "CACHESCOPE_LEASE_SECONDS": str(pool.spec.fence.lease_seconds),
        "CACHESCOPE_MODEL_PATH": pool.spec.model.path,
        "CACHESCOPE_METRICS_PORT": str(GUARD_METRICS_PORT),
        "CACHESCOPE_MAX_BODY_BYTES": str(max_body_bytes),
    }


def _engine(pool: ServingPool, guard: Mapping[str, str]) -> Manifest:
    return {
        "name": "engine",
        "image": pool.spec.engine.image,
        "imagePullPolicy": "IfNotPresent",
        "command": [*command(pool), "--shutdown-timeout", str(DRAIN_SECONDS)],
        "env": environment({**variables(pool), **guard}, CACHESCOPE_POD_UID="metadata.uid"),
        "ports": [
            {"name": "http", "containerPort": ENGINE_PORT},
            {"name": "guard-metrics", "containerPort": GUARD_METRICS_PORT},
        ],
        "resources": pool.spec.resources,
        "securityContext": container_security(),
        "startupProbe": http_probe("/health", "http", failures=240),
        "readinessProbe": http_probe("/health", "http"),
        "livenessProbe": liveness_probe("/health", "http", failures=6),
        # The endpoint leaves the EndpointSlice while the engine still serves what it has.
        "lifecycle": {"preStop": {"sleep": {"seconds": ENDPOINT_REMOVAL_SECONDS}}},
        "volumeMounts": _mounts(),
    }


def _mounts() -> list[Manifest]:
    return [
        {"name": "guard", "mountPath": GUARD_FOLDER, "readOnly": True},
        {"name": "permit-keys", "mountPath": PERMIT_KEYS_FOLDER, "readOnly": True},
        {"name": "head", "mountPath": HEAD_FOLDER, "readOnly": True},
        {"name": "home", "mountPath": HOME},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - an emptyDir of this pod
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - shared memory between the engine's processes
    ]


def _volumes(pool: ServingPool) -> list[Manifest]:
    return [
        *empty_dirs(("guard", "home", "tmp")),
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "permit-keys", "secret": {"secretName": secret_name(pool)}},
        {"name": "head", "configMap": {"name": head_name(pool)}},
    ]
