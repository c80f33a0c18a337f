"""Whose lease it is: every engine pod of a namespace may write there, and harms nobody but the pods of that namespace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cachescope.controller.lease_speakers import LeaseSpeakers
from cachescope.core.digests import sha256
from cachescope.core.labels import POOL_LABEL
from cachescope.core.leases import GATEWAY, GUARD, MOST_GUARD_MS, LeaseStatement, write_lease
from cachescope.core.ledgers import Lineage, Mark, authorization_key
from cachescope.core.permits import permit_keys
from cachescope.core.rosters import ANYBODY, Member, after_right_ms, right_ms
from cachescope.core.types import Digest
from tests.unit.bench_leases import LEASE_MS, PEOPLE, LeasedProcess, begun, gateway, ledger, wait
from tests.unit.controller_bench import POOL, epoch, tenant
from tests.unit.pools import ROOT, UID
from tests.unit.test_controller_leases import GUARDED, ROUTER, Bench, mark

OTHER = "00000000-0000-0000-0000-00000000000b"


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.store.put("ServingPool", {"metadata": {"name": "other", "namespace": "ns", "uid": OTHER, "resourceVersion": "1"}})
    return made


def member(bench: Bench) -> Member:
    (entry,) = bench.book.roster.entries()
    return entry.member


def whose(bench: Bench) -> tuple[str, str, str]:
    found = member(bench)
    return found.holder, found.pool, found.pool_uid


def add_pod(bench: Bench, pool: str = "tiny") -> None:
    """The API server shows the engine pod of the lease."""
    labels = {POOL_LABEL: pool}
    bench.store.put("Pod", {"metadata": {"name": "p", "namespace": "ns", "uid": "pod-1", "labels": labels, "resourceVersion": "1"}})


def changed(statement: LeaseStatement, **fields: Any) -> LeaseStatement:
    return replace(statement, **fields)


def by_other(**fields: Any) -> dict[str, str]:
    """What a neighbour makes of a guard's lease, with the key that it has."""
    statement = replace(GUARDED, pool_uid=OTHER, acknowledged={OTHER: mark(9)}, released=True, **fields)
    return {"signed": write_lease(permit_keys(ROOT, OTHER).current, statement), "pool": "other"}


SPOILT = pytest.mark.parametrize(
    "spoilt",
    [by_other(), {"signed": "x", "pool": "other"}, {"signed": "x", "holder": GATEWAY, "pool": ""}, {"signed": "x", "pool": ""}],
    ids=["signed", "of another pool", "as a gateway", "nothing"],
)


def test_nobody_is_a_gateway_but_in_the_namespace_of_the_installation(bench: Bench) -> None:
    bench.write(ROUTER, namespace="team-b")
    assert (bench.routed(), whose(bench)) == (set(), (GUARD, "", ""))
    bench.write(replace(ROUTER, pod_uid="pod-h"))
    assert bench.routed() == {"pod-1"}


def test_a_guard_speaks_of_the_authorization_of_its_own_namespace_alone(bench: Bench) -> None:
    top = 2**53 - 2
    elsewhere = authorization_key("elsewhere")
    for statement in (
        replace(GUARDED, acknowledged={elsewhere: mark(9, top)}),
        replace(GUARDED, witnesses={elsewhere: {"digest": "x"}}),
    ):
        bench.write(statement)
        assert (bench.book.guards(UID), bench.book.generation(elsewhere), bench.book.witnesses(elsewhere)) == ([], 0, [])
    assert (bench.news, bench.held) == ([], []), "names of nobody make no work"
    bench.write(replace(GUARDED, acknowledged={authorization_key("ns"): mark(9, 8)}))
    assert (len(bench.book.guards(UID)), bench.book.generation(authorization_key("ns"))) == (1, 8)


@SPOILT
def test_whose_lease_it_was_it_stays_whatever_a_neighbour_writes_into_it(bench: Bench, spoilt: dict[str, str]) -> None:
    bench.write(GUARDED)
    assert (whose(bench), member(bench).acknowledged) == ((GUARD, "tiny", UID), {UID: mark(4)})
    bench.write(GUARDED, **spoilt)
    found = member(bench)
    assert (whose(bench), found.acknowledged, found.released) == ((GUARD, "tiny", UID), {}, False)
    bench.write(GUARDED)
    assert member(bench).acknowledged == {UID: mark(4)}, "it writes its own again"


@SPOILT
def test_an_engine_pod_that_is_there_tells_the_pool_and_not_what_its_lease_says(bench: Bench, spoilt: dict[str, str]) -> None:
    add_pod(bench)
    bench.write(GUARDED, **spoilt)
    assert (whose(bench), member(bench).released) == ((GUARD, "tiny", UID), False)


def test_who_cannot_be_made_out_is_anybody_who_may_write_there(bench: Bench) -> None:
    bench.write(GUARDED, signed="x")
    assert whose(bench) == (ANYBODY, "", "")
    assert (member(bench).serves, member(bench).issues) == (True, True)
    elsewhere = Bench()
    elsewhere.write(GUARDED, signed="x", namespace="team-b")
    assert (whose(elsewhere), member(elsewhere).issues) == ((GUARD, "", ""), False)


