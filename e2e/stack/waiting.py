"""Waiting for a condition, with a deadline; never for a number of seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

PERIOD_SECONDS = 0.2


def until(holds: Callable[[], object], what: str, seconds: float = 180) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: It does not within that time; the message names what was waited for.
    """
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(PERIOD_SECONDS)
