"""Claims: one text for each identity, and two overlap only where one credential could match both."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachescope.api.claims import JwtClaim, claims_of, overlaps, read_claim, values_of
from cachescope.api.documents import parse
from cachescope.api.tenants import Tenant
from cachescope.core.errors import SpecError
from cachescope.gateway.identity.claimants import JwtIdentity


def tenant(**identities: Any) -> Tenant:
    metadata = {"name": "red", "namespace": "team", "uid": "uid-of-red"}
    return parse(Tenant, {"metadata": metadata, "spec": {"identities": identities}}, "test")


OTHERS = ("api-keys:team/ci", "mtls:spiffe://corp/a", "mtls:spiffe://corp/a/b", "service-account:team/ci", "service-account:a/b")


def jwt(audience: str = "a", provider: str = "p", principal: str = "sub", **claims: str) -> str:
    return str(JwtClaim(provider, audience, claims, principal))


def test_the_texts_of_claims_are_stable() -> None:
    item = {"provider": "p", "audience": "a", "claims": {"z": "1", "b": "ü"}}
    accounts = [{"name": "app"}, {"name": "app", "namespace": "jobs"}]
    found = claims_of(
        tenant(apiKeys=[{"secretName": "ci"}], jwt=[item], mtls=[{"spiffeId": "spiffe://corp/app"}], serviceAccounts=accounts)
    )
    assert found == (
        "api-keys:team/ci",
        'jwt:{"audience":"a","claims":{"b":"ü","z":"1"},"principalClaim":"sub","provider":"p"}',
        "mtls:spiffe://corp/app",
        "service-account:team/app",
        "service-account:jobs/app",
    ), "they are stored in statuses: another text frees the claim"


def test_a_claim_has_one_text_however_it_is_written_and_counts_once() -> None:
    one = {"provider": "p", "audience": "a", "claims": {"x": "1", "y": "2"}}
    other = {"claims": {"y": "2", "x": "1"}, "audience": "a", "provider": "p", "principalClaim": "sub"}
    assert len(claims_of(tenant(jwt=[one, other]))) == 1
    assert len(claims_of(tenant(jwt=[one, {**other, "principalClaim": "email"}]))) == 2


@pytest.mark.parametrize("text", [jwt(), jwt(x="1", ü="\\u0000 \n"), jwt(principal="email"), *OTHERS])
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
        "mtls:",
        "mtls:spiffe://corp",
        "mtls:spiffe://corp/../a",
        "service-account:app",
        "service-account:team/a/b",
        "jwt:",
        "jwt:[]",
        "jwt:null",
        'jwt:{"provider":"p"}',
        jwt().replace('"a"', "1"),
        jwt().replace("{}", "[]"),
        jwt(x="1").replace('"1"', "1"),
        jwt().replace("}", ',"more":1}', 1),
        "jwt:" + "[" * 50_000,
    ],
)
def test_what_is_no_claim_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"cannot be read|not known here"):
        read_claim(text)


OVERLAPS = [
    *((text, text, True) for text in OTHERS),
    *((one, other, False) for one in OTHERS for other in OTHERS if one != other),
    *((text, jwt(), False) for text in OTHERS),
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
    assert overlaps(left, right, {}) is expected
    assert overlaps(right, left, {}) is expected


LISTS = [
    (jwt(groups="red"), jwt(groups="blue"), {"p": ["groups"]}, True),
    (jwt(groups="red"), jwt(groups="blue"), {"p": ["aud"], "q": ["groups"]}, False),
    (jwt(groups="red", team="a"), jwt(groups="blue", team="b"), {"p": ["groups"]}, False),
    (jwt(), jwt(audience="b"), {"p": ["aud"]}, True),
    (jwt(), jwt(audience="b"), {"p": ["groups"]}, False),
    (jwt(aud="x"), jwt(audience="a"), {}, True),
]


@pytest.mark.parametrize(("left", "right", "lists", "expected"), LISTS)
def test_values_of_a_claim_that_may_have_several_tell_nobody_apart(
    left: str, right: str, lists: dict[str, list[str]], expected: bool
) -> None:
    assert overlaps(left, right, lists) is expected
    assert overlaps(right, left, lists) is expected


@pytest.mark.parametrize(
    ("claim", "one", "several"),
    [
        ("x", ["x"], ["x"]),
        (["x"], ["x"], ["x"]),
        (["x", "y"], [], ["x", "y"]),
        (["x", "x"], [], ["x", "x"]),
        (["x", 1], [], ["x"]),
        ([1], [], []),
        ([], [], []),
        ({"x": 1}, [], []),
        (None, [], []),
        (True, [], []),
    ],
)
def test_a_claim_has_one_value_unless_it_may_have_several(claim: object, one: list[str], several: list[str]) -> None:
    assert list(values_of(claim, several=False)) == one
    assert list(values_of(claim, several=True)) == several


NAMES = ("team", "groups")
VALUES = st.sampled_from(["red", "blue"])
CLAIMED = st.builds(
    JwtClaim, st.just("p"), st.sampled_from(["a", "b"]), st.dictionaries(st.sampled_from([*NAMES, "aud"]), VALUES, max_size=2)
)
TOKENS = st.fixed_dictionaries(
    {},
    optional={
        "aud": st.one_of(st.sampled_from(["a", "b", "red"]), st.lists(st.sampled_from(["a", "b", "red"]), max_size=3)),
        **dict.fromkeys(NAMES, st.one_of(VALUES, st.lists(VALUES, max_size=2))),
    },
)


@settings(max_examples=300)
@given(CLAIMED, CLAIMED, TOKENS, st.sets(st.sampled_from([*NAMES, "aud"])))
def test_of_two_claims_that_do_not_overlap_no_token_matches_both(
    left: JwtClaim, right: JwtClaim, token: dict[str, Any], lists: set[str]
) -> None:
    """The operator's rule and the gateway's are one."""
    ours, theirs = (JwtIdentity("uid", "p", claim.audience, claim.claims) for claim in (left, right))
    if ours.matches(token, lists) and theirs.matches(token, lists):
        assert left.overlaps(right, {"p": lists})


def test_the_property_would_find_a_rule_that_forgets_lists() -> None:
    red, blue = JwtIdentity("uid", "p", "a", {"groups": "red"}), JwtIdentity("uid", "p", "a", {"groups": "blue"})
    token: dict[str, Any] = {"aud": "a", "groups": ["red", "blue"]}
    assert red.matches(token, {"groups"}) and blue.matches(token, {"groups"})  # noqa: PT018 - both is the point
    assert not red.matches(token, ()) and not blue.matches(token, ())  # noqa: PT018


def test_claims_have_short_names_and_values() -> None:
    item = {"provider": "p", "audience": "a"}
    assert tenant(jwt=[{**item, "claims": {"n" * 128: "v" * 512}}])
    for claims in ({"n" * 129: "v"}, {"n": "v" * 513}):
        with pytest.raises(SpecError, match="claims"):
            tenant(jwt=[{**item, "claims": claims}])


@pytest.mark.parametrize(
    "identities",
    [
        {"mtls": [{"spiffeId": "spiffe://corp/a\n"}]},
        {"mtls": [{"spiffeId": "spiffe://corp/a/../b"}]},
        {"mtls": [{"spiffeId": "spiffe://corp/" + "a" * 2048}]},
        {"serviceAccounts": [{"name": "a/b"}]},
        {"serviceAccounts": [{"name": "app", "namespace": "a.b"}]},
        {"serviceAccounts": [{"name": "app", "namespace": ""}]},
    ],
)
def test_a_tenant_names_workloads_and_service_accounts_as_they_can_be_named(identities: dict[str, Any]) -> None:
    assert tenant(mtls=[{"spiffeId": "spiffe://corp/a"}], serviceAccounts=[{"name": "app", "namespace": "jobs"}])
    with pytest.raises(SpecError, match="is not valid"):
        tenant(**identities)
