"""The authorization ledgers of namespaces: shards first, the head last, and each incident once, whatever happens in between."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from cachescope.controller.authorizations import Authorizations
from cachescope.controller.dispatch import authorization
from cachescope.core.epochs import EpochVector, target_name
from cachescope.core.errors import ClusterError, SpecError
from cachescope.core.heads import Epochs, Heads, Standing, judge
from cachescope.core.ledger_documents import parse_ledger
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Floor, Ledger, shard_name
from cachescope.core.types import TargetKind, TargetName
from cachescope.kube.kinds import collection_of
from cachescope.kube.rest import ConflictError, Document
from tests.unit.bench_leases import begun, ledger
from tests.unit.controller_bench import POOL, Bench, epoch, tenant

FASTER = "somebody was faster; the ledger is read and decided again"
"""What the fault test of conflicts looks for in the operator's log."""
HEAD_PATH = f"/epochledgers/{AUTHORIZATION_HEAD}"


@pytest.fixture
async def bench() -> Bench:
    return await begun(tenant("red"))


def of_tenant(name: str = "e", tenant_name: str = "red", incident: str = "leak-1", **spec: Any) -> Document:
    return epoch(name, target={"kind": "Tenant", "name": tenant_name}, incident={"id": incident}, **spec)


def elsewhere(document: Document, namespace: str = "shop") -> Document:
    metadata = {**document["metadata"], "namespace": namespace, "uid": f"{document['metadata']['uid']}-{namespace}"}
    return {**document, "metadata": metadata}


def target(bench: Bench, uid: str = "tenant-uid-red") -> TargetName:
    return target_name(bench.keys.targets, TargetKind.TENANT, uid)


def shard_path(bench: Bench, uid: str = "tenant-uid-red") -> str:
    return f"/epochledgers/{shard_name(target(bench, uid))}"


def head_of(bench: Bench, namespace: str = "ns") -> Ledger:
    return parse_ledger(bench.api.objects[f"{collection_of('EpochLedger', namespace)}/{AUTHORIZATION_HEAD}"]["spec"])


def shard(bench: Bench) -> Ledger:
    return ledger(bench, shard_name(target(bench)))


def heard_writes(bench: Bench) -> list[str]:
    """Names of ledgers in the order in which they are written from now on."""
    found: list[str] = []
    bench.api.webhook = lambda item: found.append(item["metadata"]["name"]) if item.get("kind") == "EpochLedger" else None
    return found


async def test_the_first_head_names_the_policy(bench: Bench) -> None:
    head = head_of(bench)
    assert (head.sequence, head.reach, head.previous, head.unconfirmed, head.floors) == (1, 0, "", False, {})
    assert sorted(head.policy) == ["CacheScope", "PublicSource", "Secret", "ServingPool", "Tenant"]
    bench.api.requests.clear()
    await bench.authorize()
    assert bench.api.requests == [], "nothing changed"


async def test_an_incident_is_written_to_the_shard_and_then_announced(bench: Bench) -> None:
    found = heard_writes(bench)
    bench.declare(of_tenant(deny=True))
    await bench.authorize()
    assert found == [shard_name(target(bench)), AUTHORIZATION_HEAD]
    assert head_of(bench).floors == {target(bench): Floor(2, abort_below=2, denied=2)}  # type: ignore[arg-type]
    assert head_of(bench).shards == {shard_name(target(bench)): shard(bench).mark}
    assert bench.condition("CacheEpoch", "e", "Accepted") == ("True", "Accepted")


