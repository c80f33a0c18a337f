r"""Salts: what the engine mixes into the first block's hash, and so into all that follow.

Rules:

- a salt is HMAC-SHA-256 with a server-side key, never empty, and never logged or returned;
- everything of the record that separates is in it, but not the content: prefixes of different requests must still meet;
- `Request` scope, and every request that must not reuse anything, takes a fresh nonce from the server;
- 43 characters of URL-safe base64: engines refuse `/`, `@`, `\\`, NUL and more than 128 characters.
"""

from __future__ import annotations

from cachescope.core.encodings import encode
from cachescope.core.frames import Field
from cachescope.core.keys import Key
from cachescope.core.record import IdentityRecord
from cachescope.core.types import Salt, ScopeClass

NONCE_BYTES = 16


def salt(key: Key, record: IdentityRecord, nonce: bytes | None = None) -> Salt:
    """The salt of a request.

    Args:
        key: The salt key; its id is part of the salt, so that a new key is a new set of salts.
        record: The request's identity.
        nonce: 16 fresh random bytes to share with nobody; required for `Request` scope.

    Returns:
        43 characters of URL-safe base64.

    Raises:
        ValueError: The nonce is missing for `Request` scope, or too short.
    """
    checked_nonce(record, nonce)
    mac = key.mac("cachescope/salt/v1", key.id, salted_fields(record), nonce)
    return Salt(encode(mac))


def checked_nonce(record: IdentityRecord, nonce: bytes | None) -> None:
    """Refuse what would let two requests share that must not.

    Raises:
        ValueError: The nonce is missing for `Request` scope, or too short.
    """
    if nonce is None and record.scope is ScopeClass.REQUEST:
        raise ValueError("Request scope takes a fresh nonce; pass 16 random bytes")
    if nonce is not None and len(nonce) < NONCE_BYTES:
        raise ValueError(f"a nonce has {NONCE_BYTES} random bytes, not {len(nonce)}; pass a longer one")


def salted_fields(record: IdentityRecord) -> tuple[Field, ...]:
    """Everything of a record that separates one cache from another, in a fixed order."""
    engine = record.engine
    return (
        record.lineages,
        record.pool_uid,
        record.cache_object,
        record.scope.value,
        record.namespace,
        (engine.model, engine.tokenizer, engine.runtime, engine.adapter),
        record.prompt_bundle_digest,
        record.toolset_digest,
        record.policy_revision,
        [(target, value) for target, value in record.epochs.entries],
    )
