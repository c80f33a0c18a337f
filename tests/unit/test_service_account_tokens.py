"""Tokens of ServiceAccounts: verified by the cluster's own keys, for one audience, and claimed through no other door."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from cachescope.api.settings import ServiceAccounts
from cachescope.core.errors import ClusterError
from cachescope.core.scopes import Credential
from cachescope.core.service_accounts import ServiceAccount
from cachescope.gateway.identity.claimants import JwtIdentity
from cachescope.gateway.identity.cluster_keys import DISCOVERY_PATH, KEYS_PATH, ClusterKeySet
from cachescope.gateway.identity.credentials import Forbidden, Identity, KeysUnavailable, Unauthenticated
from cachescope.gateway.identity.jwks import parse_jwks
from cachescope.gateway.identity.jwt_tokens import JwtTokens, Provider
from cachescope.gateway.identity.service_accounts import ServiceAccountTokens
from tests.unit.jwt_issuer import ISSUER, NOW, Keys, document, ec_key, encoded, jwk, sign
from tests.unit.jwt_issuer import claims as of_provider

CLUSTER = "https://kubernetes.default.svc"
APP = ServiceAccount("jobs", "app")
MINE = Identity("uid-red", Credential("service-account", "", "system:serviceaccount:jobs:app"))
KEYS = document(jwk(ec_key("one"), kid="one"))


class ApiServer:
    """Says what a test has it say."""

    def __init__(self, issuer: object = CLUSTER) -> None:
        self.documents: dict[str, dict[str, Any]] = {
            DISCOVERY_PATH: {"issuer": issuer, "jwks_uri": "https://elsewhere.example/keys"},
            KEYS_PATH: json.loads(KEYS),
        }
        self.fault: Exception | None = None
        self.asked: list[str] = []

    async def get(self, path: str) -> dict[str, Any]:
        self.asked.append(path)
        if self.fault:
            raise self.fault
        return self.documents[path]


class Time:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def claims(**changed: object) -> dict[str, object]:
    """What the API server says of a ServiceAccount."""
    good: dict[str, object] = {
        "iss": CLUSTER,
        "aud": ["cachescope"],
        "sub": APP.subject,
        "iat": NOW,
        "nbf": NOW,
        "exp": NOW + 3600,
        "kubernetes.io": {"namespace": "jobs", "serviceaccount": {"name": "app", "uid": "1"}},
    }
    return {name: value for name, value in (good | changed).items() if value is not None}


async def verifier(
    server: ApiServer | None = None,
    *others: tuple[Provider, JwtIdentity],
    clock: Time | None = None,
    known: bool = True,
    holders: Mapping[ServiceAccount, str] | None = None,
) -> JwtTokens:
    keys = ClusterKeySet(server or ApiServer(), clock or Time())
    if known:
        await keys.source.refresh()
    door = ServiceAccountTokens(
        ServiceAccounts(audience="cachescope", algorithms=("ES256",)), keys, {APP: "uid-red"} if holders is None else holders
    )
    return JwtTokens([provider for provider, _ in others], [identity for _, identity in others], lambda: NOW, door)


def generic(issuer: str, **asked: str) -> tuple[Provider, JwtIdentity]:
    """A provider that somebody configured, with a Tenant that claims all of its tokens."""
    provider = Provider("corp", issuer, ["ES256"], Keys(parse_jwks(KEYS)))
    return provider, JwtIdentity("uid-thief", "corp", "cachescope", asked)


async def test_a_token_belongs_to_who_holds_the_service_account() -> None:
    found = await (await verifier()).authenticate(sign(claims()))
    assert (found, found.issued_at) == (MINE, int(NOW))
    assert await (await verifier()).authenticate(sign(claims(aud="cachescope"))) == MINE


UNSIGNED = ".".join(map(encoded, (b'{"alg":"none"}', json.dumps(claims()).encode(), b"x")))


@pytest.mark.parametrize(
    ("token", "message"),
    [
        pytest.param(sign(claims(exp=None)), "never expires", id="no exp: the Secret of an old ServiceAccount"),
        pytest.param(sign(claims(exp=NOW - 31)), "has expired", id="expired"),
        pytest.param(sign(claims(nbf=NOW + 31)), "in the future", id="not yet"),
        pytest.param(sign(claims(iat=NOW + 31)), "in the future", id="issued in the future"),
        pytest.param(sign(claims(), key=ec_key("other")), "does not verify", id="another key"),
        pytest.param(UNSIGNED, "algorithm is not allowed", id="alg none"),
        pytest.param(sign(claims(), header={"alg": "HS256"}), "algorithm is not allowed", id="alg HS256"),
        pytest.param(sign(claims(), header={"alg": "RS256"}), "algorithm is not allowed", id="an algorithm of others"),
        pytest.param(sign(claims(), header={"kid": "two"}), "not in its issuer's key set", id="an unknown kid"),
        pytest.param(sign(claims(), header={"kid": "../one"}), "not in its issuer's key set", id="a kid that is a path"),
        pytest.param(sign(claims(), header={"kid": ["one"]}), "key id is not text", id="a kid that is a list"),
        pytest.param(sign(claims(), header={"crit": ["x"]}), "not understood", id="crit"),
        pytest.param(
            sign(claims(), key=ec_key("other"), header={"jwk": jwk(ec_key("other"))}), "does not verify", id="a key in the token"
        ),
        pytest.param(
            sign(claims(), key=ec_key("other"), header={"jku": "https://elsewhere.example/keys"}), "does not verify", id="jku"
        ),
        pytest.param(sign(claims(aud="other")), "not for this service alone", id="another audience"),
        pytest.param(sign(claims(aud=["cachescope", CLUSTER])), "not for this service alone", id="also for the API server"),
        pytest.param(sign(claims(aud=None)), "not for this service alone", id="no audience"),
        pytest.param(sign(claims(sub="system:node:one")), "speaks for no ServiceAccount", id="a node"),
        pytest.param(sign(claims(sub="system:serviceaccount:jobs:app:x")), "speaks for no ServiceAccount", id="three names"),
        pytest.param(sign(claims(sub=[APP.subject])), "speaks for no ServiceAccount", id="a list of subjects"),
        pytest.param(sign(claims(iss="https://evil.example")), "issuer is not accepted", id="another issuer"),
        pytest.param(sign(claims(iss=[CLUSTER])), "issuer is not accepted", id="a list of issuers"),
    ],
)
async def test_a_hostile_token_is_refused_where_a_good_one_passes(token: str, message: str) -> None:
    tokens = await verifier()
    assert await tokens.authenticate(sign(claims())) == MINE
    with pytest.raises(Unauthenticated, match=message):
        await tokens.authenticate(token)


@pytest.mark.parametrize(
    "name", [ServiceAccount("jobs", "other"), ServiceAccount("other", "app"), ServiceAccount("jobs", "app.x")], ids=str
)
async def test_another_service_account_is_nobodys(name: ServiceAccount) -> None:
    with pytest.raises(Forbidden, match="belongs to no tenant"):
        await (await verifier()).authenticate(sign(claims(sub=name.subject)))
    assert await (await verifier(holders={name: "uid-red"})).authenticate(sign(claims(sub=name.subject)))


async def test_a_provider_of_the_clusters_issuer_gets_none_of_its_tokens() -> None:
    thief = generic(CLUSTER)
    alone = JwtTokens([thief[0]], [thief[1]], lambda: NOW)
    assert (await alone.authenticate(sign(claims(aud="cachescope")))).tenant_uid == "uid-thief", "control: without the setting"
    tokens = await verifier(None, thief)
    assert await tokens.authenticate(sign(claims(aud="cachescope"))) == MINE
    with pytest.raises(Forbidden):
        await tokens.authenticate(sign(claims(aud="cachescope", sub="system:serviceaccount:jobs:other")))


async def test_before_the_issuer_is_known_nobody_says_whose_a_service_accounts_token_is() -> None:
    tokens = await verifier(None, generic(CLUSTER), known=False)
    with pytest.raises(KeysUnavailable):
        await tokens.authenticate(sign(claims(aud="cachescope")))
    other = await verifier(None, generic(ISSUER), known=False)
    assert (await other.authenticate(sign(of_provider()))).tenant_uid == "uid-thief", "control: other tokens are good meanwhile"


async def test_a_token_of_a_provider_that_names_a_service_account_is_no_service_accounts() -> None:
    found = await (await verifier(None, generic(ISSUER))).authenticate(sign(of_provider(sub=APP.subject)))
    assert found.credential == Credential("jwt", ISSUER, APP.subject)


async def test_an_outage_of_the_api_server_is_bridged_until_the_keys_are_too_old() -> None:
    server, clock = ApiServer(), Time()
    tokens = await verifier(server, clock=clock)
    server.fault = ClusterError("no answer")
    for clock.seconds in (0.0, 3600.0):
        assert await tokens.authenticate(sign(claims(jti=str(clock.seconds)))) == MINE
    clock.seconds = 3601.0
    for token in (sign(claims()), sign(claims(jti="0.0"))):  # the second was remembered
        with pytest.raises(KeysUnavailable):
            await tokens.authenticate(token)
    server.fault, clock.seconds = None, 3612.0
    assert await tokens.authenticate(sign(claims())) == MINE


async def test_keys_come_from_the_api_server_and_not_from_where_it_points() -> None:
    server = ApiServer()
    keys = ClusterKeySet(server, Time())
    assert (keys.issuer, keys.revision) == (None, -1)
    await keys.source.refresh()
    assert (keys.issuer, keys.problem) == (CLUSTER, None)
    assert server.asked == [DISCOVERY_PATH, KEYS_PATH]


@pytest.mark.parametrize("issuer", [None, "", 7, [CLUSTER]])
async def test_a_cluster_that_names_no_issuer_verifies_nothing(issuer: object) -> None:
    keys = ClusterKeySet(ApiServer(issuer), Time())
    await keys.source.refresh()
    assert keys.issuer is None
    assert "names no issuer" in (keys.problem or "")


async def test_a_missing_right_is_said_with_what_to_do() -> None:
    server = ApiServer()
    server.fault = ClusterError("403")
    keys = ClusterKeySet(server, Time())
    await keys.source.refresh()
    assert "system:service-account-issuer-discovery" in (keys.problem or "")


async def test_rotated_keys_are_found_by_a_token_of_the_new_one() -> None:
    server, clock = ApiServer(), Time()
    tokens = await verifier(server, clock=clock)
    server.documents[KEYS_PATH] = json.loads(document(jwk(ec_key("one"), kid="one"), jwk(ec_key("two"), kid="two")))
    fresh = sign(claims(), key=ec_key("two"), header={"kid": "two"})
    with pytest.raises(Unauthenticated):
        await tokens.authenticate(fresh)
    clock.seconds = 10.0
    assert await tokens.authenticate(fresh) == MINE
    assert await tokens.authenticate(sign(claims())) == MINE
