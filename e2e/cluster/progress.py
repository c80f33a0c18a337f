"""The command's output: one line a step, with the seconds since the start."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Progress:
    """Writes the lines that people see; the only place of this package that does."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def line(self, text: str) -> None:
        """Writes one line after the elapsed seconds."""
        sys.stdout.write(f"[{time.monotonic() - self._start:6.1f}s] {text}\n")
        sys.stdout.flush()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Says that a step begins, and when it is done, how long it took."""
        begin = time.monotonic()
        self.line(f"{name} ...")
        yield
        self.line(f"{name}: done in {time.monotonic() - begin:.1f} s")


def show(text: str) -> None:
    """Writes an answer, e.g. the environment, as it stands."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def complain(text: str) -> None:
    """Writes an error."""
    sys.stderr.write(f"error: {text}\n")
