"""What the gateway reads of objects that another version wrote."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from cachescope.api.claims import ApiKeysClaim
from cachescope.gateway.readings import read_secret, read_tenant

OURS = {"claim": "api-keys:models/red", "since": 1}


@pytest.mark.parametrize(
    "other",
    [{"claim": "of-a-later-version:red", "since": 1}, {"claim": 7, "since": 1}, {"claim": OURS["claim"], "since": "1"}, "x"],
)
def test_a_claim_that_nobody_here_can_read_is_worth_nothing_and_spoils_no_other(other: Any) -> None:
    tenant = {
        "metadata": {"name": "red", "namespace": "models", "uid": "uid-of-red"},
        "spec": {"identities": {"apiKeys": [{"secretName": "red"}]}},
        "status": {"accepted": [other, OURS]},
    }
    found = read_tenant(tenant).value
    assert found is not None
    assert [held.claim for held in found.held] == [ApiKeysClaim("models", "red")]


@pytest.mark.parametrize("principal", [None, True, 7, [], {}, ["alice"], "", " ", "\n"])
def test_a_key_whose_principal_is_no_name_is_at_fault_and_never_of_one_principal_with_others(principal: object) -> None:
    entries = {"unnamed0": principal, "alice000": "alice"}
    data = {name: _encoded({"hash": "sha256:" + "0" * 64, "principal": value}) for name, value in entries.items()}
    found = read_secret({"data": data})
    assert [(entry.key_id, entry.principal) for entry in found.value or ()] == [("alice000", "alice")], (
        "control: the other one counts"
    )
    assert "unnamed0" in found.fault


def _encoded(entry: object) -> str:
    return base64.b64encode(json.dumps(entry).encode()).decode()
