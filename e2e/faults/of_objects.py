"""Faults of objects: edited, reverted, deleted and made anew in the middle of a revocation."""

from __future__ import annotations

import secrets

from e2e.faults.declarations import POOL, is_true, rollback_of
from e2e.faults.of_processes import GUARD_SECONDS, QUICK_SECONDS, RIGHT_SECONDS, patch
from e2e.faults.processes import cut_off
from e2e.faults.scene import Scene
from e2e.faults.site import ENGINES, LEASE_SECONDS, WELL_SECONDS, Site
from e2e.faults.table import fault
from e2e.stack import api, kubectl, storm, stub_pool
from e2e.stack.tenancy import tenant
from e2e.stack.waiting import until

LONGER_SECONDS = 8
"""A right that was given once. An operator counts with the longest that it has seen, in whatever play comes after it."""
MOST_REVOCATIONS = 20


@fault("FenceLeases are deleted by hand", slow=True)
def leases_deleted(scene: Scene) -> None:
    """A lease that vanished proves nothing: whoever wrote it counts until it can do nothing any more."""
    with cut_off(scene.site.pods()[0]):
        kubectl.run("delete", "fencelease", "--all", "--wait=false", namespace=scene.site.namespace)
        scene.revoke()
        scene.fenced(GUARD_SECONDS + RIGHT_SECONDS + 2 * LONGER_SECONDS)


@fault("leaseSeconds is lowered during the fence", slow=True)
def lease_lowered(scene: Scene) -> None:
    """The right of before is waited for, not that of the new spec."""
    set_lease(scene.site, LONGER_SECONDS)
    try:
        with cut_off(scene.site.pods()[0]):
            scene.revoke()
            set_lease(scene.site, LEASE_SECONDS, rolled_out=False)
            scene.fenced(GUARD_SECONDS + 2 * LONGER_SECONDS)
    finally:
        set_lease(scene.site, LEASE_SECONDS)


@fault("the CacheEpoch is reverted, deleted, and made again lower")
def epoch_reverted(scene: Scene) -> None:
    """What was given once stands, whatever becomes of the object that asked for it."""
    scene.revoke()
    name, namespace = scene.latest("rollback"), scene.site.namespace
    before = standing(scene.site, name)
    patch(scene.site, "cacheepoch", name, {"spec": {"incident": None, "floor": 1}})
    until(lambda: is_true(scene.site.namespace, name, "Held"), "a lower floor is held")
    kubectl.run("delete", "cacheepoch", name, namespace=namespace)
    lower = rollback_of(name)
    lower["spec"] = {"target": lower["spec"]["target"], "floor": 1}
    kubectl.apply([lower], namespace)
    until(lambda: is_true(scene.site.namespace, name, "Held"), "the same declaration, made anew, is held")
    if standing(scene.site, name) < before:
        raise AssertionError(f"the epoch fell below {before}")
    scene.fenced(QUICK_SECONDS + RIGHT_SECONDS + LONGER_SECONDS)


@fault("the denied Tenant is deleted and made again")
def tenant_recreated(scene: Scene) -> None:
    """It is another tenant, with a UID of its own; what was revoked of the first stays revoked, and nothing cached comes back."""
    scene.revoke()
    scene.fenced(QUICK_SECONDS)
    kubectl.run("delete", "tenant", scene.victim, namespace=scene.site.namespace)
    kubectl.apply([tenant(scene.victim, scene.victim)], scene.site.namespace)


@fault("the ledgers are edited without pause")
def conflicts(scene: Scene) -> None:
    """A write of the operator meets a version that is not the one it read; revocations go on until its log says so."""
    site, label = scene.site, f"storm-{secrets.token_hex(2)}"
    before = _conflicts(site)
    try:
        with storm.edited("EpochLedger", POOL, label, site.namespace):
            for _ in range(MOST_REVOCATIONS):
                scene.revoke()
                scene.fenced()
                if _conflicts(site) > before:
                    return
    finally:
        kubectl.run("label", "epochledger", POOL, f"{label}-", namespace=site.namespace)
    raise AssertionError(f"in {MOST_REVOCATIONS} revocations nobody edited a ledger between a read and a write; edit it more often")


def _conflicts(site: Site) -> int:
    """How often an operator found that somebody was faster, as far as its logs are kept."""
    return site.logs().count("somebody was faster; the ledger is read")


def standing(site: Site, name: str) -> int:
    """The epoch that a CacheEpoch says stands; waits until it says one."""
    found: list[int] = []

    def said() -> bool:
        status = api.get("cacheepochs", name, site.namespace).get("status") or {}
        found[:] = [status["epoch"]] if "epoch" in status else []
        return bool(found)

    until(said, f"{name} says which epoch stands")
    return found[0]


def set_lease(site: Site, seconds: int, *, rolled_out: bool = True) -> None:
    """Give the pool's guards rights of another length; their pods are rolled."""
    patch(site, "servingpool", POOL, {"spec": {"fence": {"leaseSeconds": seconds}}})
    if rolled_out:
        until(lambda: _settled(site, seconds), f"every engine has rights of {seconds} s", ENGINES * WELL_SECONDS)


def _settled(site: Site, seconds: int) -> bool:
    pods = site.pods()
    wanted = {"name": "CACHESCOPE_LEASE_SECONDS", "value": str(seconds)}
    has = [wanted in pod["spec"]["containers"][0]["env"] for pod in pods]
    return len(pods) == ENGINES and all(has) and stub_pool.is_ready(POOL, site.namespace)
