"""Brings the cluster up, with Helm; on a machine where nothing was built yet, the images are built meanwhile.

Building Kubernetes keeps the processors busy for minutes, and building images waits for downloads and disks: side by side they take
less than one after the other. `python -m images build` then only loads what is there, and says what failed, if something did.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from e2e.cluster.errors import ClusterSetupError
from e2e.cluster.layout import from_environment
from e2e.cluster.local import binaries
from e2e.cluster.providers import choose, observe_host

IMAGES = ("operator", "gateway", "guard", "vllm-cpu")


def main() -> int:
    """Bring the cluster up; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bring_up", description="The cluster, and on the first run its images.")
    parser.add_argument("--provider", default="auto")
    provider = parser.parse_args().provider
    building = _build_images() if _first_run(provider) else None
    status = _cluster("up", "--provider", provider) or _cluster("tools")
    if building:
        building.wait()
    return status


def _first_run(provider: str) -> bool:
    if binaries.built(from_environment()):
        return False
    try:
        return choose(provider, os.environ.get("CACHESCOPE_PROVIDER"), observe_host) == "local"
    except ClusterSetupError:
        return False  # `up` says it


def _cluster(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "e2e.cluster", *arguments], check=False).returncode


def _build_images() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "images", "build", "--keep", *IMAGES])


if __name__ == "__main__":
    sys.exit(main())
