"""Removes the demo: its cluster, and the credentials that it made; with ``--purge`` everything that was built, too.

Standard library only, so that it works without the virtual environment.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence

from e2e.cluster import session
from e2e.cluster.errors import ClusterSetupError
from e2e.cluster.kubectl import kubectl
from e2e.cluster.layout import Layout
from e2e.cluster.layout import from_environment as cluster_layout
from e2e.cluster.local.teardown import unmount
from e2e.stack.paths import DEMO_NAMESPACE
from images.layout import from_environment as images_layout


def main(arguments: Sequence[str]) -> int:
    """Take the cluster down; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m e2e.demo.down", description="Remove the demo and its cluster.")
    parser.add_argument(
        "--purge", action="store_true", help="also remove built programs, images, installed engines and the builder's storage"
    )
    purge: bool = parser.parse_args(arguments).purge
    layout = cluster_layout()
    try:
        leave_existing_cluster(layout)
    except ClusterSetupError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    command = [sys.executable, "-m", "e2e.cluster", "down", *(["--purge"] if purge else [])]
    status = subprocess.run(command, check=False).returncode
    shutil.rmtree(layout.cache / "demo", ignore_errors=True)
    if purge:
        remove_builds()
    return status


def leave_existing_cluster(layout: Layout) -> None:
    """Remove the demo's namespace where the cluster stays: it is somebody's own.

    The releases of both charts lie in that namespace and go with it, and nothing in it waits for an operator. The CRDs stay, since
    somebody else's resources may be of these kinds: deleting a CRD deletes those.
    """
    if session.recorded_provider(layout) == "kubeconfig":
        kubectl(layout, "delete", "namespace", DEMO_NAMESPACE, "--ignore-not-found", "--timeout=180s")


def remove_builds() -> None:
    """Remove the builder's storage and its work, and installed engines; mounts first, since some lead out of the folder."""
    layout = images_layout()
    for folder in (layout.builder, layout.work, cluster_layout().engines):
        unmount(folder)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
