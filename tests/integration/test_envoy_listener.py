"""The clients' door: TLS whose certificate is read again in place, and how long nothing may move."""

from __future__ import annotations

import asyncio
import datetime
import json
import ssl
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cachescope.gateway.envoy import EnvoySettings, bootstrap, secret
from tests.integration.envoy_fixtures import running_envoy, running_gateway
from tests.integration.http_wire import SECONDS, Message, connected, read_message, request, send


def write_pair(folder: Path, name: str) -> None:
    """A new self-signed pair, put in place as a mounted Secret is: by renaming a link to its folder."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
    pem = serialization.Encoding.PEM
    fresh = folder / name
    fresh.mkdir()
    (fresh / "tls.crt").write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(pem))
    plain = serialization.NoEncryption()
    (fresh / "tls.key").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    (folder / "new").symlink_to(fresh)
    (folder / "new").rename(folder / "current")


async def served_name(port: int) -> str:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    await asyncio.sleep(0)
    return str(x509.load_der_x509_certificate(der).subject.rfc4514_string())


async def test_new_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs"
    pairs.mkdir()
    write_pair(pairs, "first")
    current = pairs / "current"
    sds = tmp_path / "secret.json"
    sds.write_text(json.dumps(secret(str(current / "tls.crt"), str(current / "tls.key"), str(pairs))))
    with running_envoy(tmp_path, secret_file=str(sds)) as envoy:
        assert await served_name(envoy.port) == "CN=first"
        write_pair(pairs, "second")
        async with asyncio.timeout(SECONDS):
            while await served_name(envoy.port) != "CN=second":  # noqa: ASYNC110 Envoy reads a file
                await asyncio.sleep(0.02)


async def test_upload_that_stands_still_is_408_and_an_engine_may_think_longer(tmp_path: Path) -> None:
    with running_envoy(tmp_path, upload_idle_seconds=0.5, stream_idle_seconds=30.0) as envoy:
        async with running_gateway(envoy) as gateway:

            async def think(_: Message, writer: Any) -> None:
                await asyncio.sleep(1.5)  # the time itself is what is tested
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

            gateway.engine.behaviour = think
            assert (await send(envoy.port, request())).status == 200
            async with connected(envoy.port) as (reader, writer):
                writer.write(request(None, headers=(("content-length", "10"),)) + b"12345")
                answer = await read_message(reader)
            assert (answer.status, answer.error()["code"]) == (408, "request_timeout")
            assert len(gateway.engine.requests) == 1


def test_admin_listens_on_loopback_or_a_unix_socket_only() -> None:
    settings = EnvoySettings(processor_socket="/p", admin_socket="/a")
    assert bootstrap(settings)["admin"]["address"] == {"pipe": {"path": "/a"}}
    assert bootstrap(EnvoySettings(processor_socket="/p"))["admin"]["address"]["socket_address"]["address"] == "127.0.0.1"
