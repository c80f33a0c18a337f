"""Who was revoked is refused everywhere, whatever he asks for; each refusal beside who is not."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import jwt
import pytest

from cachescope.core.epochs import target_name
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Floor, Ledger, Lineage, Role, advanced, shard_name
from cachescope.core.log_lines import name_in_logs
from cachescope.core.permits import PERMIT_HEADER, read_permit
from cachescope.core.scopes import Credential
from cachescope.core.types import Epoch, TargetKind, TargetName
from cachescope.gateway.exchange import Answer, Forward, RequestHead
from cachescope.gateway.identity.credentials import Identity
from cachescope.kube.watched import Name
from e2e.stack.credentials import KEY_ID, api_key_secret, new_key
from tests.unit.test_ledger_heads import shard_of
from tests.unit.whole_path import CHAT, FIRST_AUTHORIZATION, NAMESPACE, POOL, POOL_UID, WholePath, path, prompt

__all__ = ["path"]

RIVAL = "rivals"
BODY = b'{"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}'
DENIED = Floor(Epoch(2), Epoch(2), denied=Epoch(2))
CAROL = Credential("api-key", "", "carol")
OWN = Ledger(Role.AUTHORIZATION, Lineage(1, "4" * 32), 1)


async def reason(path: WholePath, credential: str, body: bytes = BODY) -> str:
    found = await path.decide(credential, body)
    return "forwarded" if isinstance(found, Forward) else found.reason


async def everywhere(path: WholePath, credential: str) -> set[str]:
    """What a credential gets on every route that authenticates, and on one that is not there."""
    found = {await reason(path, credential), await reason(path, credential, BODY.replace(b"tiny", b"unknown"))}
    for method, route in (("GET", "/v1/models"), ("GET", CHAT), ("POST", "/v1/nothing")):
        head = RequestHead(method, route, (("authorization", f"Bearer {credential}"),))
        answer = await path.gate.admit(head)
        assert isinstance(answer, Answer)
        found.add(answer.reason)
    return found


def key(path: WholePath, who: str) -> str:
    return path.credentials.api_keys[who]


async def test_a_denied_tenant_is_refused_everywhere_and_others_are_not(path: WholePath) -> None:
    token = path.credentials.token("north", "kim", "tiny")
    for credential in (key(path, "blue-carol"), token):
        assert await everywhere(path, credential) == {"forwarded", "model_not_found", "models", "not_found"}
    path.advance_authorization({path.tenant_target("blue"): DENIED})
    for credential in (key(path, "blue-carol"), key(path, "blue-dan"), token):
        assert await everywhere(path, credential) == {"revoked"}
    assert await reason(path, key(path, "red-alice")) == "forwarded"
    answer = await path.models(key(path, "blue-dan"))
    assert isinstance(answer, Answer)
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (403, "revoked")


async def test_a_denied_principal_is_refused_alone_until_readmitted(path: WholePath) -> None:
    target = path.principal_target("blue", CAROL)
    path.advance_authorization({target: DENIED})
    assert await everywhere(path, key(path, "blue-carol")) == {"revoked"}
    assert await reason(path, key(path, "blue-dan")) == "forwarded"
    path.advance_authorization({target: Floor(Epoch(3), Epoch(3), denied=Epoch(2), readmitted=Epoch(3))})
    assert await reason(path, key(path, "blue-carol")) == "forwarded"


async def test_a_denial_that_only_a_shard_holds_counts(path: WholePath) -> None:
    target = path.tenant_target("blue")
    shard = shard_of(target, DENIED)
    path.cluster.write_ledger(NAMESPACE, shard_name(target), shard)
    path.write_authorization(advanced(FIRST_AUTHORIZATION, shards={shard_name(target): shard.mark}))
    assert await reason(path, key(path, "blue-carol")) == "revoked"
    assert await reason(path, key(path, "red-alice")) == "forwarded"


async def test_a_permit_of_before_a_denial_is_refused_by_the_guard(path: WholePath) -> None:
    forward, other = [await path.decide(key(path, who), BODY) for who in ("blue-carol", "red-alice")]
    assert isinstance(forward, Forward)
    assert isinstance(other, Forward)
    path.advance_authorization({path.tenant_target("blue"): DENIED})
    server = await path.send(forward)
    assert (server.status, server.code) == (403, "revoked")
    assert (await path.send(other)).status == 200


async def test_what_changed_while_a_credential_was_verified_counts(path: WholePath, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys may have to be fetched; the gateway may have acknowledged a revocation by the time that they are there."""
    authenticator = path.snapshot().authenticator
    verify, changes = authenticator.authenticate, [{path.pool_target(): Floor(Epoch(5), Epoch(5))}]

    async def slow(head: RequestHead) -> Identity:
        found = await verify(head)
        if changes:
            path.advance_pool(floors=changes.pop())
        return found

    monkeypatch.setattr(authenticator, "authenticate", slow)
    head = RequestHead("POST", CHAT, (("authorization", f"Bearer {key(path, 'blue-carol')}"), ("content-type", "application/json")))
    admitted = await path.gate.admit(head)
    changes.append({path.pool_target(): Floor(Epoch(6), Epoch(6))})
    forward = await path.gate.decide(admitted, BODY)
    assert isinstance(forward, Forward)
    permit = read_permit(path.snapshot().permits[POOL_UID], forward.set_headers[PERMIT_HEADER])
    assert permit.epochs.cache.get(path.pool_target()) == 6
    assert (await path.send(forward)).status == 200


