"""Certificate authorities and the certificates of workloads, in files as a mounted Secret has them."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey
DAY = datetime.timedelta(days=1)
FOR_CLIENTS, FOR_SERVERS = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH


@dataclass(frozen=True)
class Authority:
    """Signs certificates."""

    key: PrivateKey
    certificate: x509.Certificate

    @classmethod
    def made(cls, name: str) -> Authority:
        key, subject = ec.generate_private_key(ec.SECP256R1()), named(name)
        builder = begun(subject, subject, key).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        return cls(key, builder.sign(key, hashes.SHA256()))

    def issue(
        self,
        folder: Path,
        uris: Sequence[str],
        *,
        usage: x509.ObjectIdentifier = FOR_CLIENTS,
        ends: datetime.timedelta = DAY,
    ) -> Path:
        """A certificate with these URIs, as `tls.crt` and `tls.key` in a folder."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = begun(named("workload"), self.certificate.subject, key, ends)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if uris:
            names = [x509.UniformResourceIdentifier(uri) for uri in uris]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        folder.mkdir(parents=True)
        (folder / "tls.crt").write_bytes(builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        (folder / "tls.key").write_bytes(private_pem(key))
        return folder

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def begun(subject: x509.Name, issuer: x509.Name, key: PrivateKey, ends: datetime.timedelta = DAY) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), now - 2 * DAY, now + ends)


def private_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def client_context(pair: Path | None) -> ssl.SSLContext:
    """TLS as a client speaks it that presents a certificate, or none, and does not look at the server's."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if pair is not None:
        context.load_cert_chain(pair / "tls.crt", pair / "tls.key")
    return context
