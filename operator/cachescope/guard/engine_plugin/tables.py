"""The approval table of a process: read from a mounted file, and followed while the file changes.

Rules:

- the newest table that was ever read in this process bounds all that follow; an older one is refused (`approvals.follow`);
- a file that is missing, broken, foreign or old leaves no table at all: nothing is shared until there is a good one. A file that
  cannot be read may be the withdrawal of what the last one approved.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cachescope.core.approvals import Expected, Table, follow, read_table
from cachescope.core.errors import CacheScopeError, WireFormatError
from cachescope.core.keys import KeyRing
from cachescope.core.ledgers import Mark
from cachescope.guard.key_folder import read_keys


class Tables:
    """The table that is in force.

    Args:
        file: Where it is mounted.
        keys_folder: Where the pool's permit keys are.
        expected: Whose table it must be; asked once, since it reads the tokenizer's files.

    Attributes:
        current: The table, or `None`.
        problem: Why there is none.
    """

    def __init__(self, file: Path, keys_folder: Path, expected: Callable[[], Expected]) -> None:
        self.current: Table | None = None
        self.problem = "no approval table was read yet"
        self._file = file
        self._keys_folder = keys_folder
        self._ask = expected
        self._expected: Expected | None = None
        self._seen: tuple[str, KeyRing] | None = None
        self._newest: Mark | None = None

    def refresh(self) -> None:
        """Read the file if it or a key changed."""
        try:
            found = (self._file.read_text("ascii", "replace"), self._keys())
            if found != self._seen:
                self._take(*found)
            self._seen = found
        except (OSError, CacheScopeError) as error:
            self.current, self._seen, self.problem = None, None, str(error)

    def _take(self, text: str, keys: KeyRing) -> None:
        self._expected = self._expected or self._ask()
        table = follow(self._newest, read_table(keys, text, self._expected))
        self.current, self._newest, self.problem = table, table.version, ""

    def _keys(self) -> KeyRing:
        if (keys := read_keys(self._keys_folder)) is None:
            raise WireFormatError("there is no permit key to verify approvals with; mount the pool's Secret")
        return keys
