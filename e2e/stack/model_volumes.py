"""Models in a folder of this machine, as a volume of a pool: so that a test can change files under an engine.

Only where the node is this machine.
"""

from __future__ import annotations

import base64
import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.stack import kubectl
from e2e.stack.waiting import until

MODELS = "/models"
"""Where the images of engines have theirs."""


def copied(pod: str, folder: Path) -> None:
    """Copy an engine's models into a folder, readable by everybody.

    Args:
        pod: Name of a pod of engines.
        folder: Where to; it is there.
    """
    script = f"tar -C {MODELS} -cz . | base64 -w0"
    packed = base64.b64decode(kubectl.run("exec", pod, "-c", "engine", "--", "sh", "-c", script))
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    folder.chmod(0o755)


def put(target: Path, content: bytes) -> None:
    """Put a file in the place of another at once: whoever has that one open keeps it."""
    fresh = target.with_name(f".{target.name}")
    fresh.write_bytes(content)
    fresh.chmod(0o644)
    os.replace(fresh, target)


@contextmanager
def claimed(name: str, folder: Path, namespace: str = kubectl.NAMESPACE) -> Iterator[None]:
    """A folder of this machine as a volume, and the claim of that name that is bound to it alone.

    Args:
        name: Of both.
        folder: The folder.
        namespace: Of the claim.
    """
    kubectl.apply(_manifests(name, folder), namespace)
    try:
        # The scheduler looks again only after minutes at a pod whose claim was not bound.
        until(lambda: _is_bound(name, namespace), f"the claim {name} is bound")
        yield
    finally:
        kubectl.run("delete", "pvc", name, "--wait=false", namespace=namespace)
        kubectl.run("delete", "pv", name, "--wait=false")


def _manifests(name: str, folder: Path) -> list[dict[str, Any]]:
    size, modes = {"storage": "1Mi"}, ["ReadOnlyMany"]
    volume = {"capacity": size, "accessModes": modes, "storageClassName": "", "hostPath": {"path": str(folder)}}
    claim = {"accessModes": modes, "storageClassName": "", "volumeName": name, "resources": {"requests": size}}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": claim},
    ]


def _is_bound(name: str, namespace: str) -> bool:
    return bool(kubectl.get("pvc", name, namespace=namespace)["status"].get("phase") == "Bound")
