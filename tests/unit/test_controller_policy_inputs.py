"""Policy digests: of lists that were read after the head, in the first ruler's head alone, and never an older one over a newer."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cachescope.controller.policy_inputs import PolicyInputs
from cachescope.core.ledgers import AUTHORIZATION_HEAD
from cachescope.core.policy_digest import policy_digest
from cachescope.core.types import Digest
from tests.unit.bench_leases import begun, ledger
from tests.unit.controller_bench import Bench, tenant


@pytest.fixture
async def bench() -> Bench:
    return await begun(tenant("red"))


def announced(bench: Bench) -> tuple[int, Mapping[str, Digest]]:
    head = ledger(bench, AUTHORIZATION_HEAD)
    return head.sequence, head.policy


def of_tenants(bench: Bench) -> Digest:
    """What a gateway makes of the tenants that there are."""
    return policy_digest("Tenant", [item for item in bench.api.objects.values() if item["kind"] == "Tenant"])


async def test_each_change_of_a_tenant_is_a_step_that_everybody_acknowledges(bench: Bench) -> None:
    sequence, policy = announced(bench)
    assert policy["Tenant"] == of_tenants(bench)
    bench.declare(tenant("red", apiKeys=[]))
    await bench.authorize()
    assert (announced(bench)[0], announced(bench)[1]["Tenant"]) == (sequence + 1, of_tenants(bench))
    assert announced(bench)[1]["Tenant"] != policy["Tenant"]
    bench.remove("Tenant", "red")
    await bench.authorize()
    assert announced(bench)[0] == sequence + 2


async def test_a_change_that_nobody_told_of_is_found_with_the_next_reading(bench: Bench) -> None:
    sequence, _ = announced(bench)
    path = next(path for path in bench.api.objects if path.endswith("/tenants/red"))
    bench.api.objects[path]["spec"] = {"identities": {}, "suspended": True}
    await bench.authorize()
    assert announced(bench)[0] == sequence, "nothing is known to have changed, so nothing is listed"
    bench.declare(tenant("blue"))
    await bench.authorize()
    assert announced(bench)[1]["Tenant"] == of_tenants(bench)


async def test_an_old_leader_that_was_paused_before_its_write_reads_the_policy_again(bench: Bench) -> None:
    leader = Bench()
    leader.api.objects = bench.api.objects
    leader.api._version = 10_000
    await leader.start()
    leader.restart()
    read = bench.authorizations.policy.read
    times = 0

    async def paused() -> Mapping[str, Digest]:
        nonlocal times
        times += 1
        found = await read()
        if times == 1:  # meanwhile another leads, and a tenant's access is narrowed
            leader.declare(tenant("red", apiKeys=[]))
            await leader.authorize()
        return found

    bench.declare(tenant("blue"))
    bench.authorizations.policy.read = paused  # type: ignore[method-assign]
    await bench.authorize()
    assert times == 2, "its compare-and-swap found the newer head"
    assert announced(bench)[1]["Tenant"] == of_tenants(bench)


async def test_a_change_during_a_reading_is_not_passed_over(bench: Bench) -> None:
    inputs = PolicyInputs(bench.api, bench.store, namespace="ns")
    assert not inputs.current()
    await inputs.read()
    assert inputs.current()
    get, changed = bench.api.get, False

    async def slow(path: str, **query: str) -> object:
        nonlocal changed
        if not changed:
            changed = True
            bench.declare(tenant("blue"))
        return await get(path, **query)

    bench.api.get = slow  # type: ignore[assignment]
    await inputs.read()
    assert not inputs.current()


async def test_where_all_namespaces_are_served_their_labels_are_policy(bench: Bench) -> None:
    """They decide whose tenants may use a pool: a label that is taken away must reach gateways whose watch stalls."""

    def label(**labels: str) -> None:
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "uid": "u", "labels": labels}}
        bench.store.put("Namespace", bench.api._store("/api/v1/namespaces/team", document))

    label(models="yes")
    inputs = PolicyInputs(bench.api, bench.store, namespace=None)
    before = await inputs.read()
    label()
    assert not inputs.current()
    assert (await inputs.read())["Namespace"] != before["Namespace"]
    assert "Namespace" not in await PolicyInputs(bench.api, bench.store, namespace="ns").read()
