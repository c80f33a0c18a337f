"""A process whose wall clock is off: what Python code reads of it, moved. Namespaces of time have no wall clock to move.

The stub engine moves its own by `--clock-offset`; test builds of operator and gateway are made of this module's source, so that it
imports nothing but the standard library.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable

Patch = Callable[[object, str, object], None]
"""Puts something in the place of an attribute; `setattr`, where it need not be undone."""


def ten_minutes_ahead(patch: Patch) -> None:
    """A test build."""
    moved(patch, 600)


def ten_minutes_behind(patch: Patch) -> None:
    """A test build."""
    moved(patch, -600)


def moved(patch: Patch, seconds: float) -> None:
    """Move the clock, before anything that reads it is imported."""
    now, now_ns, universal, local = time.time, time.time_ns, time.gmtime, time.localtime

    class Moved(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Moved:
            return cls.fromtimestamp(now() + seconds, tz)

    patch(time, "time", lambda: now() + seconds)
    patch(time, "time_ns", lambda: now_ns() + int(seconds * 1_000_000_000))
    patch(time, "gmtime", lambda at=None: universal(now() + seconds if at is None else at))
    patch(time, "localtime", lambda at=None: local(now() + seconds if at is None else at))
    patch(datetime, "datetime", Moved)
