"""Two teams that share a gateway: what one declares changes nothing for the other, each beside its positive control."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cachescope.core.ledgers import AUTHORIZATION_HEAD, Ledger, Lineage, Role
from cachescope.gateway.exchange import Answer, Forward, RequestHead
from cachescope.kube.watched import Name
from e2e.stack.credentials import api_key_secret, new_key
from tests.unit.whole_path import CHAT as CHAT_PATH
from tests.unit.whole_path import FIRST_AUTHORIZATION, NAMESPACE, POOL, WholePath, prompt

RIVAL = "rivals"
CHAT = b'{"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}'


@pytest.fixture
async def path(tmp_path: Path) -> WholePath:
    world = WholePath(tmp_path)
    world.edit_namespace(RIVAL, {"team": "rival"})
    await world.prove()
    return world


async def who(path: WholePath, credential: str) -> str:
    """UID of the tenant for which the gateway takes a credential, or what it answers."""
    found = await path.decide(credential, CHAT)
    if isinstance(found, Answer) and found.status != 404:
        return f"{found.status} {found.reason}"
    head = RequestHead("POST", CHAT_PATH, (("authorization", f"Bearer {credential}"),))
    return (await path.snapshot().authenticator.authenticate(head)).tenant_uid


def uid(path: WholePath, name: str, namespace: str = NAMESPACE) -> str:
    return str(path.cluster.tenants.documents[Name(namespace, name)]["metadata"]["uid"])


def rival(path: WholePath, identities: dict[str, Any], *, namespace: str = RIVAL, accepted: tuple[str, int] | None = None) -> None:
    """A tenant that somebody else declares; `accepted` is a claim that an operator should never have accepted."""
    document: dict[str, Any] = {"kind": "Tenant", "metadata": {"name": "rival"}, "spec": {"identities": identities}}
    if accepted:
        document["status"] = {"accepted": [{"claim": accepted[0], "since": accepted[1]}]}
    path.cluster.apply(document, namespace, accept=accepted is None)
    path.refresh()


def allow(labels: dict[str, str]) -> Callable[[dict[str, Any]], object]:
    """Admit the namespaces with these labels to a pool."""
    allowed = {"namespaces": {"from": "Selector", "matchLabels": labels}}
    return lambda pool: pool["spec"].update(allowedTenants=allowed)


NORTH = {"provider": "north", "audience": "tiny"}
NORTH_CLAIM = 'jwt:{"audience":"tiny","claims":{},"principalClaim":"sub","provider":"north"}'


class TestClaims:
    @pytest.mark.parametrize("claims", [{}, {"sub": "kim"}])
    async def test_claiming_anothers_tokens_changes_nothing(self, path: WholePath, claims: dict[str, str]) -> None:
        token = path.credentials.token("north", "kim", "tiny")
        rival(path, {"jwt": [{**NORTH, "claims": claims}]})
        assert await who(path, token) == uid(path, "blue")
        path.cluster.tenants.remove(NAMESPACE, "blue")
        rival(path, {"jwt": [{**NORTH, "claims": claims}]})
        assert await who(path, token) == uid(path, "rival", RIVAL), "control: a claim that is free can be held"

    @pytest.mark.parametrize(("since", "holder"), [(10**12, "blue"), (0, "rival")])
    async def test_of_two_accepted_claims_the_earlier_decides(self, path: WholePath, since: int, holder: str) -> None:
        rival(path, {"jwt": [NORTH]}, accepted=(NORTH_CLAIM, since))
        expected = {"blue": uid(path, "blue"), "rival": uid(path, "rival", RIVAL)}[holder]
        assert await who(path, path.credentials.token("north", "kim", "tiny")) == expected

    async def test_a_claim_counts_in_the_namespaces_of_its_provider_alone(self, path: WholePath) -> None:
        """Also one that was accepted before the settings said so, and earlier than that of the rightful tenant."""
        token = path.credentials.token("north", "kim", "tiny")
        rival(path, {"jwt": [NORTH]}, accepted=(NORTH_CLAIM, 0))
        assert await who(path, token) == uid(path, "rival", RIVAL), "control: it decides while its namespace may claim"
        settings = path.folder / "mounted/config/settings.yaml"
        allowed = yaml.safe_load(settings.read_text())
        allowed["identityProviders"][0]["namespaces"] = [NAMESPACE]
        settings.write_text(yaml.safe_dump(allowed))
        path.refresh()
        assert await who(path, token) == uid(path, "blue")

    @pytest.mark.parametrize(
        "change",
        [
            lambda tenant: tenant["spec"].update(suspended=True),
            lambda tenant: tenant["spec"].update(suspended="perhaps"),
        ],
        ids=["suspended", "cannot be read"],
    )
    async def test_a_refused_tenants_token_falls_to_nobody(
        self, path: WholePath, change: Callable[[dict[str, Any]], object]
    ) -> None:
        token = path.credentials.token("north", "kim", "tiny")
        rival(path, {"jwt": [NORTH]}, accepted=(NORTH_CLAIM, 10**12))
        path.edit("Tenant", "blue", change)
        assert await who(path, token) == "403 permission_denied"
        path.cluster.tenants.remove(NAMESPACE, "blue")
        path.refresh()
        assert await who(path, token) == uid(path, "rival", RIVAL), "control: the rival's claim does match"

    async def test_a_claim_is_worth_nothing_before_it_is_accepted_and_after_it_was_withdrawn(self, path: WholePath) -> None:
        token = path.credentials.token("north", "kim", "tiny")
        path.edit("Tenant", "blue", lambda tenant: tenant["spec"]["identities"].pop("jwt"))
        path.cluster.edit("Tenant", "blue", lambda tenant: tenant["status"].update(accepted=[]), namespace=NAMESPACE, accept=False)
        path.refresh()
        assert await who(path, token) == "401 authentication_required"
        rival(path, {"jwt": [NORTH]}, accepted=("api-keys:rivals/none", 1))
        assert await who(path, token) == "401 authentication_required"
        rival(path, {"jwt": [NORTH]}, accepted=(NORTH_CLAIM, 1))
        assert await who(path, token) == uid(path, "rival", RIVAL)

    async def test_a_claim_on_a_secret_of_another_namespace_is_worth_nothing(self, path: WholePath) -> None:
        """Also when a status was forged: what a Tenant declares is in its own namespace."""
        key = path.credentials.api_keys["red-alice"]
        rival(path, {"apiKeys": [{"secretName": "red-alice"}]}, accepted=(f"api-keys:{NAMESPACE}/red-alice", 0))
        assert await who(path, key) == uid(path, "red")


class TestKeys:
    def secret(self, path: WholePath, namespace: str, name: str, key_id: str, entry: str) -> None:
        labels = {"cachescope.dev/api-keys": "true"}
        document = {"kind": "Secret", "metadata": {"name": name, "labels": labels}, "stringData": {key_id: entry}}
        path.cluster.apply(document, namespace)

    async def test_a_copied_hash_opens_no_other_tenant_and_disables_nothing(self, path: WholePath) -> None:
        key = path.credentials.api_keys["red-alice"]
        copied = copy.deepcopy(path.cluster.secrets.documents[Name(NAMESPACE, "red-alice")])
        copied["metadata"] = {"name": "red-alice", "namespace": RIVAL}
        path.cluster.secrets.put(copied)
        rival(path, {"apiKeys": [{"secretName": "red-alice"}]})
        assert await who(path, key) == uid(path, "red")
        path.cluster.tenants.remove(NAMESPACE, "red")
        path.refresh()
        assert await who(path, key) == "401 authentication_required"
        own = new_key()
        made = api_key_secret(own, RIVAL, "red-alice", "ci")
        path.cluster.apply(made, RIVAL)
        path.refresh()
        assert await who(path, own) == uid(path, "rival", RIVAL), "control: a key of the Secret's own opens it"

    async def test_a_secret_without_the_label_holds_no_keys(self, path: WholePath) -> None:
        key = path.credentials.api_keys["red-alice"]
        assert await who(path, key) == uid(path, "red")
        path.cluster.secrets.remove(NAMESPACE, "red-alice")  # what the watch by label tells when the label is gone
        path.refresh()
        assert await who(path, key) == "401 authentication_required"


class TestPools:
    async def answer(self, path: WholePath, credential: str) -> str:
        found = await path.decide(credential, CHAT)
        return "forwarded" if isinstance(found, Forward) else found.reason

    def key_of_rival(self, path: WholePath) -> str:
        key = new_key()
        path.cluster.apply(api_key_secret(key, RIVAL, "ci", "ci"), RIVAL)
        rival(path, {"apiKeys": [{"secretName": "ci"}]})
        return key

    async def test_a_pool_is_not_usable_from_another_namespace_unless_allowed(self, path: WholePath) -> None:
        key = self.key_of_rival(path)
        assert await self.answer(path, key) == "model_not_found"
        models = await path.models(key)
        assert isinstance(models, Answer)
        assert json.loads(models.body)["data"] == []
        for labels, expected in (({"team": "other"}, "model_not_found"), ({"team": "rival"}, "forwarded")):
            path.edit("ServingPool", POOL, allow(labels))
            assert await self.answer(path, key) == expected
        path.edit_namespace(RIVAL, {})
        path.refresh()
        assert await self.answer(path, key) == "model_not_found"

    async def test_two_teams_on_one_pool_share_nothing(self, path: WholePath) -> None:
        key = self.key_of_rival(path)
        path.edit("ServingPool", POOL, allow({"team": "rival"}))
        for _ in range(20):
            text = prompt()
            await path.cached(path.credentials.api_keys["blue-carol"], text)
            assert await path.cached(key, text) == 0
        assert await path.cached(key, text) > 0, "control: its own prefix is reused"

    async def test_a_newcomer_with_the_same_model_name_gets_no_request_of_others(self, path: WholePath) -> None:
        hijacker = copy.deepcopy(path.cluster.pools.documents[Name(NAMESPACE, POOL)])
        hijacker["metadata"] = {"name": "hijacker"}
        allow({"team": "any"})(hijacker)
        path.edit_namespace(NAMESPACE, {"team": "any"})
        for namespace in (NAMESPACE, RIVAL):
            path.cluster.apply(hijacker, namespace)
            path.cluster.write_ledger(namespace, "hijacker", Ledger(Role.POOL, Lineage(1, "33" * 16), 1))
        path.cluster.write_ledger(RIVAL, AUTHORIZATION_HEAD, FIRST_AUTHORIZATION)
        path.round()
        path.refresh()
        for name in ("red", "blue", "green"):
            served = path.snapshot().policy.models(uid(path, name))["tiny"].pool
            assert (served.namespace, served.name) == (NAMESPACE, POOL)
        assert await self.answer(path, path.credentials.api_keys["red-alice"]) == "forwarded"
        path.cluster.pools.remove(NAMESPACE, POOL)
        path.refresh()
        assert path.snapshot().policy.models(uid(path, "red"))["tiny"].pool.name == "hijacker", "control: the name is free then"

    async def test_a_scope_of_another_namespace_changes_nothing_here(self, path: WholePath) -> None:
        key, text = path.credentials.api_keys["blue-carol"], prompt()
        await path.cached(key, text)
        scope = {"class": "Request", "pools": [POOL], "tenants": ["blue"]}
        path.cluster.apply({"kind": "CacheScope", "metadata": {"name": "theirs"}, "spec": scope}, RIVAL)
        path.refresh()
        assert await path.cached(key, text) > 0
        path.cluster.apply({"kind": "CacheScope", "metadata": {"name": "ours"}, "spec": scope}, NAMESPACE)
        path.refresh()
        assert await path.cached(key, text) == 0, "control: the same scope here applies"

    async def test_a_scope_that_cannot_be_read_seals_its_own_namespace_alone(self, path: WholePath) -> None:
        key, text = path.credentials.api_keys["blue-carol"], prompt()
        await path.cached(key, text)
        path.cluster.apply({"kind": "CacheScope", "metadata": {"name": "theirs"}, "spec": {"class": "Galaxy"}}, RIVAL)
        path.take_over()
        assert path.configuration.faults()
        assert await path.cached(key, text) > 0