@pytest.mark.parametrize("restarted", [True, False])
async def test_a_shard_that_no_head_announced_is_announced_by_the_next_pass_and_counted_once(bench: Bench, restarted: bool) -> None:
    before = head_of(bench)
    bench.declare(of_tenant(deny=True))
    bench.api.refused.add(HEAD_PATH)
    with pytest.raises(ClusterError):
        await bench.authorize()
    assert (head_of(bench), shard(bench).floors[target(bench)].denies) == (before, True)
    assert "status" not in bench.found("CacheEpoch", "e"), "an incident stands once the head says so"
    bench.api.refused.clear()
    if restarted:
        bench.restart()
    await bench.authorize()
    assert (shard(bench).sequence, head_of(bench).floors[target(bench)].epoch) == (1, 2)
    assert head_of(bench).denied(head_of(bench).vector(target(bench)))


async def another_operator_after_a_refused_head(bench: Bench) -> None:
    """The shard is written and the head is not; then the declaration goes, and another operator begins."""
    bench.api.refused.add(HEAD_PATH)
    with pytest.raises(ClusterError):
        await bench.authorize()
    bench.api.refused.clear()
    bench.remove("CacheEpoch", "e")
    bench.restart()
    await bench.authorize()


async def test_an_unannounced_shard_is_announced_also_when_its_declaration_is_gone(bench: Bench) -> None:
    bench.declare(of_tenant(deny=True))
    await another_operator_after_a_refused_head(bench)
    assert head_of(bench).denied(head_of(bench).vector(target(bench)))


@pytest.mark.parametrize("of_head", [True, False])
async def test_a_lost_answer_counts_nothing_twice(bench: Bench, of_head: bool) -> None:
    bench.declare(of_tenant())
    bench.api.lost.add(HEAD_PATH if of_head else shard_path(bench))
    with pytest.raises(ClusterError):
        await bench.authorize()
    await bench.authorize()
    assert (shard(bench).sequence, head_of(bench).sequence, head_of(bench).epoch(target(bench))) == (1, 2, 2)


async def test_the_first_head_denies_at_once_whom_somebody_declared(bench: Bench) -> None:
    """An operator that dies after one write leaves no head that denies nobody."""
    del bench.api.objects[f"{collection_of('EpochLedger', 'ns')}/{AUTHORIZATION_HEAD}"]
    bench.declare(of_tenant(deny=True))
    bench.restart()
    found = heard_writes(bench)
    await bench.authorize()
    assert found == [shard_name(target(bench)), AUTHORIZATION_HEAD]
    assert (head_of(bench).sequence, head_of(bench).changed) == (1, {target(bench): 1})
    assert head_of(bench).denied(head_of(bench).vector(target(bench)))
    assert bench.condition("CacheEpoch", "e", "Accepted") == ("True", "Accepted")


async def test_a_shard_that_was_written_before_any_head_is_in_the_first_one(bench: Bench) -> None:
    del bench.api.objects[f"{collection_of('EpochLedger', 'ns')}/{AUTHORIZATION_HEAD}"]
    bench.declare(of_tenant(deny=True))
    bench.restart()
    await another_operator_after_a_refused_head(bench)
    assert (head_of(bench).sequence, shard(bench).sequence) == (1, 1)
    assert head_of(bench).denied(head_of(bench).vector(target(bench)))


async def test_somebody_who_was_faster_is_read_and_followed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bench.declare(of_tenant())
    write, times = bench.authorizations.site.objects.write, []

    async def slower(place: Any, content: Ledger, over: Any) -> Any:
        times.append(place.name)
        if len(times) == 2:  # the shard is written, the head is not
            raise ConflictError(409, "somebody was faster; read it again")
        return await write(place, content, over)

    monkeypatch.setattr(bench.authorizations.site.objects, "write", slower)
    await bench.authorize()
    assert times == [shard_name(target(bench)), AUTHORIZATION_HEAD, AUTHORIZATION_HEAD]
    assert [record.message for record in caplog.records if "faster" in record.message] == [FASTER]
    assert (shard(bench).sequence, head_of(bench).epoch(target(bench))) == (1, 2)


