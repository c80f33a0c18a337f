"""Tenants and scopes: one identity has one holder, also when answers are lost, and everybody is told why."""

from __future__ import annotations

import asyncio

import pytest

from cachescope.controller.store import Key
from cachescope.core.errors import ClusterError
from cachescope.core.labels import API_KEYS_LABEL
from tests.unit.controller_bench import POOL, Bench, tenant

SALES = {"provider": "corp", "audience": "llm", "claims": {"team": "sales"}}


@pytest.fixture
async def bench() -> Bench:
    made = Bench()
    await made.start()
    return made


def key(name: str) -> Key:
    return Key("Tenant", "ns", name)


def accepted(bench: Bench, name: str) -> list[str]:
    return [item["claim"] for item in bench.found("Tenant", name)["status"]["accepted"]]


async def test_the_first_accepted_keeps_an_identity_and_the_newcomer_learns_why(bench: Bench) -> None:
    bench.declare(tenant("first", jwt=[SALES]))
    await bench.tenants.reconcile(key("first"), 0)
    before = bench.found("Tenant", "first")
    bench.declare(tenant("second", jwt=[{**SALES, "claims": {}}]))
    await bench.tenants.reconcile(key("second"), 0)
    await bench.tenants.reconcile(key("first"), 0)
    assert bench.found("Tenant", "first") == before
    assert (len(accepted(bench, "first")), accepted(bench, "second")) == (1, [])
    assert bench.condition("Tenant", "second", "Accepted") == ("False", "IdentityTaken")
    assert "first" not in bench.found("Tenant", "second")["status"]["conditions"][0]["message"]


async def test_newcomers_decided_at_once_never_both_get_it(bench: Bench) -> None:
    names = [f"t{number}" for number in range(6)]
    for name in names:
        bench.declare(tenant(name, jwt=[SALES]))
    await asyncio.gather(*(bench.tenants.reconcile(key(name), 0) for name in names))
    assert [len(accepted(bench, name)) for name in names] == [1, 0, 0, 0, 0, 0]


async def test_an_identity_that_is_released_goes_to_who_waits_and_he_is_called(bench: Bench) -> None:
    for name in ("first", "second"):
        bench.declare(tenant(name, jwt=[SALES]))
        await bench.tenants.reconcile(key(name), 0)
    since = bench.found("Tenant", "first")["status"]["accepted"][0]["since"]
    bench.due.clear()
    bench.declare(tenant("first"))
    assert bench.due == []
    await bench.tenants.reconcile(key("first"), 0)
    assert key("second") in bench.due
    await bench.tenants.reconcile(key("second"), 0)
    assert (accepted(bench, "first"), len(accepted(bench, "second"))) == ([], 1)
    assert bench.found("Tenant", "second")["status"]["accepted"][0]["since"] >= since


async def test_what_a_deleted_tenant_held_is_free(bench: Bench) -> None:
    for name in ("first", "second"):
        bench.declare(tenant(name, jwt=[SALES]))
        await bench.tenants.reconcile(key(name), 0)
    bench.remove("Tenant", "first")
    assert key("second") in bench.due
    await bench.tenants.reconcile(key("second"), 0)
    assert len(accepted(bench, "second")) == 1


async def test_an_acceptance_whose_answer_was_lost_is_read_back_before_the_next_decision(bench: Bench) -> None:
    bench.declare(tenant("young", created="2026-02-01T00:00:00Z", jwt=[SALES]))
    bench.api.lost = {"tenants/young"}
    with pytest.raises(ClusterError):
        await bench.tenants.reconcile(key("young"), 0)
    bench.declare(tenant("old", created="2026-01-01T00:00:00Z", jwt=[SALES]))
    await bench.tenants.reconcile(key("old"), 0)
    assert (len(accepted(bench, "young")), accepted(bench, "old")) == (1, [])


async def test_since_rises_also_when_the_clock_goes_back(bench: Bench) -> None:
    bench.declare(tenant("first", jwt=[SALES]))
    await bench.tenants.reconcile(key("first"), 0)
    bench.now -= 500
    bench.declare(tenant("second", jwt=[{**SALES, "claims": {"team": "law"}}]))
    await bench.tenants.reconcile(key("second"), 0)
    first, second = (bench.found("Tenant", name)["status"]["accepted"][0]["since"] for name in ("first", "second"))
    assert second == first + 1


