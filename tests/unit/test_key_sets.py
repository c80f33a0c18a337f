"""Which key sets are kept fresh, and what is said of those that are not: of providers, and of the cluster itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cachescope.api.settings import Settings
from cachescope.core.errors import ClusterError
from cachescope.gateway.identity.cluster_keys import KEYS_PATH
from cachescope.gateway.identity.jwks_sources import key_session
from cachescope.gateway.key_sets import ProviderKeySets
from tests.unit.jwt_issuer import document, ec_key, jwk

CLUSTER = "https://kubernetes.default.svc"
OFF = Settings()
ON = Settings.model_validate({"serviceAccounts": {"audience": "llm"}})


class ApiServer:
    def __init__(self) -> None:
        self.answers = True

    async def get(self, path: str) -> dict[str, Any]:
        if not self.answers:
            raise ClusterError("no answer")
        keys: dict[str, Any] = json.loads(document(jwk(ec_key("one"), kid="one")))
        return keys if path == KEYS_PATH else {"issuer": CLUSTER}


async def test_the_clusters_keys_are_fetched_for_as_long_as_the_settings_take_its_tokens() -> None:
    async with key_session() as session:
        key_sets = ProviderKeySets(session, ApiServer())
        key_sets.tend(OFF)
        assert (key_sets.tended, key_sets.problems()) == (0, {})
        key_sets.tend(ON)
        key_sets.tend(ON)
        assert key_sets.tended == 1
        await key_sets.cluster.source.refresh()
        assert (key_sets.cluster.issuer, key_sets.problems()) == (CLUSTER, {})
        key_sets.tend(OFF)
        assert key_sets.tended == 0


async def test_an_api_server_that_does_not_answer_is_a_problem_of_the_clusters_keys() -> None:
    server = ApiServer()
    server.answers = False
    async with key_session() as session:
        key_sets = ProviderKeySets(session, server)
        key_sets.tend(ON)
        await key_sets.cluster.source.refresh()
        assert list(key_sets.problems()) == ["service-accounts"]
        key_sets.tend(OFF)
        assert key_sets.problems() == {}


@pytest.mark.parametrize(("issuer", "shadowed"), [(CLUSTER, ["corp"]), ("https://corp.example", [])])
async def test_a_provider_with_the_clusters_issuer_is_said_to_get_nothing(issuer: str, shadowed: list[str]) -> None:
    provider = {"name": "corp", "issuer": issuer, "jwks": {"file": "/nowhere"}}
    async with key_session() as session:
        key_sets = ProviderKeySets(session, ApiServer())
        key_sets.tend(Settings.model_validate({"serviceAccounts": {"audience": "llm"}, "identityProviders": [provider]}))
        await key_sets.cluster.source.refresh()
        assert list(key_sets.problems()) == shadowed
        key_sets.tend(OFF)
