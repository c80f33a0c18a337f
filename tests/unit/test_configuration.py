"""The gateway's configuration: what has a fault is left out or narrowed, and nobody else's is touched."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cachescope.api.claims import JwtClaim
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Floor, Ledger, Lineage, advanced, reborn
from cachescope.core.log_lines import name_in_logs
from cachescope.core.types import Epoch, ScopeClass
from cachescope.gateway import configuration as configuration_module
from cachescope.gateway.configuration import Configuration
from cachescope.gateway.exchange import Answer, Forward
from cachescope.gateway.readings import Held, KnownLedger, KnownTenant, Reading
from cachescope.kube.watched import Name
from tests.unit.whole_path import FIRST, NAMESPACE, POOL, POOL_UID, FileKeySets, WholePath, prompt

CHAT = b'{"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}'


@pytest.fixture
def path(tmp_path: Path) -> WholePath:
    return WholePath(tmp_path)


async def status(path: WholePath, key: str) -> int:
    found = await path.decide(key, CHAT)
    return 200 if isinstance(found, Forward) else found.status


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("config/settings.yaml", "identityProviders: [{name: north}]", "issuer"),
        ("config/settings.yaml", "maxRequestByte: 1", "maxRequestByte"),
        ("config/settings.yaml", "a: [", "not YAML"),
        ("config/settings.yaml", "minimumGuardVersion: newest", "not a version"),
        ("config/settings.yaml", "leaseSeconds: 1", "leaseSeconds"),
        ("config/settings.yaml", "[" * 3_000, "recursion"),
        ("config/settings.yaml", "sharedPoolNamespaces: [Team A]", "sharedPoolNamespaces"),
        (
            "config/settings.yaml",
            "identityProviders: [{name: a, issuer: b, algorithms: [HS256], jwks: {secretName: c}}]",
            "HS256",
        ),
        ("root-keys/targets", "not hex", "targets does not hold 64 lower-case hexadecimal digits"),
        ("root-keys/k1", "abcd", "k1 does not hold 64"),
        ("root-keys/k1", "5A" * 32, "k1 does not hold 64"),
        ("root-keys/k1", "5a" * 33, "k1 does not hold 64"),
    ],
)
async def test_what_is_mounted_with_a_fault_is_not_taken_over(path: WholePath, file: str, content: str, said: str) -> None:
    await path.prove()
    before = path.snapshot()
    good = (path.folder / "mounted" / file).read_text()
    (path.folder / "mounted" / file).write_text(content)
    path.take_over()
    assert said in path.configuration.fault
    assert (path.snapshot().settings, path.snapshot().keys) == (before.settings, before.keys)
    path.edit("Tenant", "blue", lambda tenant: tenant["spec"].update(suspended=True))
    assert await status(path, path.credentials.api_keys["blue-carol"]) == 403, "what others do is taken over"
    (path.folder / "mounted" / file).write_text(good)
    path.refresh()


@pytest.mark.parametrize("file", ["config/settings.yaml", "root-keys/k1"])
def test_a_file_that_is_no_text_is_read_again_when_it_is_mended(path: WholePath, file: str) -> None:
    place = path.folder / "mounted" / file
    content = place.read_text()
    place.write_bytes(b"\xff\xfe")
    path.take_over()
    assert path.configuration.fault
    place.write_text(content)
    path.refresh()


def test_a_file_that_vanished_is_read_again_when_it_is_back(path: WholePath) -> None:
    file = path.folder / "mounted/config/settings.yaml"
    content = file.read_text()
    file.unlink()
    path.take_over()
    assert "settings.yaml" in path.configuration.fault
    file.write_text(content)
    path.refresh()


def test_settings_are_taken_over_in_place(path: WholePath) -> None:
    file = path.folder / "mounted/config/settings.yaml"
    file.write_text(f"{file.read_text()}\nmaxRequestBytes: 2048\nminimumGuardVersion: 0.2.0\n")
    path.refresh()
    assert path.snapshot().settings.max_request_bytes == 2048
    assert {str(trust.minimum_version) for trust in path.snapshot().trusts.values()} == {"0.2.0"}


def test_nothing_is_compiled_again_while_nothing_changed(path: WholePath) -> None:
    before = path.snapshot()
    path.refresh()
    assert path.snapshot() is before
    path.edit("Tenant", "blue", lambda tenant: tenant["spec"].update(suspended=True))
    assert path.snapshot() is not before


@pytest.mark.parametrize("kind", ["ServingPool", "Tenant", "CacheScope", "PublicSource", "EpochLedger", "Secret", "Namespace"])
def test_there_is_no_configuration_before_everything_was_listed_once(path: WholePath, kind: str) -> None:
    path.cluster.store(kind).seconds = None
    configuration = Configuration(path.folder / "mounted", path.cluster.stores, FileKeySets(), now=time.time)
    path.configuration = configuration
    path.take_over()
    assert configuration.current() is None
    assert f"not told of {kind} yet" in configuration.fault
    path.cluster.store(kind).seconds = 1.0
    path.take_over()
    assert (configuration.fault, configuration.current() is not None) == ("", True)


def test_a_configuration_that_nobody_mounted_is_no_configuration(path: WholePath) -> None:
    path.configuration = Configuration(path.folder / "nothing", path.cluster.stores, FileKeySets(), now=time.time)
    path.take_over()
    assert path.configuration.current() is None
    assert "settings.yaml" in path.configuration.fault
    assert "root-keys" in path.configuration.fault


def test_a_fault_of_the_compiler_keeps_the_last_one_and_is_tried_again(
    path: WholePath, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = path.snapshot()
    tries: list[object] = []

    def broken(*given: object) -> None:
        tries.append(given)
        raise KeyError("blue")

    with monkeypatch.context() as patch:
        patch.setattr(configuration_module, "in_order", broken)
        path.edit("Tenant", "blue", lambda tenant: tenant["spec"].update(suspended=True))
        path.take_over()
        assert "KeyError" in path.configuration.fault
        assert path.snapshot() is before
    assert len(tries) == 2
    assert [record.message for record in caplog.records].count("configuration not compiled") == 1, "once, while it is there"
    assert "blue" not in caplog.text, "no log names a tenant"
    path.refresh()
    assert path.snapshot() is not before


class TestLedgers:
    def pool(self, path: WholePath) -> Ledger:
        return path.snapshot().states[POOL_UID].pool

    def test_what_the_watch_shows_is_taken_over_at_once_and_never_falls(self, path: WholePath) -> None:
        path.raise_pool_epoch(5)
        assert self.pool(path).epoch(path.pool_target()) == 5
        path.write_pool(advanced(path.pool_ledger, floors={}))
        assert (self.pool(path).epoch(path.pool_target()), self.pool(path).sequence) == (5, 2)

    def test_a_later_lineage_is_taken_over_by_a_round_and_not_before(self, path: WholePath) -> None:
        later = Lineage(2, "33" * 16)
        path.cluster.write_ledger(NAMESPACE, POOL, reborn(FIRST, later))
        assert path.configuration.take_hints(), "a round is asked for"
        assert self.pool(path).lineage == FIRST.lineage
        path.round()
        assert self.pool(path).lineage == later
        assert [trust.lineages[0] for trust in path.snapshot().trusts.values()] == [later.id]

    async def test_ledgers_are_taken_over_while_something_else_is_compiled(self, path: WholePath) -> None:
        compiled = path.configuration._compiled

        def slow(inputs: Any) -> Any:
            done = compiled(inputs)
            path.raise_pool_epoch(7)
            return done

        path.configuration._compiled = slow  # type: ignore[method-assign]
        path.edit("Tenant", "red", lambda tenant: tenant["spec"].update(suspended=True))
        assert self.pool(path).epoch(path.pool_target()) == 7

    async def test_what_a_round_read_stands_before_the_watch_tells(self, path: WholePath) -> None:
        newer = advanced(FIRST, floors={path.pool_target(): Floor(Epoch(9))})
        read = path.cluster.read_ledgers(path.configuration.ledgers)
        heads = {**read.heads, Name(NAMESPACE, POOL): Reading(KnownLedger(newer))}
        path.configuration.take_ledgers(replace(read, heads=heads))
        assert self.pool(path).sequence == 2
        path.configuration.take_hints()
        assert self.pool(path).epoch(path.pool_target()) == 9

    @pytest.mark.parametrize("name", [POOL, AUTHORIZATION_HEAD])
    @pytest.mark.parametrize("spec", [{}, None, {"lineage": {}, "sequence": 1, "base": 1, "floors": {}}])
    async def test_a_pool_whose_ledgers_cannot_be_read_is_not_routable(self, path: WholePath, name: str, spec: object) -> None:
        await path.prove()
        key = path.credentials.api_keys["blue-carol"]
        assert await status(path, key) == 200
        path.edit("EpochLedger", name, lambda ledger: ledger.update(spec=spec))
        path.round()
        assert await status(path, key) == 503
        assert f"EpochLedger {NAMESPACE}/{name}" in path.configuration.faults()

    @pytest.mark.parametrize("name", [POOL, AUTHORIZATION_HEAD])
    async def test_a_pool_without_its_ledgers_is_not_routable(self, path: WholePath, name: str) -> None:
        await path.prove()
        path.cluster.ledgers.remove(NAMESPACE, name)
        path.round()
        assert await status(path, path.credentials.api_keys["blue-carol"]) == 503

    async def test_a_new_pool_asks_for_a_round(self, path: WholePath) -> None:
        assert not path.configuration.take_hints()
        path.cluster.write_ledger(NAMESPACE, "other", FIRST)
        assert path.configuration.take_hints()
        assert not path.configuration.take_hints(), "once"


class TestFaultsOfOneObject:
    async def test_a_scope_that_cannot_be_read_leaves_no_reuse(self, path: WholePath, caplog: pytest.LogCaptureFixture) -> None:
        await path.prove()
        key, text = path.credentials.api_keys["blue-carol"], prompt()
        await path.cached(key, text)
        assert await path.cached(key, text) > 0
        with caplog.at_level(logging.WARNING):
            path.edit("CacheScope", "each-principal-alone", lambda scope: scope["spec"].update({"class": "Galaxy"}))
            path.take_over()
        for _ in range(20):
            assert await path.cached(key, text) == 0
        said = f"CacheScope {NAMESPACE}/each-principal-alone"
        assert "share nothing (class Request)" in path.configuration.faults()[said]
        assert [record.__dict__["object"] for record in caplog.records if record.message == "object at fault"] == [said]
        path.edit("CacheScope", "each-principal-alone", lambda scope: scope["spec"].update({"class": "Tenant"}))
        await path.cached(key, text)
        assert await path.cached(key, text) > 0

    def test_a_scope_that_was_deleted_leaves_the_default(self, path: WholePath) -> None:
        red = path.cluster.tenants.documents[Name(NAMESPACE, "red")]["metadata"]["uid"]
        pool = path.snapshot().policy.pools[POOL_UID]
        assert path.snapshot().policy.scope(red, pool).scope_class is ScopeClass.PRINCIPAL
        path.cluster.scopes.remove(NAMESPACE, "each-principal-alone")
        path.refresh()
        assert path.snapshot().policy.scope(red, pool).scope_class is ScopeClass.TENANT

    async def test_a_tenant_that_cannot_be_read_is_refused_alone(self, path: WholePath) -> None:
        await path.prove()
        path.edit("Tenant", "blue", lambda tenant: tenant["spec"].update(suspended="from 2027"))
        assert await status(path, path.credentials.api_keys["blue-carol"]) == 403
        assert await status(path, path.credentials.api_keys["red-alice"]) == 200
        assert "suspended" in path.configuration.faults()[f"Tenant {NAMESPACE}/{name_in_logs('Tenant', NAMESPACE, 'blue')}"]

    async def test_a_pool_that_cannot_be_read_serves_nobody_and_keeps_its_model_name(self, path: WholePath) -> None:
        await path.prove()
        path.edit("ServingPool", POOL, lambda pool: pool["spec"].update(replicas="many"))
        newcomer = json.loads(json.dumps(path.cluster.pools.documents[Name(NAMESPACE, POOL)]))
        newcomer["metadata"] = {"name": "newcomer"}
        del newcomer["spec"]["replicas"]
        path.cluster.apply(newcomer, NAMESPACE)
        path.take_over()
        assert await status(path, path.credentials.api_keys["blue-carol"]) == 503
        path.edit("ServingPool", POOL, lambda pool: pool["spec"].pop("replicas"))
        assert await status(path, path.credentials.api_keys["blue-carol"]) == 200

    @pytest.mark.parametrize(
        ("name", "content"), [("zzzzzzzz", "{}"), ("zzzzzzzz", "no JSON"), ("UPPER", '{"hash": "sha256:0"}'), ("zzzzzzzz", "[]")]
    )
    async def test_a_fault_in_one_entry_of_a_secret_harms_no_other(self, path: WholePath, name: str, content: str) -> None:
        await path.prove()
        entry = base64.b64encode(content.encode()).decode()
        path.edit("Secret", "blue-carol", lambda secret: secret["data"].update({name: entry}))
        assert f"Secret {NAMESPACE}/{name_in_logs('Secret', NAMESPACE, 'blue-carol')}" in path.configuration.faults()
        assert await status(path, path.credentials.api_keys["blue-carol"]) == 200

    async def test_no_log_and_no_report_names_a_tenant(self, path: WholePath, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            path.edit("ServingPool", POOL, lambda pool: pool["spec"].update(replicas="many"))
            path.edit("Tenant", "blue", lambda tenant: tenant["spec"].update(suspended="perhaps"))
            path.edit("Secret", "blue-carol", lambda secret: secret["data"].update(zzzzzzzz="e30="))
        told = [str(vars(record)["object"]) for record in caplog.records if record.message == "object at fault"]
        assert sorted(told) == sorted(path.configuration.report())
        assert f"ServingPool {NAMESPACE}/{POOL}" in told
        assert [name.partition("/")[0] for name in sorted(told)] == [
            f"{kind} {NAMESPACE}" for kind in ("Secret", "ServingPool", "Tenant")
        ]
        assert "blue" not in str(path.configuration.report()) + caplog.text + str([vars(record) for record in caplog.records])

    @pytest.mark.parametrize("mode", ["Shared", "PerTenant"])
    def test_a_status_that_a_newer_operator_wrote_is_no_fault(self, path: WholePath, mode: str) -> None:
        path.edit("ServingPool", POOL, lambda pool: pool.update(status={"mode": mode, "conditions": "many"}))
        path.refresh()

    def test_a_fault_that_was_mended_is_forgotten(self, path: WholePath) -> None:
        path.edit("Tenant", "blue", lambda tenant: tenant["spec"].update(suspended="perhaps"))
        assert path.configuration.faults()
        path.edit("Tenant", "blue", lambda tenant: tenant["spec"].pop("suspended"))
        path.refresh()


async def test_a_new_root_key_is_a_new_set_of_salts_without_a_restart(path: WholePath) -> None:
    await path.prove()
    key, text = path.credentials.api_keys["blue-carol"], "once upon a midnight dreary" * 10
    await path.cached(key, text)
    assert await path.cached(key, text) > 0
    (path.folder / "mounted/root-keys/k2").write_text("ab" * 32)
    path.refresh()
    path.process.keys.ring = path.snapshot().permits[POOL_UID]
    assert await path.cached(key, text) == 0


async def test_models_are_those_of_the_tenant(path: WholePath) -> None:
    settings = path.folder / "mounted/config/settings.yaml"
    settings.write_text(settings.read_text() + "sharedPoolNamespaces: [other]\n")
    other = {"model": {"name": "secret-model", "source": {"imagePath": "/m"}}, "engine": {"version": "0.32.0", "image": "i"}}
    path.cluster.apply({"kind": "ServingPool", "metadata": {"name": "other"}, "spec": other}, "other")
    path.refresh()
    for who, models in {"red-alice": ["tiny"], "blue-carol": ["tiny"]}.items():
        assert await listed(path, path.credentials.api_keys[who]) == models
    path.edit_namespace("other", {"open": "yes"})
    path.cluster.edit(
        "ServingPool",
        "other",
        lambda pool: pool["spec"].update(allowedTenants={"namespaces": {"from": "Selector", "matchLabels": {"team": "models"}}}),
        namespace="other",
    )
    path.edit_namespace(NAMESPACE, {"team": "models"})
    path.refresh()
    assert await listed(path, path.credentials.api_keys["red-alice"]) == ["secret-model", "tiny"]
    settings.write_text(settings.read_text().replace("[other]", "[another]"))
    path.refresh()
    assert await listed(path, path.credentials.api_keys["red-alice"]) == ["tiny"], "a selector counts where the settings say so"


async def listed(path: WholePath, key: str) -> list[str]:
    found = await path.models(key)
    assert isinstance(found, Answer)
    assert found.status == 200
    return [item["id"] for item in json.loads(found.body)["data"]]


async def test_ten_thousand_tenants_are_compiled_beside_the_requests(path: WholePath) -> None:
    for number in range(10_000):
        held = (Held(1000 + number, JwtClaim("south", "tiny", {"team": str(number)})),)
        path.cluster.tenants.take(
            NAMESPACE, f"t{number}", Reading(KnownTenant(NAMESPACE, f"t{number}", f"uid-{number}", False, held))
        )
    started, turns = time.process_time(), 0
    refreshing = asyncio.create_task(path.configuration.refresh())
    while not refreshing.done():
        await asyncio.sleep(0)
        turns += 1
    assert sum(tenant.name != "" for tenant in path.snapshot().policy.tenants.values()) == 10_004
    assert time.process_time() - started < 5, "seconds of this process's own work, however busy the machine is"
    assert turns > 10, "the event loop went on meanwhile"
