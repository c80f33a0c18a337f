"""The one clock of the guard: milliseconds that go on while the machine sleeps (`CLOCK_BOOTTIME`)."""

from __future__ import annotations

import time


def boot_milliseconds() -> int:
    """Milliseconds since the machine started; no wall clock is ever compared."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
