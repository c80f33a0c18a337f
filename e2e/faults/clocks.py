"""Wall clocks that are ten minutes off: those of operators and guards ahead, those of gateways behind."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Any, Final

from e2e.faults.declarations import POOL, status_of
from e2e.faults.site import WELL_SECONDS, Site, settled
from e2e.stack import kubectl, stub_pool
from e2e.stack.changes import changed
from e2e.stack.decisions import CONTAINER
from e2e.stack.install import GATEWAY, GATEWAY_PODS, OPERATOR
from e2e.stack.waiting import until
from e2e.stub_engine import wall_clock
from e2e.test_builds.gateways import Build, command

OFF_SECONDS: Final = 600
SLACK_SECONDS: Final = 60


@contextmanager
def off(site: Site) -> Iterator[None]:
    """An installation whose processes all have such clocks, as each has shown; afterwards as it was."""
    with ExitStack() as stack:
        stack.callback(settled, site)
        stack.enter_context(_built(site, OPERATOR, "operator", wall_clock.ten_minutes_ahead))
        stack.enter_context(_built(site, GATEWAY, CONTAINER, wall_clock.ten_minutes_behind))
        stack.enter_context(_guards(site))
        until(lambda: _shown(site), "guards and gateways write by clocks that are off", 2 * WELL_SECONDS)
        until(site.is_well, "the pool is ready, and serves", WELL_SECONDS)
        settled(site)
        yield


def operators_is_off(site: Site, fenced: str) -> bool:
    """Whether the status of a CacheEpoch that is fenced was written by such a clock."""
    status = status_of(site.namespace, fenced) or {}
    return _is_off(str(status.get("fencedAt")), OFF_SECONDS)


@contextmanager
def _built(site: Site, deployment: str, container: str, build: Build) -> Iterator[None]:
    def change(manifest: dict[str, Any]) -> None:
        containers = manifest["spec"]["template"]["spec"]["containers"]
        next(each for each in containers if each["name"] == container)["command"] = command(build)

    try:
        with changed("deployment", deployment, change, site.namespace):
            kubectl.rolled_out(deployment, namespace=site.namespace)
            yield
    finally:
        kubectl.rolled_out(deployment, namespace=site.namespace)


@contextmanager
def _guards(site: Site) -> Iterator[None]:
    before = kubectl.get("servingpool", POOL, namespace=site.namespace)["spec"]["engine"]["args"]
    try:
        _arguments(site, [*before, "--clock-offset", str(OFF_SECONDS)])
        yield
    finally:
        _arguments(site, before)
        until(lambda: stub_pool.is_ready(POOL, site.namespace), "the pool is ready", 2 * WELL_SECONDS)


def _arguments(site: Site, args: list[str]) -> None:
    change = {"spec": {"engine": {"args": args}}}
    kubectl.run("patch", "servingpool", POOL, "--type=merge", "-p", json.dumps(change), namespace=site.namespace)


def _shown(site: Site) -> bool:
    leases = kubectl.get("fenceleases", namespace=site.namespace)["items"]
    expected = {pod["metadata"]["uid"]: OFF_SECONDS for pod in site.pods()}
    expected |= {pod["metadata"]["uid"]: -OFF_SECONDS for pod in site.pods(GATEWAY_PODS)}
    found = {item["metadata"]["name"].partition(".")[0]: item["spec"]["renewTime"] for item in leases}
    return all(uid in found and _is_off(found[uid], seconds) for uid, seconds in expected.items())


def _is_off(written: str, seconds: float) -> bool:
    return abs(datetime.fromisoformat(written).timestamp() - time.time() - seconds) < SLACK_SECONDS
