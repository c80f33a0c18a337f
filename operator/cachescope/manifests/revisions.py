"""Frozen pod templates: what was built for a pool is kept, so that a new version of the operator changes no pod by itself.

Rules:

- `inputs` is a digest of what the **pool's** people decided, never of code, of the guard's image, or of what the installation
  decides for all pools at once (the largest body, the UID): these come with the next rollout, or where guards are updated now;
- while the inputs are the same, the template that was built first is applied, whichever version reads it;
- defaults are no part of the inputs: a field that a later version adds rolls no pool. So the default of a field never changes;
- a revision is immutable and named by its content; of several of a pool, the one with the highest number is in use.

A reader takes what it knows and passes over the rest, so that an older operator can go on with what a newer one froze.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

from cachescope.api.pools import ServingPool
from cachescope.core.digests import sha256
from cachescope.core.errors import SpecError
from cachescope.core.types import TargetName
from cachescope.manifests.children import child
from cachescope.manifests.engine import pod_template
from cachescope.manifests.parts import Manifest
from cachescope.manifests.platform import Platform

_NAME_DIGITS = 12
_REMEDY = "delete it, and the operator builds the pods' template anew, which may be a rollout"
_NOT_OF_PODS: dict[str, Any] = {
    **dict.fromkeys(("replicas", "rollout", "allowed_tenants", "sharing"), True),
    "isolation": {"tenants", "max_isolated_pools", "idle_seconds", "min_warm_seconds"},
}


@dataclass(frozen=True)
class Revision:
    """A pod template that was built once.

    Attributes:
        inputs: Digest of what the pool's people decided.
        template: The template.
        guard_image: Image of the guard in it.
        guard_version: CacheScope's version in that image.
        number: Its place among the pool's revisions, from 1.
    """

    inputs: str
    template: Manifest
    guard_image: str
    guard_version: str
    number: int = 1


def build_revision(platform: Platform, pool: ServingPool, pool_target: TargetName) -> Revision:
    """Build the template with the present code.

    Args:
        platform: The installation.
        pool: The pool.
        pool_target: Name of the pool's epoch target.

    Raises:
        SpecError: The pool cannot be guarded, or its fields contradict one another.
    """
    template = _plain(pod_template(platform, pool, pool_target))
    return Revision(_inputs(pool, pool_target), template, platform.guard_image, platform.guard_version)


def chosen(pool: ServingPool, existing: Revision | None, fresh: Revision) -> Revision:
    """Which template is applied: the existing one, until people change something or ask for the newest guard now.

    Args:
        pool: The pool.
        existing: The revision in use, or `None`.
        fresh: What the present code builds.
    """
    if existing is None:
        return fresh
    frozen = existing.inputs == fresh.inputs and pool.spec.rollout.guard_updates == "WithNextRollout"
    same = replace(fresh, number=existing.number) == existing
    return existing if frozen or same else replace(fresh, number=existing.number + 1)


def revision_name(pool: ServingPool, revision: Revision) -> str:
    """Name of the ControllerRevision that keeps it."""
    return f"{pool.name}-{_content_digest(_data(revision))}"


def revision_object(pool: ServingPool, revision: Revision) -> Manifest:
    """The ControllerRevision that keeps it."""
    return child(pool, "ControllerRevision", name=revision_name(pool, revision), revision=revision.number, data=_data(revision))


def read_revision(document: Manifest) -> Revision:
    """Read a ControllerRevision.

    Raises:
        SpecError: It is none that an operator wrote.
    """
    name = (document.get("metadata") or {}).get("name", "")
    data = document.get("data") or {}
    try:
        texts = [_typed(data[key], str) for key in ("inputs", "guardImage", "guardVersion")]
        template, number = _typed(data["template"], dict), _typed(document["revision"], int)
    except (KeyError, TypeError) as error:
        raise SpecError(f"the ControllerRevision {name!r} cannot be read ({error}); {_REMEDY}") from error
    if not name.endswith(f"-{_content_digest(data)}"):
        raise SpecError(f"the ControllerRevision {name!r} holds something else than its name says; {_REMEDY}")
    return Revision(texts[0], template, texts[1], texts[2], number)


def _inputs(pool: ServingPool, pool_target: TargetName) -> str:
    spec = pool.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=_NOT_OF_PODS)
    return sha256(_canonical({"pool": pool.uid, "target": pool_target, "spec": spec}))


def _data(revision: Revision) -> Manifest:
    return {
        "inputs": revision.inputs,
        "guardImage": revision.guard_image,
        "guardVersion": revision.guard_version,
        "template": revision.template,
    }


def _content_digest(data: Manifest) -> str:
    return hashlib.sha256(_canonical(data)).hexdigest()[:_NAME_DIGITS]


def _canonical(value: Any) -> bytes:  # noqa: ANN401 - JSON of any kind, floating-point numbers included
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON of any kind
    """The value as the API server gives it back: lists for tuples, whole numbers without a fraction."""
    return json.loads(json.dumps(value), parse_float=_number)


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() else value


def _typed(value: Any, kind: type) -> Any:  # noqa: ANN401 - what a document holds
    if type(value) is not kind:
        raise TypeError(f"{value!r:.40} is no {kind.__name__}")
    return value
