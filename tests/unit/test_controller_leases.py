"""Leases are judged on one clock, believed by their signature, and heard of only when something can be seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cachescope.controller.lease_book import MARGIN_SECONDS, LeaseBook, Life
from cachescope.controller.root_keys import RootKeys
from cachescope.controller.store import Store, key_of
from cachescope.controller.sweeping import Sweeper
from cachescope.core.keys import KeyRing
from cachescope.core.leases import GATEWAY, GUARD, LeaseStatement, lease_keys, lease_name, write_lease
from cachescope.core.ledgers import Lineage, Mark
from cachescope.core.permits import permit_keys
from cachescope.core.types import CacheIdentity, Digest
from cachescope.kube.kinds import collection_of
from tests.unit.fake_api import FakeApi
from tests.unit.pools import ROOT, UID


def mark(sequence: int, generation: int = 7) -> Mark:
    return Mark(Lineage(generation, "l"), sequence, Digest("sha256:" + "0" * 64))


GUARDED = LeaseStatement(GUARD, "pod-1", "boot-1", 5, 30_000, "0.1.0", {UID: mark(4)}, pool_uid=UID)
ROUTER = LeaseStatement(GATEWAY, "pod-g", "boot-g", 5, 30_000, "0.1.0", routable={UID: ("pod-1",)})


class Keys(RootKeys):
    """Root keys without an API."""

    @property
    def ring(self) -> KeyRing:
        return ROOT


class Bench:
    """A store, a clock and a book."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.store, self.now, self.version = Store(), 1000.0, 10
        self.news: list[set[str]] = []
        self.held: list[set[str]] = []
        self.book = LeaseBook(self.store, Keys(self.api, "x"), home="ns", clock=lambda: self.now, news=self.hear)
        self.store.listen(self.book.hear)
        self.store.put("ServingPool", {"metadata": {"name": "tiny", "namespace": "ns", "uid": UID, "resourceVersion": "1"}})
        self.book.judge()

    def hear(self, ledgers: set[str], urgent: bool) -> None:
        (self.news if urgent else self.held).append(ledgers)

    def lives(self) -> list[Life]:
        return [item.life for item in self.book.guards(UID)]

    def routed(self) -> set[str]:
        statements = [item.statement for item in self.book.gateways() if item.statement]
        return {uid for item in statements for uid in item.routable.get(UID, ())}

    def write(self, statement: LeaseStatement, *, signed: str = "", created: str = "a", namespace: str = "ns", **spec: Any) -> None:
        ring = lease_keys(ROOT) if statement.holder == GATEWAY else permit_keys(ROOT, UID)
        text = signed or write_lease(ring.current, statement)
        pool = "" if statement.holder == GATEWAY else "tiny"
        name = lease_name(statement.pod_uid, statement.boot_id)
        self.version += 1
        metadata = {"name": name, "namespace": namespace, "uid": f"of-{name}", "resourceVersion": str(self.version)}
        self.store.put(
            "FenceLease",
            {
                "metadata": {**metadata, "creationTimestamp": created},
                "spec": {"holder": statement.holder, "pod": "p", "pool": pool, "leaseSeconds": 30, "statement": text, **spec},
            },
        )


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_what_is_wanted_and_what_a_pod_belongs_to_are_news_that_is_urgent(bench: Bench) -> None:
    bench.write(GUARDED)
    bench.write(ROUTER)
    bench.news.clear()
    bench.write(replace(ROUTER, tick=6, wanted={"another": (CacheIdentity("i"),)}))
    assert bench.news == [{"another"}]
    bench.write(replace(ROUTER, tick=7, wanted={"another": (CacheIdentity("i"),)}))
    assert bench.news == [{"another"}], "it is wanted still"
    bench.write(replace(ROUTER, tick=8))
    bench.write(replace(GUARDED, tick=6, cache=CacheIdentity("i")))
    assert bench.news == [{"another"}, {"another"}, {UID}]
    bench.write(replace(GUARDED, tick=7, cache=CacheIdentity("i"), used_ms=7))
    assert len(bench.news) == 3, "that it was used is none"
    bench.write(replace(ROUTER, tick=9, wanted={UID: (CacheIdentity("i"),)}))
    assert bench.news[3:] == [{UID}], "of a pool that is routed to as well"


