"""A guard's lease and ledger on a real API server, with the rights that a pool's ServiceAccount has and no others."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from cachescope.api.ledgers import FenceLease
from cachescope.core.admission import Refusal
from cachescope.core.errors import ClusterError
from cachescope.core.ledger_seals import verified
from cachescope.core.ledgers import AUTHORIZATION_HEAD, authorization_key
from cachescope.kube.rest import Rest
from cachescope.leases.api import LEASES, LEDGERS
from cachescope.leases.ports import LeaseConflict, LeaseGone, LostAnswer, Stored
from cachescope.leases.rounds import ACKNOWLEDGED, DONE, FAILED, GONE
from e2e.stack import kubectl
from e2e.stack.paths import KUBECONFIG
from tests.integration import namespaces
from tests.integration.kubelet import mount_account
from tests.integration.real_guards import (
    API_VERSION,
    CHANGES,
    LINEAGE,
    POOL,
    SECONDS,
    Account,
    RealGuard,
    keeping,
    manifest,
    may_read,
    rights,
)
from tests.unit.guard_fakes import LEASE_MS, TENANT, seen, vector
from tests.unit.guard_fakes import POOL as POOL_TARGET
from tests.unit.ledger_book import SEALS


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    with namespaces.made("leases") as name:
        kubectl.apply(rights(name), namespace=name)
        folder = tmp_path_factory.mktemp("serviceaccount")
        yield Account(name, mount_account(folder, name, f"{POOL}-engine"), folder)


@pytest.fixture
async def guard(account: Account) -> AsyncIterator[RealGuard]:
    made = RealGuard(account, account.begin())
    async with asyncio.timeout(SECONDS):
        while not await may_read(made.api):  # noqa: ASYNC110 - a new Role has no event that says it holds
            await asyncio.sleep(0.1)
    yield made
    await made.api.close()


async def test_a_round_publishes_the_lease_and_grants_the_right(guard: RealGuard) -> None:
    assert await guard.status() == Refusal.NO_RIGHT.status
    await guard.round()
    first = guard.stored()
    assert (guard.left, await guard.status()) == (LEASE_MS, 200)
    await guard.round()
    second = guard.stored()
    assert first["metadata"]["uid"] == second["metadata"]["uid"]
    assert first["metadata"]["resourceVersion"] != second["metadata"]["resourceVersion"]
    spec = FenceLease.model_validate(second).spec
    statement = guard.statement()
    assert (spec.tick, statement.tick, spec.pool) == (guard.process.tick(), guard.process.tick(), POOL)
    book, authorization = guard.book, authorization_key(guard.account.namespace)
    assert statement.acknowledged == {"pool-uid": book.pool.mark, authorization: book.authorization.mark}
    witnesses = [verified(SEALS, place, statement.witnesses[place]) for place in ("pool-uid", authorization)]
    assert [ledger.mark for ledger in witnesses] == [book.pool.mark, book.authorization.mark]


async def test_a_raised_ledger_is_read_within_a_round_and_between_two(guard: RealGuard, account: Account) -> None:
    await guard.round()
    guard.book.revoke(TENANT, 2)
    account.write(guard.book)
    permit = guard.permit(
        pod_uid=guard.settings.pod_uid, epochs=vector(1, 2), seen=replace(seen(1, LINEAGE), authorization_sequence=2)
    )
    assert (await guard.ask(permit)).status == 200
    guard.book.revoke(TENANT, 3)
    account.write(guard.book)
    await guard.round()
    assert guard.marks() == (guard.book.pool.mark, guard.book.authorization.mark)
    guard.book.rebirth("d" * 32)
    account.write(guard.book)
    await guard.round()
    assert guard.marks() == (guard.book.pool.mark, guard.book.authorization.mark)
    assert guard.holder.outcomes[FAILED] == 0


@pytest.mark.parametrize(("lease", "refusal"), [("stayed", Refusal.BEHIND), ("is not in the backup", Refusal.NO_RIGHT)])
async def test_a_restored_ledger_ends_the_right_and_the_lease_shows_what_stood_before(
    guard: RealGuard, account: Account, lease: str, refusal: Refusal
) -> None:
    backup = guard.book.snapshot()
    await guard.round()
    guard.book.roll(POOL_TARGET, 2)
    account.write(guard.book)
    await guard.round()
    known = guard.book.pool.mark
    if lease != "stayed":
        account.kubectl("delete", "fencelease", guard.holder.lease_name())
    account.restore(backup)
    for _ in range(4):
        await guard.round()
    assert (guard.left, await guard.status()) == (0, refusal.status)
    assert verified(SEALS, "pool-uid", guard.statement().witnesses["pool-uid"]).mark == known


async def test_a_guard_may_do_what_its_rounds_need_and_nothing_else(guard: RealGuard, account: Account) -> None:
    await guard.round()
    lease, ledger = f"{LEASES}/{guard.holder.lease_name()}", f"{LEDGERS}/{POOL}"
    named = f"{LEDGERS}?fieldSelector=metadata.name%3D"
    whole = kubectl.get("epochledger", POOL, namespace=account.namespace)
    other = manifest("cachescope.dev/v1alpha1", "EpochLedger", "other", spec=whole["spec"])
    allowed = [("GET", lease, None)]
    for name in (POOL, AUTHORIZATION_HEAD):
        allowed += [("GET", f"{LEDGERS}/{name}", None), ("GET", f"{named}{name}", None)]
        allowed += [("GET", f"{named}{name}&watch=true&timeoutSeconds=1", None)]
    refused = [
        ("GET", LEASES, None),
        ("GET", f"{LEASES}?watch=true&timeoutSeconds=1", None),
        ("DELETE", lease, None),
        ("DELETE", LEASES, None),
        ("PATCH", lease, {"spec": {"tick": 9}}),
        ("GET", LEDGERS, None),
        ("GET", f"{LEDGERS}?watch=true&timeoutSeconds=1", None),
        ("GET", f"{named}other", None),
        ("GET", f"{named}other&watch=true&timeoutSeconds=1", None),
        ("GET", f"{LEDGERS}/authorization.shard-0", None),
        ("GET", f"{LEDGERS}/other", None),
        ("POST", LEDGERS, other),
        ("PUT", ledger, whole),
        ("DELETE", ledger, None),
        ("GET", "servingpools", None),
    ]
    assert [(await guard.api._send(*each)).status for each in allowed] == [200] * len(allowed)
    assert [(await guard.api._send(*each)).status for each in refused] == [403] * len(refused)


async def test_a_lease_that_somebody_deletes_makes_another_process_of_the_guard(guard: RealGuard, account: Account) -> None:
    await guard.round()
    before = guard.holder.lease_name()
    account.kubectl("delete", "fencelease", before)
    await guard.round()
    assert (guard.left, await guard.status(), guard.holder.outcomes[GONE]) == (0, Refusal.NO_RIGHT.status, 1)
    assert guard.holder.lease_name() != before
    await guard.round()
    assert (guard.stored()["metadata"]["name"], await guard.status()) == (guard.holder.lease_name(), 200)
    assert await guard.api.get(before) is None


async def test_a_lease_that_is_marked_for_deletion_is_left(guard: RealGuard, account: Account) -> None:
    await guard.round()
    before = guard.holder.lease_name()
    _finalizers(account, before, ["test.cachescope.dev/hold"])
    try:
        account.kubectl("delete", "fencelease", before, "--wait=false")
        await guard.round()
        assert (guard.left, guard.holder.outcomes[GONE]) == (0, 1)
        await guard.round()
        assert (guard.left, guard.holder.lease_name() == before) == (LEASE_MS, False)
    finally:
        _finalizers(account, before, [])


@pytest.mark.parametrize(("losses", "writes"), [([], 1), (["after"], 1), (["before"], 2), (["before", "after"], 2)])
@pytest.mark.parametrize("first", [True, False])
async def test_lost_answers_are_decided_by_what_is_stored(guard: RealGuard, losses: list[str], writes: int, first: bool) -> None:
    if not first:
        await guard.round()
    before = guard.store.writes
    await guard.round(*losses)
    assert (guard.store.writes - before, guard.holder.outcomes[FAILED], guard.holder.outcomes[GONE]) == (writes, 0, 0)
    assert (guard.left, guard.stored()["spec"]["tick"]) == (LEASE_MS, guard.process.tick() + writes - 1)


async def test_a_round_whose_writes_are_all_lost_grants_nothing(guard: RealGuard) -> None:
    await guard.round("before", "before")
    assert (guard.left, guard.holder.outcomes) == (0, {DONE: 0, ACKNOWLEDGED: 0, FAILED: 1, GONE: 0})
    assert await guard.api.get(guard.holder.lease_name()) is None


async def test_a_lease_that_somebody_else_wrote_is_read_and_written_again(guard: RealGuard, account: Account) -> None:
    await guard.round()
    account.kubectl("annotate", "fencelease", guard.holder.lease_name(), "test.cachescope.dev/by=hand")
    await guard.round()
    assert (guard.left, guard.store.writes, guard.holder.outcomes) == (LEASE_MS, 3, {DONE: 2, ACKNOWLEDGED: 0, FAILED: 0, GONE: 0})


async def test_the_errors_of_the_api_server_are_those_of_the_port(guard: RealGuard) -> None:
    await guard.round()
    name, spec = guard.holder.lease_name(), guard.stored()["spec"]
    version = guard.stored()["metadata"]["resourceVersion"]
    nobody = f"{uuid.uuid4()}.{'0' * 32}"
    with pytest.raises(LeaseConflict):
        await guard.api.create(name, spec)
    with pytest.raises(LeaseConflict):
        await guard.api.replace(name, {**spec, "tick": spec["tick"] + 1}, "1")
    with pytest.raises(LeaseGone):
        await guard.api.replace(nobody, spec, version)
    assert await guard.api.get(nobody) is None
    with pytest.raises(ClusterError, match="422") as refused:
        await guard.api.replace(name, {**spec, "version": "another, and no higher tick"}, version)
    assert type(refused.value) is ClusterError
    assert await guard.api.get(name) == Stored(version, spec["tick"])


async def test_without_a_ledger_there_is_no_right_and_no_further_write(guard: RealGuard, account: Account) -> None:
    account.kubectl("delete", "epochledger", POOL)
    for _ in range(3):
        await guard.round()
    assert (guard.left, guard.store.writes, guard.holder.outcomes[FAILED]) == (0, 1, 3)
    account.write(guard.book)
    await guard.round()
    assert (guard.left, await guard.status()) == (LEASE_MS, 200)


async def test_an_api_server_that_is_not_there_grants_nothing(guard: RealGuard, account: Account) -> None:
    await guard.round()
    nowhere = account.api("https://127.0.0.1:1")
    with pytest.raises(LostAnswer, match="did not answer"):
        await nowhere.get(guard.holder.lease_name())
    await nowhere.close()


async def test_a_guard_that_ends_says_so_in_its_lease(guard: RealGuard) -> None:
    async with keeping(guard):
        assert not guard.statement().released
    assert guard.statement().released


async def test_a_change_of_a_ledger_is_acknowledged_in_a_committed_lease_at_once(
    guard: RealGuard, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figure of an idle guard: from before the ledger's write to the event of the acknowledging lease."""
    milliseconds = []
    monkeypatch.setenv("KUBECONFIG", str(KUBECONFIG))
    async with keeping(guard), Rest() as operator:
        path = f"/apis/{API_VERSION}/namespaces/{account.namespace}/{LEDGERS}/{POOL}"
        ledger = await operator.get(path)
        for number in range(CHANGES):
            guard.book.roll(POOL_TARGET, 2 + number)
            began_at = time.monotonic()
            ledger = await operator.replace(path, {**ledger, "spec": guard.book.spec(POOL)})
            await guard.until_acknowledged(guard.book.pool.mark)
            milliseconds.append(1000 * (time.monotonic() - began_at))
            await asyncio.sleep(0.06)  # idle: longer than between two writes
    assert (guard.holder.outcomes[DONE], guard.holder.outcomes[FAILED]) == (1, 0)
    assert guard.holder.outcomes[ACKNOWLEDGED] >= CHANGES
    middle, high = statistics.median(milliseconds), sorted(milliseconds)[-1 - len(milliseconds) // 100]
    sys.stderr.write(f"ledger write to acknowledging lease, {CHANGES} changes: p50 {middle:.0f} ms, p99 {high:.0f} ms\n")


def _finalizers(account: Account, name: str, finalizers: list[str]) -> None:
    patch = json.dumps({"metadata": {"finalizers": finalizers}})
    account.kubectl("patch", "fencelease", name, "--type=merge", f"--patch={patch}")
