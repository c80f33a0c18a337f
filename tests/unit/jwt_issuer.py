"""An identity provider for tests: it signs what it is told to, also what no honest one would."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from cachescope.gateway.identity.jwks import KeyTable, PublicKey, parse_jwks

ISSUER = "https://issuer.example"
AUDIENCE = "cachescope"
NOW = 1_800_000_000.0


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


@cache
def rsa_key(_name: str = "rsa", bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key(_name: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def jwk(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, **more: object) -> dict[str, object]:
    public = key.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        return {**json.loads(RSAAlgorithm.to_jwk(public)), **more}
    return {**json.loads(ECAlgorithm.to_jwk(public)), **more}


def document(*keys: dict[str, object]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def claims(**changed: object) -> dict[str, object]:
    """Claims of a good token; `None` removes one."""
    good: dict[str, object] = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "team": "red", "iat": NOW, "exp": NOW + 300}
    return {name: value for name, value in (good | changed).items() if value is not None}


def sign(
    payload: dict[str, object] | bytes,
    *,
    key: Any = None,
    algorithm: str = "ES256",
    header: dict[str, object] | bytes | None = None,
) -> str:
    """A token with exactly these header and payload."""
    head = header if isinstance(header, bytes) else json.dumps({"alg": algorithm, "kid": "one"} | (header or {})).encode()
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    signed = f"{encoded(head)}.{encoded(body)}"
    signer = jwt.PyJWS().get_algorithm_by_name(algorithm)
    signature = signer.sign(signed.encode(), signer.prepare_key(ec_key("one") if key is None else key))
    return f"{signed}.{encoded(signature)}"


@dataclass
class Keys:
    """A key set that a test changes."""

    table: KeyTable
    revision: int = 0
    problem: str | None = None
    asked: list[tuple[str | None, str]] = field(default_factory=list)

    async def find(self, kid: str | None, algorithm: str) -> PublicKey | None:
        self.asked.append((kid, algorithm))
        return self.table.find(kid, algorithm)

    def rotate(self, content: bytes) -> None:
        self.table = parse_jwks(content)
        self.revision += 1
