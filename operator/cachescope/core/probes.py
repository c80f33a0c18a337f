"""Credentials of the probe: by which the operator asks a live pool as two tenants that are nobody's.

Rules:

- a credential is signed with a key of its own purpose, derived from the root keys, which operator and gateways alone have;
- it is good for one engine process of one pool, and for an hour at most: it says nothing of any tenant, and opens no other pool;
- whom it speaks for is a tenant that no resource declares, and that no other credential ever speaks for;
- a pair of probers differs as two tenants do, or in salts that an engine could take for one and the same: such are made of a salt
  that nobody else has, by what is written here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from cachescope.core.errors import WireFormatError
from cachescope.core.keys import Key, KeyRing
from cachescope.core.signed import read_signed, sign
from cachescope.core.types import Salt

SCHEME: Final = "CacheScope-Probe"
"""Of the header `authorization`: no client's credential has it."""
SEVERAL: Final = "several answers"
"""What is special in a request that asks for more than one; shown apart, as only the engine's counter can show it."""
LONGEST_SECONDS: Final = 3600
_PURPOSE: Final = "probe"


class Pair(str, Enum):
    """In what two probers differ."""

    TENANTS = "two tenants"
    FIRST = "the first character of the salt"
    LAST = "the last character of the salt"
    CASE = "the letter case of the salt"


@dataclass(frozen=True, slots=True)
class Prober:
    """Whom a credential of the probe speaks for, and where it is good.

    Attributes:
        pool_uid: The pool.
        boot_id: The guard process.
        pair: In what it differs from the other one.
        who: Which of the two: 0 or 1.
    """

    pool_uid: str
    boot_id: str
    pair: Pair
    who: int

    @property
    def tenant_uid(self) -> str:
        """UID of the tenant that it stands for; no object has such a one."""
        return tenant_uid(self.pool_uid, self.pair, self.who)

    def salt(self, made: Salt) -> Salt:
        """The salt that it is given.

        Args:
            made: What any tenant in its place would be given.
        """
        both = {
            Pair.TENANTS: (made, made),
            Pair.FIRST: (f"A{made[1:]}", f"B{made[1:]}"),
            Pair.LAST: (f"{made[:-1]}A", f"{made[:-1]}B"),
            Pair.CASE: (made.lower(), made.upper()),
        }
        return Salt(both[self.pair][self.who])


def tenant_uid(pool_uid: str, pair: Pair, who: int) -> str:
    """UID of the tenant that a prober stands for: those whose salts are alike are of one, so that nothing else tells them apart."""
    return f"probe/{pool_uid}/{who if pair is Pair.TENANTS else pair.name.lower()}"


def several(path: str) -> str:
    """How proofs name requests to a path that ask for several answers."""
    return f"{path} {SEVERAL}"


def tenant_uids(pool_uid: str) -> frozenset[str]:
    """All tenants that probers of a pool stand for."""
    return frozenset(tenant_uid(pool_uid, pair, who) for pair in Pair for who in range(2))


def probe_keys(root: KeyRing) -> KeyRing:
    """The keys that sign credentials of the probe."""
    return root.derive(_PURPOSE)


def write_credential(key: Key, prober: Prober, *, until: int) -> str:
    """The value of the header `authorization`.

    Args:
        key: The key of the probe.
        prober: Whom it speaks for.
        until: When it ends, in seconds since 1970.
    """
    payload = {"pool": prober.pool_uid, "boot": prober.boot_id, "pair": prober.pair.value, "who": prober.who, "until": until}
    return f"{SCHEME} {sign(key, _PURPOSE, payload)}"


def read_credential(keys: KeyRing, text: str, *, now: float) -> Prober:
    """Verify what follows the scheme.

    Args:
        keys: The keys of the probe.
        text: The credential, without its scheme.
        now: Seconds since 1970.

    Raises:
        WireFormatError: It is none, or it has ended, or it says that it ends later than any does.
    """
    payload = read_signed(keys, _PURPOSE, text)
    try:
        prober, until = _prober(payload), _integer(payload["until"])
    except (KeyError, TypeError, ValueError) as error:
        raise WireFormatError(
            "the fields of the probe's credential cannot be read; update the older of operator and gateway"
        ) from error
    if not now < until <= now + 2 * LONGEST_SECONDS:  # the clocks of two machines may differ
        raise WireFormatError("the probe's credential has ended, or the clocks of operator and gateway are an hour apart; set them")
    return prober


def _prober(payload: dict[str, Any]) -> Prober:
    pool, boot, who = payload["pool"], payload["boot"], _integer(payload["who"])
    if not isinstance(pool, str) or not isinstance(boot, str) or not pool or not boot or who not in {0, 1}:
        raise ValueError("a field is of another kind")
    return Prober(pool, boot, Pair(payload["pair"]), who)


def _integer(value: object) -> int:
    if type(value) is not int:
        raise TypeError("a number is none")
    return value
