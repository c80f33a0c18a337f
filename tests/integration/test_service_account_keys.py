"""Tokens that a real API server issues, verified by the keys that it publishes."""

from __future__ import annotations

import time

import pytest

from cachescope.api.settings import ServiceAccounts
from cachescope.core.scopes import Credential
from cachescope.core.service_accounts import ServiceAccount
from cachescope.gateway.identity.cluster_keys import ClusterKeySet
from cachescope.gateway.identity.credentials import Forbidden, Identity, Unauthenticated
from cachescope.gateway.identity.jwt_tokens import JwtTokens
from cachescope.gateway.identity.service_accounts import ServiceAccountTokens
from cachescope.kube.rest import collection
from tests.integration.crd_objects import Server

AUDIENCE = "cachescope"
NAME, OTHER = "workload", "nobodys"


async def token(server: Server, name: str, *audiences: str) -> str:
    """What the kubelet puts into a projected volume."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": list(audiences)}}
    made = await server.rest.create(f"{collection('v1', 'serviceaccounts', server.namespace)}/{name}/token", request)
    return str(made["status"]["token"])


@pytest.fixture
async def tokens(server: Server) -> JwtTokens:
    accounts = collection("v1", "serviceaccounts", server.namespace)
    for name in (NAME, OTHER):
        await server.rest.delete(f"{accounts}/{name}")
        await server.rest.create(accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
    keys = ClusterKeySet(server.rest, time.monotonic)
    await keys.source.refresh()
    assert keys.problem is None
    holders = {ServiceAccount(server.namespace, NAME): "uid-red"}
    door = ServiceAccountTokens(ServiceAccounts(audience=AUDIENCE), keys, holders)
    return JwtTokens([], [], time.time, door)


async def test_a_token_for_the_audience_is_its_service_accounts(server: Server, tokens: JwtTokens) -> None:
    found = await tokens.authenticate(await token(server, NAME, AUDIENCE))
    assert found == Identity("uid-red", Credential("service-account", "", f"system:serviceaccount:{server.namespace}:{NAME}"))
    assert abs((found.issued_at or 0) - time.time()) < 60


async def test_a_token_for_others_is_refused(server: Server, tokens: JwtTokens) -> None:
    for audiences in ((), ("other",), (AUDIENCE, "other")):
        with pytest.raises(Unauthenticated, match="not for this service alone"):
            await tokens.authenticate(await token(server, NAME, *audiences))


async def test_a_token_of_a_service_account_that_nobody_claims_is_forbidden(server: Server, tokens: JwtTokens) -> None:
    with pytest.raises(Forbidden):
        await tokens.authenticate(await token(server, OTHER, AUDIENCE))
