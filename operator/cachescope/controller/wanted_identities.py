"""Which cache identities gateways want engines for, by their leases."""

from __future__ import annotations

from collections.abc import Iterable

from cachescope.controller.lease_book import Life, Process
from cachescope.core.types import CacheIdentity


def wanted(gateways: Iterable[Process], pool_uid: str) -> frozenset[CacheIdentity]:
    """Identities of a pool that gateways found no engine for a moment ago. Who did not move yet may speak of long ago."""
    return named((item for item in gateways if item.life is Life.LIVE), pool_uid)


def named(gateways: Iterable[Process], pool_uid: str) -> frozenset[CacheIdentity]:
    """Identities of a pool that any of these gateways speaks of."""
    statements = (item.statement for item in gateways if item.statement is not None)
    return frozenset(identity for item in statements for identity in item.wanted.get(pool_uid, ()))
