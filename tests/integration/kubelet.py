"""What the kubelet does for pods that no node runs: it mounts Secrets and accounts, and brings what changes in one step.

A mounted volume is a folder of links below `..data`, itself a link to a folder of one version: renaming that link brings all files
of the next version at once (Kubernetes, `pkg/volume/util/atomic_writer.go`).
"""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from e2e.stack import kubectl


def mount(folder: Path, content: Mapping[str, bytes]) -> None:
    """Bring files into a mounted volume: all of them at once, and what is not among them goes."""
    folder.mkdir(parents=True, exist_ok=True)
    version, data, before = folder / f"..{time.monotonic_ns()}", folder / "..data", [*folder.glob("..[0-9]*")]
    version.mkdir()
    for name, text in content.items():
        (version / name).write_bytes(text)
    (folder / "..new").symlink_to(version.name)
    (folder / "..new").rename(data)
    for name in content:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    for link in folder.iterdir():
        if link.name not in content and not link.name.startswith(".."):
            link.unlink()
    for old in before:
        shutil.rmtree(old)


def mount_secret(folder: Path, namespace: str, name: str) -> None:
    """Mount a Secret as it is now, or bring what changed in it."""
    data = kubectl.get("secret", name, namespace=namespace).get("data") or {}
    mount(folder, {key: base64.b64decode(value) for key, value in data.items()})


def mount_account(folder: Path, namespace: str, account: str) -> str:
    """Mount a ServiceAccount's token, good for an hour, and the cluster's authority; the address of the API server."""
    token = kubectl.run("create", "token", account, "--duration=1h", namespace=namespace)
    seen = kubectl.run("config", "view", "--raw", "--minify", "-o", "json")  # of several clusters, the one that kubectl asks
    cluster: dict[str, str] = json.loads(seen)["clusters"][0]["cluster"]
    data = cluster.get("certificate-authority-data")
    authority = base64.b64decode(data) if data else Path(cluster["certificate-authority"]).read_bytes()
    mount(folder, {"token": token.encode(), "ca.crt": authority})
    return cluster["server"]
