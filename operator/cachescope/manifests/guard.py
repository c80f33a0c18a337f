"""The guard's part of an engine pod: the init container that brings it, its variables, keys and access to the API."""

from __future__ import annotations

from cachescope.api.pools import ServingPool
from cachescope.core.caches import Caching
from cachescope.core.labels import ENGINE_PORT, GUARD_METRICS_PORT
from cachescope.core.types import TargetName
from cachescope.engines.facts import EngineType
from cachescope.engines.pool_modes import caching_of
from cachescope.manifests.children import permit_secret
from cachescope.manifests.engine_command import GUARD_FOLDER, is_sidecar
from cachescope.manifests.model_files import model_path
from cachescope.manifests.parts import Manifest, container_security, empty_dirs, literal
from cachescope.manifests.platform import Platform

PERMIT_KEYS_FOLDER = "/etc/cachescope/permit-keys"
STATE_FOLDER = "/var/lib/cachescope"
API_ACCESS_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_SECONDS = 3600

OWN_FIELDS = {
    "CACHESCOPE_NAMESPACE": "metadata.namespace",
    "CACHESCOPE_POD_NAME": "metadata.name",
    "CACHESCOPE_POD_UID": "metadata.uid",
}
"""The guard's variables that the pod's own fields give."""

# The gateway writes each body anew. Text never grows by that, a number does: `9e15,` becomes `9000000000000000.0,`.
_BODY_GROWTH = 4
_SALT_BYTES = 2**20


def guard_container(platform: Platform) -> Manifest:
    """The init container that copies the guard into the engine's pod."""
    return {
        "name": "guard",
        "image": platform.guard_image,
        "imagePullPolicy": "IfNotPresent",
        "args": [GUARD_FOLDER],
        # It only copies files; quotas of a namespace may demand that every container says what it needs.
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}},
        "securityContext": container_security(),
        "volumeMounts": [{"name": "guard", "mountPath": GUARD_FOLDER}],
    }


def guard_variables(platform: Platform, pool: ServingPool, pool_target: TargetName) -> dict[str, str]:
    """The guard's variables in the engine's container, those of `OWN_FIELDS` aside."""
    fence = pool.spec.fence
    return {
        "CACHESCOPE_POOL": pool.name,
        "CACHESCOPE_POOL_UID": pool.uid,
        "CACHESCOPE_POOL_TARGET": pool_target,
        "CACHESCOPE_PERMIT_KEYS_DIR": PERMIT_KEYS_FOLDER,
        "CACHESCOPE_LEASE_SECONDS": str(fence.lease_seconds),
        "CACHESCOPE_ON_LOSS": fence.on_loss,
        "CACHESCOPE_FRESH_SECONDS": str(fence.fresh_seconds),
        "CACHESCOPE_CLEANUP": fence.cleanup,
        "CACHESCOPE_STATE_DIR": STATE_FOLDER,
        "CACHESCOPE_MODEL_PATH": literal(model_path(pool)),
        "CACHESCOPE_METRICS_PORT": str(GUARD_METRICS_PORT),
        "CACHESCOPE_MAX_BODY_BYTES": str(guard_body_bytes(platform.max_request_bytes)),
        **_of_engines_without_salts(pool),
    }


def _of_engines_without_salts(pool: ServingPool) -> dict[str, str]:
    """What the guard of a salted vLLM does without, so that its pods stay as earlier versions made them."""
    engine, caching = EngineType(pool.spec.engine.type), caching_of(pool)
    found = {} if engine is EngineType.VLLM else {"CACHESCOPE_ENGINE_TYPE": engine.value}
    return found if caching is Caching.SALTED else {**found, "CACHESCOPE_CACHING": caching.value}


def guard_ports() -> list[Manifest]:
    """The ports of the container that the guard runs in."""
    return [
        {"name": "http", "containerPort": ENGINE_PORT, "protocol": "TCP"},
        {"name": "guard-metrics", "containerPort": GUARD_METRICS_PORT, "protocol": "TCP"},
    ]


def code_mount() -> Manifest:
    """The guard's code, for the engine that loads it."""
    return {"name": "guard", "mountPath": GUARD_FOLDER, "readOnly": True}


def key_and_state_mounts() -> list[Manifest]:
    """What the container that the guard runs in mounts of `guard_volumes`, its code aside."""
    return [
        {"name": "permit-keys", "mountPath": PERMIT_KEYS_FOLDER, "readOnly": True},
        {"name": "api-access", "mountPath": API_ACCESS_FOLDER, "readOnly": True},
        {"name": "guard-state", "mountPath": STATE_FOLDER},
    ]


def guard_volumes(pool: ServingPool) -> list[Manifest]:
    """The guard's code where the engine loads it, its state, its keys, and what the cluster gives a pod, for one container only."""
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    return [
        *empty_dirs(("guard-state",) if is_sidecar(pool) else ("guard", "guard-state")),
        {"name": "permit-keys", "secret": {"secretName": permit_secret(pool)}},
        {"name": "api-access", "projected": {"sources": sources}},
    ]


def guard_body_bytes(max_request_bytes: int) -> int:
    """The guard's limit: whatever a gateway makes of a body that it accepted passes."""
    return _BODY_GROWTH * max_request_bytes + _SALT_BYTES
