"""Credentials of the demo's people: API keys, and two JWT issuers with keys of their own."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cachescope.gateway.identity.api_keys import hash_key, make_key, parse

PEOPLE = ("red-alice", "red-bob", "blue-carol", "blue-dan")
ISSUERS = ("north", "south")
KEY_ID = "demo"


@dataclass(frozen=True)
class Credentials:
    """Everything secret that the demo made; kept in one file between runs.

    Attributes:
        root_keys: Root keys of the installation, by id.
        api_keys: API keys by person.
        issuers: Private keys (PEM) by issuer.
    """

    root_keys: dict[str, str]
    api_keys: dict[str, str]
    issuers: dict[str, str]

    def token(self, issuer: str, subject: str, audience: str) -> str:
        """A JWT of one issuer, valid for an hour."""
        now = int(time.time())
        claims = {"iss": f"https://{issuer}.example", "sub": subject, "aud": audience, "iat": now, "exp": now + 3600}
        return jwt.encode(claims, self.issuers[issuer], algorithm="ES256", headers={"kid": KEY_ID})

    def secrets(self) -> dict[str, dict[str, str]]:
        """What the cluster gets: hashes of API keys and public key sets, by Secret name."""
        hashes = {person: _entry(person, key) for person, key in self.api_keys.items()}
        return {**hashes, **{f"{name}-jwks": {"jwks.json": _jwks(pem)} for name, pem in self.issuers.items()}}


def load(path: Path) -> Credentials:
    """Read the credentials, or make them on the first run."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(json.dumps(_make()))
    return Credentials(**json.loads(path.read_text()))


def _make() -> dict[str, dict[str, str]]:
    return {
        "root_keys": {"k1": secrets.token_hex(32), "targets": secrets.token_hex(32)},
        "api_keys": {person: make_key(secrets.token_bytes(32)).token for person in PEOPLE},
        "issuers": {name: _private_key() for name in ISSUERS},
    }


def _entry(person: str, key: str) -> dict[str, str]:
    key_id, secret = parse(key)
    return {key_id: json.dumps({"hash": hash_key(key_id, secret), "principal": person.split("-")[1]})}


def _private_key() -> str:
    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem.decode()


def _jwks(pem: str) -> str:
    key = serialization.load_pem_private_key(pem.encode(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("the demo's issuers have EC keys; remove the state file and start again")
    public = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return json.dumps({"keys": [{**public, "kid": KEY_ID, "use": "sig", "alg": "ES256"}]})
