"""Tokens: only what the provider signed, for us, now, for the tenant whose claim was accepted first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from cachescope.core.errors import SpecError
from cachescope.core.scopes import Credential
from cachescope.gateway.identity.claimants import JwtIdentity
from cachescope.gateway.identity.credentials import Forbidden, Identity, KeysUnavailable, Unauthenticated
from cachescope.gateway.identity.jwks import PublicKey, parse_jwks
from cachescope.gateway.identity.jwt_tokens import JwtTokens, Provider
from tests.unit.jwt_issuer import AUDIENCE, ISSUER, NOW, Keys, claims, document, ec_key, encoded, jwk, rsa_key, sign

ALICE = Identity("uid-red", Credential("jwt", ISSUER, "alice"))
RED = JwtIdentity("uid-red", "main", AUDIENCE, {"team": "red"})
BLUE = JwtIdentity("uid-blue", "main", AUDIENCE, {"team": "blue"})


class Clock:
    def __init__(self) -> None:
        self.seconds = NOW

    def __call__(self) -> float:
        return self.seconds


def key_set() -> Keys:
    return Keys(parse_jwks(document(jwk(ec_key("one"), kid="one"), jwk(rsa_key(), kid="rsa"))))


def verifier(
    *identities: JwtIdentity, keys: Keys | None = None, clock: Clock | None = None, lists: Sequence[str] = ()
) -> JwtTokens:
    provider = Provider("main", ISSUER, ["ES256", "RS256"], keys or key_set(), list_claims=lists)
    return JwtTokens([provider], identities or (RED, BLUE), clock or Clock())


def public_pem() -> bytes:
    return rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def hs256(secret: bytes, header: dict[str, object]) -> str:
    head = json.dumps({"alg": "HS256"} | header).encode()
    signed = f"{encoded(head)}.{encoded(json.dumps(claims()).encode())}"
    signer = jwt.PyJWS().get_algorithm_by_name("HS256")
    return f"{signed}.{encoded(signer.sign(signed.encode(), secret))}"


async def test_a_good_token_belongs_to_its_tenant() -> None:
    tokens = verifier()
    assert await tokens.authenticate(sign(claims())) == ALICE
    assert await tokens.authenticate(sign(claims(team="blue"))) == Identity("uid-blue", Credential("jwt", ISSUER, "alice"))
    signed = sign(claims(), key=rsa_key(), algorithm="RS256", header={"kid": "rsa"})
    assert await tokens.authenticate(signed) == ALICE


@pytest.mark.parametrize(("iat", "issued_at"), [(NOW - 5, NOW - 5), (NOW - 4.5, NOW - 5), (None, None)])
async def test_an_identity_says_when_its_token_was_issued_also_when_it_is_remembered(
    iat: float | None, issued_at: int | None
) -> None:
    tokens = verifier()
    for _ in range(2):
        assert (await tokens.authenticate(sign(claims(iat=iat)))).issued_at == issued_at


GOOD = sign(claims())
HEAD, PAYLOAD, SIGNATURE = GOOD.split(".")
FOREIGN = jwk(ec_key("foreign"), kid="one")


def forged(header: bytes, signature: str = SIGNATURE) -> str:
    return f"{encoded(header)}.{PAYLOAD}.{signature}"


HOSTILE = {
    "alg none": forged(b'{"alg":"none"}', ""),
    "alg none, with a signature": forged(b'{"alg":"none","kid":"one"}'),
    "alg None": forged(b'{"alg":"None","kid":"one"}'),
    "alg es256 in lower case": sign(claims(), header={"alg": "es256"}),
    "no alg": forged(b'{"kid":"one"}'),
    "alg in a list": forged(b'{"kid":"one","alg":["ES256"]}'),
    "HS256 signed with the RSA public key": hs256(public_pem(), {"kid": "rsa"}),
    "HS256 signed with the RSA public key, no kid": hs256(public_pem(), {}),
    "algorithm that is not allowed": sign(claims(), key=rsa_key(), algorithm="PS256", header={"kid": "rsa"}),
    "key of another algorithm": sign(claims(), header={"kid": "rsa"}),
    "signed by a foreign key": sign(claims(), key=ec_key("foreign")),
    "wrong kid": sign(claims(), header={"kid": "other"}),
    "kid is a path": sign(claims(), header={"kid": "../../../../dev/null"}),
    "kid is SQL": sign(claims(), header={"kid": "one' UNION SELECT 'key"}),
    "kid is empty": sign(claims(), header={"kid": ""}),
    "kid is a number": sign(claims(), header={"kid": 1}),
    "kid is a list": sign(claims(), header={"kid": ["one"]}),
    "kid with another case": sign(claims(), header={"kid": "ONE"}),
    "jwk in the header": sign(claims(), key=ec_key("foreign"), header={"jwk": FOREIGN}),
    "jku in the header": sign(claims(), key=ec_key("foreign"), header={"jku": "https://evil.example/jwks", "kid": "evil"}),
    "x5u in the header": sign(claims(), key=ec_key("foreign"), header={"x5u": "https://evil.example/cert"}),
    "critical extension": sign(claims(), header={"crit": ["exp"]}),
    "detached payload": sign(claims(), header={"b64": False, "crit": ["b64"]}),
    "logout token": sign(claims(), header={"typ": "logout+jwt"}),
    "header with a name twice": sign(claims(), header=b'{"alg":"ES256","kid":"one","kid":"one"}'),
    "payload with a name twice": sign(json.dumps(claims()).replace('"team"', '"team": "blue", "team"').encode()),
    "payload with an escaped name twice": sign(json.dumps(claims()).replace('"team"', '"te\\u0061m": "blue", "team"').encode()),
    "payload with exp twice": sign(json.dumps(claims()).replace('"exp"', f'"exp": {NOW + 9}, "exp"').encode()),
    "payload is a list": sign(b"[]"),
    "payload is nested 5000 deep": sign(b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"),
    "payload is UTF-16": sign(json.dumps(claims()).encode("utf-16")),
    "expired": sign(claims(exp=NOW - 31)),
    "no exp": sign(claims(exp=None)),
    "exp is text": sign(claims(exp=str(NOW + 300))),
    "exp is true": sign(claims(exp=True)),
    "exp is null": sign(json.dumps(claims() | {"exp": None}).encode()),
    "exp is NaN": sign(json.dumps(claims() | {"exp": float("nan")}).encode()),
    "exp overflows": sign(json.dumps(claims()).replace(str(NOW + 300), "1e999").encode()),
    "nbf in the future": sign(claims(nbf=NOW + 31)),
    "nbf is text": sign(claims(nbf="0")),
    "iat in the future": sign(claims(iat=NOW + 31)),
    "iat is text": sign(claims(iat="0")),
    "no aud": sign(claims(aud=None)),
    "wrong aud": sign(claims(aud="billing")),
    "aud in another case": sign(claims(aud="CacheScope")),
    "aud that begins like ours": sign(claims(aud="cachescope2")),
    "aud is a list of others": sign(claims(aud=["billing", "cachescope2"])),
    "aud is an object": sign(claims(aud={"cachescope": True})),
    "no iss": sign(claims(iss=None)),
    "iss with a trailing slash": sign(claims(iss=f"{ISSUER}/")),
    "iss in another case": sign(claims(iss=ISSUER.upper())),
    "iss is a list": sign(claims(iss=[ISSUER])),
    "iss is the provider's name": sign(claims(iss="main")),
    "no sub": sign(claims(sub=None)),
    "empty sub": sign(claims(sub="")),
    "blank sub": sign(claims(sub=" \t")),
    "sub is a number": sign(claims(sub=7)),
    "sub is a list": sign(claims(sub=["alice"])),
    "sub is half a surrogate pair": sign(claims(sub="\ud800")),
    "payload of another token": ".".join((HEAD, encoded(json.dumps(claims(sub="root")).encode()), SIGNATURE)),
    "signature cut short": GOOD[:-2],
    "no signature": f"{HEAD}.{PAYLOAD}.",
    "two parts": f"{HEAD}.{PAYLOAD}",
    "five parts, encrypted": f"{GOOD}.{SIGNATURE}.{SIGNATURE}",
    "padding": f"{GOOD}=",
    "line end": f"{GOOD}\n",
    "JSON serialization": json.dumps({"protected": HEAD, "payload": PAYLOAD, "signature": SIGNATURE}),
    "more than 16 KiB": sign(claims(filler="x" * 13_000)),
    "not ASCII": "é.é.é",
    "half a surrogate pair": "\udcff.a.b",
    "empty": "",
}


@pytest.mark.parametrize("token", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_hostile_token_is_refused_where_a_good_one_passes(token: str) -> None:
    tokens = verifier()
    assert await tokens.authenticate(GOOD) == ALICE
    for _ in range(3):
        with pytest.raises(Unauthenticated) as refused:
            await tokens.authenticate(token)
        assert not SIGNATURE or SIGNATURE not in str(refused.value)
    assert await tokens.authenticate(GOOD) == ALICE


HARMLESS = {
    "aud in a list of one": sign(claims(aud=[AUDIENCE])),
    "claim in a list of one": sign(claims(team=["red"])),
    "several values in a claim that nobody asks for": sign(claims(amr=["pwd", "otp"])),
    "expired within the leeway": sign(claims(exp=NOW - 29)),
    "nbf within the leeway": sign(claims(nbf=NOW + 29)),
    "iat within the leeway": sign(claims(iat=NOW + 29)),
    "no iat": sign(claims(iat=None)),
    "no kid, one key of that algorithm": sign(claims(), header=b'{"alg":"ES256"}'),
    "typ of an access token": sign(claims(), header={"typ": "at+jwt"}),
    "jku that nobody follows": sign(claims(), header={"jku": "https://evil.example/jwks"}),
    "jwk that nobody reads": sign(claims(), header={"jwk": FOREIGN}),
    "x5u that nobody follows": sign(claims(), header={"x5u": "https://evil.example/cert"}),
    "almost 16 KiB": sign(claims(filler="x" * 10_000)),
}


@pytest.mark.parametrize("token", HARMLESS.values(), ids=HARMLESS.keys())
async def test_an_unusual_token_that_the_provider_signed_passes(token: str) -> None:
    assert await verifier().authenticate(token) == ALICE


async def test_a_key_id_is_only_ever_a_name_that_is_looked_up() -> None:
    keys = key_set()
    with pytest.raises(Unauthenticated):
        await verifier(keys=keys).authenticate(sign(claims(), header={"kid": "../../x"}))
    assert keys.asked == [("../../x", "ES256")]


async def test_without_a_key_id_two_keys_of_the_algorithm_are_refused() -> None:
    keys = key_set()
    token = sign(claims(), header=b'{"alg":"ES256"}')
    assert await verifier(keys=keys).authenticate(token) == ALICE
    keys.rotate(document(jwk(ec_key("one"), kid="one"), jwk(ec_key("two"), kid="two")))
    with pytest.raises(Unauthenticated):
        await verifier(keys=keys).authenticate(token)


async def test_the_same_sub_of_two_issuers_is_two_principals() -> None:
    other = "https://other.example"
    keys = key_set()
    providers = [Provider("main", ISSUER, ["ES256"], keys), Provider("other", other, ["ES256"], keys)]
    identities = [JwtIdentity("uid-red", "main", AUDIENCE), JwtIdentity("uid-red", "other", AUDIENCE)]
    tokens = JwtTokens(providers, identities, Clock())
    first = await tokens.authenticate(sign(claims()))
    second = await tokens.authenticate(sign(claims(iss=other)))
    assert first.tenant_uid == second.tenant_uid
    assert first.credential.subject == second.credential.subject
    assert first.credential != second.credential


async def test_a_token_of_one_provider_is_worth_nothing_under_anothers_identity() -> None:
    keys, foreign = key_set(), Keys(parse_jwks(document(FOREIGN)))
    providers = [Provider("main", ISSUER, ["ES256"], keys), Provider("evil", "https://evil.example", ["ES256"], foreign)]
    tokens = JwtTokens(providers, [RED], Clock())
    assert await tokens.authenticate(sign(claims())) == ALICE
    with pytest.raises(Unauthenticated):
        await tokens.authenticate(sign(claims(iss="https://evil.example"), key=ec_key("foreign")))
    with pytest.raises(Unauthenticated):
        await tokens.authenticate(sign(claims(), key=ec_key("foreign")))


REFUSED_BY_TENANTS: dict[str, tuple[tuple[JwtIdentity, ...], str]] = {
    "no tenant with these claims": ((BLUE,), "no tenant"),
    "a claim that is missing": ((JwtIdentity("uid-red", "main", AUDIENCE, {"team": "red", "plan": "pro"}),), "no tenant"),
    "two principal claims in one tenant": ((RED, JwtIdentity("uid-red", "main", "other", {}, "email")), "more than one claim"),
}


@pytest.mark.parametrize(("identities", "message"), REFUSED_BY_TENANTS.values(), ids=REFUSED_BY_TENANTS.keys())
async def test_a_token_that_no_tenant_can_use_is_forbidden(identities: tuple[JwtIdentity, ...], message: str) -> None:
    assert await verifier(RED).authenticate(GOOD) == ALICE
    with pytest.raises(Forbidden, match=message):
        await verifier(*identities).authenticate(GOOD)


async def test_the_audience_tells_tenants_apart() -> None:
    identities = JwtIdentity("uid-red", "main", "red-service"), JwtIdentity("uid-blue", "main", "blue-service")
    tokens = verifier(*identities, lists=["aud"])
    assert (await tokens.authenticate(sign(claims(aud="red-service")))).tenant_uid == "uid-red"
    assert (await tokens.authenticate(sign(claims(aud=["x", "blue-service"])))).tenant_uid == "uid-blue"
    assert (await tokens.authenticate(sign(claims(aud=["blue-service", "red-service"])))).tenant_uid == "uid-red"


CLAIMANTS = {
    "the same claims": JwtIdentity("uid-blue", "main", AUDIENCE, {"team": "red"}),
    "all of the audience": JwtIdentity("uid-blue", "main", AUDIENCE),
    "another claim of the token": JwtIdentity("uid-blue", "main", AUDIENCE, {"sub": "alice"}),
    "another value of a list": JwtIdentity("uid-blue", "main", AUDIENCE, {"team": "blue"}),
}


@pytest.mark.parametrize("other", CLAIMANTS.values(), ids=CLAIMANTS.keys())
async def test_of_two_tenants_the_first_holds_the_token(other: JwtIdentity) -> None:
    token = sign(claims(team=["blue", "red"]))
    assert (await verifier(RED, other, lists=["team"]).authenticate(token)).tenant_uid == "uid-red"
    assert (await verifier(other, RED, lists=["team"]).authenticate(token)).tenant_uid == "uid-blue"
    assert (await verifier(other, lists=["team"]).authenticate(token)).tenant_uid == "uid-blue"


SEVERAL = {
    "claims": ("team", sign(claims(team=["red", "blue"])), Forbidden),
    "the same twice": ("team", sign(claims(team=["red", "red"])), Forbidden),
    "audiences": ("aud", sign(claims(aud=[AUDIENCE, "account"])), Unauthenticated),
}


@pytest.mark.parametrize(("name", "token", "refusal"), SEVERAL.values(), ids=SEVERAL.keys())
async def test_several_values_match_nobody_unless_the_settings_allow_them(name: str, token: str, refusal: type[Exception]) -> None:
    with pytest.raises(refusal, match=rf"several values in {name}; .*`listClaims`"):
        await verifier().authenticate(token)
    with pytest.raises(refusal):
        await verifier(lists=["other"]).authenticate(token)
    assert (await verifier(lists=[name]).authenticate(token)) == ALICE


async def test_a_token_is_found_among_ten_thousand_tenants_that_differ_in_one_claim() -> None:
    many = [JwtIdentity(f"uid-{number}", "main", AUDIENCE, {"env": "prod", "team": f"team-{number}"}) for number in range(10_000)]
    places = verifier(*many)._claimants["main"]._places
    assert max(map(len, places.values())) == 1
    found = await verifier(*many).authenticate(sign(claims(env="prod", team="team-9876")))
    assert found.tenant_uid == "uid-9876"


@pytest.mark.parametrize("value", ["Red", "red ", "redd", "", 1, True, None, {"red": 1}, [["red"]], [], ["RED"]])
async def test_claims_are_compared_exactly(value: object) -> None:
    content = json.dumps(claims() | {"team": value}).encode()
    with pytest.raises(Forbidden):
        await verifier(RED).authenticate(sign(content))


async def test_another_claim_can_name_the_principal() -> None:
    tokens = verifier(JwtIdentity("uid-red", "main", AUDIENCE, {}, "email"))
    identity = await tokens.authenticate(sign(claims(email="a@example")))
    assert identity.credential.subject == "a@example"
    with pytest.raises(Unauthenticated, match="whom it speaks for"):
        await tokens.authenticate(GOOD)


LISTED = [
    ("m1", {"m1"}),
    (["m1", "m2"], {"m1", "m2"}),
    (["m" * 253], {"m" * 253}),
    ([], set()),
    (None, set()),
    ("", set()),
    (["m1", ""], set()),
    (["m1", 2], set()),
    (["m1", ["m2"]], set()),
    ("m" * 254, set()),
    (["m1", "m" * 254], set()),
    ({"m1": True}, set()),
    (True, set()),
]


@pytest.mark.parametrize(("value", "authorized"), LISTED)
async def test_a_claim_authorizes_for_the_compartments_that_it_lists_or_for_none(value: object, authorized: set[str]) -> None:
    content = json.dumps(claims() | {"team": "red", "matters": value}).encode()
    tokens = verifier(replace(RED, compartments_claim="matters"), BLUE)
    assert (await tokens.authenticate(sign(content))).compartments == authorized
    assert (await verifier(RED, BLUE).authenticate(sign(content))).compartments == set(), "the tenant names no claim"


@pytest.mark.parametrize("algorithms", [["none"], ["HS256"], ["RS256", "HS512"], ["ES256K"], ["rs256"], [""], []])
def test_a_provider_allows_asymmetric_algorithms_only(algorithms: list[str]) -> None:
    assert Provider("main", ISSUER, ["RS256", "PS384", "ES512", "EdDSA"], key_set())
    with pytest.raises(SpecError):
        Provider("main", ISSUER, algorithms, key_set())


def test_two_providers_with_one_issuer_are_refused() -> None:
    providers = [Provider("a", ISSUER, ["ES256"], key_set()), Provider("b", ISSUER, ["ES256"], key_set())]
    with pytest.raises(SpecError, match="same issuer"):
        JwtTokens(providers, [], Clock())


async def test_keys_that_are_not_at_hand_are_no_verdict_on_the_token() -> None:
    class Gone(Keys):
        async def find(self, kid: str | None, algorithm: str) -> PublicKey | None:  # noqa: ARG002 - a port
            raise KeysUnavailable("try again later")

    gone: Any = Gone(key_set().table)
    with pytest.raises(KeysUnavailable):
        await verifier(keys=gone).authenticate(GOOD)


@pytest.mark.parametrize(("name", "issuer"), [("", ISSUER), ("main", "")])
def test_a_provider_without_a_name_or_an_issuer_is_refused(name: str, issuer: str) -> None:
    with pytest.raises(SpecError, match="a name and an issuer"):
        Provider(name, issuer, ["ES256"], key_set())


@pytest.mark.parametrize("missing", ["tenant_uid", "provider", "audience", "principal_claim"])
def test_an_identity_that_would_match_nobody_in_particular_is_refused(missing: str) -> None:
    without: dict[str, Any] = {missing: ""}
    with pytest.raises(SpecError, match="set all of them"):
        replace(RED, **without)