async def test_a_denial_is_taken_back_by_a_later_incident_and_not_by_deleting_it(bench: Bench) -> None:
    bench.declare(of_tenant(deny=True))
    await bench.authorize()
    bench.remove("CacheEpoch", "e")
    await bench.authorize()
    assert head_of(bench).floors[target(bench)].denies
    bench.declare(of_tenant("f", incident="over", readmit=True))
    await bench.authorize()
    floor = head_of(bench).floors[target(bench)]
    assert (floor.epoch, floor.denies) == (3, False)
    bench.declare(of_tenant(deny=True))
    await bench.authorize()
    assert head_of(bench).floors[target(bench)] == floor, "the same incident denies no second time"
    assert bench.condition("CacheEpoch", "e", "Held") == ("True", "SpecBehindLedger")


async def test_a_denial_that_is_added_to_an_incident_that_was_taken_back_says_that_it_denies_nobody(bench: Bench) -> None:
    bench.declare(of_tenant())
    await bench.authorize()
    bench.declare(of_tenant("f", incident="over", readmit=True))
    await bench.authorize()
    bench.declare(of_tenant(deny=True))
    await bench.authorize()
    assert not head_of(bench).floors[target(bench)].denies
    assert bench.condition("CacheEpoch", "e", "Held") == ("True", "SpecBehindLedger")
    assert "name another incident id" in bench.message("CacheEpoch", "e", "Held")


async def test_a_moment_that_is_far_ahead_is_held_until_it_is_corrected(bench: Bench) -> None:
    bench.declare(of_tenant(credentialsIssuedBefore="2062-01-01T00:00:00Z"))
    await bench.authorize()
    assert bench.condition("CacheEpoch", "e", "Held") == ("True", "MomentTooLate")
    assert "2062-01-01" in bench.message("CacheEpoch", "e", "Held")
    bench.declare(of_tenant(credentialsIssuedBefore="1970-01-01T01:00:00Z"))
    await bench.authorize()
    assert (bench.condition("CacheEpoch", "e", "Held"), head_of(bench).floor(target(bench)).issued_before) == (
        ("False", "NotHeld"),
        3600,
    )


async def test_what_was_issued_before_a_moment_was_raised_is_behind(bench: Bench) -> None:
    bench.declare(of_tenant(credentialsIssuedBefore="1970-01-01T01:00:00Z"))
    await bench.authorize()
    head = head_of(bench)
    issued, seen = Epochs(EpochVector.of({}), head.vector(target(bench))), Heads(ledger(bench), head).seen
    assert judge(Heads(ledger(bench), head), issued, seen) is Standing.CURRENT
    bench.declare(of_tenant(credentialsIssuedBefore="1970-01-01T02:00:00Z"))
    await bench.authorize()
    assert judge(Heads(ledger(bench), head_of(bench)), issued, seen) is Standing.BEHIND


async def test_a_tenant_that_is_made_anew_is_another_and_the_floor_of_the_first_stays(bench: Bench) -> None:
    bench.declare(of_tenant(deny=True))
    await bench.authorize()
    bench.remove("Tenant", "red")
    await bench.authorize()
    assert head_of(bench).floors[target(bench)].denies
    again = tenant("red")
    again["metadata"]["uid"] = "tenant-uid-again"
    bench.declare(again)
    await bench.authorize()
    other = target(bench, "tenant-uid-again")
    assert {name: floor.denies for name, floor in head_of(bench).floors.items()} == {target(bench): True, other: True}
    bench.remove("CacheEpoch", "e")
    await bench.authorize()
    assert head_of(bench).floors[target(bench)].denies


async def test_principals_are_told_apart_and_from_their_tenant(bench: Bench) -> None:
    for subject in ("ann", "bob"):
        who = {"kind": "jwt", "issuer": "https://corp.example", "subject": subject}
        named = {"kind": "Principal", "name": "red", "principal": who}
        bench.declare(epoch(f"of-{subject}", target=named, incident={"id": "leak-1"}, deny=subject == "ann"))
    await bench.authorize()
    assert sorted(floor.denies for floor in head_of(bench).floors.values()) == [False, True]
    assert target(bench) not in head_of(bench).floors


