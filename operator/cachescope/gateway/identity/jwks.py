"""Sets of public keys (RFC 7517): which keys of a published document may verify a token.

Rules:

- a key verifies only the algorithms that its own type, curve and `alg` allow; what the token says changes nothing of that;
- symmetric keys, private keys that somebody published, keys for encryption and RSA keys below 2048 bits are ignored and counted;
- a key is found by its exact `kid`; without one only where no other key could be meant; a `kid` that two keys claim finds none;
- a document that cannot be read, or without a usable key, replaces nothing: the last good set stays, and `problem` says why.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import Algorithm, ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import PyJWTError

from cachescope.gateway.strict_json import Json, NotStrictJson, parse_object

MAX_BYTES = 2**20
MIN_RSA_BITS = 2048
MAX_RSA_BITS = 16384

RSA_ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_EC_ALGORITHMS = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
ALGORITHMS = RSA_ALGORITHMS | set(_EC_ALGORITHMS.values()) | {"EdDSA"}
"""Every algorithm that can be allowed; all are asymmetric."""

_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})

_READERS: Mapping[str, type[Algorithm]] = {"RSA": RSAAlgorithm, "EC": ECAlgorithm, "OKP": OKPAlgorithm}

PublicKey: TypeAlias = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey | Ed448PublicKey


class KeySet(Protocol):
    """The keys of one identity provider, from wherever they come."""

    @property
    def problem(self) -> str | None:
        """Why the source cannot be relied on now, for readiness; `None` if it can."""

    @property
    def revision(self) -> int:
        """Changes whenever a key that was found before might not be found any more."""

    async def find(self, kid: str | None, algorithm: str) -> PublicKey | None:
        """The one key that may verify.

        Raises:
            KeysUnavailable: No set is at hand, or only one that is too old.
        """


class NoUsableKeys(ValueError):  # noqa: N818 - a finding, not a failure
    """A document holds no key that may verify anything."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key, its name, and what it may verify."""

    kid: str | None
    algorithms: frozenset[str]
    key: PublicKey


@dataclass(frozen=True, slots=True)
class KeyTable:
    """The usable keys of one document.

    Attributes:
        keys: Usable keys.
        ignored: How many were ignored, by reason: `malformed`, `private`, `symmetric`, `unsupported`, `use`, `weak`.
    """

    keys: tuple[VerificationKey, ...]
    ignored: Mapping[str, int] = field(default_factory=dict)

    def find(self, kid: str | None, algorithm: str) -> PublicKey | None:
        """The one key that may verify, or `None` where there is none or more than one."""
        found = [key.key for key in self.keys if algorithm in key.algorithms and (kid is None or key.kid == kid)]
        return found[0] if len(found) == 1 else None


def parse_jwks(content: bytes) -> KeyTable:
    """Read a JWK set.

    Raises:
        NoUsableKeys: The document is no JWK set, or nothing in it may verify.
    """
    keys = _entries(content)
    usable: list[VerificationKey] = []
    ignored: Counter[str] = Counter()
    for entry in keys:
        found = _usable(entry)
        if isinstance(found, str):
            ignored[found] += 1
        else:
            usable.append(found)
    if not usable:
        raise NoUsableKeys(f"the key set has no usable key ({dict(ignored) or 'it is empty'}); publish one")
    return KeyTable(tuple(usable), dict(ignored))


def _entries(content: bytes) -> list[Json]:
    if len(content) > MAX_BYTES:
        raise NoUsableKeys(f"the key set is larger than {MAX_BYTES} bytes; publish a smaller one")
    try:
        keys = parse_object(content).get("keys")
    except NotStrictJson as error:
        raise NoUsableKeys(f"the key set {error}") from None
    if not isinstance(keys, list):
        raise NoUsableKeys("the key set has no list `keys`; publish a JWK set (RFC 7517)")
    return keys


def _usable(entry: Json) -> VerificationKey | str:
    if not isinstance(entry, dict):
        return "malformed"
    if entry.get("kty") == "oct":
        return "symmetric"
    if _PRIVATE & entry.keys():
        return "private"
    if not _may_verify(entry):
        return "use"
    key = _public_key(entry)
    return key if isinstance(key, str) else _named(entry, key)


def _may_verify(entry: Mapping[str, Json]) -> bool:
    operations = entry.get("key_ops", ["verify"])
    return entry.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations


def _public_key(entry: dict[str, Json]) -> PublicKey | str:
    kind = entry.get("kty")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        return "unsupported"
    try:
        key = reader.from_jwk(json.dumps(entry))
    except (PyJWTError, UnsupportedAlgorithm, ValueError, TypeError, KeyError, OverflowError):
        return "malformed"
    # The private kinds are excluded by name above; a reader that still returned one would end here.
    return key if isinstance(key, (RSAPublicKey, EllipticCurvePublicKey, Ed25519PublicKey, Ed448PublicKey)) else "private"


def _named(entry: Mapping[str, Json], key: PublicKey) -> VerificationKey | str:
    if isinstance(key, RSAPublicKey) and key.key_size < MIN_RSA_BITS:
        return "weak"
    if isinstance(key, RSAPublicKey) and key.key_size > MAX_RSA_BITS:
        return "unsupported"
    kid, algorithm = entry.get("kid"), entry.get("alg")
    if not (kid is None or isinstance(kid, str)):
        return "malformed"
    algorithms = frozenset(name for name in _algorithms(key) if algorithm is None or name == algorithm)
    return VerificationKey(kid, algorithms, key) if algorithms else "unsupported"


def _algorithms(key: PublicKey) -> frozenset[str]:
    if isinstance(key, RSAPublicKey):
        return RSA_ALGORITHMS
    if isinstance(key, EllipticCurvePublicKey):
        return frozenset({_EC_ALGORITHMS[key.curve.name]} if key.curve.name in _EC_ALGORITHMS else ())
    return frozenset({"EdDSA"})
