"""Pods whose cache belongs to another identity than is asked for make room for new ones, and no other pod ever does."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from cachescope.controller.metrics import Metrics
from cachescope.controller.new_identities import BOUND_SECONDS, PAUSE_SECONDS, outdated
from cachescope.core.types import NO_CACHE, CacheIdentity
from tests.unit.bench_leases import LeasedProcess, gateway
from tests.unit.template_bench import TemplateBench

OLD, NEW, OTHER = (CacheIdentity(letter * 43) for letter in "onx")


@pytest.mark.parametrize(
    ("bound", "asked", "spoken", "gone"),
    [
        ({"p": OLD}, {NEW}, {NEW}, {"p"}),
        ({"p": OLD, "q": OTHER}, {NEW}, {NEW}, {"p", "q"}),
        ({"p": OLD}, set(), set(), set()),
        ({"p": OLD}, set(), {NEW}, set()),
        ({"p": OLD, "q": NO_CACHE}, {NEW}, {NEW}, set()),
        ({"p": OLD, "q": NEW}, {NEW}, {NEW}, set()),
        ({"p": OLD}, {NEW}, {NEW, OLD}, set()),
        ({"p": OLD}, {OLD}, {OLD}, set()),
        ({}, {NEW}, {NEW}, set()),
    ],
)
def test_pods_go_only_where_none_is_free_or_wanted(
    bound: dict[str, CacheIdentity], asked: set[CacheIdentity], spoken: set[CacheIdentity], gone: set[str]
) -> None:
    assert outdated(bound, frozenset(asked), frozenset(spoken)) == gone


@pytest.fixture
async def bench() -> TemplateBench:
    """A tenant's pool with one pod, which is bound since long."""
    made = TemplateBench()
    await made.begin("red")
    bind(made, "p")
    await made.settle(1)
    made.now += 100
    return made


@pytest.fixture
def guard(bench: TemplateBench) -> LeasedProcess:
    """The guard of that pod."""
    found = bench.guard_of("red", "p")
    found.tick = 1000
    return found


def bind(bench: TemplateBench, pod: str, identity: CacheIdentity = OLD) -> LeasedProcess:
    """A pod whose guard says what it is bound to."""
    bench.run_pod(bench.pool_of("red")["metadata"]["name"], pod)
    guard = bench.guard_of("red", pod)
    guard.write(cache=identity)
    return guard


def ask(bench: TemplateBench, *identities: CacheIdentity) -> LeasedProcess:
    """A gateway finds no pod for them."""
    process = gateway(bench)
    process.write(wanted={bench.pool_of("red")["metadata"]["uid"]: identities} if identities else {})
    return process


async def heard(bench: TemplateBench, *guards: LeasedProcess, **changes: Any) -> None:
    """The operator sees what is asked for, and then hears of guards that were not used since, unless they say so."""
    await bench.settle(1)
    bench.now += 1
    for guard in guards:
        guard.write(**{"cache": OLD, **changes})


def pods(bench: TemplateBench) -> list[str]:
    return bench.names("Pod")


