"""Where a pool's model comes from, and how its files reach the engine.

Rules:

- the engine serves from disk and never fetches: what fetches is an init container, and only for a model of the hub;
- the engine sees the files read-only; the token for the hub is in the init container alone;
- one path names the model everywhere: for the engine, and for the guard that digests what is there.
"""

from __future__ import annotations

from cachescope.api.pools import HuggingFace, ServingPool, VolumeClaim
from cachescope.core.errors import SpecError
from cachescope.manifests.parts import Manifest, container_security, empty_dirs, environment, literal

CLAIM_FOLDER = "/models/claim"
HUB_FOLDER = "/models/hub"
_VOLUME = "model"
_HUB_TMP = "hub-tmp"

FETCH = """\
import os, sys
repository, revision, folder = sys.argv[1:]
complete = os.path.join(folder, ".cachescope-complete")
if not os.path.exists(complete):
    from huggingface_hub import snapshot_download
    snapshot_download(repository, revision=revision, local_dir=folder)
    open(complete, "w").close()
"""
"""Fetches a commit once: with the mark beside the files a restart needs no hub. Guards leave names with a dot out of digests."""

_HUB_VARIABLES = {"HOME": "/tmp", "HF_HUB_DISABLE_TELEMETRY": "1"}  # noqa: S108 - an emptyDir of this pod


def model_path(pool: ServingPool) -> str:
    """Path of the model in the engine's container.

    Raises:
        SpecError: The path leaves its volume.
    """
    source = pool.spec.model.source
    if source.persistent_volume_claim:
        return _below_claim(pool, source.persistent_volume_claim)
    if source.hugging_face:
        return f"{HUB_FOLDER}/{source.hugging_face.repository.replace('/', '--')}/{source.hugging_face.revision}"
    assert source.image_path is not None  # noqa: S101 - the model validator holds that exactly one is set
    return source.image_path


def model_volumes(pool: ServingPool) -> list[Manifest]:
    """The volumes that hold it."""
    source = pool.spec.model.source
    if source.persistent_volume_claim:
        return [_claim(source.persistent_volume_claim.claim_name, readOnly=True)]
    if source.hugging_face:
        return [_hub_volume(source.hugging_face), *empty_dirs((_HUB_TMP,))]
    return []


def model_mounts(pool: ServingPool) -> list[Manifest]:
    """The engine's mounts of these volumes."""
    source = pool.spec.model.source
    if source.image_path:
        return []
    return [{"name": _VOLUME, "mountPath": CLAIM_FOLDER if source.persistent_volume_claim else HUB_FOLDER, "readOnly": True}]


def fetch_containers(pool: ServingPool, resources: Manifest) -> list[Manifest]:
    """The init container that fetches a model of the hub, by the engine's own image; none for other sources.

    Args:
        pool: The pool.
        resources: What it may use.
    """
    hub = pool.spec.model.source.hugging_face
    if hub is None:
        return []
    return [
        {
            "name": "fetch-model",
            "image": pool.spec.engine.image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["python3", "-c", FETCH, hub.repository, hub.revision, model_path(pool)],
            "env": _hub_environment(pool, hub),
            "resources": resources,
            "securityContext": container_security(),
            "volumeMounts": [
                {"name": _VOLUME, "mountPath": HUB_FOLDER},
                {"name": _HUB_TMP, "mountPath": "/tmp"},  # noqa: S108 - an emptyDir of this pod
            ],
        }
    ]


def _hub_environment(pool: ServingPool, hub: HuggingFace) -> list[Manifest]:
    # A mirror of the hub is named where the engine's other variables are.
    mirror = {name: literal(value) for name, value in pool.spec.engine.env.items() if name == "HF_ENDPOINT"}
    # The image may have said offline, as the engine's own container is.
    plain = environment({**_HUB_VARIABLES, **mirror, "HF_HUB_OFFLINE": "0"})
    if hub.token_secret_name is None:
        return plain
    token = {"secretKeyRef": {"name": hub.token_secret_name, "key": "token"}}
    return [*plain, {"name": "HF_TOKEN", "valueFrom": token}]


def _below_claim(pool: ServingPool, claim: VolumeClaim) -> str:
    parts = claim.path.split("/")
    if ".." in parts:
        where = f"ServingPool {pool.name!r}: model.source.persistentVolumeClaim.path {claim.path!r}"
        raise SpecError(f"{where} leaves the claim; write a path below its root, without `..`")
    return "/".join([CLAIM_FOLDER, *(part for part in parts if part not in {"", "."})])


def _claim(name: str, **fields: bool) -> Manifest:
    return {"name": _VOLUME, "persistentVolumeClaim": {"claimName": name, **fields}}


def _hub_volume(hub: HuggingFace) -> Manifest:
    return _claim(hub.cache_claim_name) if hub.cache_claim_name else empty_dirs((_VOLUME,))[0]
