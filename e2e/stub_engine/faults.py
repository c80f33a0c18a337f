"""Faults that a test switches while the engine runs: files in the folder that `STUB_FAULTS` names, looked for at each use.

| file | effect |
| --- | --- |
| `never-confirm` | calls that go through the engine's queue are never answered |
| `ignore-abort` | an aborted request goes on to its end |
| `busy` | the prefix cache is never reset, as if a block were always in use |
| `slow-start=SECONDS` | the process waits that long before it serves; the folder outlives a container, so this is for its restart |
| `slow-prefill=SECONDS` | a scheduled request makes its first token that much later |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "STUB_FAULTS"
BEGUN = "begun"
"""The engine's own mark in that folder, which outlives a container: whoever finds it there has been restarted."""
NEVER_CONFIRM, IGNORE_ABORT, BUSY = "never-confirm", "ignore-abort", "busy"
SLOW_START, SLOW_PREFILL = "slow-start", "slow-prefill"


class Faults:
    """The faults that are on.

    Args:
        folder: Where their files are; without a folder there are none.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def active(self, name: str) -> bool:
        """Whether a fault is on."""
        return name in self._read()

    def seconds(self, name: str) -> float:
        """The seconds that a fault names; 0 while it is off."""
        return float(self._read().get(name) or 0)

    def _read(self) -> dict[str, str]:
        if self._folder is None or not self._folder.is_dir():
            return {}
        pairs = (name.partition("=") for name in os.listdir(self._folder))
        return {name: value for name, _, value in pairs}


def from_environment(environ: Mapping[str, str]) -> Faults:
    """The faults of the folder that the environment names."""
    return Faults(Path(environ[VARIABLE]) if environ.get(VARIABLE) else None)


def begun_before(environ: Mapping[str, str]) -> bool:
    """Whether an engine began before with the same folder; from now on one has. Without a folder nobody can tell."""
    folder = Path(environ[VARIABLE]) if environ.get(VARIABLE) else None
    if folder is None or not folder.is_dir():
        return False
    begun = (folder / BEGUN).exists()
    (folder / BEGUN).touch()
    return begun
