"""Tenants and scopes: one identity has one holder, also when answers are lost, and everybody is told why."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from cachescope.api.settings import Settings
from cachescope.controller.identities import RESERVED_SECONDS
from cachescope.controller.store import Key
from cachescope.core.errors import ClusterError
from cachescope.core.labels import API_KEYS_LABEL
from tests.unit.controller_bench import POOL, PROVIDER, Bench, epoch, tenant

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


async def test_what_a_deleted_tenant_held_is_its_own_for_ten_minutes_and_then_free(bench: Bench) -> None:
    for name in ("first", "second"):
        bench.declare(tenant(name, jwt=[SALES]))
        await bench.tenants.reconcile(key(name), 0)
    bench.due.clear()
    bench.remove("Tenant", "first")
    assert bench.due == [key("second")]
    await bench.tenants.reconcile(key("second"), 0)
    assert accepted(bench, "second") == []
    assert bench.due == [key("second")] * 2, "he is looked at again when it ends"
    bench.now += RESERVED_SECONDS
    await bench.tenants.reconcile(key("second"), 0)
    assert len(accepted(bench, "second")) == 1


async def test_a_tenant_that_is_made_anew_gets_back_what_it_held(bench: Bench) -> None:
    for name in ("first", "second"):
        bench.declare(tenant(name, created="2026-01-01T00:00:00Z", jwt=[SALES]))
        await bench.tenants.reconcile(key(name), 0)
    bench.remove("Tenant", "first")
    await bench.tenants.reconcile(key("second"), 0)
    anew = tenant("first", created="2026-09-09T00:00:00Z", jwt=[SALES])
    anew["metadata"]["uid"] = "another-tenant-uid"
    bench.declare(anew)
    for name in ("second", "first"):
        await bench.tenants.reconcile(key(name), 0)
    assert (len(accepted(bench, "first")), accepted(bench, "second")) == (1, [])


async def test_a_tenant_of_a_newer_version_keeps_what_it_holds_after_a_restart(bench: Bench) -> None:
    bench.declare(tenant("first", jwt=[SALES]))
    await bench.tenants.reconcile(key("first"), 0)
    bench.found("Tenant", "first")["spec"]["identities"]["spiffe"] = [{"id": "x"}]
    bench.found("Tenant", "first")["status"]["accepted"][0]["since"] = 5_000_000
    bench.restart()
    bench.declare(tenant("second", jwt=[SALES, {**SALES, "claims": {"team": "law"}}]))
    await bench.tenants.reconcile(key("second"), 0)
    assert bench.condition("Tenant", "second", "Accepted") == ("False", "IdentityTaken")
    assert [item["since"] for item in bench.found("Tenant", "second")["status"]["accepted"]] == [5_000_001]


async def test_a_claim_on_one_of_several_values_is_refused_with_what_to_do(bench: Bench) -> None:
    bench.restart(settings=Settings(identity_providers=(PROVIDER.model_copy(update={"list_claims": ("groups",)}),)))
    for name, group in (("first", "everyone"), ("second", "red")):
        bench.declare(tenant(name, jwt=[{**SALES, "claims": {"groups": group}}]))
        await bench.tenants.reconcile(key(name), 0)
    assert bench.condition("Tenant", "second", "Accepted") == ("False", "IdentityTaken")
    assert "one value per token" in bench.found("Tenant", "second")["status"]["conditions"][0]["message"]


async def test_a_provider_of_other_namespaces_is_refused(bench: Bench) -> None:
    bench.restart(settings=Settings(identity_providers=(PROVIDER.model_copy(update={"namespaces": ("other",)}),)))
    bench.declare(tenant("first", jwt=[SALES]))
    await bench.tenants.reconcile(key("first"), 0)
    assert (bench.condition("Tenant", "first", "Accepted"), accepted(bench, "first")) == (("False", "UnknownProvider"), [])
    assert "for this namespace" in bench.found("Tenant", "first")["status"]["conditions"][0]["message"]


async def test_what_to_do_is_said_also_of_sixty_four_long_claims(bench: Bench) -> None:
    long = [{**SALES, "claims": {"team": f"{number}" + "x" * 500}} for number in range(64)]
    for name in ("first", "second"):
        bench.declare(tenant(name, jwt=long))
        await bench.tenants.reconcile(key(name), 0)
    message = bench.found("Tenant", "second")["status"]["conditions"][0]["message"]
    assert message.endswith("and 63 more; narrow it by a claim that has one value per token, or remove it")


async def test_missing_secrets_are_asked_for_ever_more_rarely(bench: Bench) -> None:
    bench.declare(tenant("first", apiKeys=[{"secretName": f"s{number}"} for number in range(64)]))
    asked = []
    for _ in range(40):
        bench.api.requests.clear()
        await bench.tenants.reconcile(key("first"), 0)
        asked.append(bench.api.requests.count("get"))
        bench.now += 15
    assert [number for number, gets in enumerate(asked) if gets] == [0, 1, 3, 7, 15, 31]
    bench.declare(tenant("first", apiKeys=[{"secretName": "s1"}]))
    bench.api.requests.clear()
    await bench.tenants.reconcile(key("first"), 0)
    assert bench.api.requests.count("get") == 1, "control: another spec is looked at"


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
    assert bench.condition("Tenant", "first", "Accepted") == ("False", "SecretNotFound")
    bench.now += 15
    await bench.tenants.reconcile(key("first"), 0)
    assert bench.condition("Tenant", "first", "Accepted") == ("False", "SecretNotLabelled")
    bench.api._store(path, {"metadata": {"name": "keys", "namespace": "ns", "labels": {API_KEYS_LABEL: "true"}}})
    bench.now += 30
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


async def test_a_denied_tenant_that_is_made_anew_holds_nothing_before_it_is_denied_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench()
    await bench.start()
    red = tenant("red", jwt=[SALES])
    bench.declare(red)
    bench.declare(POOL)
    denial = {"target": {"kind": "Tenant", "name": "red"}, "incident": {"id": "leak-1"}, "deny": True}
    await bench.tenants.reconcile(key("red"), 0)
    assert bench.found("Tenant", "red")["status"]["accepted"], "nobody denies it yet"
    bench.declare(epoch("e", **denial))
    await denied(bench)
    await bench.tenants.reconcile(key("red"), 0)
    assert bench.found("Tenant", "red")["status"]["accepted"], "what it holds stays its own: gateways refuse it"
    bench.remove("Tenant", "red")
    bench.declare({**red, "metadata": {**red["metadata"], "uid": "tenant-uid-anew", "generation": 0}})
    for _ in range(3):  # as it is looked at twice a second
        await bench.tenants.reconcile(key("red"), 0)
    assert "accepted" not in bench.found("Tenant", "red")["status"], "its present UID is denied nowhere"
    assert bench.condition("Tenant", "red", "Accepted") == ("False", "AwaitingFence")
    assert bench.message("Tenant", "red", "Accepted").endswith(": e; it holds no identity before: see what they wait for")
    (line,) = [record for record in caplog.records if "waits" in record.message]
    assert "red" not in map(str, line.__dict__.values()), "no log names a tenant"
    await denied(bench)
    await bench.tenants.reconcile(key("red"), 0)
    assert bench.condition("Tenant", "red", "Accepted") == ("True", "Accepted")
    assert bench.found("Tenant", "red")["status"]["accepted"]


async def denied(bench: Bench) -> None:
    """What is declared stands, and everybody who could not be seen has ended."""
    await bench.authorize()
    await bench.authorize()
    bench.now += 10_000
    await bench.tell()


WORKLOAD, ACCOUNT = {"spiffeId": "spiffe://corp/app"}, {"name": "app"}
DOOR = {"secretName": "door", "clientCa": {"secretName": "ca", "trustDomains": [{"name": "corp"}]}}


@pytest.mark.parametrize("identities", [{"mtls": [WORKLOAD]}, {"serviceAccounts": [ACCOUNT]}], ids=["mtls", "service account"])
async def test_a_workload_has_one_holder_and_the_newcomer_learns_why(bench: Bench, identities: dict[str, Any]) -> None:
    bench.restart(settings=Settings.model_validate({"tls": DOOR, "serviceAccounts": {"audience": "llm"}}))
    for name in ("first", "second"):
        bench.declare(tenant(name, **identities))
        await bench.tenants.reconcile(key(name), 0)
    assert bench.condition("Tenant", "first", "Accepted") == ("True", "Accepted")
    assert bench.condition("Tenant", "second", "Accepted") == ("False", "IdentityTaken")
    assert (len(accepted(bench, "first")), accepted(bench, "second")) == (1, [])


@pytest.mark.parametrize("identities", [{"mtls": [WORKLOAD]}, {"serviceAccounts": [ACCOUNT]}], ids=["mtls", "service account"])
async def test_what_the_settings_could_not_verify_is_said(bench: Bench, identities: dict[str, Any]) -> None:
    bench.declare(tenant("first", **identities))
    await bench.tenants.reconcile(key("first"), 0)
    assert (bench.condition("Tenant", "first", "Accepted"), accepted(bench, "first")) == (("False", "UnknownProvider"), [])


async def test_a_service_account_of_another_namespace_is_for_the_installations_tenants_alone(bench: Bench) -> None:
    bench.restart(settings=Settings.model_validate({"serviceAccounts": {"audience": "llm"}}))
    claims = [{"name": "app", "namespace": "other"}]
    bench.declare(tenant("first", serviceAccounts=[*claims, ACCOUNT]))
    await bench.tenants.reconcile(key("first"), 0)
    assert bench.condition("Tenant", "first", "Accepted") == ("False", "ForeignServiceAccount")
    assert accepted(bench, "first") == ["service-account:ns/app"], "its own is not held back by that"
    home = tenant("platform", serviceAccounts=claims)
    home["metadata"]["namespace"] = bench.site.platform.namespace
    bench.declare(home)
    owner = Key("Tenant", bench.site.platform.namespace, "platform")
    await bench.tenants.reconcile(owner, 0)
    found = bench.store.get(*owner)
    assert found is not None
    assert [item["claim"] for item in found["status"]["accepted"]] == ["service-account:other/app"]
