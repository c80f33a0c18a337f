"""Names for the values that must never be mistaken for one another."""

from __future__ import annotations

from enum import Enum
from typing import NewType

Digest = NewType("Digest", str)
"""`sha256:` and 64 lower-case hexadecimal digits."""

Epoch = NewType("Epoch", int)
"""A counter of one target; it only rises."""

Namespace = NewType("Namespace", str)
"""A keyed hash of a subject: 64 lower-case hexadecimal digits."""

Salt = NewType("Salt", str)
"""What the engine mixes into the first block's hash: 43 characters of URL-safe base64. A secret; it is never logged."""

CacheIdentity = NewType("CacheIdentity", str)
"""Whom the whole cache of an engine without salts belongs to: 43 characters of URL-safe base64; empty for nobody yet."""

NO_CACHE = CacheIdentity("")
"""Nobody's cache."""

TargetName = NewType("TargetName", str)
"""A keyed hash that names what an epoch belongs to: 64 lower-case hexadecimal digits."""


class ScopeClass(str, Enum):
    """Whom a cached prefix may be shared with; ordered from the widest to the narrowest."""

    PUBLIC = "Public"
    TENANT = "Tenant"
    COMPARTMENT = "Compartment"
    PRINCIPAL = "Principal"
    REQUEST = "Request"

    @property
    def width(self) -> int:
        """Position from the widest (0) to the narrowest (4)."""
        return _WIDTHS[self]


_WIDTHS = {scope: width for width, scope in enumerate(ScopeClass)}


class Reuse(str, Enum):
    """What a permit allows the engine's cache to do for its request."""

    SALTED = "Salted"
    FRESH = "Fresh"
    NONE = "None"


class TargetKind(str, Enum):
    """What an epoch can belong to."""

    POOL = "Pool"
    SCOPE = "CacheScope"
    TENANT = "Tenant"
    COMPARTMENT = "Compartment"
    PRINCIPAL = "Principal"
