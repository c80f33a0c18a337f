"""Credentials of the demo's people: API keys, and two JWT issuers with keys of their own."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cachescope.core.labels import API_KEYS_LABEL
from cachescope.gateway.identity.api_keys import hash_key, make_key, parse

PEOPLE = ("red-alice", "red-bob", "blue-carol", "blue-dan")
ISSUERS = ("north", "south")
KEY_ID = "demo"


@dataclass(frozen=True)
class Credentials:
    """Everything secret that the demo made; kept in one file between runs. The root keys are the operator's, and not here.

    Attributes:
        api_keys: API keys by person.
        issuers: Private keys (PEM) by issuer.
    """

    api_keys: dict[str, str]
    issuers: dict[str, str]

    def token(self, issuer: str, subject: str, audience: str) -> str:
        """A JWT of one issuer, valid for an hour."""
        now = int(time.time())
        claims = {"iss": f"https://{issuer}.example", "sub": subject, "aud": audience, "iat": now, "exp": now + 3600}
        return jwt.encode(claims, self.issuers[issuer], algorithm="ES256", headers={"kid": KEY_ID})

    def secrets(self, namespace: str) -> list[dict[str, Any]]:
        """What the cluster gets: Secrets with hashes of API keys, and with public key sets."""
        hashes = [api_key_secret(key, namespace, person, person.split("-")[1]) for person, key in self.api_keys.items()]
        return [*hashes, *(_secret(namespace, f"{name}-jwks", {"jwks.json": _jwks(pem)}) for name, pem in self.issuers.items())]


def api_key_secret(token: str, namespace: str, name: str, principal: str) -> dict[str, Any]:
    """The Secret with the hash of an API key; the hash is worth something in that Secret alone."""
    key_id, secret = parse(token)
    entry = json.dumps({"hash": hash_key(key_id, secret, f"{namespace}/{name}"), "principal": principal})
    return _secret(namespace, name, {key_id: entry}, {API_KEYS_LABEL: "true"})


def new_key() -> str:
    """An API key that nobody has."""
    return make_key(secrets.token_bytes(32), "").token


def load(path: Path) -> Credentials:
    """Read the credentials, or make them on the first run."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(json.dumps(_make()))
    stored = json.loads(path.read_text())
    return Credentials(stored["api_keys"], stored["issuers"])


def _make() -> dict[str, dict[str, str]]:
    return {
        "api_keys": {person: new_key() for person in PEOPLE},
        "issuers": {name: _private_key() for name in ISSUERS},
    }


def _secret(namespace: str, name: str, data: dict[str, str], labels: dict[str, str] | None = None) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": data}


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
