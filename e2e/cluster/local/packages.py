"""Debian packages that the local cluster and the image builds need; the missing ones are installed."""

import os
import shutil
import subprocess

from e2e.cluster.apt import APT_GET, alone
from e2e.cluster.commands import run
from e2e.cluster.errors import ClusterSetupError
from e2e.cluster.progress import Progress

PACKAGES = (
    "buildah",
    "ca-certificates",
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "gcc",
    "iproute2",
    "ipset",
    "iptables",
    "kmod",
    "libc6-dev",
    "mmdebstrap",
    "openssl",
    "runc",
)


def installed(status: str) -> set[str]:
    """Reads the names of installed packages from rows of name and state."""
    rows = (line.split() for line in status.splitlines())
    return {row[0] for row in rows if row[1:] == ["installed"]}


def _missing() -> list[str]:
    query = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *PACKAGES]
    # It ends with code 1 when it knows one name not at all, and still lists the others.
    answer = subprocess.run(query, capture_output=True, text=True, check=False)
    return sorted(set(PACKAGES) - installed(answer.stdout))


def install(progress: Progress) -> None:
    """Installs what is missing, with apt-get.

    Args:
        progress: Where to say so.

    Raises:
        ClusterSetupError: This is not a Debian-like machine, or apt-get failed.
    """
    if not shutil.which("apt-get"):
        raise ClusterSetupError(
            "the local cluster needs a machine with apt-get (Debian, Ubuntu)",
            remedy="use `--provider kind` or `--provider kubeconfig` on this machine.",
        )
    missing = _missing()
    if not missing:
        return
    progress.line(f"installing Debian packages with apt-get: {' '.join(missing)}")
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    with alone():
        run([*APT_GET, "-q", "-y", "update"], env=env)
        run([*APT_GET, "-q", "-y", "install", "--no-install-recommends", *missing], env=env)
    progress.line("Debian packages are installed")