def test_a_tick_alone_is_no_news(bench: Bench) -> None:
    bench.write(GUARDED)
    bench.write(replace(GUARDED, tick=6))
    assert bench.news == [{UID}]
    assert bench.held == []
    bench.write(replace(GUARDED, tick=7, acknowledged={UID: mark(5)}))
    assert (bench.news, bench.held) == ([{UID}], [{UID}]), "that a guard follows is no news that is urgent"


def test_a_lease_lapses_on_our_clock_and_comes_back_when_it_moves(bench: Bench) -> None:
    bench.write(GUARDED)
    bench.now += 30 + MARGIN_SECONDS
    bench.book.judge()
    assert bench.lives() == [Life.LIVE]
    bench.now += 1
    bench.book.judge()
    bench.book.judge()
    assert bench.lives() == [Life.LAPSED]
    assert len(bench.news) == 2
    bench.write(replace(GUARDED, tick=6))
    assert bench.lives() == [Life.LIVE]
    assert len(bench.news) == 3


def test_a_lease_that_was_there_before_says_nothing_until_it_moves(bench: Bench) -> None:
    bench.write(GUARDED)
    bench.write(ROUTER)
    again = LeaseBook(bench.store, Keys(bench.api, "x"), home="ns", clock=lambda: bench.now, news=bench.hear)
    for item in bench.store.all("FenceLease"):
        again.hear(key_of("FenceLease", item), None, item)
    bench.book = again
    assert bench.lives() == [item.life for item in again.gateways()] == [Life.UNSEEN]
    again.judge()
    bench.store.listen(again.hear)
    bench.news.clear()
    bench.write(replace(GUARDED, tick=6))
    assert (bench.lives(), [item.life for item in again.gateways()]) == ([Life.LIVE], [Life.UNSEEN])
    bench.write(replace(GUARDED, tick=1, boot_id="new"), created="b")
    assert bench.lives() == [Life.LIVE], "one that is made while we look is no old one"
    assert {UID} in bench.news
    bench.now += 30 + MARGIN_SECONDS + 1
    again.judge()
    assert (bench.lives(), again.gateways()) == ([Life.LAPSED], [])


def test_every_pool_hears_once_all_gateways_sign_with_a_newer_key(bench: Bench) -> None:
    older = write_lease(lease_keys(ROOT).others["k1"], replace(ROUTER, routable={}))
    other = replace(ROUTER, pod_uid="pod-h", routable={})
    bench.write(replace(ROUTER, routable={}), signed=older)
    bench.write(other, signed=write_lease(lease_keys(ROOT).others["k1"], other))
    assert (bench.book.oldest_key(), bench.news) == ("k1", [{UID}])
    bench.write(replace(other, tick=6))
    assert (bench.book.oldest_key(), bench.news) == ("k1", [{UID}]), "one is left"
    bench.write(replace(ROUTER, tick=6, routable={}))
    assert (bench.book.oldest_key(), bench.news) == ("k2", [{UID}, {UID}])


def test_every_pool_hears_of_the_first_gateway_and_of_the_last_one(bench: Bench) -> None:
    idle = replace(ROUTER, routable={})
    bench.write(idle)
    assert bench.news == [{UID}]
    bench.write(replace(idle, pod_uid="pod-h"))
    assert bench.news == [{UID}]
    bench.now += 20
    bench.write(replace(idle, tick=6))
    bench.now += 20
    bench.book.judge()
    assert bench.news == [{UID}], "one is left"
    bench.now += 20
    bench.book.judge()
    assert bench.news == [{UID}, {UID}]


def test_only_live_gateways_say_what_is_routable(bench: Bench) -> None:
    bench.write(ROUTER)
    bench.write(replace(ROUTER, pod_uid="pod-h", routable={UID: ("pod-2",), "another": ("pod-3",)}))
    assert bench.routed() == {"pod-1", "pod-2"}
    bench.now += 100
    bench.book.judge()
    assert bench.routed() == set()


