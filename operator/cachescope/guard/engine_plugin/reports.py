"""What an engine's process says of its segments, in a file beside the guard's own state: the guard is in another process.

Rules:

- each process has a file of its own, named by its id, and writes it anew about once a second: one that is old is of a process
  that ended or hangs, and says nothing;
- a process that shares no segments says why; a table that requests are still decided by is named until the last of them is gone.

Times are milliseconds of the boot clock, which all processes of a node share.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachescope.core.errors import SpecError
from cachescope.core.ledger_documents import parse_mark
from cachescope.core.ledgers import Mark, write_mark
from cachescope.core.log_lines import fault_of

_LOG = logging.getLogger(__name__)
FORMAT = 1
EVERY_SECONDS = 1.0
FRESH_MS = 5_000
_NAME = "segments-{}.json"


@dataclass(frozen=True, slots=True)
class Report:
    """One process, as it describes itself.

    Attributes:
        pid: Its id.
        at_ms: When it said so.
        problem: Why it shares no segments; empty when it does.
        version: The approval table that is in force, or `None`.
        in_use: Versions of the tables by which requests of this moment were decided.
        block_size: Tokens of a block, or 0.
        mismatches: Hits that were refused since the block was another one.
        unidentified: Hits that were refused since an identity was not there.
        malformed: Salts that began as a segmented one and were none.
    """

    pid: int
    at_ms: int
    problem: str = ""
    version: Mark | None = None
    in_use: tuple[Mark, ...] = ()
    block_size: int = 0
    mismatches: int = 0
    unidentified: int = 0
    malformed: int = 0


def boot_ms() -> int:
    """The present."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def write_report(folder: Path, report: Report) -> None:
    """Write what a process says of itself; a reader sees the file of before or this one, whole.

    Raises:
        OSError: The folder cannot be written.
    """
    marks = {"version": write_mark(report.version) if report.version else None, "in_use": list(map(write_mark, report.in_use))}
    fields = {name: getattr(report, name) for name in Report.__slots__}
    written = folder / f".{_NAME.format(report.pid)}"
    written.write_text(json.dumps({**fields, **marks, "format": FORMAT}), "ascii")
    os.replace(written, folder / _NAME.format(report.pid))


def keep_reporting(folder: Path | None, report: Callable[[], Report]) -> None:
    """Report from now on about once a second, in a thread that ends with the process; without a folder only ask for the report."""
    threading.Thread(target=_report, args=(folder, report), name="cachescope-segments", daemon=True).start()


def _report(folder: Path | None, report: Callable[[], Report], sleep: Callable[[float], object] = time.sleep) -> None:
    """Nothing that fails ends it."""
    problem = ""
    while True:
        try:
            found = report()
            if folder is not None:
                write_report(folder, found)
            if found.problem != problem:
                _LOG.warning("what the engine says of its segments", extra={"problem": found.problem})
            problem = found.problem
        except Exception as error:
            _LOG.error("the engine cannot report its segments", extra=fault_of(error))
        sleep(EVERY_SECONDS)


def read_reports(folder: Path, now_ms: int) -> tuple[Report, ...]:
    """What the processes of this pod say, of those that said it just now; in the order of their ids.

    Args:
        folder: Where they write.
        now_ms: The present (`boot_ms`).
    """
    found = (report for path in folder.glob(_NAME.format("*")) for report in _read(path))
    return tuple(sorted((item for item in found if now_ms - item.at_ms < FRESH_MS), key=lambda item: item.pid))


def _read(path: Path) -> Iterator[Report]:
    """What a file says; nothing if it cannot be read."""
    try:
        document = json.loads(path.read_text("ascii", "replace"))
        if document.pop("format") == FORMAT:
            yield _parsed(document)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SpecError):
        return


def _parsed(document: dict[str, Any]) -> Report:
    version, in_use = document.pop("version"), document.pop("in_use")
    numbers = {name: value for name, value in document.items() if name != "problem"}
    if not all(type(value) is int for value in numbers.values()) or type(document["problem"]) is not str:
        raise TypeError("a field is of another type")
    return Report(**document, version=parse_mark(version) if version else None, in_use=tuple(map(parse_mark, in_use)))
