"""Who may claim what: one table for operator and gateways."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from cachescope.api.claim_rules import ClaimRules, Refusal
from cachescope.api.claims import ApiKeysClaim, Claim, JwtClaim, MtlsClaim, ServiceAccountClaim
from cachescope.api.settings import Settings
from cachescope.core.spiffe import read_spiffe_id

HOME = "platform"
JWKS = {"secretName": "k"}
ALL = Settings.model_validate(
    {
        "identityProviders": [
            {"name": "open", "issuer": "https://open.example", "jwks": JWKS},
            {"name": "reds", "issuer": "https://reds.example", "jwks": JWKS, "namespaces": ["red"]},
        ],
        "serviceAccounts": {"audience": "cachescope"},
        "tls": {
            "secretName": "door",
            "clientCa": {"secretName": "ca", "trustDomains": [{"name": "open"}, {"name": "reds", "namespaces": ["red"]}]},
        },
    }
)
NONE = Settings()


def workload(trust_domain: str) -> MtlsClaim:
    return MtlsClaim(read_spiffe_id(f"spiffe://{trust_domain}/a"))


@pytest.mark.parametrize(
    ("claim", "namespace", "with_all", "with_none"),
    [
        (ApiKeysClaim("red", "keys"), "red", None, None),
        (JwtClaim("open", "llm"), "blue", None, Refusal.UNKNOWN),
        (JwtClaim("reds", "llm"), "red", None, Refusal.UNKNOWN),
        (JwtClaim("reds", "llm"), "blue", Refusal.UNKNOWN, Refusal.UNKNOWN),
        (JwtClaim("service-accounts", "llm"), "red", Refusal.UNKNOWN, Refusal.UNKNOWN),
        (workload("open"), "blue", None, Refusal.UNKNOWN),
        (workload("reds"), "red", None, Refusal.UNKNOWN),
        (workload("reds"), "blue", Refusal.UNKNOWN, Refusal.UNKNOWN),
        (workload("other"), "red", Refusal.UNKNOWN, Refusal.UNKNOWN),
        (ServiceAccountClaim("red", "app"), "red", None, Refusal.UNKNOWN),
        (ServiceAccountClaim("red", "app"), "blue", Refusal.FOREIGN, Refusal.FOREIGN),
        (ServiceAccountClaim("red", "app"), HOME, None, Refusal.UNKNOWN),
        (ServiceAccountClaim(HOME, "app"), "red", Refusal.FOREIGN, Refusal.FOREIGN),
    ],
)
def test_a_claim_counts_where_the_settings_and_the_namespaces_say(
    claim: Claim, namespace: str, with_all: Refusal | None, with_none: Refusal | None
) -> None:
    assert ClaimRules(ALL, HOME).refusal(claim, namespace) is with_all
    assert ClaimRules(NONE, HOME).refusal(claim, namespace) is with_none


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"identityProviders": [{"name": "service-accounts", "issuer": "https://x.example", "jwks": JWKS}]}, "the cluster's own"),
        ({"tls": {"secretName": "door", "clientCa": {"secretName": "ca", "trustDomains": []}}}, "at least 1"),
        ({"tls": {"secretName": "door", "clientCa": {"secretName": "ca"}}}, "trustDomains"),
        ({"tls": {"clientCa": {"secretName": "ca", "trustDomains": [{"name": "a"}]}}}, "secretName"),
        ({"tls": {"secretName": "d", "clientCa": {"secretName": "ca", "trustDomains": [{"name": "a"}] * 2}}}, "merge them"),
        ({"tls": {"secretName": "d", "clientCa": {"secretName": "ca", "trustDomains": [{"name": "A"}]}}}, "pattern"),
        ({"serviceAccounts": {}}, "audience"),
        ({"serviceAccounts": {"audience": ""}}, "at least 1"),
    ],
)
def test_settings_under_which_nobody_would_be_known_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Settings.model_validate(settings)
