"""Installs what builds need on this machine."""

import os
import shutil
from pathlib import Path

from e2e.cluster.apt import APT_GET, alone
from images.errors import ImageError
from images.processes import run
from images.progress import Progress


def ensure_packages(programs: tuple[str, ...], *, log: Path, progress: Progress) -> None:
    """Installs the Debian packages of missing programs; each program's package has its name.

    Args:
        programs: Programs that have to be on the PATH.
        log: Where apt's output goes.
        progress: Where the step is shown.

    Raises:
        ImageError: They are missing, and this is not root on a Debian-like system.
    """
    missing = [program for program in programs if not shutil.which(program)]
    if not missing:
        return
    names = " ".join(missing)
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise ImageError(
            f"not installed: {names}",
            remedy=f"run `sudo apt-get install {names}`, or start Docker; with `--base python:3.11-slim` no mmdebstrap is needed.",
        )
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    with progress.step(f"install {names}"), alone():
        for command in ([*APT_GET, "update", "-qq"], [*APT_GET, "install", "-y", "-qq", "--no-install-recommends", *missing]):
            run(command, label=f"apt-get {command[3]}", log=log, progress=progress, environment=quiet)
