"""Where the files of a pool's model and of its adapters come from, and how they reach the engine.

Rules:

- the engine serves from disk and never fetches: what fetches is an init container, and only what is of the hub;
- the engine sees the files read-only; the token for the hub is in the init container alone;
- one path names the files everywhere: for the engine, and for the guard that digests what is there;
- each claim is one volume of the pod, whoever's files are on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cachescope.api.pools import HuggingFace, ModelSource, ServingPool, VolumeClaim
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


@dataclass(frozen=True)
class _Kept:
    """What keeps files: a claim that holds them, or a place for what is fetched, in a claim or, without a name, in the pod."""

    fetched: bool
    claim: str | None


@dataclass(frozen=True)
class _Volume:
    """A volume of the pod, and where every container that may see it does."""

    name: str
    folder: str


def model_path(pool: ServingPool) -> str:
    """Path of the model in the engine's container.

    Raises:
        SpecError: The path leaves its volume.
    """
    return _path(pool, pool.spec.model.source, "model.source")


def adapter_paths(pool: ServingPool) -> dict[str, str]:
    """Path of each adapter's folder in the engine's container, by the adapter's name.

    Raises:
        SpecError: A path leaves its volume.
    """
    return {item.name: _path(pool, item.source, f"the adapter {item.name!r}: source") for item in pool.spec.engine.adapters}


def model_volumes(pool: ServingPool) -> list[Manifest]:
    """The volumes that hold all of it.

    Raises:
        SpecError: A claim is said to hold files, and to keep what is fetched.
    """
    volumes = _volumes(pool)
    claims = [kept.claim for kept in volumes if kept.claim]
    if twice := sorted({claim for claim in claims if claims.count(claim) > 1}):
        raise SpecError(
            f"ServingPool {pool.name!r}: the claim {twice[0]!r} is a source of files and a cache of the hub; use two claims"
        )
    hub_tmp = empty_dirs((_HUB_TMP,)) if any(kept.fetched for kept in volumes) else []
    return [*(_volume(volume.name, kept) for kept, volume in volumes.items()), *hub_tmp]


def model_mounts(pool: ServingPool) -> list[Manifest]:
    """The engine's mounts of these volumes."""
    return [{"name": volume.name, "mountPath": volume.folder, "readOnly": True} for volume in _volumes(pool).values()]


def fetch_containers(pool: ServingPool, resources: Manifest) -> list[Manifest]:
    """The init containers that fetch what is of the hub, by the engine's own image; none for other sources.

    Args:
        pool: The pool.
        resources: What each may use.
    """
    return [_fetch_container(pool, name, source, resources=resources) for name, source in _sources(pool) if source.hugging_face]


def _sources(pool: ServingPool) -> Iterator[tuple[str, ModelSource]]:
    """Every source, the model's first, each with what its volume and the container that fetches it are named after."""
    for number, source in enumerate(pool.spec.sources):
        yield f"adapter-{number}" if number else _VOLUME, source


def _volumes(pool: ServingPool) -> Mapping[_Kept, _Volume]:
    """The volumes in use; that of the model has the name and the folder that it had before there were adapters."""
    found: dict[_Kept, _Volume] = {}
    for name, source in _sources(pool):
        kept = _kept(source)
        if kept is not None and kept not in found:
            of_model = HUB_FOLDER if kept.fetched else CLAIM_FOLDER
            found[kept] = _Volume(name, of_model if name == _VOLUME else f"/models/{name}")
    return found


def _kept(source: ModelSource) -> _Kept | None:
    """What keeps the files of a source; `None` for the image itself."""
    if source.persistent_volume_claim:
        return _Kept(fetched=False, claim=source.persistent_volume_claim.claim_name)
    return _Kept(fetched=True, claim=source.hugging_face.cache_claim_name) if source.hugging_face else None


def _path(pool: ServingPool, source: ModelSource, where: str) -> str:
    kept = _kept(source)
    if kept is None:
        assert source.image_path is not None  # noqa: S101 - the model validator holds that exactly one is set
        return source.image_path
    folder = _volumes(pool)[kept].folder
    if source.persistent_volume_claim:
        return _below_claim(folder, source.persistent_volume_claim, f"ServingPool {pool.name!r}: {where}")
    assert source.hugging_face is not None  # noqa: S101 - as above
    return _below_hub(folder, source.hugging_face)


def _below_claim(folder: str, claim: VolumeClaim, where: str) -> str:
    parts = claim.path.split("/")
    if ".." in parts:
        fault = f"{where}.persistentVolumeClaim.path {claim.path!r} leaves the claim"
        raise SpecError(f"{fault}; write a path below its root, without `..`")
    return "/".join([folder, *(part for part in parts if part not in {"", "."})])


def _below_hub(folder: str, hub: HuggingFace) -> str:
    return f"{folder}/{hub.repository.replace('/', '--')}/{hub.revision}"


def _volume(name: str, kept: _Kept) -> Manifest:
    if kept.claim is None:
        return empty_dirs((name,))[0]
    read_only = {} if kept.fetched else {"readOnly": True}
    return {"name": name, "persistentVolumeClaim": {"claimName": kept.claim, **read_only}}


def _fetch_container(pool: ServingPool, name: str, source: ModelSource, *, resources: Manifest) -> Manifest:
    hub, kept = source.hugging_face, _kept(source)
    assert hub is not None and kept is not None  # noqa: S101, PT018 - the caller chose it
    volume = _volumes(pool)[kept]
    return {
        "name": f"fetch-{name}",
        "image": pool.spec.engine.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", FETCH, hub.repository, hub.revision, _below_hub(volume.folder, hub)],
        "env": _hub_environment(pool, hub),
        "resources": resources,
        "securityContext": container_security(),
        "volumeMounts": [
            {"name": volume.name, "mountPath": volume.folder},
            {"name": _HUB_TMP, "mountPath": "/tmp"},  # noqa: S108 - an emptyDir of this pod
        ],
    }


def _hub_environment(pool: ServingPool, hub: HuggingFace) -> list[Manifest]:
    # A mirror of the hub is named where the engine's other variables are.
    mirror = {name: literal(value) for name, value in pool.spec.engine.env.items() if name == "HF_ENDPOINT"}
    # The image may have said offline, as the engine's own container is.
    plain = environment({**_HUB_VARIABLES, **mirror, "HF_HUB_OFFLINE": "0"})
    if hub.token_secret_name is None:
        return plain
    token = {"secretKeyRef": {"name": hub.token_secret_name, "key": "token"}}
    return [*plain, {"name": "HF_TOKEN", "valueFrom": token}]
