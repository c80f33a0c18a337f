"""Whether unit tests take enough of each package: `python -m tests.branches REPORT`, with a JSON report of coverage.py.

At least `LEAST` of the lines and of the branches, each for itself: a package has six lines to a branch, and their sum would hide
that many a branch is never taken. What is not taken is shown.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

LEAST: Final = 0.95
PACKAGES: Final = ("core", "gateway")
COUNTED: Final = (("lines", "covered_lines", "num_statements"), ("branches", "covered_branches", "num_branches"))

Files = dict[str, dict[str, Any]]
"""What the report says of each file, by its path."""


def main(report: str) -> int:
    """Show how much of each package is taken, and what is not; 1 when it is too little."""
    files: Files = json.loads(Path(report).read_text())["files"]
    held = [_told(package, _of(package, files)) for package in PACKAGES]
    return int(not all(held))


def shares(files: Files) -> dict[str, float]:
    """Which share of lines and of branches is taken, 0 where there are none: nothing that was measured is no proof.

    Raises:
        KeyError: The report was made without branches.
    """
    totals = {kind: [sum(file["summary"][name] for file in files.values()) for name in names] for kind, *names in COUNTED}
    return {kind: covered / number if number else 0.0 for kind, (covered, number) in totals.items()}


def _of(package: str, files: Files) -> Files:
    return {path: file for path, file in files.items() if f"cachescope/{package}/" in path}


def _told(package: str, files: Files) -> bool:
    for path, file in files.items():
        for line in _missing(file):
            sys.stdout.write(f"{path}: {line}\n")
    found = shares(files)
    sys.stdout.write(f"{package}: {', '.join(f'{share:.1%} of its {kind}' for kind, share in found.items())}\n")
    return min(found.values()) >= LEAST


def _missing(file: dict[str, Any]) -> Iterator[str]:
    if file["missing_lines"]:
        yield f"lines {', '.join(map(str, file['missing_lines']))}"
    if file["missing_branches"]:
        ends = (f"{start} to {end if end > 0 else 'the end'}" for start, end in file["missing_branches"])
        yield f"branches {', '.join(ends)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
