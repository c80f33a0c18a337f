"""The command's output: steps to standard error with the seconds since the start, answers to standard output."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Progress:
    """Writes the lines that people see."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def line(self, text: str) -> None:
        """Writes one line after the elapsed seconds."""
        sys.stderr.write(f"[{time.monotonic() - self._start:6.1f}s] {text}\n")
        sys.stderr.flush()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Says that a step begins, and when it is done, how long it took."""
        begin = time.monotonic()
        self.line(f"{name} ...")
        yield
        self.line(f"{name}: done in {time.monotonic() - begin:.1f} s")


def show(text: str) -> None:
    """Writes an answer, for people and for other programs."""
    sys.stdout.write(f"{text}\n")


def complain(text: str) -> None:
    """Writes an error."""
    sys.stderr.write(f"error: {text}\n")
