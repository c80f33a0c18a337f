"""Which key sets are kept fresh, and what is said of those that are not: of providers, and of the cluster itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cachescope.api.settings import IdentityProvider, JwksSource, Settings
from cachescope.core.errors import ClusterError, SpecError
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


def provider(name: str = "corp", **jwks: Any) -> IdentityProvider:
    return IdentityProvider.model_validate({"name": name, "issuer": f"https://{name}.example", "jwks": jwks})


def providing(*providers: IdentityProvider) -> Settings:
    return Settings(identity_providers=list(providers))


async def test_keys_come_from_the_source_that_a_provider_names(tmp_path: Path) -> None:
    (tmp_path / "mounted").mkdir()
    for path in (tmp_path / "file.json", tmp_path / "mounted" / "jwks.json"):
        path.write_bytes(document(jwk(ec_key("one"), kid="one")))
    async with key_session() as session:
        key_sets = ProviderKeySets(session, ApiServer())
        for source in ({"file": str(tmp_path / "file.json")}, {"secretName": "mounted"}):
            keys = key_sets.of(provider(**source), tmp_path)
            assert await keys.find("one", "ES256") is not None
            assert keys.problem is None
        unread = key_sets.of(provider(url="https://keys.example/jwks"), tmp_path)
        assert "has not been read yet" in str(unread.problem)
        assert key_sets.problems() == {"corp": unread.problem}


async def test_a_provider_without_a_source_is_refused_by_name(tmp_path: Path) -> None:
    async with key_session() as session:
        sourceless = provider(file="/keys.json").model_copy(update={"jwks": JwksSource.model_construct()})
        with pytest.raises(SpecError, match="'corp' has no source of keys"):
            ProviderKeySets(session, ApiServer()).of(sourceless, tmp_path)


async def test_a_key_set_is_kept_while_its_setting_stays_and_forgotten_with_it(tmp_path: Path) -> None:
    one, other = provider(url="https://keys.example/jwks"), provider(url="https://keys.example/other")
    async with key_session() as session:
        key_sets = ProviderKeySets(session, ApiServer())
        first = key_sets.of(one, tmp_path)
        key_sets.tend(providing(one))
        assert (key_sets.of(one, tmp_path), key_sets.tended) == (first, 1)
        assert key_sets.of(other, tmp_path) is not first
        key_sets.tend(providing(other))
        assert key_sets.tended == 1
        assert key_sets.of(one, tmp_path) is not first
        key_sets.tend(OFF)
        assert (key_sets.tended, key_sets.problems()) == (0, {})
