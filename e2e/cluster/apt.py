"""apt-get, by one of this project's processes at a time: `apt-get update` gives up at once where another one runs."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

APT_GET = ("apt-get", "-o", "DPkg::Lock::Timeout=300")
"""The command; it waits for dpkg's lock, but not for that of the package lists."""
LISTS = Path("/var/lib/apt/lists")


@contextmanager
def alone(lists: Path = LISTS) -> Iterator[None]:
    """Wait until nobody else is in such a block. The lock is none of apt's own, so that apt itself can lock within.

    Args:
        lists: apt's folder of package lists.
    """
    folder = os.open(lists, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
