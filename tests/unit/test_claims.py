"""Claims: one text for each identity, and two overlap only where one credential could match both."""

from __future__ import annotations

from typing import Any

import pytest

from cachescope.api.claims import JwtClaim, claims_of, overlaps, read_claim
from cachescope.api.documents import parse
from cachescope.api.tenants import Tenant
from cachescope.core.errors import SpecError


def tenant(**identities: Any) -> Tenant:
    metadata = {"name": "red", "namespace": "team", "uid": "uid-of-red"}
    return parse(Tenant, {"metadata": metadata, "spec": {"identities": identities}}, "test")


def jwt(audience: str = "a", provider: str = "p", principal: str = "sub", **claims: str) -> str:
    return str(JwtClaim(provider, audience, claims, principal))


def test_the_texts_of_claims_are_stable() -> None:
    item = {"provider": "p", "audience": "a", "claims": {"z": "1", "b": "ü"}}
    found = claims_of(tenant(apiKeys=[{"secretName": "ci"}], jwt=[item]))
    assert found == (
        "api-keys:team/ci",
        'jwt:{"audience":"a","claims":{"b":"ü","z":"1"},"principalClaim":"sub","provider":"p"}',
    ), "they are stored in statuses: another text frees the claim"


def test_a_claim_has_one_text_however_it_is_written_and_counts_once() -> None:
    one = {"provider": "p", "audience": "a", "claims": {"x": "1", "y": "2"}}
    other = {"claims": {"y": "2", "x": "1"}, "audience": "a", "provider": "p", "principalClaim": "sub"}
    assert len(claims_of(tenant(jwt=[one, other]))) == 1
    assert len(claims_of(tenant(jwt=[one, {**other, "principalClaim": "email"}]))) == 2


@pytest.mark.parametrize("text", [jwt(), jwt(x="1", ü="\\u0000 \n"), jwt(principal="email"), "api-keys:team/ci"])
def test_a_claim_is_read_as_it_was_written(text: str) -> None:
    assert str(read_claim(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "api-keys:",
        "api-keys:team",
        "api-keys:/ci",
        "api-keys:team/",
        "api-keys:team/a/b",
        "spiffe:x",
        "jwt:",
        "jwt:[]",
        "jwt:null",
        'jwt:{"provider":"p"}',
        jwt().replace('"a"', "1"),
        jwt().replace("{}", "[]"),
        jwt(x="1").replace('"1"', "1"),
        jwt().replace("}", ',"more":1}', 1),
    ],
)
def test_what_is_no_claim_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"cannot be read|not known here"):
        read_claim(text)


OVERLAPS = [
    (jwt(), jwt(), True),
    (jwt(), jwt(principal="email"), True),
    (jwt(), jwt(team="red"), True),
    (jwt(team="red"), jwt(team="red"), True),
    (jwt(team="red"), jwt(plan="pro"), True),
    (jwt(team="red", plan="pro"), jwt(team="red"), True),
    (jwt(team="red"), jwt(team="blue"), False),
    (jwt(team="red", plan="pro"), jwt(team="blue", plan="pro"), False),
    (jwt(), jwt(audience="b"), False),
    (jwt(), jwt(provider="q"), False),
    (jwt(team="red"), jwt(team="Red"), False),
    ("api-keys:team/ci", "api-keys:team/ci", True),
    ("api-keys:team/ci", "api-keys:other/ci", False),
    ("api-keys:team/ci", "api-keys:team/cd", False),
    ("api-keys:team/ci", jwt(), False),
]


@pytest.mark.parametrize(("left", "right", "expected"), OVERLAPS)
def test_two_claims_overlap_where_one_credential_could_match_both(left: str, right: str, expected: bool) -> None:
    assert overlaps(left, right) is expected
    assert overlaps(right, left) is expected
