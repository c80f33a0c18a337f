"""The one builder of identities: what a request's record allows it to share, as keys of every cache that holds something of it.

Rules:

- the engine's cache and the caches beside it (retrieved passages, finished answers) are separated by the same record, so that they
  cannot drift apart: whoever may not read a prefix may not read what was retrieved or answered for it either;
- `kv_scope` differs whenever the salt may: it is made of the very fields, and reveals neither the salt nor a way to it;
- `retrieval_scope` leaves out what the engine loaded and what its prompt is made of, since passages do not depend on it, and takes
  in the sources, whose epochs say that a passage is out of date;
- `response_scope` takes in all of it and every word of the request: an answer belongs to one question, asked in one way;
- what the engine may not reuse, nobody else may: such a request gets keys that were never used and never will be again.
"""

from __future__ import annotations

from dataclasses import dataclass

from cachescope.core.frames import Field
from cachescope.core.keys import Key
from cachescope.core.record import IdentityRecord
from cachescope.core.salts import checked_nonce, salted_fields
from cachescope.core.types import Digest


@dataclass(frozen=True)
class CacheKeys:
    """Under what caches keep something for one request; 64 hexadecimal digits each, that tell nothing without the server's key.

    Attributes:
        kv_scope: Of prefix blocks: equal for two requests that may use the same ones.
        retrieval_scope: Of retrieved passages; a cache puts it before its own key, which is a digest of the query.
        response_scope: Of finished answers; by itself the key of one.
    """

    kv_scope: str
    retrieval_scope: str
    response_scope: str


def cache_keys(key: Key, record: IdentityRecord, *, request: Digest, nonce: bytes | None = None) -> CacheKeys:
    """The keys of all caches for one request.

    Args:
        key: The key of cache keys; server-side only. Its id is part of them, as it is of salts.
        record: The request's identity.
        request: Digest of everything that the request asks, also of what changes no token of the prompt, as `temperature`.
        nonce: 16 fresh random bytes to share with nobody, as `salts.salt` takes them.

    Raises:
        ValueError: The nonce is missing for `Request` scope, or too short.
    """
    checked_nonce(record, nonce)

    def scope(cache: str, *fields: Field) -> str:
        return key.mac("cachescope/cache-key/v1", cache, key.id, list(fields), nonce).hex()

    return CacheKeys(
        kv_scope=scope("kv", salted_fields(record)),
        retrieval_scope=scope("retrieval", _whose(record), _sources(record)),
        response_scope=scope("response", salted_fields(record), _sources(record), record.content_digest, request),
    )


def _whose(record: IdentityRecord) -> tuple[Field, ...]:
    """Whose it is, and of which generation."""
    epochs = [(target, value) for target, value in record.epochs.entries]
    return (record.lineages, record.pool_uid, record.scope.value, record.namespace, record.policy_revision, epochs)


def _sources(record: IdentityRecord) -> tuple[Field, ...]:
    return tuple(record.sources)
