"""Permit keys from a mounted folder, reloaded in place when the Secret rotates."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from cachescope.core.errors import SpecError
from cachescope.core.keys import Key, KeyRing, read_key

_LOG = logging.getLogger(__name__)
_RELOAD_AFTER_MS = 1000


class KeyFolder:
    """The pool's permit keys.

    A folder that cannot be read keeps the keys that are known; a folder that can be read and holds no key leaves none.

    Args:
        folder: One file for each key, named by its id, with 64 hexadecimal digits. Names that start with a dot are Kubernetes' own.
        clock: Milliseconds on the boot clock.
    """

    def __init__(self, folder: Path, clock: Callable[[], int]) -> None:
        self._folder = folder
        self._clock = clock
        self._read_at: int | None = None
        self.ring: KeyRing | None = None

    async def reload(self) -> None:
        """Read the folder now."""
        self._read_at = self._clock()
        try:
            self.ring = await asyncio.to_thread(read_keys, self._folder)
        except (OSError, SpecError) as error:
            _LOG.warning("the permit keys cannot be read; the known ones stay", extra={"problem": str(error)})

    async def reload_if_due(self) -> bool:
        """Read the folder unless that was done within the last second; whether it was read."""
        if self._read_at is not None and self._clock() - self._read_at < _RELOAD_AFTER_MS:
            return False
        await self.reload()
        return True


def read_keys(folder: Path) -> KeyRing | None:
    """Read a folder of keys; `None` when it holds none.

    Raises:
        OSError: The folder or a file cannot be read.
        SpecError: A file holds no key.
    """
    keys = [_read_key(path) for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    return KeyRing.of(*keys) if keys else None


def _read_key(path: Path) -> Key:
    # What is no text becomes one that is no key: an error of the decoder would quote it.
    return read_key(path.name, path.read_text("ascii", "replace"))
