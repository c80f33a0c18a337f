"""The longest right that anybody may have is in the ledger before anybody has it, and falls once nobody can have it any more."""

from __future__ import annotations

from typing import Any

import pytest

from cachescope.core.fences import Wanted, progress
from cachescope.core.ledgers import AUTHORIZATION_HEAD
from cachescope.core.rights import Rights
from cachescope.core.rosters import right_ms, silent_ms
from cachescope.kube.rest import Document
from tests.unit.bench_leases import LeasedProcess, ledger, wait
from tests.unit.controller_bench import POOL, Bench
from tests.unit.pools import PLATFORM

LONG, SHORT = Rights(600, 600), Rights(3, 5)
GATEWAYS = Rights(60, 900)


@pytest.fixture
async def bench() -> Bench:
    made = Bench()
    await made.start()
    return made


def pool(bench: Bench, rights: Rights) -> Document:
    fence = {"leaseSeconds": rights.lease, "freshSeconds": rights.fresh}
    return bench.declare(POOL, fence=fence)


def written(bench: Bench) -> list[str]:
    """Ledgers and Deployments in the order in which they are written from now on."""
    found: list[str] = []
    kinds = {"EpochLedger", "Deployment"}
    bench.api.webhook = lambda item: found.append(str(item["kind"])) if item.get("kind") in kinds else None
    return found


def rolled_out(bench: Bench, *, whole: bool) -> None:
    """All pods are of the newest template, or one is not; nobody knows of any."""
    document = bench.found("Deployment", "tiny")
    generation = document["metadata"].setdefault("generation", 1)
    status: dict[str, Any] = {"observedGeneration": generation, "replicas": 0, "updatedReplicas": 0 if whole else 1}
    bench.api._store("/apis/apps/v1/namespaces/ns/deployments/tiny", {**document, "status": status})


async def test_a_longer_right_is_in_the_ledger_before_pods_are_given_it(bench: Bench) -> None:
    pool(bench, SHORT)
    await bench.pass_over()
    assert ledger(bench).longest == SHORT
    pool(bench, LONG)
    found = written(bench)
    await bench.pass_over()
    assert (found, ledger(bench).longest) == (["EpochLedger", "Deployment"], LONG)
    bench.api.requests.clear()
    await bench.pass_over()
    assert bench.api.requests == []


async def test_no_pod_is_given_a_right_of_which_no_ledger_tells(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    pool(bench, SHORT)
    await bench.pass_over()
    before = bench.found("Deployment", "tiny")["spec"]
    monkeypatch.setattr("cachescope.core.pool_rules.MAX_INCIDENTS", 0)  # the ledger cannot be used
    pool(bench, LONG)
    await bench.pass_over()
    assert (ledger(bench).longest, bench.found("Deployment", "tiny")["spec"]) == (SHORT, before)
    monkeypatch.undo()
    await bench.pass_over()
    assert bench.found("Deployment", "tiny")["spec"] != before


async def test_an_operator_that_begins_settles_for_the_longest_right_that_was_handed_out_before_it_was_lowered(
    bench: Bench,
) -> None:
    """The lease of who had it vanished while no operator watched."""
    pool(bench, LONG)
    await bench.pass_over()
    pool(bench, SHORT)
    await bench.pass_over()
    assert ledger(bench).longest == LONG
    bench.restart()
    bench.book.roster.settle(bench.book.now_ms())
    wanted = Wanted("pool", 1, 0, bench.book.now_ms(), namespace="ns", pool="tiny")
    wait(bench, right_ms(LONG.lease * 1000) - 1)
    assert not progress(bench.book.roster, wanted, ledger(bench), bench.book.now_ms()).complete
    wait(bench, 1)
    assert progress(bench.book.roster, wanted, ledger(bench), bench.book.now_ms()).complete


async def test_it_falls_once_everybody_of_before_is_known_and_no_pod_of_before_is_left(bench: Bench) -> None:
    pool(bench, LONG)
    await bench.pass_over()
    guard = LeasedProcess(bench, fresh_ms=SHORT.fresh * 1000)
    guard.write(lease_ms=LONG.lease * 1000)
    pool(bench, SHORT)
    bench.book.roster.settle(bench.book.now_ms())
    known = right_ms(LONG.lease * 1000) + silent_ms(LONG.fresh * 1000)
    for waits, ready, longest in ((known, True, LONG), (1, False, LONG), (0, True, Rights(LONG.lease, SHORT.fresh))):
        wait(bench, waits)
        rolled_out(bench, whole=ready)
        await bench.pass_over()
        assert ledger(bench).longest == longest
    wait(bench, known)
    guard.write(lease_ms=SHORT.lease * 1000)
    await bench.pass_over()
    assert ledger(bench).longest == SHORT


async def test_the_head_tells_of_gateways_and_an_operator_that_begins_knows_how_long_they_go_on(bench: Bench) -> None:
    pool(bench, SHORT)
    bench.authorizations.gateways = GATEWAYS
    await bench.pass_over()
    await bench.authorize()
    assert ledger(bench, AUTHORIZATION_HEAD).longest == GATEWAYS
    bench.restart(PLATFORM)
    bench.authorizations.gateways = SHORT
    await bench.authorize()
    assert ledger(bench, AUTHORIZATION_HEAD).longest == GATEWAYS
    assert bench.book.roster.gateways.fresh_ms == GATEWAYS.fresh * 1000
    bench.book.roster.settle(bench.book.now_ms())
    wait(bench, right_ms((GATEWAYS.lease + GATEWAYS.fresh) * 1000) + 1)
    await bench.authorize()
    assert ledger(bench, AUTHORIZATION_HEAD).longest == SHORT
