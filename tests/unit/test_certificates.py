"""Client certificates: alone they are the credential, beside another one they say which workload sends it, of the same tenant."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

from cachescope.core.scopes import Credential
from cachescope.core.spiffe import read_spiffe_id
from cachescope.gateway import messages
from cachescope.gateway.client_certificates import ATTRIBUTES, authorities
from cachescope.gateway.envoy import EnvoySettings, bootstrap
from cachescope.gateway.exchange import Peer, RequestHead
from cachescope.gateway.identity.api_keys import ApiKeyEntry, ApiKeys, make_key
from cachescope.gateway.identity.authenticator import Authenticator
from cachescope.gateway.identity.certificates import Certificates
from cachescope.gateway.identity.credentials import Forbidden, Identity, Unauthenticated
from cachescope.gateway.identity.jwt_tokens import JwtTokens

NOW = 1_800_000_000
RED, BLUE, NOBODY = "spiffe://corp/red", "spiffe://corp/blue", "spiffe://corp/nobody"
GOOD = Peer(RED, NOW - 60, NOW + 60)
KEY = make_key(bytes(range(32)), "red/ci")
BEARER = ("authorization", f"Bearer {KEY.token}")
OF_KEY = Credential("api-key", "", "ci")


def authenticator(*suspended: str, certificates: bool = True) -> Authenticator:
    holders = {read_spiffe_id(RED): "uid-red", read_spiffe_id(BLUE): "uid-blue"}
    keys = ApiKeys({KEY.key_id: [ApiKeyEntry(KEY.hash, "uid-red", "ci", "red/ci")]})
    known = Certificates(["corp"], holders, lambda: NOW) if certificates else None
    return Authenticator(keys, JwtTokens([], [], lambda: NOW), suspended, certificates=known)


async def who(peer: Peer | None, *headers: tuple[str, str], by: Authenticator | None = None) -> Identity:
    return await (by or authenticator()).authenticate(RequestHead("POST", "/v1/chat/completions", headers, peer))


async def test_a_certificate_alone_speaks_for_its_workload() -> None:
    found = await who(GOOD)
    assert found == Identity("uid-red", Credential("mtls", "", RED))
    assert (found.issued_at, found.workload, found.sender) == (NOW - 60, RED, None)


async def test_beside_a_bearer_credential_that_one_says_who_asks() -> None:
    found = await who(GOOD, BEARER)
    assert found == Identity("uid-red", OF_KEY)
    assert found.workload == RED
    assert found.sender == Identity("uid-red", Credential("mtls", "", RED))
    alone = await who(None, BEARER)
    assert (alone, alone.workload, alone.sender) == (found, "", None), "control: the same principal without a certificate"


async def test_a_workload_that_nobody_claims_may_send_and_is_no_tenant() -> None:
    unclaimed = replace(GOOD, uris=NOBODY)
    assert (await who(unclaimed, BEARER)).workload == NOBODY
    with pytest.raises(Forbidden, match="belongs to no tenant"):
        await who(unclaimed)


async def test_a_workload_of_another_tenant_sends_nothing() -> None:
    assert await who(GOOD, BEARER)
    with pytest.raises(Forbidden, match="different tenants"):
        await who(replace(GOOD, uris=BLUE), BEARER)


REFUSED = {
    "no uri": replace(GOOD, uris=""),
    "two uris": replace(GOOD, uris=f"{RED},{BLUE}"),
    "the same uri twice": replace(GOOD, uris=f"{RED},{RED}"),
    "no SPIFFE id": replace(GOOD, uris="https://corp/red"),
    "another spelling": replace(GOOD, uris="spiffe://corp/x/../red"),
    "another trust domain": replace(GOOD, uris="spiffe://corp.evil/red"),
    "expired": replace(GOOD, expires=NOW),
    "unreadable": Peer("", 0, 0),
}


@pytest.mark.parametrize("headers", [(), (BEARER,)], ids=["alone", "beside a good key"])
@pytest.mark.parametrize("peer", REFUSED.values(), ids=REFUSED)
async def test_a_certificate_that_names_no_workload_is_refused_whatever_else_is_sent(
    peer: Peer, headers: tuple[tuple[str, str], ...]
) -> None:
    assert await who(GOOD, *headers)
    with pytest.raises(Unauthenticated, match="client certificate"):
        await who(peer, *headers)


async def test_a_bad_bearer_credential_is_not_saved_by_a_good_certificate() -> None:
    for header in (("authorization", f"Bearer {KEY.token}x"), ("authorization", ""), ("x-api-key", "")):
        with pytest.raises(Unauthenticated):
            await who(GOOD, header)
    with pytest.raises(Unauthenticated, match="more than one credential"):
        await who(GOOD, BEARER, BEARER)


async def test_nobody_is_known_by_a_certificate_where_none_are_accepted() -> None:
    with pytest.raises(Unauthenticated, match="not accepted here"):
        await who(GOOD, BEARER, by=authenticator(certificates=False))
    assert await who(None, BEARER, by=authenticator(certificates=False))


async def test_a_suspended_tenant_is_refused_by_its_certificate_too() -> None:
    with pytest.raises(Forbidden, match="suspended"):
        await who(GOOD, by=authenticator("uid-red"))
    assert await who(GOOD, by=authenticator("uid-blue"))


@pytest.mark.parametrize("name", ["x-forwarded-client-cert", "x-cachescope-peer", "x-client-cert", "ssl-client-cert"])
async def test_a_header_is_no_certificate(name: str) -> None:
    with pytest.raises(Unauthenticated, match="no credential"):
        await who(None, (name, f"URI={RED}"))


def first(**attributes: object) -> ext_proc.ProcessingRequest:
    message = ext_proc.ProcessingRequest()
    message.request_headers.headers.headers.add(key=":path", raw_value=b"/")
    if attributes:
        message.attributes["envoy.filters.http.ext_proc"].update(dict(zip(ATTRIBUTES, attributes.values(), strict=False)))
    return message


@pytest.mark.parametrize(
    ("message", "peer"),
    [
        pytest.param(first(), None, id="nothing is said"),
        pytest.param(first(presented=False, stated="  "), None, id="none was presented"),
        pytest.param(first(presented=True, stated=f"12 34 {RED}"), Peer(RED, 12, 34), id="one"),
        pytest.param(first(presented=True, stated=f"12 34 {RED},{BLUE}"), Peer(f"{RED},{BLUE}", 12, 34), id="two"),
        pytest.param(first(presented=True, stated="12 34 "), Peer("", 12, 34), id="none in it"),
        pytest.param(first(presented=True, stated="12 34 a b"), Peer("a b", 12, 34), id="a blank in it"),
        pytest.param(first(presented=True, stated=RED), Peer("", 0, 0), id="no times"),
        pytest.param(first(presented=True, stated=f"-1 34 {RED}"), Peer("", 0, 0), id="no time"),
        pytest.param(first(presented=True), Peer("", 0, 0), id="presented, and nothing stated"),
        pytest.param(first(presented="true", stated=f"12 34 {RED}"), None, id="not said as a truth value"),
    ],
)
def test_what_envoy_says_of_a_certificate_is_read_exactly(message: ext_proc.ProcessingRequest, peer: Peer | None) -> None:
    assert messages.head(message).peer == peer


def listener(**settings: Any) -> dict[str, object]:
    found = bootstrap(EnvoySettings(processor_socket="/p", **settings))["static_resources"]["listeners"][0]["filter_chains"][0]
    return dict(found)


def test_envoy_asks_for_no_certificate_unless_the_settings_say_who_vouches_for_it() -> None:
    plain, asking = listener(secret_file="/tls.json"), listener(secret_file="/tls.json", authorities_file="/ca.json")
    for word in ("validation_context", "set_filter_state", "filter_state", "session_resumption"):
        assert word not in str(plain)
        assert word in str(asking)


def test_authorities_are_read_again_when_their_folder_changes() -> None:
    context = authorities("/ca/ca.crt", "/ca")["resources"][0]["validation_context"]
    assert context == {"trusted_ca": {"filename": "/ca/ca.crt"}, "watched_directory": {"path": "/ca"}}
