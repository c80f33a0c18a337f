"""A folder of this machine as a volume of the cluster; only where the node is this machine (`outage.possible`)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.stack import kubectl
from e2e.stack.waiting import until


@contextmanager
def claimed(claim: str, folder: Path, namespace: str = kubectl.NAMESPACE) -> Iterator[None]:
    """A claim that is bound to a folder; what pods have of it outlives the claim's deletion.

    Args:
        claim: Its name.
        folder: The folder; every user of the cluster's pods may read it.
        namespace: Where it is.
    """
    folder.chmod(0o755)
    name = f"cachescope-{secrets.token_hex(4)}"
    kubectl.apply(_objects(name, claim, folder), namespace)
    try:
        # The scheduler looks again only after minutes at a pod whose claim was not bound.
        until(lambda: _is_bound(claim, namespace), f"the claim {claim} is bound")
        yield
    finally:
        kubectl.run("delete", "pvc", claim, "--wait=false", namespace=namespace)
        kubectl.run("delete", "pv", name, "--wait=false")


def _objects(name: str, claim: str, folder: Path) -> list[dict[str, Any]]:
    size, modes = {"storage": "1Mi"}, ["ReadOnlyMany"]
    volume = {"capacity": size, "accessModes": modes, "storageClassName": "", "hostPath": {"path": str(folder)}}
    asked = {"accessModes": modes, "storageClassName": "", "volumeName": name, "resources": {"requests": size}}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim}, "spec": asked},
    ]


def _is_bound(claim: str, namespace: str) -> bool:
    return bool(kubectl.get("pvc", claim, namespace=namespace)["status"].get("phase") == "Bound")