async def test_a_restart_changes_nothing(bench: Bench) -> None:
    for name in ("first", "second"):
        bench.declare(tenant(name, jwt=[SALES]))
        await bench.tenants.reconcile(key(name), 0)
    bench.restart()
    bench.api.requests.clear()
    for name in ("second", "first"):
        await bench.tenants.reconcile(key(name), 0)
    assert bench.api.requests == []


async def test_an_unknown_provider_is_said(bench: Bench) -> None:
    bench.declare(tenant("first", jwt=[{**SALES, "provider": "nobody"}]))
    await bench.tenants.reconcile(key("first"), 0)
    assert bench.condition("Tenant", "first", "Accepted") == ("False", "UnknownProvider")


async def test_secrets_that_are_missing_or_not_labelled_are_said_and_looked_for_again(bench: Bench) -> None:
    bench.declare(tenant("first", apiKeys=[{"secretName": "keys"}]))
    await bench.tenants.reconcile(key("first"), 0)
    assert bench.condition("Tenant", "first", "Accepted") == ("False", "SecretNotFound")
    assert accepted(bench, "first") == ["api-keys:ns/keys"]
    assert bench.due == [key("first")]
    path = "/api/v1/namespaces/ns/secrets/keys"
    bench.api._store(path, {"metadata": {"name": "keys", "namespace": "ns"}})
    await bench.tenants.reconcile(key("first"), 0)
    assert bench.condition("Tenant", "first", "Accepted") == ("False", "SecretNotLabelled")
    bench.api._store(path, {"metadata": {"name": "keys", "namespace": "ns", "labels": {API_KEYS_LABEL: "true"}}})
    await bench.tenants.reconcile(key("first"), 0)
    assert bench.condition("Tenant", "first", "Accepted") == ("True", "Accepted")


async def test_a_suspended_tenant_is_shown_and_keeps_what_it_holds(bench: Bench) -> None:
    bench.declare(tenant("first", jwt=[SALES]))
    await bench.tenants.reconcile(key("first"), 0)
    bench.declare(tenant("first", jwt=[SALES]), suspended=True)
    await bench.tenants.reconcile(key("first"), 0)
    assert bench.condition("Tenant", "first", "Accepted") == ("True", "Suspended")
    assert len(accepted(bench, "first")) == 1


async def test_a_spec_that_cannot_be_read_releases_nothing(bench: Bench) -> None:
    bench.declare(tenant("first", jwt=[SALES]))
    await bench.tenants.reconcile(key("first"), 0)
    bench.declare(tenant("first", jwt=[{"provider": "corp"}]))
    await bench.tenants.reconcile(key("first"), 0)
    bench.declare(tenant("second", jwt=[SALES]))
    await bench.tenants.reconcile(key("second"), 0)
    assert bench.condition("Tenant", "first", "Accepted") == ("False", "InvalidSpec")
    assert (len(accepted(bench, "first")), accepted(bench, "second")) == (1, [])


async def test_a_scope_says_what_it_names_and_does_not_exist(bench: Bench) -> None:
    scope = {
        "apiVersion": "cachescope.dev/v1alpha1",
        "kind": "CacheScope",
        "metadata": {"name": "s", "namespace": "ns", "uid": "scope-uid", "generation": 0},
        "spec": {"class": "Principal", "pools": ["tiny"], "tenants": ["first"]},
    }
    bench.declare(scope)
    await bench.scopes.reconcile(Key("CacheScope", "ns", "s"), 0)
    assert bench.condition("CacheScope", "s", "Accepted") == ("False", "ReferenceNotFound")
    bench.declare(POOL)
    bench.declare(tenant("first"))
    await bench.scopes.reconcile(Key("CacheScope", "ns", "s"), 0)
    assert bench.condition("CacheScope", "s", "Accepted") == ("True", "Accepted")
    assert bench.found("CacheScope", "s")["status"]["effectiveClass"] == "Principal"
