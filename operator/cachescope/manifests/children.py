"""What all children of a pool have in common: names, labels, and the pool as their owner.

Rules:

- labels, selectors and names are a contract with pod templates that earlier versions froze (`revisions`): they never change;
- the pool owns its children, so that the cluster removes them with it, also when no operator runs.
"""

from __future__ import annotations

from typing import Any

from cachescope.api.pools import ServingPool
from cachescope.core.labels import ENGINE, PART_OF_LABEL, POOL_LABEL
from cachescope.manifests.parts import Manifest, selector

_API_VERSIONS = {
    "ControllerRevision": "apps/v1",
    "Deployment": "apps/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "PodDisruptionBudget": "policy/v1",
    "Role": "rbac.authorization.k8s.io/v1",
    "RoleBinding": "rbac.authorization.k8s.io/v1",
    "Secret": "v1",
    "Service": "v1",
    "ServiceAccount": "v1",
}


def child(pool: ServingPool, kind: str, *, name: str, **content: Any) -> Manifest:  # noqa: ANN401 - a manifest's fields
    """A child of the pool.

    Args:
        pool: Its owner.
        kind: Its kind.
        name: Its name.
        **content: Its fields beside metadata; `annotations` go there.
    """
    meta: Manifest = {"name": name, "namespace": pool.namespace, "labels": labels(pool), "ownerReferences": [owner(pool)]}
    if "annotations" in content:
        meta["annotations"] = content.pop("annotations")
    return {"apiVersion": _API_VERSIONS[kind], "kind": kind, "metadata": meta, **content}


def engine_selector(pool: ServingPool) -> dict[str, str]:
    """Labels that select the pool's engine pods."""
    return {**selector(pool.name, ENGINE), POOL_LABEL: pool.name}


def labels(pool: ServingPool) -> dict[str, str]:
    """Labels of every child, pods included."""
    return {**engine_selector(pool), PART_OF_LABEL: "cachescope"}


def engine_account(pool: ServingPool) -> str:
    """Name of the ServiceAccount of the pool's engines, and of its Role and RoleBinding."""
    return f"{pool.name}-engine"


def permit_secret(pool: ServingPool) -> str:
    """Name of the Secret with the pool's permit keys."""
    return f"{pool.name}-permit-keys"


def owner(pool: ServingPool) -> Manifest:
    """The owner reference of what goes with a pool."""
    return {
        "apiVersion": pool.api_version,
        "kind": pool.KIND,
        "name": pool.name,
        "uid": pool.uid,
        "controller": True,
        # With `true` the operator would need rights on the pool's finalizers wherever that admission check is on.
        "blockOwnerDeletion": False,
    }
