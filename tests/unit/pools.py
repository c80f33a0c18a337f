"""Pools and an installation for the tests of manifests."""

from __future__ import annotations

import copy
from typing import Any

from cachescope.api.documents import parse
from cachescope.api.pools import ServingPool
from cachescope.core.epochs import target_name
from cachescope.core.keys import Key, KeyRing
from cachescope.core.types import TargetKind
from cachescope.manifests.platform import Platform
from cachescope.manifests.pool import pool_objects
from cachescope.manifests.revisions import build_revision

Document = dict[str, Any]

PLATFORM = Platform("cachescope-system", "registry.example/guard:0.1.0", "0.1.0")
ROOT = KeyRing.of(Key("k1", b"r" * 32), Key("k2", b"s" * 32))
UID = "6d1f3f0e-0a77-4b66-9a5b-8a8f5a0c1d01"
TARGET = target_name(Key("targets", b"t" * 32), TargetKind.POOL, UID)
COMMIT = "0123456789abcdef0123456789abcdef01234567"

_PLAIN: Document = {
    "apiVersion": "cachescope.dev/v1alpha1",
    "kind": "ServingPool",
    "metadata": {"name": "tiny", "namespace": "models", "uid": UID},
    "spec": {
        "model": {"name": "tiny", "source": {"imagePath": "/models/tiny"}},
        "engine": {
            "version": "0.32.0",
            "image": "registry.example/vllm:0.32.0",
            "args": ["--enforce-eager", "--max-model-len", "8192"],
            "env": {"VLLM_TARGET_DEVICE": "cpu", "OMP_WAIT_POLICY": "PASSIVE"},
        },
        "resources": {"requests": {"cpu": "500m", "memory": "3Gi"}, "limits": {"memory": "8Gi"}},
    },
}
HUB = {
    "huggingFace": {
        "repository": "owner/some.model",
        "revision": COMMIT,
        "cacheClaimName": "hub-cache",
        "tokenSecretName": "hub-token",
    }
}
ADAPTERS: list[Document] = [
    {"name": "in-image", "source": {"imagePath": "/adapters/in-image"}},
    {"name": "on-claim", "source": {"persistentVolumeClaim": {"claimName": "adapters", "path": "sql/v2"}}},
    {"name": "of-hub", "source": {"huggingFace": {"repository": "owner/adapter", "revision": COMMIT}}},
]
FULL: Document = {
    "model.source": HUB,
    "engine.env": {"HF_ENDPOINT": "https://hub.example"},
    "replicas": 3,
    "gpus": {"count": 2},
    "sharedMemory": "16Gi",
    "podTemplate": {
        "labels": {"team": "search"},
        "annotations": {"example.com/note": "x"},
        "nodeSelector": {"accelerator": "h100"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]}}},
        "priorityClassName": "high",
        "runtimeClassName": "nvidia",
        "imagePullSecrets": ["pull"],
    },
    "rollout": {"strategy": "InPlace"},
    "fence": {"leaseSeconds": 30},
}  # fmt: skip


def pool(changes: Document | None = None, **metadata: str) -> ServingPool:
    """The plain pool with other values at dotted paths of its spec; `None` removes what is there."""
    document = copy.deepcopy(_PLAIN)
    document["metadata"].update(metadata)
    for path, value in (changes or {}).items():
        *folders, last = path.split(".")
        place = document["spec"]
        for name in folders:
            place = place[name]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return parse(ServingPool, document, "test")


def objects(changes: Document | None = None, platform: Platform = PLATFORM) -> dict[str, Document]:
    """The children of that pool, by kind."""
    made = pool(changes)
    revision = build_revision(platform, made, TARGET)
    return {item["kind"]: item for item in pool_objects(platform, made, keys=ROOT, revision=revision)}


def pod(changes: Document | None = None, platform: Platform = PLATFORM) -> Document:
    """The spec of its pods."""
    spec: Document = objects(changes, platform)["Deployment"]["spec"]["template"]["spec"]
    return spec


def engine(changes: Document | None = None, platform: Platform = PLATFORM) -> Document:
    """The engine's container."""
    (container,) = pod(changes, platform)["containers"]
    found: Document = container
    return found


def environment(container: Document) -> dict[str, str]:
    """A container's plain variables."""
    return {item["name"]: item["value"] for item in container["env"] if "value" in item}
