"""Whom a CacheEpoch names is somebody whom a credential can name: a denial of nobody would be silent."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from cachescope.api.epochs import PrincipalName
from cachescope.core.scopes import CREDENTIAL_KINDS

ISSUER = "https://issuer.example"
GOOD = [
    ("api-key", "", "ci"),
    ("jwt", ISSUER, "alice"),
    ("mtls", "", "spiffe://corp/app"),
    ("service-account", "", "system:serviceaccount:jobs:app"),
]


@pytest.mark.parametrize(("kind", "issuer", "subject"), GOOD)
def test_every_kind_of_credential_can_be_named(kind: str, issuer: str, subject: str) -> None:
    found = PrincipalName.model_validate({"kind": kind, "issuer": issuer, "subject": subject})
    assert (found.kind, found.issuer, found.subject) == (kind, issuer, subject)


def test_no_kind_is_left_out() -> None:
    assert tuple(kind for kind, *_ in GOOD) == CREDENTIAL_KINDS


@pytest.mark.parametrize(
    ("kind", "issuer", "subject", "message"),
    [
        ("jwt", "", "alice", "set issuer"),
        ("api-key", ISSUER, "ci", "set issuer"),
        ("mtls", "corp", "spiffe://corp/app", "set issuer"),
        ("service-account", ISSUER, "system:serviceaccount:jobs:app", "set issuer"),
        ("mtls", "", "corp/app", "no SPIFFE id"),
        ("service-account", "", "app", "names no ServiceAccount"),
        ("service-account", "", "jobs:app", "names no ServiceAccount"),
        ("cookie", "", "app", "Input should be"),
    ],
)
def test_a_name_that_no_credential_has_is_refused(kind: str, issuer: str, subject: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PrincipalName.model_validate({"kind": kind, "issuer": issuer, "subject": subject})
