"""A fence holds whatever breaks around it: nothing of before is used afterwards, and reuse comes back.

CACHESCOPE_FAULT_TIMES repeats every fault; those that take long are tried only then. CACHESCOPE_FAULT_ENGINE=vllm plays them with
vLLM. The histories are kept in the cache folder, in `histories/`. Not here: a node that is gone, as the local cluster has one; a
wall clock that is off, see tests/unit/test_wall_clock.py; an operator that is killed at each step of a rollback, see
tests/integration/test_operator_faults.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from e2e.faults import of_control_plane, of_objects, of_processes, site
from e2e.faults.scene import drained, held, playing
from e2e.faults.site import Site
from e2e.faults.table import FAULTS, TIMES
from e2e.stack import outage

MODULES = (of_processes, of_objects, of_control_plane)
NAMES = [name for module in MODULES for name, play in FAULTS.items() if play.__module__ == module.__name__]

pytestmark = pytest.mark.skipif(not outage.possible(), reason="the node's processes are no processes of this machine")


@pytest.fixture(scope="session")
def fenced_site() -> Iterator[Site]:
    """The installation of all fault tests."""
    yield from site.shared()


@pytest.mark.parametrize("turn", range(TIMES))
@pytest.mark.parametrize("name", NAMES)
def test_a_fence_holds(fenced_site: Site, record_property: Callable[[str, object], None], name: str, turn: int) -> None:
    with playing(fenced_site, f"{name} {turn}") as scene:
        FAULTS[name](scene)
        held(scene)
    record_property("fences", json.dumps({fence.partition("-")[0]: seconds for fence, seconds in scene.times.items()}))
    drained(fenced_site)
