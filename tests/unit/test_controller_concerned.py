"""Whom a CacheEpoch concerns: every ledger that may still be used for what it names, and each of them is fenced."""

from __future__ import annotations

import pytest

from cachescope.controller.declared_epochs import has_authorization, ledgers_of, read_epoch
from cachescope.controller.store import Key
from cachescope.core.ledgers import AUTHORIZATION_HEAD, authorization_key
from cachescope.kube.rest import Document
from tests.unit.bench_leases import PEOPLE, POOL_UID, LeasedProcess, begun, gateway, ledger, wait
from tests.unit.controller_bench import POOL, Bench, epoch, tenant

KEY = Key("CacheEpoch", "ns", "e")
SECOND = {**POOL, "metadata": {**POOL["metadata"], "name": "second", "uid": "pool-uid-2"}}
OF_SCOPE = epoch("e", target={"kind": "CacheScope", "name": "s"}, incident={"id": "i"})
OF_TENANT = epoch("e", target={"kind": "Tenant", "name": "red"}, incident={"id": "i"}, deny=True)


def scope(uid: str = "scope-1", *pools: str) -> Document:
    metadata = {"name": "s", "namespace": "ns", "uid": uid, "generation": 0}
    spec = {"class": "Tenant", "pools": list(pools or ("tiny",)), "tenants": ["red"]}
    return {"apiVersion": "cachescope.dev/v1alpha1", "kind": "CacheScope", "metadata": metadata, "spec": spec}


def fenced(bench: Bench) -> tuple[str, str]:
    return bench.condition("CacheEpoch", "e", "Fenced")


def concerned(bench: Bench, document: Document, *rulers: str) -> set[str]:
    return set(ledgers_of(bench.store, rulers, KEY, read_epoch(document)))


async def scope_that_is_fenced() -> tuple[Bench, LeasedProcess]:
    bench = await begun(tenant("red"), scope())
    guard = LeasedProcess(bench)
    guard.acknowledge()
    bench.declare(OF_SCOPE)
    await bench.pass_over()
    assert fenced(bench) == ("False", "WaitingForProcesses")
    guard.acknowledge()
    await bench.tell()
    assert fenced(bench) == ("True", "Acknowledged")
    return bench, guard


async def test_a_scope_that_was_made_anew_under_its_name_is_fenced_anew() -> None:
    bench, guard = await scope_that_is_fenced()
    bench.remove("CacheScope", "s")
    bench.declare(scope("scope-2"))
    await bench.pass_over()
    assert fenced(bench) == ("False", "WaitingForProcesses")
    guard.acknowledge()
    await bench.tell()
    assert fenced(bench) == ("True", "Acknowledged")


async def test_every_ledger_of_a_scope_is_fenced_and_not_the_first_alone() -> None:
    bench, _ = await scope_that_is_fenced()
    bench.declare(SECOND)
    await bench.tell()
    assert fenced(bench) == ("False", "NotWritten")
    await bench.pools.reconcile(Key("ServingPool", "ns", "second"), 0)
    await bench.tell()
    assert fenced(bench) == ("False", "Settling"), "of its guards nobody knows yet"
    wait(bench, 100_000)
    await bench.tell()
    assert fenced(bench)[0] == "True"


async def test_a_fence_of_several_ledgers_stays_complete_when_an_operator_starts_anew() -> None:
    bench, guard = await scope_that_is_fenced()
    before = bench.found("CacheEpoch", "e")["status"]
    bench.declare(epoch("f", incident={"id": "another"}))
    await bench.pass_over()
    bench.restart()
    bench.book.roster.settle(bench.book.now_ms())
    guard.write()
    await bench.pass_over()
    assert ledger(bench).sequence > before["sequence"], "the ledger has gone on since"
    assert bench.found("CacheEpoch", "e")["status"] == before
    assert bench.condition("CacheEpoch", "f", "Fenced")[0] == "False"


async def test_a_pool_that_a_scope_names_no_more_is_concerned_as_well() -> None:
    bench = await begun(tenant("red"), scope("scope-1", "second"))
    bench.declare(SECOND)
    document = bench.declare(OF_SCOPE)
    assert concerned(bench, document) == {POOL_UID, "pool-uid-2"}
    await bench.pass_over()
    assert len(ledger(bench).floors) == 1, "what it still answers for the scope is cut"
    bench.remove("CacheScope", "s")
    assert concerned(bench, document) == set()


@pytest.mark.parametrize("pools", [True, False])
async def test_the_people_of_a_namespace_are_fenced_there_also_once_its_last_pool_is_deleted(pools: bool) -> None:
    bench = await begun(tenant("red"))
    bench.authorizations.rulers = ("cachescope-system",)  # `ns` is a team's own namespace
    guard, router = LeasedProcess(bench), gateway(bench)
    for process in (guard, router):
        process.acknowledge()
    if not pools:
        bench.remove("ServingPool", "tiny")  # its pods go on for their grace
    document = bench.declare(OF_TENANT)
    assert concerned(bench, document, "cachescope-system") == {PEOPLE, authorization_key("cachescope-system")}
    await bench.authorize()
    assert sum(floor.denies for floor in ledger(bench, AUTHORIZATION_HEAD).floors.values()) == 1
    router.acknowledge()
    await bench.tell()
    head = ledger(bench, AUTHORIZATION_HEAD)
    fence = bench.fences.of(PEOPLE, head.lineage, head.sequence)
    assert fence is not None
    assert (guard.lease in fence.progress.awaited, fence.fenced_ms) == (True, None)
    guard.acknowledge(PEOPLE)
    await bench.tell()
    fence = bench.fences.of(PEOPLE, head.lineage, head.sequence)
    assert fence is not None
    assert fence.fenced_ms is not None


async def test_a_namespace_that_never_had_a_pool_has_no_ledgers_of_people() -> None:
    bench = await begun(tenant("red"))
    assert [has_authorization(bench.store, name) for name in ("ns", "invented")] == [True, False]
