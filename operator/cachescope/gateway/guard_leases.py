"""The FenceLeases of guards, verified: a guard process without one has no right that anybody could wait for.

A lease is found by its name (pod UID and boot id) in the namespace of the pool, and believed when its statement is signed with a
permit key of that pool and speaks of that very process. Whether it is live is not judged here: a guard proves its right with each
challenge.
"""

from __future__ import annotations

from collections.abc import Callable

from cachescope.core.endpoints import Endpoint
from cachescope.core.errors import WireFormatError
from cachescope.core.keys import KeyRing
from cachescope.core.leases import GUARD, lease_name, read_lease
from cachescope.core.log_lines import fault_of
from cachescope.gateway.challenges import PoolTrust
from cachescope.gateway.readings import LeaseText, Reading

_REMEMBERED = 20_000

Find = Callable[[str, str], Reading[LeaseText] | None]
"""Gives a FenceLease by namespace and name."""


class GuardLeases:
    """Verifies each lease once for each version of it.

    Args:
        find: Gives a lease as the API server last showed it.
    """

    def __init__(self, find: Find) -> None:
        self._find = find
        self._verdicts: dict[tuple[str, str], tuple[LeaseText, KeyRing, str | None]] = {}

    def problem(self, endpoint: Endpoint, trust: PoolTrust, boot_id: str) -> str | None:
        """Why a guard process holds no valid lease, or `None`."""
        key = endpoint.pool.partition("/")[0], lease_name(endpoint.pod_uid, boot_id)
        found = self._find(*key)
        if found is None:
            return "its guard holds no FenceLease; see the rights of the pool's ServiceAccount"
        if found.value is None:
            return found.fault
        known = self._verdicts.get(key)
        if known is None or known[0] is not found.value or known[1] is not trust.keys:
            if len(self._verdicts) >= _REMEMBERED:
                self._verdicts.clear()
            known = self._verdicts[key] = (found.value, trust.keys, _verdict(found.value, trust, key[1]))
        return known[2]


def _verdict(lease: LeaseText, trust: PoolTrust, name: str) -> str | None:
    try:
        statement = read_lease(trust.keys, lease.statement, name=name)
    except WireFormatError as error:
        return str(error)
    except Exception as error:  # its key signs whatever its holder likes: that is a fault of this lease alone
        return f"its FenceLease cannot be read ({fault_of(error)['error']}); look for who wrote it"
    if (statement.holder, statement.pool_uid) != (GUARD, trust.pool_uid):
        return "the FenceLease is of another pool; look for who wrote it"
    return None
