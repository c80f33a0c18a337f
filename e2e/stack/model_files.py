"""Models in a folder of this machine, for a volume of a pool (`volumes`): so that a test can change files under an engine."""

from __future__ import annotations

import base64
import io
import os
import tarfile
from pathlib import Path

from e2e.stack import kubectl

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
