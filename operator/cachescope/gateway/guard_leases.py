"""The FenceLeases of guards, verified: a guard process without one has no right that anybody could wait for.

A lease is found by its name (pod UID and boot id) in the namespace of the pool, and believed when its statement is signed with a
permit key of that pool and speaks of that very process. Whether it is live is not judged here: a guard proves its right with each
challenge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cachescope.core.endpoints import Endpoint
from cachescope.core.errors import WireFormatError
from cachescope.core.keys import KeyRing
from cachescope.core.leases import GUARD, lease_name, read_lease
from cachescope.core.log_lines import fault_of
from cachescope.core.types import NO_CACHE, CacheIdentity
from cachescope.gateway.challenges import PoolTrust
from cachescope.gateway.readings import LeaseText, Reading

_REMEMBERED = 20_000

Find = Callable[[str, str], Reading[LeaseText] | None]
"""Gives a FenceLease by namespace and name."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What is wrong with a lease, if anything, and what a good one says of its pod's cache."""

    problem: str | None
    cache: CacheIdentity = NO_CACHE


_NONE: Final = _Verdict("its guard holds no FenceLease; see the rights of the pool's ServiceAccount")


class GuardLeases:
    """Verifies each lease once for each version of it.

    Args:
        find: Gives a lease as the API server last showed it.
    """

    def __init__(self, find: Find) -> None:
        self._find = find
        self._verdicts: dict[tuple[str, str], tuple[LeaseText, KeyRing, _Verdict]] = {}

    def problem(self, endpoint: Endpoint, trust: PoolTrust, boot_id: str) -> str | None:
        """Why a guard process holds no valid lease, or `None`."""
        return self._verdict(endpoint, trust, boot_id).problem

    def cache(self, endpoint: Endpoint, trust: PoolTrust, boot_id: str) -> CacheIdentity:
        """Identity that a pod's cache belongs to, as its lease says; nobody's without a valid one."""
        return self._verdict(endpoint, trust, boot_id).cache

    def _verdict(self, endpoint: Endpoint, trust: PoolTrust, boot_id: str) -> _Verdict:
        key = endpoint.pool.partition("/")[0], lease_name(endpoint.pod_uid, boot_id)
        found = self._find(*key)
        if found is None:
            return _NONE
        if found.value is None:
            return _Verdict(found.fault)
        known = self._verdicts.get(key)
        if known is None or known[0] is not found.value or known[1] is not trust.keys:
            if len(self._verdicts) >= _REMEMBERED:
                self._verdicts.clear()
            known = self._verdicts[key] = (found.value, trust.keys, _judged(found.value, trust, key[1]))
        return known[2]


def _judged(lease: LeaseText, trust: PoolTrust, name: str) -> _Verdict:
    try:
        statement = read_lease(trust.keys, lease.statement, name=name)
    except WireFormatError as error:
        return _Verdict(str(error))
    except Exception as error:  # its key signs whatever its holder likes: that is a fault of this lease alone
        return _Verdict(f"its FenceLease cannot be read ({fault_of(error)['error']}); look for who wrote it")
    if (statement.holder, statement.pool_uid) != (GUARD, trust.pool_uid):
        return _Verdict("the FenceLease is of another pool; look for who wrote it")
    return _Verdict(None, statement.cache)
