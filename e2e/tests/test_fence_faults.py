"""A fence holds whatever breaks around it: nothing of before is used afterwards, and reuse comes back.

CACHESCOPE_FAULT_TIMES repeats every fault; those that take long are tried only then. CACHESCOPE_FAULT_SITES installations play each
of them at the same time. CACHESCOPE_FAULT_ENGINE=vllm plays them with vLLM. The histories are kept in the cache folder, in
`histories/`. Not here: an operator that is killed at each step of a rollback, see tests/integration/test_operator_faults.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest

from e2e.faults import of_control_plane, of_objects, of_processes, site
from e2e.faults.control_plane import ControlPlane, at_once
from e2e.faults.scene import Scene, drained, held, playing
from e2e.faults.site import Site
from e2e.faults.table import FAULTS, ROUNDS, SITES
from e2e.stack import outage

MODULES = (of_processes, of_objects, of_control_plane)
NAMES = [name for module in MODULES for name, play in FAULTS.items() if play.__module__ == module.__name__]
Record = Callable[[str, object], None]

pytestmark = pytest.mark.skipif(not outage.possible(), reason="the node's processes are no processes of this machine")


@pytest.fixture(scope="session")
def fenced_sites() -> Iterator[list[Site]]:
    """The installations of all fault tests."""
    with ExitStack() as stack:
        yield [stack.enter_context(site.shared(str(number))) for number in range(SITES)]


@pytest.mark.parametrize("turn", range(ROUNDS))
@pytest.mark.parametrize("name", NAMES)
def test_a_fence_holds(fenced_sites: list[Site], record_property: Record, name: str, turn: int) -> None:
    tell(record_property, at_once(fenced_sites, lambda place, shared: played(place, shared, name, turn)))


def played(place: Site, shared: ControlPlane, name: str, turn: int) -> Scene:
    """Play a fault once, and look at what came of it."""
    with playing(place, f"{name} {turn} {place.namespace}", shared) as scene:
        FAULTS[name](scene)
        held(scene)
    drained(place)
    return scene


def tell(record_property: Record, scenes: Sequence[Scene]) -> None:
    """Tell the notes how many plays there were, and how long the longest fence of each kind took."""
    longest: dict[str, float] = {}
    for scene in scenes:
        for fence, seconds in scene.times.items():
            kind = fence.partition("-")[0]
            longest[kind] = max(longest.get(kind, 0), seconds)
    record_property("plays", len(scenes))
    record_property("fences", json.dumps(longest))
