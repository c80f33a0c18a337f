"""A fence holds whatever breaks around it: nothing of before is used afterwards, and reuse comes back.

CACHESCOPE_FAULT_TIMES repeats every fault (20 in `make soak`); those that take long are tried only then. The histories are kept in
the cache folder, in `histories/`, and the seconds of each fence in `fence-times.json`. Not here: a node that is gone, as the local
cluster has one; a wall clock that is off, see tests/unit/test_wall_clock.py; an operator that is killed at each step of a rollback,
see tests/integration/test_operator_faults.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from e2e.faults import of_control_plane, of_objects, of_processes, site
from e2e.faults.scene import drained, held, playing
from e2e.faults.site import Site
from e2e.faults.table import FAULTS, TIMES
from e2e.stack import outage
from e2e.stack.paths import CACHE

MODULES = (of_processes, of_objects, of_control_plane)  # they fill the table

pytestmark = pytest.mark.skipif(not outage.possible(), reason="the node's processes are no processes of this machine")


@pytest.fixture(scope="session")
def fenced_site() -> Iterator[Site]:
    """The installation of all fault tests."""
    yield from site.shared()


@pytest.fixture(scope="module")
def times() -> Iterator[dict[str, list[dict[str, float]]]]:
    """Seconds of the fences, by fault."""
    found: dict[str, list[dict[str, float]]] = {}
    yield found
    (CACHE / "fence-times.json").write_text(json.dumps(found, indent=1) + "\n")
    for name, fences in found.items():
        print(f"{name:70} {json.dumps(fences)}")  # noqa: T201 - the table is for whoever runs this


@pytest.mark.parametrize("time", range(TIMES))
@pytest.mark.parametrize("name", FAULTS)
def test_a_fence_holds(fenced_site: Site, times: dict[str, list[dict[str, float]]], name: str, time: int) -> None:
    with playing(fenced_site, f"{name} {time}") as scene:
        FAULTS[name](scene)
        held(scene)
    times.setdefault(name, []).append({fence.partition("-")[0]: seconds for fence, seconds in scene.times.items()})
    drained(fenced_site)
