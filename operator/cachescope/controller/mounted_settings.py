"""The mounted settings: the last good ones stay in force while those of now have a fault.

Settings that do not parse must not end a process that works: its successor could not even start. So they are parsed first, and the
process is started anew only for settings that are valid and mean something else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from cachescope.api.settings import Settings
from cachescope.core.errors import SpecError

log = logging.getLogger(__name__)

SECONDS: Final = 10.0


class MountedSettings:
    """Settings that are read again and again.

    Args:
        read: Reads and parses them.

    Attributes:
        good: The last good ones.
        fault: What is wrong with those of now; empty when nothing is.

    Raises:
        SpecError: There are no good ones to begin with.
    """

    def __init__(self, read: Callable[[], Settings]) -> None:
        self._read = read
        self.good = read()
        self.fault = ""

    def look(self) -> bool:
        """Read them; whether they are good and mean something else than the last good ones, whose place they take."""
        try:
            found = self._read()
        except SpecError as error:
            if str(error) != self.fault:
                log.error("settings not taken over; the last good ones stay in force", extra={"fault": str(error)})
            self.fault = str(error)
            return False
        if self.fault:
            log.info("settings are valid again")
        changed, self.good, self.fault = found != self.good, found, ""
        return changed

    async def changed(self, seconds: float = SECONDS) -> None:
        """Return once they are good and mean something else: what pools are built with is fixed within a process."""
        while not self.look():  # noqa: ASYNC110 - a mounted file has no event to wait for
            await asyncio.sleep(seconds)
        log.info("settings changed; the process is started anew")
