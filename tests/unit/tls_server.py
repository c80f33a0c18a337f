"""An HTTPS server on loopback that answers each request as a test says, and remembers what it was sent."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

CLOSE = (0, b"")
"""The connection is closed instead of an answer."""

SILENCE = (-1, b"")
"""Nothing is answered, and the connection stays."""


@dataclass
class Request:
    """One request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: Any


@dataclass
class TlsServer:
    """The server; by default it closes every connection.

    Attributes:
        answers: What it answers next: status and content, `CLOSE` or `SILENCE`.
    """

    folder: Path
    answers: list[tuple[int, bytes]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    _server: asyncio.Server | None = None

    async def start(self) -> str:
        """Serve; returns its URL. The folder then holds `ca.crt` and `token`."""
        certificate, key = certify()
        (self.folder / "ca.crt").write_bytes(certificate)
        (self.folder / "token").write_text("first\n")
        (self.folder / "tls.pem").write_bytes(key + certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "tls.pem")
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        return f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Stop listening."""
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self._answer(await _read(reader), writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()

    def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        self.requests.append(request)
        status, content = self.answers.pop(0) if self.answers else CLOSE
        if status > 0:
            head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
            writer.write(head.encode() + content)
        return status != 0


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    method, target, _ = first.split(" ")
    return Request(method, target, headers, json.loads(body) if body else None)


def certify(moment: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC)) -> tuple[bytes, bytes]:
    """A certificate of 127.0.0.1 that is its own authority, and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    day = datetime.timedelta(days=1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), moment() - day, moment() + day)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate.public_bytes(Encoding.PEM), plain
