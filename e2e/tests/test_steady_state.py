"""In steady state the operator writes nothing, and tools that apply the same objects again and again change nothing.

CACHESCOPE_SOAK_SECONDS is the length of the window: 60 by default, 300 for the figure in docs/proofs.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from e2e.stack import audit, gitops, helm, kubectl, outage, tenancy
from e2e.stack.install import OPERATOR, POOL, RELEASE, Stack, apply_quickstart, pool_is_ready
from e2e.stack.paths import CHARTS
from e2e.stack.waiting import until

POOLS = 20
WINDOW_SECONDS = float(os.environ.get("CACHESCOPE_SOAK_SECONDS", "60"))
USER = f"system:serviceaccount:{kubectl.NAMESPACE}:{OPERATOR}"
# Renewed every few seconds by whoever leads; it says nothing of any pool.
ELECTION = "leases"
NAMES = [f"quiet-{number:02}" for number in range(POOLS)]
OURS = (
    "servingpools,tenants,cachescopes,publicsources,cacheepochs,deployments,services,networkpolicies,poddisruptionbudgets,roles,"
    "rolebindings"
)

pytestmark = pytest.mark.skipif(not outage.possible(), reason="the API server's audit log is no file of this machine")


@pytest.fixture(scope="module")
def quiet(stack: Stack) -> Iterator[None]:
    """Twenty pools beside the demo's, all reconciled."""
    del stack
    kubectl.apply([tenancy.pool(name) for name in NAMES])
    until(lambda: all(_settled(item) for item in kubectl.get("servingpools")["items"]), "every pool has its conditions")
    until(pool_is_ready, "the demo's pool is ready")
    _until_quiet()
    yield
    kubectl.run("delete", "servingpool", *NAMES)
    kubectl.run("delete", "epochledger", *NAMES)


@pytest.mark.usefixtures("quiet")
def test_the_operator_writes_nothing_while_nothing_changes() -> None:
    since = audit.position()
    deadline = time.monotonic() + WINDOW_SECONDS
    until(lambda: time.monotonic() > deadline, "the window is over", WINDOW_SECONDS + 30)
    assert _writes(since) == []
    elections = sum(write.resource == ELECTION for write in audit.writes(since, USER))
    assert elections > 0, "the operator was not alive: its silence proves nothing"
    # The same measurement sees a write when there is one.
    kubectl.run("delete", "poddisruptionbudget", NAMES[0])
    until(lambda: _writes(since), "the operator heals, and the audit log shows it")
    until(lambda: kubectl.exists("poddisruptionbudget", NAMES[0]), "it has healed")


@pytest.mark.usefixtures("quiet")
def test_tools_that_apply_the_same_objects_change_nothing(stack: Stack) -> None:
    tools: tuple[Callable[[], object], ...] = (
        lambda: apply_quickstart(stack),
        lambda: helm.upgrade(RELEASE, CHARTS / "cachescope", "--force-conflicts", *stack.values()),
        lambda: gitops.sync(stack.quickstart()),
    )
    for tool in tools:  # the first time each writes down what it owns
        tool()
    _until_quiet()
    before, since = _versions(), audit.position()
    for _ in range(3):
        for tool in tools:
            tool()
    assert _versions() == before
    assert _writes(since) == []
    kubectl.run("annotate", "servingpool", POOL, "example=changed")
    assert _versions() != before, "the measurement sees a change when there is one"
    kubectl.run("annotate", "servingpool", POOL, "example-")


def _writes(since: int) -> list[audit.Write]:
    return [write for write in audit.writes(since, USER) if write.resource != ELECTION]


def _until_quiet(seconds: float = 5) -> None:
    """Wait until the operator has written nothing for that long."""
    seen = [audit.position(), time.monotonic()]

    def quiet() -> bool:
        if _writes(int(seen[0])):
            seen[:] = [audit.position(), time.monotonic()]
        return time.monotonic() - seen[1] > seconds

    until(quiet, "the operator has settled")


def _settled(item: dict[str, Any]) -> bool:
    return bool(kubectl.condition(item, "Ready"))


def _versions() -> dict[str, tuple[str, int]]:
    """Version and generation of each object; the generation alone where Kubernetes' own controllers write its status."""
    found = {}
    for item in kubectl.get(OURS)["items"]:
        meta = item["metadata"]
        counted = item["kind"] != "Deployment" and item["kind"] != "PodDisruptionBudget"
        found[f"{item['kind']}/{meta['name']}"] = (meta["resourceVersion"] if counted else "", meta.get("generation", 0))
    return found
