"""Removes the demo: its cluster, and the credentials that it made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Take the cluster down; returns the exit status."""
    cache = Path(os.environ.get("CACHESCOPE_CACHE", "~/.cache/cachescope")).expanduser()
    status = subprocess.run([sys.executable, "-m", "e2e.cluster", "down"], check=False).returncode
    shutil.rmtree(cache / "demo", ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
