"""A pytest plugin (`-p e2e.faults.soaking`) for plays that are repeated: their order, their bound, and a line of each in a file.

Tests that are repeated have a parameter `turn`. All of them are played once before any is played again, so that a run that is cut
off has repeated each. CACHESCOPE_FAULT_SECONDS bounds a run: what has not begun by then is skipped. `python -m e2e.faults.results`
tells what the file says.
"""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime

import pytest

from e2e.faults.engines import ENGINE
from e2e.faults.results import PATH, Line, write
from e2e.stack import built_images

BOUND_SECONDS = float(os.environ.get("CACHESCOPE_FAULT_SECONDS", "inf"))
SIMULATED = "simulated"
TURN = "turn"
_STARTED = time.monotonic()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Repetitions come after everything was played once."""
    items.sort(key=_turn)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what begins after the bound."""
    if time.monotonic() - _STARTED > BOUND_SECONDS:
        pytest.skip("the time of CACHESCOPE_FAULT_SECONDS is over")
    item.user_properties += [("fault", name_of(item)), (TURN, _turn(item))]


def pytest_configure(config: pytest.Config) -> None:
    """Take notes of every play."""
    config.pluginmanager.register(Notes(images()))


class Notes:
    """Writes a line after each play.

    Args:
        images: What is played with.
    """

    def __init__(self, images: dict[str, str]) -> None:
        self._images = images
        self._seconds = 0.0
        self._why = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the phases of a play; the last one ends it."""
        if report.when == "setup":
            self._seconds, self._why = 0.0, ""
        if report.when == "call":
            self._seconds = report.duration
        if report.failed:
            self._why = self._why or _why(report)
        told = dict(report.user_properties)
        if report.when == "teardown" and (self._seconds or self._why):
            write(PATH, self._line(told, report.nodeid))

    def _line(self, told: dict[str, object], node: str) -> Line:
        return Line(
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            fault=str(told["fault"]),
            engine=ENGINE.name if node.startswith("e2e") else SIMULATED,
            turn=int(str(told[TURN])),
            seconds=round(self._seconds, 1),
            why=self._why,
            fences={name: float(seconds) for name, seconds in json.loads(str(told.get("fences", "{}"))).items()},
            images=self._images,
            plays=int(str(told.get("plays", 1))),
        )


def name_of(item: pytest.Item) -> str:
    """What a test plays, in words, whichever repetition it is."""
    name = getattr(item, "originalname", item.name).removeprefix("test_").replace("_", " ")
    return ": ".join([name, *(str(value) for key, value in _parameters(item).items() if key != TURN)])


def images() -> dict[str, str]:
    """Hashes of what the images are made of, by name."""
    found = built_images.references()
    return {name: found[name].rpartition(":")[2] for name in built_images.PRODUCT}


def _why(report: pytest.TestReport) -> str:
    """What went wrong, in a line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longreprtext).strip().partition("\n")[0]


def _turn(item: pytest.Item) -> int:
    return int(str(_parameters(item).get(TURN, 0)))


def _parameters(item: pytest.Item) -> dict[str, object]:
    found: dict[str, object] = item.callspec.params if hasattr(item, "callspec") else {}
    return found
