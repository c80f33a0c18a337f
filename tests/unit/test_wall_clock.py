"""No right, permit or fence depends on a wall clock: a clock that is ten minutes off, on any machine, changes none of them.

Clocks of two machines are never compared, so the only way in would be a module that reads the wall clock. Here is every one, with
what it does with it. `e2e/tests/test_fence_faults.py` plays a fence with clocks that are off.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import cachescope

SOURCE = Path(cachescope.__file__).parent
DECIDING = ("core", "leases", "guard", "gateway", "controller", "kube")
OF_TIME = frozenset({"time", "time_ns", "localtime", "gmtime", "ctime", "strftime", "CLOCK_REALTIME", "CLOCK_TAI"})
OF_DATES = frozenset({"now", "utcnow", "today"})
READERS = {
    "core/log_lines.py": "writes when a line was logged",
    "guard/engine_plugin/chains.py": "approvals of public sources end at a date, also where an engine uses them",
    "leases/clock.py": "writes renewTime of a lease, for people",
    "gateway/main.py": "`exp` and `iat` of tokens are of the issuer's wall clock; approvals of public sources end at a date",
    "controller/verdicts.py": "writes lastTransitionTime, which nobody reads back",
    "controller/cache_epochs.py": "writes committedAt and fencedAt, for people",
    "controller/process.py": "names a new root key; hands out the clock of tenants, public sources and isolation probes",
    "controller/tenants.py": "writes since when a claim is held: of two that match, the earlier one holds",
    "kube/election.py": "writes renewTime for people; the election counts on its own clock",
    "kube/events.py": "writes when an Event was posted",
}


def reads(tree: ast.AST) -> Iterator[str]:
    """How a module reads the wall clock."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (f"from time import {name.name}" for name in node.names)
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).rpartition(".")[2]
            if (owner == "time" and node.attr in OF_TIME) or (owner in {"datetime", "date"} and node.attr in OF_DATES):
                yield f"{owner}.{node.attr}"


def found() -> dict[str, list[str]]:
    paths = [path for folder in DECIDING for path in sorted((SOURCE / folder).rglob("*.py"))]
    every = {str(path.relative_to(SOURCE)): list(reads(ast.parse(path.read_text()))) for path in paths}
    return {name: what for name, what in every.items() if what}


def test_whoever_reads_the_wall_clock_is_listed_with_its_reason() -> None:
    assert found().keys() == READERS.keys()


def test_nothing_that_decides_on_rights_and_fences_is_among_them() -> None:
    deciding = {
        "core/admission.py",
        "core/fences.py",
        "core/leases.py",
        "leases/rounds.py",
        "controller/fences.py",
    }
    assert all((SOURCE / name).exists() for name in deciding)
    assert not deciding & READERS.keys()


@pytest.mark.parametrize(
    "text",
    ["import time\ntime.time()", "from time import time", "datetime.now()", "datetime.datetime.utcnow()", "time.CLOCK_REALTIME"],
)
def test_every_way_to_read_it_is_seen(text: str) -> None:
    assert list(reads(ast.parse(text)))


@pytest.mark.parametrize("text", ["time.monotonic()", "time.clock_gettime(time.CLOCK_BOOTTIME)", "clock.now()"])
def test_other_clocks_are_none(text: str) -> None:
    assert not list(reads(ast.parse(text)))
