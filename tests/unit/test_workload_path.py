"""Workloads on the whole path, by certificate, with or without a bearer credential, and by ServiceAccount."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jwt
import pytest

from cachescope.core.errors import ClusterError
from cachescope.core.ledgers import Floor
from cachescope.core.scopes import Credential
from cachescope.core.types import Epoch
from cachescope.gateway.exchange import Answer, Forward, Peer
from cachescope.gateway.identity.cluster_keys import DISCOVERY_PATH, KEYS_PATH, ClusterKeySet
from tests.unit.jwt_issuer import document, ec_key, jwk
from tests.unit.whole_path import NAMESPACE, WholePath, prompt

RED, BLUE, ROBOT = "spiffe://corp/red/app", "spiffe://corp/blue/app", "spiffe://corp/robot"
BODY = b'{"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}'
DENIED = Floor(Epoch(2), Epoch(2), denied=Epoch(2))
CLUSTER = "https://kubernetes.default.svc"
TLS = {"secretName": "door", "clientCa": {"secretName": "ca", "trustDomains": [{"name": "corp"}]}}


class ApiServer:
    """Publishes the cluster's issuer and keys, unless it is away."""

    away = False

    async def get(self, path: str) -> dict[str, Any]:
        if self.away:
            raise ClusterError("no answer")
        found: dict[str, dict[str, Any]] = {
            DISCOVERY_PATH: {"issuer": CLUSTER},
            KEYS_PATH: json.loads(document(jwk(ec_key("one"), kid="one"))),
        }
        return found[path]


def claim(path: WholePath, tenant: str, **identities: list[dict[str, str]]) -> None:
    path.edit("Tenant", tenant, lambda document: document["spec"]["identities"].update(identities))


@pytest.fixture
async def path(tmp_path: Path) -> WholePath:
    world = WholePath(tmp_path)
    keys = ClusterKeySet(ApiServer(), time.monotonic)
    await keys.source.refresh()
    world.key_sets.cluster = keys
    world.set(tls=TLS, serviceAccounts={"audience": "cachescope", "algorithms": ["ES256"]})
    claim(world, "red", mtls=[{"spiffeId": RED}])
    claim(world, "blue", mtls=[{"spiffeId": BLUE}], serviceAccounts=[{"name": "app"}])
    await world.prove()
    return world


def peer(spiffe_id: str, **changes: Any) -> Peer:
    now = int(time.time())
    return replace(Peer(spiffe_id, now - 60, now + 3600), **changes)


def account_token(name: str = "app", namespace: str = NAMESPACE, audience: str = "cachescope") -> str:
    now, subject = int(time.time()), f"system:serviceaccount:{namespace}:{name}"
    claims = {"iss": CLUSTER, "aud": [audience], "sub": subject, "iat": now, "exp": now + 600}
    return jwt.encode(claims, ec_key("one"), algorithm="ES256", headers={"kid": "one"})


async def said(path: WholePath, key: str | None, certificate: Peer | None) -> str:
    found = await path.decide(key, BODY, peer=certificate)
    return "forwarded" if isinstance(found, Forward) else f"{found.status} {found.reason}"


async def test_a_certificate_alone_is_a_credential(path: WholePath) -> None:
    assert await said(path, None, peer(RED)) == "forwarded"
    assert await said(path, None, None) == "401 authentication_required"
    assert await said(path, None, peer(ROBOT)) == "403 permission_denied"
    assert await said(path, None, peer(f"{RED},{BLUE}")) == "401 authentication_required"
    assert await said(path, None, peer("spiffe://other/red")) == "401 authentication_required"
    assert await said(path, None, peer(RED, expires=int(time.time()) - 1)) == "401 authentication_required"


async def test_a_certificate_beside_a_credential_of_its_tenant_changes_nothing_of_the_cache(path: WholePath) -> None:
    key, text = path.credentials.api_keys["red-alice"], prompt()
    await path.cached(key, text)
    assert await path.cached(key, text, peer=peer(RED)) > 0
    assert await path.cached(key, text, peer=peer(ROBOT)) > 0, "a workload that nobody claims may send"


async def test_a_certificate_beside_a_credential_of_another_tenant_is_refused(path: WholePath) -> None:
    key = path.credentials.api_keys["red-alice"]
    assert await said(path, key, peer(RED)) == "forwarded"
    for _ in range(50):
        assert await said(path, key, peer(BLUE)) == "403 permission_denied"
    assert await said(path, path.credentials.api_keys["blue-carol"], peer(BLUE)) == "forwarded"


async def test_tenants_known_by_certificates_share_nothing(path: WholePath) -> None:
    for _ in range(20):
        text = prompt()
        await path.cached(None, text, peer=peer(RED))
        assert await path.cached(None, text, peer=peer(BLUE)) == 0
    assert await path.cached(None, text, peer=peer(RED)) > 0, "control: its own prefix is reused"


async def test_a_trust_domain_that_is_taken_off_the_settings_identifies_nobody_at_once(path: WholePath) -> None:
    assert await said(path, None, peer(RED)) == "forwarded"
    path.set(tls={**TLS, "clientCa": {**TLS["clientCa"], "trustDomains": [{"name": "other"}]}})  # type: ignore[dict-item]
    assert await said(path, None, peer(RED)) == "401 authentication_required"


