"""Tokens that were verified are remembered: for a minute, while their key is there, and not without a bound."""

from __future__ import annotations

import pytest

from cachescope.gateway.identity import jwt_tokens
from cachescope.gateway.identity.credentials import Unauthenticated
from tests.unit.jwt_issuer import NOW, claims, document, ec_key, jwk, sign
from tests.unit.test_jwt_tokens import ALICE, GOOD, Clock, key_set, verifier


async def test_a_verified_token_is_remembered_and_forgotten_when_it_ends() -> None:
    keys, clock = key_set(), Clock()
    tokens = verifier(keys=keys, clock=clock)
    token = sign(claims(exp=NOW + 40))
    for _ in range(5):
        assert await tokens.authenticate(token) == ALICE
    assert len(keys.asked) == 1
    clock.seconds = NOW + 71
    with pytest.raises(Unauthenticated, match="expired"):
        await tokens.authenticate(token)


async def test_a_verified_token_is_verified_again_after_a_minute() -> None:
    keys, clock = key_set(), Clock()
    tokens = verifier(keys=keys, clock=clock)
    for seconds, asked in ((0, 1), (59, 1), (60, 2)):
        clock.seconds = NOW + seconds
        assert await tokens.authenticate(GOOD) == ALICE
        assert len(keys.asked) == asked


async def test_a_remembered_token_ends_with_the_key_that_signed_it() -> None:
    keys = key_set()
    tokens = verifier(keys=keys)
    assert await tokens.authenticate(GOOD) == ALICE
    keys.rotate(document(jwk(ec_key("two"), kid="two")))
    with pytest.raises(Unauthenticated):
        await tokens.authenticate(GOOD)
    assert await tokens.authenticate(sign(claims(), key=ec_key("two"), header={"kid": "two"})) == ALICE


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwt_tokens, "MAX_REMEMBERED", 3)
    keys = key_set()
    tokens = verifier(keys=keys)
    for number in range(6):
        await tokens.authenticate(sign(claims(jti=str(number))))
    assert len(tokens._remembered) == 3
    await tokens.authenticate(sign(claims(jti="again")))
    assert len(tokens._remembered) == 3
