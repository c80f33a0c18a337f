"""The Deployment and the headless Service of a pool."""

from __future__ import annotations

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
    metadata,
    pod_security,
    selector,
)

PERMIT_KEYS_FOLDER = "/etc/cachescope/permit-keys"
HEAD_FOLDER = "/etc/cachescope/head"
DRAIN_SECONDS = 5
GRACE_SECONDS = 120


def deployment(site: Site, pool: ServingPool, pool_target: TargetName) -> Manifest:
    """The engines of a pool, guarded."""
    labels = {**selector(pool.name, ENGINE), POOL_LABEL: pool.name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(site, pool.name, ENGINE, **{POOL_LABEL: pool.name}),
        "spec": {
            "replicas": pool.spec.replicas,
            "selector": {"matchLabels": labels},
            # A new engine serves before an old one goes; a pool without a spare GPU sets its own strategy.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": labels}, "spec": _pod(site, pool, pool_target)},
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


def _pod(site: Site, pool: ServingPool, pool_target: TargetName) -> Manifest:
    return {
        "automountServiceAccountToken": False,
        # A Service named `vllm` would otherwise set VLLM_PORT, which the engine reads.
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "initContainers": [_guard(site)],
        "containers": [_engine(pool, pool_target)],
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


def _engine(pool: ServingPool, pool_target: TargetName) -> Manifest:
    guard = {
        "CACHESCOPE_POOL_UID": pool.uid,
        "CACHESCOPE_POOL_TARGET": pool_target,
        "CACHESCOPE_PERMIT_KEYS_DIR": PERMIT_KEYS_FOLDER,
        "CACHESCOPE_HEADS_FILE": f"{HEAD_FOLDER}/head.json",
        "CACHESCOPE_LEASE_SECONDS": str(pool.spec.fence.lease_seconds),
        "CACHESCOPE_MODEL_PATH": pool.spec.model.path,
        "CACHESCOPE_METRICS_PORT": str(GUARD_METRICS_PORT),
    }
    return {
        "name": "engine",
        "image": pool.spec.engine.image,
        "imagePullPolicy": "IfNotPresent",
        "command": command(pool),
        "env": environment({**variables(pool), **guard}, CACHESCOPE_POD_UID="metadata.uid"),
        "ports": [
            {"name": "http", "containerPort": ENGINE_PORT},
            {"name": "guard-metrics", "containerPort": GUARD_METRICS_PORT},
        ],
        "resources": pool.spec.resources,
        "securityContext": container_security(),
        "startupProbe": http_probe("/health", "http", failures=240),
        "readinessProbe": http_probe("/health", "http"),
        "livenessProbe": http_probe("/health", "http", period=10, failures=6),
        # The endpoint leaves the EndpointSlice while the engine still serves what it has.
        "lifecycle": {"preStop": {"sleep": {"seconds": DRAIN_SECONDS}}},
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