async def test_a_bound_pod_makes_room_once_and_it_is_said(
    bench: TemplateBench, guard: LeasedProcess, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    object.__setattr__(bench.site, "renewed", metrics.renewed)
    ask(bench, NEW)
    await heard(bench, guard)
    with caplog.at_level(logging.INFO):
        await bench.settle(3)
    assert pods(bench) == []
    assert bench.api.requests.count("delete") == 1
    assert [
        item["reason"] for item in bench.api.objects.values() if item["kind"] == "Event" and item["action"] == "DeletePods"
    ] == ["NewIdentity"]
    assert metrics.registry.get_sample_value("cachescope_operator_renewed_pods_total") == 1
    said = "".join(str(vars(record)) for record in caplog.records) + str(list(bench.api.objects.values()))
    assert "make room for a new cache identity" in said
    for path, item in bench.api.objects.items():
        assert "fenceleases" in path or not any(identity in str(item) for identity in (OLD, NEW))
    assert not any(identity in str(vars(record)) for record in caplog.records for identity in (OLD, NEW))


async def test_nothing_goes_while_nothing_is_asked_for_or_the_pod_is_wanted(bench: TemplateBench) -> None:
    await bench.settle(1)
    for asked in ((), (OLD,), (OLD, NEW)):
        ask(bench, *asked)
        await bench.settle(1)
        assert pods(bench) == ["p"]


async def test_a_pod_that_is_free_or_starts_is_waited_for(bench: TemplateBench, guard: LeasedProcess) -> None:
    bench.run_pod(bench.pool_of("red")["metadata"]["name"], "q", ready=False)
    ask(bench, NEW)
    await heard(bench, guard)
    await bench.settle(1)
    assert pods(bench) == ["p", "q"]
    bind(bench, "q", OTHER)
    await bench.settle(1)
    assert pods(bench) == ["q"], "the one that was bound a moment ago is left"
    bench.now += BOUND_SECONDS + PAUSE_SECONDS
    await bench.settle(1)
    assert pods(bench) == []


async def test_a_pod_that_was_used_since_is_left_and_one_that_was_not_heard_of_too(
    bench: TemplateBench, guard: LeasedProcess
) -> None:
    ask(bench, NEW)
    await heard(bench)
    await bench.settle(2)
    assert pods(bench) == ["p"], "it may have been used"
    assert bench.key_of("red") in bench.due, "somebody comes back"
    for _ in range(3):
        bench.now += PAUSE_SECONDS
        guard.tick += 1
        guard.write(cache=OLD, used_ms=guard.tick + 1)
        await bench.settle(1)
        assert pods(bench) == ["p"], "another identity's requests go there"
    bench.now += PAUSE_SECONDS
    guard.tick += int(1000 * 20 * PAUSE_SECONDS)
    guard.write(cache=OLD, used_ms=1000)
    await bench.settle(1)
    assert pods(bench) == []


async def test_what_is_asked_for_again_later_begins_anew(bench: TemplateBench, guard: LeasedProcess) -> None:
    ask(bench, NEW)
    await heard(bench, guard, used_ms=1001)
    ask(bench)
    await heard(bench, guard)
    bench.now += 1
    ask(bench, NEW)
    await bench.settle(1)
    assert pods(bench) == ["p"], "it was not heard of since"
    await heard(bench, guard)
    await bench.settle(1)
    assert pods(bench) == []


async def test_a_silent_guards_pod_is_bound_as_before(bench: TemplateBench) -> None:
    bench.now += 10_000
    bench.book.judge()
    ask(bench, NEW)
    await bench.settle(1)
    assert pods(bench) == []


async def test_pods_of_a_pool_go_seldom(bench: TemplateBench) -> None:
    bind(bench, "q")
    await bench.settle(1)
    bench.now += BOUND_SECONDS
    asking = ask(bench, NEW)
    await heard(bench, *(replace(bench.guard_of("red", pod), tick=1000) for pod in "pq"))
    await bench.settle(1)
    assert pods(bench) == []
    bind(bench, "r")
    bench.pools._identities._seen[bench.key_of("red")].since = {"uid-r": bench.now - 100}
    replace(bench.guard_of("red", "r"), tick=1000).write(cache=OLD)
    await bench.settle(1)
    assert pods(bench) == ["r"], "not so soon"
    assert bench.key_of("red") in bench.due, "somebody comes back"
    bench.now += PAUSE_SECONDS
    asking.write(wanted={bench.pool_of("red")["metadata"]["uid"]: (NEW,)})
    await bench.settle(1)
    assert pods(bench) == []


async def test_another_pod_of_its_name_is_left(bench: TemplateBench) -> None:
    path = "/api/v1/namespaces/ns/pods/p"
    bench.api.objects[path]["metadata"]["uid"] = "uid-of-another"
    ask(bench, NEW)
    await bench.settle(1)
    assert path in bench.api.objects


async def test_pods_of_a_pool_that_all_share_never_go() -> None:
    bench = TemplateBench()
    await bench.begin(isolation={"mode": "Shared"})
    bench.run_pod("tiny", "p")
    guard = LeasedProcess(bench, name="uid-p")
    guard.write(cache=OLD)
    process = gateway(bench)
    process.write(wanted={"pool-uid-1": (NEW,)})
    bench.now += 100
    await bench.settle()
    assert pods(bench) == ["p"]