async def test_a_trust_domain_counts_for_the_tenants_of_its_namespaces(path: WholePath) -> None:
    """Also what was accepted before the settings said so."""
    path.set(tls={**TLS, "clientCa": {"secretName": "ca", "trustDomains": [{"name": "corp", "namespaces": ["other"]}]}})
    assert await said(path, None, peer(RED)) == "403 permission_denied"


async def test_a_service_account_is_a_tenants_and_nobody_elses(path: WholePath) -> None:
    text = prompt()
    await path.cached(account_token(), text)
    assert await path.cached(account_token(), text) > 0
    assert await path.cached(path.credentials.api_keys["red-alice"], text) == 0
    assert await said(path, account_token("other"), None) == "403 permission_denied"
    assert await said(path, account_token(namespace="rivals"), None) == "403 permission_denied"
    assert await said(path, account_token(audience=CLUSTER), None) == "401 authentication_required"


async def test_an_api_server_that_is_away_for_too_long_is_no_verdict_on_a_token(path: WholePath) -> None:
    clock, server = [0.0], ApiServer()
    path.key_sets.cluster = keys = ClusterKeySet(server, lambda: clock[0])
    await keys.source.refresh()
    path.set(maxRequestBytes=4096)
    server.away = True
    for clock[0], answer in ((3600.0, "forwarded"), (3601.0, "503 gateway_not_ready")):
        assert await said(path, account_token(), None) == answer
    assert await said(path, path.credentials.api_keys["blue-carol"], None) == "forwarded", "others are good meanwhile"


async def test_without_the_setting_tokens_of_service_accounts_are_of_an_unknown_issuer(path: WholePath) -> None:
    assert await said(path, account_token(), None) == "forwarded"
    path.set(serviceAccounts=None)
    assert await said(path, account_token(), None) == "401 authentication_required"


@pytest.mark.parametrize(("namespace", "answer"), [("rivals", "403 permission_denied"), (NAMESPACE, "forwarded")])
async def test_a_claim_on_a_service_account_of_another_namespace_counts_for_the_installation_alone(
    path: WholePath, namespace: str, answer: str
) -> None:
    """Also when a status was forged, and earlier than any other."""
    rival = {
        "kind": "Tenant",
        "metadata": {"name": "rival"},
        "spec": {"identities": {"serviceAccounts": [{"name": "theirs", "namespace": "others"}]}},
        "status": {"accepted": [{"claim": "service-account:others/theirs", "since": 0}]},
    }
    path.cluster.apply(rival, namespace, accept=False)
    path.refresh()
    assert await said(path, account_token("theirs", "others"), None) == answer


@pytest.mark.parametrize("suspended", ["red", "blue"])
async def test_a_suspended_tenant_is_refused_at_once_by_every_credential(path: WholePath, suspended: str) -> None:
    path.edit("Tenant", suspended, lambda tenant: tenant["spec"].update(suspended=True))
    by_certificate = {name: await said(path, None, peer(id_)) for name, id_ in (("red", RED), ("blue", BLUE))}
    assert by_certificate == {name: "403 permission_denied" if name == suspended else "forwarded" for name in ("red", "blue")}
    assert await said(path, account_token(), None) == ("403 permission_denied" if suspended == "blue" else "forwarded")


async def test_a_denied_workload_is_refused_alone_and_sends_for_nobody(path: WholePath) -> None:
    key = path.credentials.api_keys["red-alice"]
    path.advance_authorization({path.principal_target("red", Credential("mtls", "", RED)): DENIED})
    assert await said(path, None, peer(RED)) == "403 revoked"
    assert await said(path, key, peer(RED)) == "403 revoked"
    assert await said(path, key, None) == "forwarded"
    assert await said(path, None, peer(BLUE)) == "forwarded"


async def test_a_denied_service_account_is_refused_alone(path: WholePath) -> None:
    who = Credential("service-account", "", f"system:serviceaccount:{NAMESPACE}:app")
    path.advance_authorization({path.principal_target("blue", who): DENIED})
    assert await said(path, account_token(), None) == "403 revoked"
    assert await said(path, path.credentials.api_keys["blue-carol"], None) == "forwarded"


async def test_certificates_issued_before_a_moment_are_refused_and_later_ones_are_not(path: WholePath) -> None:
    now = int(time.time())
    path.advance_authorization({path.tenant_target("red"): Floor(Epoch(2), Epoch(2), issued_before=now - 10)})
    assert await said(path, None, peer(RED)) == "403 revoked"
    assert await said(path, None, peer(RED, issued=now - 5)) == "forwarded"


async def test_no_answer_repeats_who_the_workload_is(path: WholePath) -> None:
    for key, certificate in ((None, peer(ROBOT)), (path.credentials.api_keys["red-alice"], peer(BLUE)), (account_token("x"), None)):
        found = await path.decide(key, BODY, peer=certificate)
        assert isinstance(found, Answer)
        assert not [word for word in (b"spiffe", b"serviceaccount", b"blue", b"red/") if word in found.body]