async def test_a_rotated_principal_goes_on_and_finds_nothing_of_before(path: WholePath) -> None:
    text, alice = prompt(), key(path, "red-alice")
    await path.cached(alice, text)
    assert await path.cached(alice, text) > 0
    path.advance_authorization({path.principal_target("red", Credential("api-key", "", "alice")): Floor(Epoch(2), Epoch(2))})
    assert await path.cached(alice, text) == 0
    assert await path.cached(alice, text) > 0


class TestIssuedBefore:
    """Of two credentials of one tenant, the younger one passes."""

    def refuse(self, path: WholePath, before: int) -> None:
        path.advance_authorization({path.tenant_target("blue"): Floor(Epoch(2), Epoch(2), issued_before=before)})

    def created(self, path: WholePath, seconds: object) -> None:
        def change(secret: dict[str, Any]) -> None:
            ((name, content),) = secret["data"].items()
            entry = {**json.loads(base64.b64decode(content)), "created": seconds}
            secret["data"][name] = base64.b64encode(json.dumps(entry).encode()).decode()

        path.edit("Secret", "blue-carol", change)

    @pytest.mark.parametrize(("issued", "found"), [(999, "revoked"), (1000, "forwarded"), (None, "revoked")])
    async def test_keys(self, path: WholePath, issued: int | None, found: str) -> None:
        self.created(path, issued)
        assert await reason(path, key(path, "blue-carol")) == "forwarded", "control: nothing is refused yet"
        self.refuse(path, 1000)
        assert await reason(path, key(path, "blue-carol")) == found
        assert await reason(path, key(path, "blue-dan")) == "revoked", "its entry does not say when it was made"
        assert await reason(path, key(path, "red-alice")) == "forwarded"

    async def test_tokens_of_one_principal_are_told_apart(self, path: WholePath) -> None:
        now = int(time.time())
        self.refuse(path, now - 10)
        old, new, silent = (token(path, **issued) for issued in ({"iat": now - 10.5}, {"iat": now - 10}, {}))
        for _ in range(2):
            assert await reason(path, new) == "forwarded"
            assert await reason(path, old) == "revoked"
            assert await reason(path, silent) == "revoked"

    @pytest.mark.parametrize("seconds", ["1000", -1, 1.5, True, []])
    async def test_an_entry_with_another_time_is_no_entry(self, path: WholePath, seconds: object) -> None:
        self.created(path, seconds)
        assert await reason(path, key(path, "blue-carol")) == "authentication_required"
        assert f"Secret {NAMESPACE}/{name_in_logs('Secret', NAMESPACE, 'blue-carol')}" in path.configuration.faults()


def token(path: WholePath, **claims: float) -> str:
    """A token of the tenant blue."""
    issued = {"iss": "https://north.example", "sub": "kim", "aud": "tiny", "exp": int(time.time()) + 600, **claims}
    return jwt.encode(issued, path.credentials.issuers["north"], algorithm="ES256", headers={"kid": KEY_ID})


async def test_while_nobody_confirmed_a_restore_nobody_is_served_and_the_revoked_are_told(path: WholePath) -> None:
    path.write_authorization(advanced(FIRST_AUTHORIZATION, floors={path.tenant_target("blue"): DENIED}, restored=1))
    assert await everywhere(path, key(path, "red-alice")) == {"restore_unconfirmed"}
    assert await everywhere(path, key(path, "blue-carol")) == {"revoked"}
    answer = await path.decide(key(path, "red-alice"), BODY)
    assert isinstance(answer, Answer)
    assert (answer.status, answer.headers["retry-after"]) == (503, "30")
    path.advance_authorization(confirmed=1)
    assert await reason(path, key(path, "red-alice")) == "forwarded"