async def test_compartments_are_told_apart_and_from_their_tenant(bench: Bench) -> None:
    for name in ("m1", "m2"):
        of = {"kind": "Compartment", "name": "red", "compartment": name}
        bench.declare(epoch(f"of-{name}", target=of, incident={"id": "leak-1"}, deny=name == "m1"))
    await bench.authorize()
    named = {name: target_name(bench.keys.targets, TargetKind.COMPARTMENT, "tenant-uid-red", name) for name in ("m1", "m2")}
    assert {name: head_of(bench).floors[of].denies for name, of in named.items()} == {"m1": True, "m2": False}
    assert target(bench) not in head_of(bench).floors


async def test_a_tenant_of_another_namespace_is_written_where_its_requests_may_go(bench: Bench) -> None:
    for document in (tenant("red"), of_tenant(deny=True)):
        bench.declare(elsewhere(document))
    bench.declare(of_tenant())
    await bench.authorizations.reconcile(authorization("shop"), 0)
    assert not [path for path in bench.api.objects if "/shop/epochledgers" in path], "no pool is there, and nobody reads it"
    await bench.authorize()
    denied = target(bench, "tenant-uid-red-shop")
    assert head_of(bench).floors[denied].denies
    bench.declare(elsewhere(POOL))
    await bench.authorizations.reconcile(authorization("shop"), 0)
    assert head_of(bench, "shop").floors[denied].denies
    assert (head_of(bench, "shop").policy, target(bench) in head_of(bench, "shop").floors) == ({}, False)


async def test_every_ruler_holds_what_is_declared_anywhere(bench: Bench) -> None:
    bench.authorizations.rulers = ["ns", "shared"]
    for document in (tenant("red"), of_tenant(deny=True)):
        bench.declare(elsewhere(document))
    for namespace in ("ns", "shared"):
        await bench.authorizations.reconcile(authorization(namespace), 0)
        assert head_of(bench, namespace).floors[target(bench, "tenant-uid-red-shop")].denies
    assert (sorted(head_of(bench, "ns").policy) != [], head_of(bench, "shared").policy) == (True, {})


async def test_what_cannot_be_read_of_one_declaration_holds_up_no_other(bench: Bench) -> None:
    bench.declare(epoch("typo", target={"kind": "Tenant", "name": "red"}, floor="many"))
    bench.declare(of_tenant(deny=True))
    await bench.authorize()
    assert head_of(bench).floors[target(bench)].denies


async def test_a_shard_that_another_leader_made_is_read_before_the_watch_shows_it(bench: Bench) -> None:
    other = Bench()
    other.api.objects, other.api._version = bench.api.objects, 10_000
    await other.start()
    other.restart()
    bench.declare(of_tenant(deny=True))
    other.declare(of_tenant(deny=True))
    await other.authorize()
    standing = head_of(bench)
    gone = bench.found("CacheEpoch", "e")
    bench.store.remove("CacheEpoch", {**gone, "metadata": {**gone["metadata"], "resourceVersion": "99999"}})
    bench.declare(tenant("blue"))
    await bench.authorize()
    assert (head_of(bench).lineage, head_of(bench).floors) == (standing.lineage, standing.floors)


async def test_a_ledger_that_cannot_be_used_is_logged_once_for_as_long_as_it_cannot(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def full(_: object, __: object) -> None:
        raise SpecError("too much is declared; delete CacheEpochs")

    def lines() -> int:
        return len([record for record in caplog.records if record.message == "authorization ledger not usable"])

    with monkeypatch.context() as patched:
        patched.setattr(Authorizations, "_stand", full)
        for _ in range(3):
            await bench.authorize()
    assert lines() == 1
    await bench.authorize()
    monkeypatch.setattr(Authorizations, "_stand", full)
    await bench.authorize()
    assert lines() == 2, "control: it is another time"