def test_the_guards_of_a_pool_that_was_made_anew_are_still_those_of_the_one_before(bench: Bench) -> None:
    bench.write(GUARDED)
    add_pod(bench)
    bench.store.put("ServingPool", {"metadata": {"name": "tiny", "namespace": "ns", "uid": "new", "resourceVersion": "9"}})
    bench.write(replace(GUARDED, tick=6))
    assert (whose(bench), member(bench).acknowledged) == ((GUARD, "tiny", UID), {UID: mark(4)})
    assert bench.book.guards("new") == []
    bench.write(replace(GUARDED, tick=7, boot_id="new"))
    assert {item.member.pool_uid for item in bench.book.roster.entries()} == {UID, "new"}, (
        "of a process that began since nothing is known"
    )


def test_what_cannot_even_be_looked_at_is_a_fault_of_its_own_lease(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(LeaseSpeakers, "read", lambda *_: (_ for _ in ()).throw(RecursionError()))
        bench.write(GUARDED)
    assert bench.book.guards(UID) == []
    bench.write(replace(GUARDED, tick=6))
    assert bench.book.guards(UID)


@pytest.mark.parametrize(("namespace", "holds"), [("team-b", False), ("ns", True)])
async def test_a_lease_elsewhere_that_calls_itself_a_gateways_holds_up_no_revocation(namespace: str, holds: bool) -> None:
    bench = await begun(tenant("red"))
    guard, gate, foreign = LeasedProcess(bench), gateway(bench), gateway(bench, "foreign")
    bench.declare(epoch("e", target={"kind": "Tenant", "name": "red"}, deny=True, incident={"id": "i"}))
    await bench.authorize()
    for _ in range(40):
        wait(bench, LEASE_MS)
        guard.acknowledge()
        gate.acknowledge()
        foreign.spoil(namespace, leaseSeconds=3600)
        await bench.tell()
    assert (bench.condition("CacheEpoch", "e", "Fenced")[0] == "False") == holds, "whoever may write here may be one"


@pytest.mark.parametrize("spoilt", [{}, {"pool": "other"}, {"holder": GATEWAY}, {"leaseSeconds": 3600}])
async def test_a_spoilt_lease_makes_no_fence_shorter_and_none_longer_than_silence(spoilt: dict[str, Any]) -> None:
    bench = await begun(tenant("red"))
    guard, gate = LeasedProcess(bench), gateway(bench)
    for process in (guard, gate):
        process.acknowledge()
    bench.declare(epoch("e", target={"kind": "Tenant", "name": "red"}, deny=True, incident={"id": "i"}))
    await bench.authorize()
    guard.write()  # its last sign of life: it is cut off now, and serves `Fresh`
    guard.spoil(**spoilt)
    # What the pool allows: nobody knows whether the guard was given more than it said.
    began, least = bench.now, right_ms(60_000) + after_right_ms(60_000, 120_000)
    while bench.condition("CacheEpoch", "e", "Fenced")[0] != "True" and bench.now < began + 1000:
        wait(bench, 1000)
        gate.acknowledge()
        await bench.tell()
    assert least <= (bench.now - began) * 1000 <= least + 3000


async def test_a_guard_of_another_namespace_brings_no_doubt_and_uses_up_no_generations() -> None:
    bench = await begun(tenant("red"))
    bench.declare({**POOL, "metadata": {**POOL["metadata"], "name": "evil", "namespace": "team-b", "uid": OTHER}})
    before = bench.found("EpochLedger", "authorization.head")
    bogus = Mark(Lineage(2**53 - 2, "f" * 32), 9, Digest("sha256:" + "0" * 64))
    names = {PEOPLE: bogus}
    statement = LeaseStatement(GUARD, "q", "boot", 1, 3000, "0.1.0", names, {PEOPLE: {"digest": "x"}}, pool_uid=OTHER)
    signed = write_lease(permit_keys(bench.keys.ring, OTHER).current, statement)
    LeasedProcess(bench, name="q").spoil("team-b", pool="evil", statement=signed)
    for _ in range(2):
        await bench.authorize()
    assert bench.found("EpochLedger", "authorization.head")["spec"] == before["spec"]


async def test_a_lineage_that_a_guard_makes_up_uses_up_no_generations() -> None:
    bench = await begun(tenant("red"))
    guard, lineages = LeasedProcess(bench), []
    for number in range(3):
        top = Mark(Lineage(2**53 - 2, f"{number:032x}"), 9, sha256(bytes([number])))
        guard.write(acknowledged={PEOPLE: top})
        for _ in range(2):
            await bench.authorize()
        lineages.append(ledger(bench, "authorization.head").lineage.generation)
    assert lineages == [2**52 + 1, 2**52 + 2, 2**52 + 3]
    bench.declare(epoch("e", target={"kind": "Tenant", "name": "red"}, deny=True, incident={"id": "i"}))
    await bench.authorize()
    assert bench.condition("CacheEpoch", "e", "Accepted") == ("True", "Accepted"), "shards are written all the same"


@pytest.mark.parametrize(("says", "counts"), [(3_600_000, MOST_GUARD_MS), (3000, 3000)])
async def test_no_guard_has_a_longer_right_than_the_api_allows_whatever_it_signs(says: int, counts: int) -> None:
    bench = await begun(tenant("red"))
    LeasedProcess(bench, fresh_ms=says).write(lease_ms=says)
    (entry,) = bench.book.roster.entries()
    assert (entry.longest_ms, entry.member.fresh_ms) == (counts, counts)