class TestTwoNamespaces:
    """A tenant of one namespace, and a pool of another that admits it."""

    @pytest.fixture
    def visitor(self, path: WholePath) -> str:
        credential = new_key()
        path.edit_namespace(RIVAL, {"team": "rival"})
        path.cluster.apply(api_key_secret(credential, RIVAL, "ci", "ci"), RIVAL)
        identities = {"apiKeys": [{"secretName": "ci"}]}
        path.cluster.apply({"kind": "Tenant", "metadata": {"name": "visitor"}, "spec": {"identities": identities}}, RIVAL)
        allowed = {"namespaces": {"from": "Selector", "matchLabels": {"team": "rival"}}}
        path.edit("ServingPool", POOL, lambda pool: pool["spec"].update(allowedTenants=allowed))
        return credential

    def target(self, path: WholePath) -> TargetName:
        uid = path.cluster.tenants.documents[Name(RIVAL, "visitor")]["metadata"]["uid"]
        return target_name(path.snapshot().keys.targets, TargetKind.TENANT, uid)

    def own_head(self, path: WholePath, ledger: Ledger) -> None:
        path.cluster.write_ledger(RIVAL, AUTHORIZATION_HEAD, ledger)
        path.round()

    async def test_a_namespace_without_a_head_denies_nobody(self, path: WholePath, visitor: str) -> None:
        assert await reason(path, visitor) == "forwarded"

    async def test_a_denial_in_the_pools_namespace_counts_everywhere(self, path: WholePath, visitor: str) -> None:
        path.advance_authorization({self.target(path): DENIED})
        assert await everywhere(path, visitor) == {"revoked"}

    async def test_a_denial_in_the_tenants_own_namespace_counts_everywhere_also_when_its_head_is_gone(
        self, path: WholePath, visitor: str
    ) -> None:
        self.own_head(path, OWN)
        assert await reason(path, visitor) == "forwarded"
        self.own_head(path, advanced(OWN, floors={self.target(path): DENIED}))
        assert await everywhere(path, visitor) == {"revoked"}
        path.cluster.ledgers.remove(RIVAL, AUTHORIZATION_HEAD)
        path.round()
        assert await everywhere(path, visitor) == {"revoked"}

    async def test_a_restore_in_either_namespace_stops_it(self, path: WholePath, visitor: str) -> None:
        self.own_head(path, advanced(OWN, restored=1))
        assert await everywhere(path, visitor) == {"restore_unconfirmed"}
        assert await reason(path, key(path, "red-alice")) == "forwarded"

    async def test_a_restore_in_the_pools_namespace_stops_requests_to_it(self, path: WholePath, visitor: str) -> None:
        path.advance_authorization(restored=1)
        assert await reason(path, visitor) == "restore_unconfirmed"
        answer = await path.models(visitor)
        assert isinstance(answer, Answer)
        assert answer.status == 200

    async def test_an_own_head_that_is_unclear_lets_nobody_in(self, path: WholePath, visitor: str) -> None:
        self.own_head(path, OWN)
        path.cluster.edit("EpochLedger", AUTHORIZATION_HEAD, lambda it: it.update(spec={}), namespace=RIVAL)
        path.round()
        assert await everywhere(path, visitor) == {"gateway_not_ready"}
        assert await reason(path, key(path, "red-alice")) == "forwarded"


async def test_the_permit_names_both_ledgers_and_the_epochs_of_all_targets(path: WholePath) -> None:
    path.raise_pool_epoch(4)
    path.advance_authorization({path.tenant_target("blue"): Floor(Epoch(6))})
    forward = await path.decide(key(path, "blue-carol"), BODY)
    assert isinstance(forward, Forward)
    permit = read_permit(path.snapshot().permits[POOL_UID], forward.set_headers[PERMIT_HEADER])
    scope = target_name(path.snapshot().keys.targets, TargetKind.SCOPE, POOL_UID)
    assert dict(permit.epochs.cache.entries) == {path.pool_target(): 4, scope: 1}
    assert dict(permit.epochs.authorization.entries) == {path.tenant_target("blue"): 6, path.principal_target("blue", CAROL): 1}
    assert permit.seen == path.snapshot().states[POOL_UID].heads.seen
    assert (permit.seen.sequence, permit.seen.authorization_sequence) == (2, 2)