def test_a_guard_cannot_say_what_is_routable(bench: Bench) -> None:
    bench.write(replace(GUARDED, routable={UID: ("pod-1",)}))
    assert bench.routed() == set()
    bench.write(ROUTER)
    assert bench.routed() == {"pod-1"}


@pytest.mark.parametrize(
    "statement",
    [replace(GUARDED, pool_uid="another"), replace(GUARDED, holder=GATEWAY), replace(GUARDED, boot_id="copied")],
    ids=["another pool", "a guard as gateway", "another object"],
)
def test_a_statement_that_does_not_fit_its_object_proves_nothing(bench: Bench, statement: LeaseStatement) -> None:
    bench.write(GUARDED, signed=write_lease(permit_keys(ROOT, UID).current, statement))
    assert bench.book.guards(UID) == []
    assert bench.routed() == set()
    bench.write(GUARDED)
    assert bench.book.guards(UID)


def test_with_the_key_of_a_pool_nobody_speaks_as_a_gateway(bench: Bench) -> None:
    heads = {UID: mark(1, 99), "another": mark(1, 99)}
    forged = replace(ROUTER, pod_uid="pod-1", boot_id="boot-1", acknowledged=heads)
    bench.write(GUARDED, signed=write_lease(permit_keys(ROOT, UID).current, forged))
    assert (bench.routed(), bench.book.generation(UID), bench.book.generation("another")) == (set(), 0, 0)
    bench.write(forged)  # the same statement under the gateways' own key
    assert (bench.routed(), bench.book.generation("another")) == ({"pod-1"}, 99)


def test_a_foreign_signature_proves_nothing(bench: Bench) -> None:
    bench.write(GUARDED, signed=write_lease(lease_keys(ROOT).current, GUARDED))
    bench.write(ROUTER, signed=write_lease(permit_keys(ROOT, UID).current, ROUTER))
    assert (bench.book.guards(UID), bench.routed(), bench.news) == ([], set(), [])


def test_of_a_pods_processes_the_latest_counts(bench: Bench) -> None:
    bench.write(replace(GUARDED, boot_id="new"), created="2026-02-01T00:00:00Z")
    bench.write(GUARDED, created="2026-01-01T00:00:00Z")
    assert [item.statement.boot_id for item in bench.book.guards(UID) if item.statement] == ["new"]


def test_guards_are_told_by_pool_as_they_are_told_of_each(bench: Bench) -> None:
    assert bench.book.guards_by_pool() == {}
    bench.write(ROUTER)
    for boot_id, created in (("new", "2026-02-01T00:00:00Z"), (GUARDED.boot_id, "2026-01-01T00:00:00Z")):
        bench.write(replace(GUARDED, boot_id=boot_id), created=created)
    assert bench.book.guards_by_pool() == {UID: bench.book.guards(UID)}
    assert len(bench.book.guards(UID)) == 1


def test_the_greatest_lineage_that_anybody_saw_is_known(bench: Bench) -> None:
    bench.write(GUARDED)
    bench.write(replace(ROUTER, acknowledged={UID: mark(1, 9)}))
    assert (bench.book.generation(UID), bench.book.generation("another")) == (9, 0)


async def test_only_leases_whose_pod_is_gone_are_swept_and_only_after_long(bench: Bench) -> None:
    sweeper = Sweeper(bench.api, bench.store, bench.book)
    other = replace(GUARDED, pod_uid="pod-2")
    for statement, pod in ((GUARDED, "p"), (other, "q")):
        bench.write(statement, pod=pod)
    for item in bench.store.all("FenceLease"):
        bench.api.objects[f"{collection_of('FenceLease', 'ns')}/{item['metadata']['name']}"] = item
    bench.api.objects[f"{collection_of('Pod', 'ns')}/p"] = {"metadata": {"uid": "pod-1"}}
    bench.api.objects[f"{collection_of('Pod', 'ns')}/q"] = {"metadata": {"uid": "recreated"}}
    bench.now += 599
    await sweeper.sweep()
    assert "delete" not in bench.api.requests
    bench.now += 2
    await sweeper.sweep()
    left = [path.rpartition("/")[2] for path in bench.api.objects if "fenceleases" in path]
    assert left == [lease_name("pod-1", "boot-1")]
