"""Client certificates on a real Envoy: what reaches the decision is the connection's own, whole, and verified."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from cachescope.gateway.client_certificates import authorities
from cachescope.gateway.envoy import secret
from cachescope.gateway.exchange import Peer
from tests.integration.certificates import FOR_SERVERS, Authority, client_context
from tests.integration.envoy_fixtures import Envoy, Gateway, running_envoy, running_gateway
from tests.integration.http_wire import SECONDS, Message, read_message, request

RED, BLUE = "spiffe://corp/red", "spiffe://corp/blue"
OURS, OTHERS = Authority.made("ours"), Authority.made("others")


class Door(NamedTuple):
    """An Envoy that asks for certificates, and the folder in which its authorities are mounted."""

    envoy: Envoy
    mounted: Path


def trust(mounted: Path, authority: Authority) -> None:
    """Mount another authority, as a Secret that changes: by renaming a link to its folder."""
    fresh = mounted / f"v{time.monotonic_ns()}"
    fresh.mkdir()
    (fresh / "ca.crt").write_bytes(authority.pem)
    (mounted / "new").symlink_to(fresh)
    (mounted / "new").rename(mounted / "current")


def tls_of(pair: Path, file: Path) -> str:
    """The file by which Envoy finds its own certificate."""
    file.write_text(json.dumps(secret(str(pair / "tls.crt"), str(pair / "tls.key"), str(pair))))
    return str(file)


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder = tmp_path_factory.mktemp("door")
    pair, mounted = OURS.issue(folder / "server", ["https://gateway"], usage=FOR_SERVERS), folder / "client-ca"
    mounted.mkdir()
    trust(mounted, OURS)
    clients = folder / "client-ca.json"
    clients.write_text(json.dumps(authorities(str(mounted / "current/ca.crt"), str(mounted))))
    with running_envoy(folder, secret_file=tls_of(pair, folder / "tls.json"), authorities_file=str(clients)) as envoy:
        yield Door(envoy, mounted)


@pytest.fixture
async def gateway(door: Door) -> AsyncIterator[Gateway]:
    async with running_gateway(door.envoy) as running:
        yield running


async def ask(port: int, pair: Path | None, *headers: tuple[str, str]) -> Message:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(pair))
    try:
        writer.write(request(headers=headers))
        return await read_message(reader)
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def peer_of(gateway: Gateway, pair: Path | None, *headers: tuple[str, str]) -> Peer | None:
    assert (await ask(gateway.port, pair, *headers)).status == 200
    return gateway.gate.heads[-1].peer


async def refused(port: int, pair: Path) -> bool:
    """Whether a handshake fails; in TLS 1.3 a client learns of it when it reads."""
    try:
        await ask(port, pair)
    except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
        return True
    return False


async def taken(port: int, pair: Path) -> None:
    """Wait until a certificate is one that verifies."""
    async with asyncio.timeout(SECONDS):
        while await refused(port, pair):  # noqa: ASYNC110 Envoy reads a file
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "uris",
    [[RED], [RED, BLUE], [BLUE, RED], [RED, RED], [], [f"{RED},{BLUE}"], ["spiffe://corp/a b"], ["https://corp/red"]],
    ids=["one", "two", "two in another order", "twice the same", "none", "a comma", "a blank", "no SPIFFE id"],
)
async def test_the_decision_sees_every_uri_of_a_certificate(gateway: Gateway, tmp_path: Path, uris: list[str]) -> None:
    found = await peer_of(gateway, OURS.issue(tmp_path / "pair", uris))
    assert found is not None
    assert found.uris == ",".join(uris)
    now = time.time()
    assert (round((now - found.issued) / 86400), round((found.expires - now) / 86400)) == (2, 1)


async def test_who_presents_none_is_asked_for_none_and_served(gateway: Gateway) -> None:
    assert await peer_of(gateway, None) is None


FORGED = (
    ("x-forwarded-client-cert", f"Hash=1;URI={RED}"),
    ("x-cachescope-peer", f"1 9999999999 {RED}"),
    ("cachescope.peer", f"1 9999999999 {RED}"),
)


async def test_no_header_says_who_the_client_is_and_none_of_them_goes_on(gateway: Gateway, tmp_path: Path) -> None:
    assert await peer_of(gateway, None, *FORGED) is None
    blue = await peer_of(gateway, OURS.issue(tmp_path / "blue", [BLUE]), *FORGED)
    assert blue is not None
    assert blue.uris == BLUE
    for seen in (gateway.gate.heads[-1].headers, gateway.engine.requests[-1].headers):
        assert not [name for name, _ in seen if name in {"x-forwarded-client-cert", "x-cachescope-peer"}]
    assert "cachescope.peer" not in dict(gateway.engine.requests[-1].headers)


async def test_a_certificate_that_does_not_verify_fails_the_handshake(gateway: Gateway, tmp_path: Path) -> None:
    bad = {
        "another authority": OTHERS.issue(tmp_path / "others", [RED]),
        "expired": OURS.issue(tmp_path / "expired", [RED], ends=-timedelta(hours=1)),
        "for servers": OURS.issue(tmp_path / "server", [RED], usage=FOR_SERVERS),
    }
    for pair in bad.values():
        assert await refused(gateway.port, pair)
    assert gateway.gate.heads == []
    assert not await refused(gateway.port, OURS.issue(tmp_path / "good", [RED]))


def reused(port: int, pair: Path) -> bool | None:
    """Whether the session of one connection is taken up by the next."""
    context = client_context(pair)
    session: ssl.SSLSession | None = None
    for _ in range(2):
        plain = socket.create_connection(("127.0.0.1", port), SECONDS)
        with context.wrap_socket(plain, session=session) as secured:
            secured.sendall(request())
            secured.recv(65536)
            session, found = secured.session, secured.session_reused
    return found


async def test_a_session_is_not_resumed_where_certificates_are_asked_for(gateway: Gateway, tmp_path: Path) -> None:
    pair = OURS.issue(tmp_path / "pair", [RED])
    assert await asyncio.to_thread(reused, gateway.port, pair) is False
    server, folder = OURS.issue(tmp_path / "server", ["https://gateway"], usage=FOR_SERVERS), tmp_path / "plain"
    folder.mkdir()
    with running_envoy(folder, secret_file=tls_of(server, tmp_path / "tls.json")) as plain:
        async with running_gateway(plain) as control:
            assert await asyncio.to_thread(reused, control.port, pair) is True, "control: without them it is"
            assert await peer_of(control, pair) is None, "and a certificate is not asked for"


async def test_authorities_are_replaced_in_place(door: Door, gateway: Gateway, tmp_path: Path) -> None:
    ours, others = OURS.issue(tmp_path / "ours", [RED]), OTHERS.issue(tmp_path / "others", [RED])
    assert await refused(gateway.port, others)
    trust(door.mounted, OTHERS)
    await taken(gateway.port, others)
    assert await refused(gateway.port, ours)
    trust(door.mounted, OURS)
    await taken(gateway.port, ours)
    assert await refused(gateway.port, others)
