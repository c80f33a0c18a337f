"""Headers: exactly one credential, in one place, of a tenant that is not suspended."""

from __future__ import annotations

import pytest

from cachescope.gateway.exchange import RequestHead
from cachescope.gateway.identity.api_keys import ApiKeyEntry, ApiKeys, make_key
from cachescope.gateway.identity.authenticator import Authenticator
from cachescope.gateway.identity.claimants import JwtIdentity
from cachescope.gateway.identity.credentials import Forbidden, Unauthenticated
from cachescope.gateway.identity.jwks import parse_jwks
from cachescope.gateway.identity.jwt_tokens import JwtTokens, Provider
from tests.unit.jwt_issuer import AUDIENCE, ISSUER, NOW, Keys, claims, document, ec_key, jwk, sign

KEY = make_key(bytes(range(32)), "red/ci")
TOKEN = sign(claims())


def authenticator(*suspended: str) -> Authenticator:
    provider = Provider("main", ISSUER, ["ES256"], Keys(parse_jwks(document(jwk(ec_key("one"), kid="one")))))
    tokens = JwtTokens([provider], [JwtIdentity("uid-jwt", "main", AUDIENCE)], lambda: NOW)
    return Authenticator(ApiKeys({KEY.key_id: [ApiKeyEntry(KEY.hash, "uid-key", "ci", "red/ci")]}), tokens, suspended)


def head(*headers: tuple[str, str]) -> RequestHead:
    return RequestHead("POST", "/v1/chat/completions", (("host", "gateway"), *headers, ("content-type", "application/json")))


@pytest.mark.parametrize(
    ("header", "tenant"),
    [
        (("authorization", f"Bearer {KEY.token}"), "uid-key"),
        (("authorization", f"bearer {KEY.token}"), "uid-key"),
        (("authorization", f"BEARER  {KEY.token}"), "uid-key"),
        (("api-key", KEY.token), "uid-key"),
        (("x-api-key", KEY.token), "uid-key"),
        (("authorization", f"Bearer {TOKEN}"), "uid-jwt"),
    ],
)
async def test_one_credential_is_verified(header: tuple[str, str], tenant: str) -> None:
    assert (await authenticator().authenticate(head(header))).tenant_uid == tenant


BEARER = ("authorization", f"Bearer {KEY.token}")


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param((BEARER, BEARER), id="the same header twice"),
        pytest.param((BEARER, ("authorization", f"Bearer {TOKEN}")), id="two credentials in two headers of one name"),
        pytest.param((BEARER, ("x-api-key", KEY.token)), id="the same key in two headers"),
        pytest.param((BEARER, ("api-key", "")), id="an empty second credential"),
        pytest.param((("api-key", KEY.token), ("x-api-key", KEY.token)), id="two key headers"),
        pytest.param((("authorization", ""), ("x-api-key", KEY.token)), id="an empty authorization beside a key"),
    ],
)
async def test_more_than_one_credential_is_refused(headers: tuple[tuple[str, str], ...]) -> None:
    assert await authenticator().authenticate(head(BEARER))
    with pytest.raises(Unauthenticated, match="more than one credential"):
        await authenticator().authenticate(head(*headers))


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(None, id="none at all"),
        pytest.param(("authorization", ""), id="empty"),
        pytest.param(("authorization", "Bearer"), id="scheme alone"),
        pytest.param(("authorization", "Bearer "), id="scheme and blank"),
        pytest.param(("authorization", KEY.token), id="no scheme"),
        pytest.param(("authorization", f"Basic {KEY.token}"), id="another scheme"),
        pytest.param(("authorization", f"Bearer {KEY.token} {TOKEN}"), id="two tokens"),
        pytest.param(("authorization", f"Bearer {KEY.token},Bearer {TOKEN}"), id="two headers joined by a proxy"),
        pytest.param(("authorization", f"Bearer {KEY.token}, x"), id="a comma"),
        pytest.param(("authorization", f"Bearer\t{KEY.token}"), id="a tab"),
        pytest.param(("authorization", f"Bearer {KEY.token} "), id="trailing blank"),
        pytest.param(("authorization", f"Bearer Bearer {KEY.token}"), id="scheme twice"),
        pytest.param(("authorization", "Bearer cs-nobody"), id="malformed key"),
        pytest.param(("authorization", "Bearer sk-openai"), id="another service's key"),
        pytest.param(("x-api-key", TOKEN), id="a signed token in a key header"),
        pytest.param(("x-api-key", f"Bearer {KEY.token}"), id="a scheme in a key header"),
        pytest.param(("cookie", f"authorization=Bearer {KEY.token}"), id="a cookie"),
        pytest.param(("proxy-authorization", f"Bearer {KEY.token}"), id="a proxy's header"),
    ],
)
async def test_anything_else_is_no_credential(header: tuple[str, str] | None) -> None:
    assert await authenticator().authenticate(head(BEARER))
    with pytest.raises(Unauthenticated) as refused:
        await authenticator().authenticate(head(*([header] if header else [])))
    assert KEY.token not in str(refused.value)
    assert TOKEN not in str(refused.value)


async def test_a_suspended_tenant_is_forbidden_whatever_its_credential() -> None:
    assert await authenticator("uid-other").authenticate(head(BEARER))
    with pytest.raises(Forbidden, match="suspended"):
        await authenticator("uid-key").authenticate(head(BEARER))
    with pytest.raises(Forbidden, match="suspended"):
        await authenticator("uid-jwt").authenticate(head(("authorization", f"Bearer {TOKEN}")))


async def test_a_wrong_key_of_a_suspended_tenant_learns_nothing() -> None:
    with pytest.raises(Unauthenticated):
        await authenticator("uid-key").authenticate(head(("authorization", f"Bearer {KEY.token}x")))
