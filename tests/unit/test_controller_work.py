"""Which work a change makes, how failures are repeated, and how the process says how it is."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from cachescope.controller.dispatch import Dispatch, affected, authorization
from cachescope.controller.health import MAX_AGE_SECONDS, Health
from cachescope.controller.metrics import Metrics
from cachescope.controller.options import Options
from cachescope.controller.process import repeat
from cachescope.controller.store import Key, Store
from cachescope.controller.watched_kinds import API_KEYS
from cachescope.controller.work_queue import WorkQueue
from cachescope.controller.workers import Workers
from cachescope.core.errors import ClusterError, SpecError
from cachescope.core.log_lines import name_in_logs
from cachescope.kube.rest import ConflictError, Document

POOL, OTHER = Key("ServingPool", "ns", "tiny"), Key("ServingPool", "ns", "other")
THIRD = Key("ServingPool", "ns", "third")
TENANT, SCOPE = Key("Tenant", "ns", "t"), Key("CacheScope", "ns", "s")
SOURCE = Key("PublicSource", "ns", "p")
EPOCH, PEOPLE = Key("CacheEpoch", "ns", "e"), authorization("ns")
OWNED = {"ownerReferences": [{"kind": "ServingPool", "name": "tiny"}]}
LABELLED = {"labels": {"cachescope.dev/pool": "tiny"}}


def document(key: Key, *, metadata: Document | None = None, **spec: Any) -> Document:
    meta = {"name": key.name, "namespace": key.namespace, "uid": key.name, "resourceVersion": "1"}
    return {"metadata": {**meta, **(metadata or {})}, "spec": spec}


@pytest.fixture
def store() -> Store:
    made = Store()
    for key in (POOL, OTHER):
        made.put("ServingPool", document(key, model={"name": "m"}))
    made.put("ServingPool", document(THIRD, model={"name": "n"}))
    made.put("Tenant", document(TENANT, identities={"apiKeys": [{"secretName": "keys"}]}))
    made.put("CacheScope", document(SCOPE))
    return made


@pytest.mark.parametrize(
    ("key", "documents", "due"),
    [
        (Key("EpochLedger", "ns", "tiny"), [{}], {POOL}),
        (Key("EpochLedger", "ns", "authorization.shard-0"), [{}], {PEOPLE}),
        (Key("CacheEpoch", "ns", "e"), [{"spec": {"target": {"name": "tiny"}}}], {EPOCH, POOL}),
        (Key("CacheEpoch", "ns", "e"), [{"spec": {"target": {"kind": "CacheScope", "name": "s"}}}], {EPOCH, POOL, OTHER, THIRD}),
        (Key("CacheEpoch", "ns", "e"), [{"spec": {"target": {"kind": "Tenant", "name": "t"}}}], {EPOCH}),
        (Key("Deployment", "ns", "x"), [{"metadata": OWNED}], {POOL}),
        (Key("Pod", "ns", "x"), [{"metadata": LABELLED}], {POOL}),
        (Key("Service", "ns", "x"), [{"metadata": {}}, {"metadata": OWNED}], {POOL}),
        (Key(API_KEYS, "ns", "keys"), [{}], {TENANT}),
        (Key(API_KEYS, "ns", "others"), [{}], set()),
        (Key(API_KEYS, "elsewhere", "keys"), [{}], set()),
        (TENANT, [{}, {}], {TENANT}),
        (TENANT, [{}], {TENANT, SCOPE, PEOPLE, POOL, OTHER, THIRD}),
        (TENANT, [{"metadata": {"labels": {"a": "b"}}}, {"metadata": {}}], {TENANT, POOL, OTHER, THIRD}),
        (SCOPE, [{"spec": {"pools": ["tiny"]}}], {SCOPE, POOL, OTHER, THIRD, PEOPLE}),
        (SCOPE, [{"metadata": {"uid": "1"}}, {"metadata": {"uid": "2"}}], {SCOPE, POOL, OTHER, THIRD}),
        (SOURCE, [{}, {}], {SOURCE, SCOPE}),
        (POOL, [{"spec": {"model": {"name": "m"}}}], {POOL, OTHER, SCOPE, PEOPLE}),
        (POOL, [{"spec": {"model": {"name": "m"}}}, {"spec": {"model": {"name": "m"}}}], {POOL}),
        (POOL, [{"spec": {"model": {"name": "x"}}}, {"spec": {"model": {"name": "m"}}}], {POOL, OTHER}),
        (POOL, [{"spec": {"engine": {"adapters": [{"name": "n"}]}}}, {"spec": {}}], {POOL, THIRD}),
        (Key("FenceLease", "ns", "l"), [{}], set()),
    ],
)
def test_a_change_makes_the_work_that_it_touches(store: Store, key: Key, documents: list[Document], due: set[Key]) -> None:
    assert set(affected(store, key, documents)) == due


def test_a_pool_of_one_tenant_and_the_pool_that_it_was_made_of_are_looked_at_together(store: Store) -> None:
    owner = {"kind": "ServingPool", "name": "tiny", "uid": "tiny-uid", "controller": True}
    whose = {"poolName": "tiny", "poolUid": "tiny-uid", "tenantName": "t", "tenantUid": "tenant-uid"}
    made = Key("ServingPool", "ns", "tiny-0123456789")
    dedicated = document(made, metadata={"ownerReferences": [owner]}, dedicatedTo=whose, model={"name": "of its own"})
    store.put("ServingPool", dedicated)
    assert set(affected(store, made, [dedicated, dedicated])) == {made, POOL}
    epoch = {"metadata": {}, "spec": {"target": {"name": "tiny"}}}
    assert set(affected(store, EPOCH, [epoch])) == {EPOCH, POOL, made}
    due: list[Key] = []
    Dispatch(store, lambda key, _: due.append(key), ["ns"]).ledgers({made.name}, urgent=True)
    assert set(due) == {made, POOL}, "a gateway wants something of it, which the other one starts"
    forged = document(made, metadata={"ownerReferences": [{**owner, "uid": "another"}]}, dedicatedTo=whose)
    assert POOL not in set(affected(store, made, [forged, forged]))


async def test_failures_are_repeated_logged_once_and_end_nothing(caplog: pytest.LogCaptureFixture) -> None:
    queue: WorkQueue[Key] = WorkQueue()
    seen: list[int] = []
    ended = asyncio.Event()
    faults = [
        ClusterError("PATCH /tenants/t: away; try again"),
        ClusterError("PATCH /tenants/t: away; try again"),
        ConflictError(409, "read again"),
        KeyError("x"),
        None,
    ]

    async def reconcile(_: Key, failures: int) -> None:
        seen.append(failures)
        if fault := faults[len(seen) - 1]:
            raise fault
        ended.set()

    metrics = Metrics()
    task = asyncio.create_task(Workers(queue, {"Tenant": reconcile}, metrics, exists=lambda _: True).run(1))
    with caplog.at_level(logging.WARNING):
        queue.add(TENANT)
        async with asyncio.timeout(15):
            while not ended.is_set():
                for key in [TENANT, *queue._timers]:
                    queue.add(key)  # what is due later is due now
                await asyncio.sleep(0)
    task.cancel()
    assert seen[:5] == [0, 1, 2, 3, 4]
    assert [record.getMessage() for record in caplog.records] == ["not reconciled", "not reconciled"]
    assert {vars(record)["object"] for record in caplog.records} == {name_in_logs(*TENANT)}
    assert vars(caplog.records[0])["fault"] == f"PATCH /tenants/{name_in_logs(*TENANT)}: away; try again", "no log names a tenant"
    name, results = "cachescope_operator_reconciles_total", ("ClusterError", "Conflict", "Bug")
    assert [metrics.registry.get_sample_value(name, {"kind": "Tenant", "result": result}) for result in results] == [2, 1, 1]


async def test_what_is_gone_is_not_looked_at_again_once_that_was_dealt_with() -> None:
    queue: WorkQueue[Key] = WorkQueue()
    seen: list[Key] = []
    dealt_with = asyncio.Event()

    async def reconcile(key: Key, failures: int) -> None:
        seen.append(key)
        if key == TENANT and not failures:
            raise ClusterError("away; try again")
        if key == TENANT:
            dealt_with.set()

    workers = Workers(queue, {"Tenant": reconcile, "CacheScope": reconcile}, Metrics(), exists=lambda key: key == SCOPE)
    task = asyncio.create_task(workers.run(1))
    for key in (TENANT, SCOPE):
        queue.add(key)
    async with asyncio.timeout(5):
        await dealt_with.wait()
    await asyncio.sleep(0)
    assert (seen, list(queue._timers)) == ([TENANT, SCOPE, TENANT], [SCOPE])
    task.cancel()


async def test_what_is_repeated_survives_every_fault_and_logs_a_fault_once(caplog: pytest.LogCaptureFixture) -> None:
    faults: list[Exception | None] = [ClusterError("403"), ClusterError("403"), KeyError("uid"), KeyError("uid"), None, None]
    times: list[int] = []
    enough = asyncio.Event()

    async def action() -> None:
        times.append(len(times))
        if len(times) > len(faults):
            enough.set()
        elif fault := faults[len(times) - 1]:
            raise fault

    with caplog.at_level(logging.INFO):
        task = asyncio.create_task(repeat(0, action))
        await asyncio.wait_for(enough.wait(), 5)
    assert not task.done()
    task.cancel()
    assert [record.getMessage() for record in caplog.records] == ["not done", "not done", "done again"]


def test_a_standby_is_ready_and_a_stale_watch_is_not_alive() -> None:
    health = Health("Standby")
    assert (health.alive()[0], health.ready()[0]) == (True, True)
    health.role = "Loading"
    assert (health.alive()[0], health.ready()[0]) == (True, False)
    health.role, health.ages = "Leading", lambda: {"Tenant": MAX_AGE_SECONDS, "Pod": MAX_AGE_SECONDS + 1}
    assert (health.alive()[0], health.ready()[0], health.stale()) == (False, True, {"Pod": MAX_AGE_SECONDS + 1})


def test_options_that_would_fail_in_every_pool_are_refused() -> None:
    assert Options("ns", "image", api_servers=("10.0.0.1/32",)).watched_namespace == "ns"
    assert Options("ns", "image", scope="Cluster").watched_namespace is None
    faults: list[dict[str, Any]] = [
        *({"namespace": ""}, {"guard_image": ""}, {"guard_version": "latest"}),
        *({"api_servers": ("10.0.0.1/33",)}, {"api_server_ports": ()}, {"api_server_ports": (0,)}),
    ]
    for wrong in faults:
        with pytest.raises(SpecError):
            Options(**{"namespace": "ns", "guard_image": "image", **wrong})
