"""What a guard's engine does with its cache, and the identity that one cache belongs to where the engine knows no salts.

Rules:

- a cache identity is everything that a salt would separate, but what a process loads once and what the tokens hold themselves
  (bundle, tools): a change of anything else gives another one;
- it is an HMAC with the salt key: it tells nobody anything, and nobody else can make one;
- an engine process serves one identity in its whole life.
"""

from __future__ import annotations

from enum import Enum

from cachescope.core.encodings import encode
from cachescope.core.keys import Key
from cachescope.core.record import IdentityRecord
from cachescope.core.types import CacheIdentity


class Caching(str, Enum):
    """What keeps requests apart in an engine."""

    SALTED = "Salted"
    """It enforces a salt in each request."""
    ONE_CACHE = "OneCache"
    """Nothing: it is used under one cache identity."""
    OFF = "Off"
    """It reuses nothing."""


def cache_identity(key: Key, record: IdentityRecord) -> CacheIdentity:
    """The identity that an engine without salts is used under.

    Args:
        key: The salt key.
        record: A request's identity.

    Returns:
        43 characters of URL-safe base64.
    """
    mac = key.mac(
        "cachescope/cache/v1",
        key.id,
        record.lineages,
        record.pool_uid,
        record.cache_object,
        record.scope.value,
        record.namespace,
        record.policy_revision,
        [(target, value) for target, value in record.epochs.entries],
    )
    return CacheIdentity(encode(mac))
