"""kopf as the watcher: it brings what happens in all namespaces, writes nothing, and ends where it cannot go on."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from cachescope.controller.audit import Audit
from cachescope.controller.store import Store
from cachescope.controller.watched_kinds import streamed
from cachescope.controller.watching import watch
from cachescope.core.errors import ClusterError
from cachescope.kube.rest import Rest
from e2e.stack import kubectl
from e2e.stack.paths import KUBECONFIG
from tests.integration import namespaces
from tests.integration.operator_process import resource

SECONDS = 60
# A watcher that ends, ends the process: kopf does not close every connection first. Collected here, it is no fault of a later test.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def namespace() -> Iterator[str]:
    with namespaces.made("watching") as name:
        yield name


@pytest.fixture
def powerless(namespace: str, tmp_path: Path) -> Path:
    """A kubeconfig of somebody who may do nothing."""
    kubectl.run("create", "serviceaccount", "powerless", namespace=namespace)
    config = yaml.safe_load(KUBECONFIG.read_text())
    token = kubectl.run("create", "token", "powerless", namespace=namespace).strip()
    config["users"] = [{"name": item["name"], "user": {"token": token}} for item in config["users"]]
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


async def test_events_of_all_namespaces_arrive_and_nothing_is_written(namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(KUBECONFIG))
    store, ready = Store(), asyncio.Event()
    heard: set[str] = set()
    task = asyncio.create_task(watch(store, heard.add, namespace=None, ready=ready))
    try:
        await until(ready.is_set, task)
        await asyncio.to_thread(kubectl.apply, [resource("Tenant", "watched", {})], namespace)
        await until(lambda: store.get("Tenant", namespace, "watched") is not None, task)
        there = await asyncio.to_thread(kubectl.get, "tenant", "watched", namespace=namespace)
        known = store.get("Tenant", namespace, "watched")
        assert known is not None
        assert known["metadata"]["resourceVersion"] == there["metadata"]["resourceVersion"]
        assert known["kind"] == "Tenant"
        await asyncio.to_thread(kubectl.run, "delete", "tenant", "watched", namespace=namespace)
        await until(lambda: store.get("Tenant", namespace, "watched") is None, task)
        assert "Tenant" in heard
    finally:
        await ended(task)


async def test_a_watcher_that_may_not_watch_ends_instead_of_waiting(
    namespace: str, powerless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(powerless))
    task = asyncio.create_task(watch(Store(), lambda _: None, namespace=namespace, ready=asyncio.Event()))
    async with asyncio.timeout(SECONDS):
        with pytest.raises(Exception, match="forbidden"):
            await task
    del task
    gc.collect()


async def test_what_cannot_be_listed_ends_the_start(namespace: str, powerless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(KUBECONFIG))
    async with Rest() as rest:
        audit = Audit(rest, Store(), namespace=namespace)
        await audit.load()
        assert {kind.kind for kind in streamed(namespace)} <= set(audit.ages())
    monkeypatch.setenv("KUBECONFIG", str(powerless))
    async with Rest() as rest:
        with pytest.raises(ClusterError, match="403"):
            await Audit(rest, Store(), namespace=namespace).load()


async def until(holds: Callable[[], bool], task: asyncio.Task[None]) -> None:
    async with asyncio.timeout(SECONDS):
        while not holds():
            assert not task.done(), task
            await asyncio.sleep(0.05)


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    gc.collect()
