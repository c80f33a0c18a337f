"""Background work that one object must not end: what nobody thought of is logged once, and tried again."""

from __future__ import annotations

import logging
from types import TracebackType

from cachescope.core.log_lines import fault_of

log = logging.getLogger(__name__)


class Steady:
    """A context for one step of a task, entered again and again; it swallows every exception but a cancellation.

    Args:
        task: What the log calls it.
    """

    def __init__(self, task: str) -> None:
        self._task = task
        self._said = ""

    def __enter__(self) -> None:
        """Begin a step."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        """End it; whether its exception ends here."""
        if not isinstance(error, Exception):
            self._said = self._said if error else ""
            return False
        fault = fault_of(error)
        if str(fault) != self._said:
            log.error("a step of the background work failed; it is tried again", extra={"task": self._task, **fault})
        self._said = str(fault)
        return True
