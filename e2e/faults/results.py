"""What came of the plays of faults: one JSON object a line in `soak.jsonl` in the cache folder, and a table of it.

`python -m e2e.faults.results` prints, by images and engine, how often each fault was played in a row without a failure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from pathlib import Path

from e2e.stack.paths import CACHE

PATH = CACHE / "soak.jsonl"


@dataclass(frozen=True, slots=True)
class Line:
    """One play, or several at once.

    Attributes:
        at: When it ended.
        fault: What broke.
        engine: With which engine.
        turn: Which repetition it was.
        seconds: How long it took.
        why: Why it failed; empty when it passed.
        fences: Seconds of its fences, by what was revoked.
        images: Hashes of the product's images, by name.
        plays: How many there were at once, each in an installation of its own.
    """

    at: str
    fault: str
    engine: str
    turn: int
    seconds: float
    why: str = ""
    fences: dict[str, float] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)
    plays: int = 1

    @property
    def setting(self) -> str:
        """With what it was played."""
        return f"{self.engine} with {' '.join(f'{name}:{tag}' for name, tag in self.images.items())}"


def write(path: Path, line: Line) -> None:
    """Add a play."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(line)) + "\n")


def read(path: Path) -> list[Line]:
    """All plays, in the order in which they ended; none where there is no file."""
    return [Line(**json.loads(text)) for text in path.read_text().splitlines()] if path.exists() else []


def table(lines: Iterable[Line]) -> Iterator[str]:
    """The table's lines: of each fault the plays in a row that passed, up to the last one."""
    settings: dict[str, dict[str, list[Line]]] = {}
    for line in lines:
        settings.setdefault(line.setting, {}).setdefault(line.fault, []).append(line)
    for setting, faults in settings.items():
        yield setting
        yield from (_row(name, plays) for name, plays in faults.items())


def in_a_row(plays: list[Line]) -> int:
    """How many passed since the last one that failed."""
    return sum(line.plays for line in takewhile(lambda line: not line.why, reversed(plays)))


def _row(name: str, plays: list[Line]) -> str:
    longest = max((seconds for line in plays for seconds in line.fences.values()), default=None)
    fence = "" if longest is None else f", longest fence {longest:.1f} s"
    failures = [line.why for line in plays if line.why]
    last = f"; last failure: {failures[-1]}" if failures else ""
    return f"  {in_a_row(plays):3} in a row of {sum(line.plays for line in plays):3}  {name}{fence}{last}"


if __name__ == "__main__":
    for row in table(read(PATH)):
        print(row)  # noqa: T201 - the table is for people
