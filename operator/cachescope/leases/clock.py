"""The one clock of a guard or gateway process: milliseconds that go on while the machine sleeps (`CLOCK_BOOTTIME`).

Its lease also says when it was written, by the machine's wall clock: for people, and nothing rests on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def process_clock() -> Callable[[], int]:
    """A clock that starts now; made once in a process, after its fork. Ticks, rights and the ages of permits are read from it.

    No wall clock and no clock of another machine is ever compared with it.
    """
    started_at = _boot_milliseconds()
    return lambda: _boot_milliseconds() - started_at


def renew_time() -> str:
    """The present (RFC 3339), for `FenceLease.spec.renewTime`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _boot_milliseconds() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
