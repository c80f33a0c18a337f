"""Credentials of the probe: good for one process, for a while, by one key; and nobody else's credential is one."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachescope.core.errors import WireFormatError
from cachescope.core.keys import Key, KeyRing
from cachescope.core.probes import (
    LONGEST_SECONDS,
    SCHEME,
    Pair,
    Prober,
    probe_keys,
    read_credential,
    tenant_uid,
    tenant_uids,
    write_credential,
)
from cachescope.core.signed import sign
from cachescope.core.types import Salt
from cachescope.gateway.exchange import RequestHead
from cachescope.gateway.identity import probes
from cachescope.gateway.identity.api_keys import ApiKeyEntry, ApiKeys, make_key
from cachescope.gateway.identity.authenticator import KEY_HEADERS, Authenticator
from cachescope.gateway.identity.claimants import JwtIdentity
from cachescope.gateway.identity.credentials import Forbidden, Identity, Unauthenticated
from cachescope.gateway.identity.jwks import parse_jwks
from cachescope.gateway.identity.jwt_tokens import JwtTokens, Provider
from cachescope.gateway.identity.probes import ProbeCredentials
from tests.unit import jwt_issuer
from tests.unit.core_strategies import KEY, NEWER_KEY, OTHER_KEY, texts
from tests.unit.jwt_issuer import AUDIENCE, ISSUER, claims, document, ec_key, jwk

NOW = int(jwt_issuer.NOW)
POOL, BOOT = "uid-of-pool", "ab" * 16
PROBER = Prober(POOL, BOOT, Pair.TENANTS, 1)
RING = KeyRing.of(KEY)
PAYLOAD: dict[str, Any] = {"pool": POOL, "boot": BOOT, "pair": "two tenants", "who": 1, "until": NOW + 60}
API_KEY = make_key(bytes(range(32)), "red/ci")
SALT = Salt("kQ7-x_" + "aB3" * 12 + "Z")
pairs = pytest.mark.parametrize("pair", list(Pair), ids=lambda pair: pair.name)
names = texts.filter(bool)


def credential(prober: Prober = PROBER, *, key: Key = KEY, until: int = NOW + LONGEST_SECONDS) -> str:
    return write_credential(key, prober, until=until)


def payload(**changed: object) -> str:
    """A credential with these members; `None` removes one."""
    members = {name: value for name, value in {**PAYLOAD, **changed}.items() if value is not None}
    return f"{SCHEME} {sign(KEY, 'probe', members)}"


def authenticator(keys: KeyRing = RING, *, probed: bool = True, suspended: tuple[str, ...] = ()) -> Authenticator:
    provider = Provider("main", ISSUER, ["ES256"], jwt_issuer.Keys(parse_jwks(document(jwk(ec_key("one"), kid="one")))))
    tokens = JwtTokens([provider], [JwtIdentity("uid-jwt", "main", AUDIENCE)], lambda: NOW)
    api_keys = ApiKeys({API_KEY.key_id: [ApiKeyEntry(API_KEY.hash, "uid-key", "ci", "red/ci")]})
    known = ProbeCredentials(keys, {POOL}, lambda: NOW) if probed else None
    return Authenticator(api_keys, tokens, suspended, probes=known)


async def who(header: str, *, name: str = "authorization", by: Authenticator | None = None) -> Identity:
    return await (by or authenticator()).authenticate(RequestHead("POST", "/v1/chat/completions", ((name, header),)))


@settings(max_examples=60, deadline=None)
@given(names, names, st.sampled_from(list(Pair)), st.sampled_from([0, 1]), st.integers(1, 2 * LONGEST_SECONDS))
def test_what_was_written_is_read(pool: str, boot: str, pair: Pair, one: int, left: int) -> None:
    prober = Prober(pool, boot, pair, one)
    scheme, _, text = write_credential(KEY, prober, until=NOW + left).partition(" ")
    assert (scheme, read_credential(RING, text, now=NOW)) == (SCHEME, prober)


@pairs
@pytest.mark.parametrize("one", [0, 1])
async def test_a_credential_speaks_for_its_tenant_and_says_which_process_it_asks(pair: Pair, one: int) -> None:
    prober = Prober(POOL, BOOT, pair, one)
    found = await who(credential(prober))
    assert (found.prober, found.tenant_uid) == (prober, tenant_uid(POOL, pair, one))
    assert (found.credential.kind, found.issued_at, found.compartments) == (probes.KIND, None, frozenset())


REFUSED = [
    pytest.param(payload(until=NOW), "has ended", id="ended just now"),
    pytest.param(payload(until=NOW - 1), "has ended", id="ended"),
    pytest.param(payload(until=-(10**30)), "has ended", id="ended long ago"),
    pytest.param(payload(until=NOW + 2 * LONGEST_SECONDS + 1), "an hour apart", id="later than any"),
    *(
        pytest.param(payload(**{name: value}), "cannot be read", id=f"{name} {value!r}")
        for name, values in {
            "pool": (None, "", 7, ["p"]),
            "boot": (None, "", 7, {"b": 1}),
            "pair": (None, "", "another", 7, ["two tenants"]),
            "who": (None, 2, -1, "1", 1.0, True),
            "until": (None, "soon", NOW + 60.0, True),
        }.items()
        for value in values
    ),
    pytest.param(f"{SCHEME} {sign(KEY, 'permit', PAYLOAD)}", "MAC", id="of another purpose"),
    pytest.param(credential(key=OTHER_KEY), "MAC", id="of another key with its id"),
    pytest.param(credential(key=NEWER_KEY), "unknown key", id="of a key that is not there"),
    pytest.param(f"{credential()[:-2]}AA", "MAC", id="changed"),
    pytest.param(f"{SCHEME} ", "four parts", id="nothing"),
    pytest.param(f"{SCHEME} {credential()}", "not readable", id="the scheme twice"),
    pytest.param(f"{credential()} ", "base64", id="a blank behind it"),
    pytest.param(payload(pool="uid-of-other"), "no such pool", id="a pool that nobody knows"),
]


@pytest.mark.parametrize(("header", "why"), REFUSED)
async def test_anything_else_is_refused(header: str, why: str) -> None:
    assert (await who(payload())).prober == PROBER
    assert (await who(payload(until=NOW + 1))).prober == PROBER
    assert (await who(payload(until=NOW + 2 * LONGEST_SECONDS))).prober == PROBER
    with pytest.raises(Unauthenticated, match=why) as refused:
        await who(header)
    assert header.rpartition(".")[2] not in str(refused.value)


def test_a_credential_is_signed_with_a_key_of_its_own_purpose() -> None:
    root = KeyRing.of(KEY)
    prober, text = PROBER, credential(key=probe_keys(root).current).removeprefix(f"{SCHEME} ")
    assert read_credential(probe_keys(root), text, now=NOW) == prober
    for others in (root, root.derive("permit", POOL), root.derive("probe", POOL)):
        with pytest.raises(WireFormatError, match="MAC"):
            read_credential(others, text, now=NOW)


async def test_after_a_rotation_a_credential_of_the_older_key_is_good() -> None:
    both = authenticator(KeyRing.of(KEY, NEWER_KEY))
    assert [(await who(credential(key=key), by=both)).prober for key in (KEY, NEWER_KEY)] == [PROBER] * 2


@pytest.mark.parametrize("scheme", [SCHEME.lower(), SCHEME.upper(), f"{SCHEME}s", f"x{SCHEME}", f" {SCHEME}"])
async def test_a_header_of_another_scheme_is_none_of_them(scheme: str) -> None:
    text = credential().removeprefix(SCHEME)
    assert ProbeCredentials(RING, {POOL}, lambda: NOW).authenticate(f"{scheme}{text}") is None
    with pytest.raises(Unauthenticated, match="is not `Bearer`"):
        await who(f"{scheme}{text}")


@pytest.mark.parametrize(
    ("header", "tenant"), [(f"Bearer {API_KEY.token}", "uid-key"), (f"Bearer {jwt_issuer.sign(claims())}", "uid-jwt")]
)
async def test_the_ordinary_ways_are_as_they_were(header: str, tenant: str) -> None:
    found = await who(header)
    assert (found.tenant_uid, found.prober) == (tenant, None)
    assert (await who(header, by=authenticator(probed=False))) == found


@pytest.mark.parametrize("name", KEY_HEADERS)
async def test_a_header_of_api_keys_carries_none(name: str) -> None:
    assert (await who(API_KEY.token, name=name)).tenant_uid == "uid-key"
    for text in (credential(), credential().removeprefix(f"{SCHEME} ")):
        with pytest.raises(Unauthenticated, match="takes API keys only"):
            await who(text, name=name)


async def test_no_token_of_a_client_becomes_a_prober() -> None:
    text = credential().removeprefix(f"{SCHEME} ")
    for token in (text, API_KEY.token, jwt_issuer.sign(claims(sub="0", aud=[AUDIENCE, "probe"]))):
        for header in (f"{SCHEME} {token}", f"Bearer {token}"):
            try:
                found = (await who(header)).prober
            except Unauthenticated:
                found = None
            assert found == (PROBER if header == credential() else None), header
    assert not {"uid-key", "uid-jwt"} & tenant_uids(POOL)


async def test_two_credentials_are_refused_and_without_probes_there_is_none() -> None:
    doubled = RequestHead("POST", "/", (("authorization", credential()), ("x-api-key", API_KEY.token)))
    with pytest.raises(Unauthenticated, match="more than one credential"):
        await authenticator().authenticate(doubled)
    with pytest.raises(Unauthenticated, match="is not `Bearer`"):
        await who(credential(), by=authenticator(probed=False))


async def test_a_prober_is_suspended_as_any_tenant_is() -> None:
    with pytest.raises(Forbidden, match="suspended"):
        await who(credential(), by=authenticator(suspended=(PROBER.tenant_uid,)))


def salts(pair: Pair, made: tuple[Salt, Salt] = (SALT, SALT)) -> tuple[Salt, Salt]:
    first, second = (Prober(POOL, BOOT, pair, one).salt(salt) for one, salt in zip((0, 1), made, strict=True))
    return first, second


@pairs
def test_every_salt_of_a_pair_is_one(pair: Pair) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", SALT)
    for salt in salts(pair):
        assert re.fullmatch(r"[A-Za-z0-9_-]{43}", salt)


def test_two_tenants_have_the_salts_that_any_two_have() -> None:
    assert salts(Pair.TENANTS) == (SALT, SALT)
    assert tenant_uid(POOL, Pair.TENANTS, 0) != tenant_uid(POOL, Pair.TENANTS, 1), "and theirs are made of who they are"


@pytest.mark.parametrize(("pair", "place"), [(Pair.FIRST, 0), (Pair.LAST, 42)], ids=["first", "last"])
def test_a_salt_differs_in_one_character(pair: Pair, place: int) -> None:
    first, second = salts(pair)
    assert [index for index in range(43) if first[index] != second[index]] == [place]
    assert first[:place] + first[place + 1 :] == SALT[:place] + SALT[place + 1 :]


def test_a_salt_differs_in_letter_case() -> None:
    first, second = salts(Pair.CASE)
    assert first != second
    assert first.lower() == second.lower() == SALT.lower()


@pytest.mark.parametrize("pair", [pair for pair in Pair if pair is not Pair.TENANTS], ids=lambda pair: pair.name)
def test_nothing_but_their_salts_tells_similar_ones_apart(pair: Pair) -> None:
    assert tenant_uid(POOL, pair, 0) == tenant_uid(POOL, pair, 1)


def test_no_two_pairs_and_no_two_pools_have_a_tenant_in_common() -> None:
    found = Counter(uid for pair in Pair for uid in {tenant_uid(POOL, pair, one) for one in range(2)})
    assert set(found.values()) == {1}
    assert tenant_uids(POOL) == found.keys()
    for one, other in combinations((POOL, "uid-of-other", f"{POOL}/0"), 2):
        assert not tenant_uids(one) & tenant_uids(other)
