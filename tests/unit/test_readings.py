"""What the gateway reads of objects that another version wrote."""

from __future__ import annotations

from typing import Any

import pytest

from cachescope.api.claims import ApiKeysClaim
from cachescope.gateway.readings import read_tenant

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
