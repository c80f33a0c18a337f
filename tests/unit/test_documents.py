"""Documents of the API server are read whatever release wrote them; what they say has to be valid."""

from __future__ import annotations

import pytest

from cachescope.api.documents import parse
from cachescope.api.pools import ServingPool
from cachescope.core.errors import SpecError
from tests.unit.pools import pool


def test_fields_of_a_newer_release_are_left_alone() -> None:
    document = pool().model_dump(by_alias=True, mode="json")
    newer = {**document, "invented": 1, "spec": {**document["spec"], "fence": {**document["spec"]["fence"], "invented": "None"}}}
    assert parse(ServingPool, newer, "the API") == pool()


def test_what_is_known_has_to_be_valid() -> None:
    document = pool().model_dump(by_alias=True, mode="json")
    wrong = {**document, "spec": {**document["spec"], "fence": {"leaseSeconds": "long"}}}
    with pytest.raises(SpecError, match=r"spec\.fence\.leaseSeconds.*correct these fields"):
        parse(ServingPool, wrong, "the API")
