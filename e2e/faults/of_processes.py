"""Faults of operator, guards and gateways: killed, stopped, cut off, deaf, or more of them than before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

from cachescope.core.rosters import margin_ms
from e2e.faults import clocks
from e2e.faults.declarations import POOL
from e2e.faults.engines import ENGINE, STUB
from e2e.faults.processes import cut_off, of_pod, stopped
from e2e.faults.scene import Scene
from e2e.faults.site import ENGINES, FRESH_SECONDS, LEASE_SECONDS, STALE_SECONDS, WELL_SECONDS, Site
from e2e.faults.table import fault
from e2e.stack import kubectl, stub_pool
from e2e.stack.install import GATEWAY_PODS, OPERATOR_PODS
from e2e.stack.waiting import until

QUICK_SECONDS = 5
RIGHT_SECONDS = LEASE_SECONDS + margin_ms(1000 * LEASE_SECONDS) / 1000
SLACK_SECONDS = 4
"""For looking, writing a status, and a busy machine."""
GUARD_SECONDS = 2 * RIGHT_SECONDS + FRESH_SECONDS + SLACK_SECONDS
"""For a denial that has to wait for a guard that may still serve what was permitted before."""
GATEWAY_SECONDS = RIGHT_SECONDS + STALE_SECONDS + SLACK_SECONDS
GUARD = "api_server"
"""In the command line of the process that the guard is in; vLLM's engine core is another process, which goes on."""


@fault("nothing")
def nothing(scene: Scene) -> None:
    """The control: the fence of a healthy installation."""
    scene.revoke()
    scene.fenced(QUICK_SECONDS)


@fault("the operator is deleted")
def operator_deleted(scene: Scene) -> None:
    """The one that leads, right after the declaration."""
    scene.revoke()
    kubectl.run("delete", "pod", leader(scene.site), "--grace-period=1", "--wait=false", namespace=scene.site.namespace)


@fault("the leading operator is paused, and wakes beside another", slow=True)
def operator_paused(scene: Scene) -> None:
    """What it still had in hand when it stopped is a compare-and-swap that another one has overtaken."""
    paused = leader(scene.site)
    pod = kubectl.get("pod", paused, namespace=scene.site.namespace)
    with stopped(*of_pod(pod)):
        scene.revoke()
        until(lambda: leader(scene.site) != paused, "another operator leads")
        scene.fenced()


@fault("a guard is cut off from the API server")
def guard_cut_off(scene: Scene) -> None:
    """It goes on until its right ends, and is fenced by that."""
    with cut_off(scene.site.pods()[0]):
        scene.revoke()
        scene.fenced_by_expiry("rollback", GUARD_SECONDS)


@fault("a guard stands still at rest, for longer than its lease", slow=True)
def guard_stopped(scene: Scene) -> None:
    """A process that wakes after its right ended finds no right."""
    with stopped(*of_pod(scene.site.pods()[0], GUARD)):
        scene.revoke()
        scene.fenced_by_expiry("rollback", GUARD_SECONDS)


@fault("a guard stands still while requests are queued in its engine")
def guard_stopped_with_a_queue(scene: Scene) -> None:
    """What the engine made meanwhile, or makes when both wake, may not be handed over."""
    pod = scene.site.busiest()
    slow = slow_prefill(scene.site, pod, seconds=2) if ENGINE.name == STUB else nullcontext()
    with slow, stopped(*of_pod(pod, GUARD)):
        scene.revoke()
        scene.fenced_by_expiry("rollback", GUARD_SECONDS)


@fault("an engine never confirms its aborts", engine=STUB)
def never_confirms(scene: Scene) -> None:
    """Its guard acknowledges nothing, lapses, and is fenced by that. The call that was lost stays lost: the engine is replaced."""
    namespace, pod = scene.site.namespace, scene.site.busiest()["metadata"]["name"]
    stub_pool.set_fault(pod, "never-confirm", namespace)
    try:
        scene.revoke()
        scene.fenced_by_expiry("rollback", GUARD_SECONDS)
    finally:
        kubectl.run("delete", "pod", pod, "--grace-period=1", namespace=namespace)


@fault("a gateway is cut off from the API server")
def gateway_cut_off(scene: Scene) -> None:
    """It may go on with `Fresh` for its time; the denial is fenced after that."""
    with cut_off(scene.site.pods(GATEWAY_PODS)[0]):
        scene.revoke()
        scene.fenced_by_expiry("denial", GATEWAY_SECONDS)


@fault("the pool is scaled up during the fence", slow=True)
def scaled_up(scene: Scene) -> None:
    """New guards begin above the floor."""
    try:
        with cut_off(scene.site.pods()[0]):  # so that the fence takes its time
            scene.revoke()
            scale(scene.site, ENGINES + 1)
            until(lambda: len(scene.site.pods()) == ENGINES + 1, "another engine pod is there")
            scene.fenced_by_expiry("rollback", GUARD_SECONDS)
        until(lambda: stub_pool.is_ready(POOL, scene.site.namespace), "the bigger pool is ready", 2 * WELL_SECONDS)
    finally:
        scale(scene.site, ENGINES)
    until(lambda: len(scene.site.pods()) == ENGINES, "the pool is as before")


@fault("clocks are ten minutes off: those of operators and guards ahead, those of gateways behind", slow=True, engine=STUB)
def clocks_off(scene: Scene) -> None:
    """No clock of one machine is compared with that of another, so that nothing is different."""
    with clocks.off(scene.site):
        scene.control_plane.meet()
        scene.revoke()
        scene.fenced(QUICK_SECONDS)
        scene.control_plane.meet()
        if not clocks.operators_is_off(scene.site, scene.latest("rollback")):
            raise AssertionError("the operator's clock was right, so nothing was broken; see the fault")


def leader(site: Site) -> str:
    """Name of the pod of the operator that leads."""
    holder: str = kubectl.get("lease", "cachescope-operator", namespace=site.namespace)["spec"]["holderIdentity"]
    names = [pod["metadata"]["name"] for pod in site.pods(OPERATOR_PODS)]
    return next((name for name in names if holder.startswith(f"{name}_")), holder)


def scale(site: Site, replicas: int) -> None:
    """Give the pool as many engines."""
    patch(site, "servingpool", POOL, {"spec": {"replicas": replicas}})


def patch(site: Site, kind: str, name: str, change: dict[str, Any]) -> None:
    """Merge a change into an object."""
    kubectl.run("patch", kind, name, "--type=merge", "-p", json.dumps(change), namespace=site.namespace)


@contextmanager
def slow_prefill(site: Site, pod: dict[str, Any], *, seconds: float) -> Iterator[None]:
    """A stub engine whose first tokens come that much later."""
    name = pod["metadata"]["name"]
    stub_pool.set_fault(name, f"slow-prefill={seconds}", site.namespace)
    with ExitStack() as stack:
        stack.callback(stub_pool.clear_faults, name, site.namespace)
        yield
