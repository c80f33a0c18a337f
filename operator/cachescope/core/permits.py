"""Permits: a gateway's signed statement that one request may use one engine process once.

A permit names everything that the guard compares: pool, pod, boot id and tick of the guard, method and path, the exact body,
the identity record, what the engine loaded, the epochs and the ledger states that the gateway saw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cachescope.core.epochs import EpochVector, epoch
from cachescope.core.errors import SpecError, WireFormatError
from cachescope.core.heads import Epochs, Seen
from cachescope.core.keys import Key, KeyRing
from cachescope.core.record import ABSENT
from cachescope.core.signed import read_signed, sign, without_empty
from cachescope.core.types import NO_CACHE, CacheIdentity, Digest, Reuse, ScopeClass, TargetName

PERMIT_HEADER = "x-cachescope-permit"
_PURPOSE = "permit"
_INTEGERS = frozenset({"tick"})
_PARSED = frozenset({"epochs", "seen"})


@dataclass(frozen=True)
class Permit:
    """What a gateway allows.

    Attributes:
        id: Random and used once: 32 hexadecimal digits.
        pool_uid: The pool.
        pod_uid: The pod that was chosen.
        boot_id: The guard process that was chosen.
        tick: The last tick that the gateway saw from that process, in milliseconds.
        method: HTTP method.
        path: Path exactly as sent upstream, and `?` with the query if there is one.
        body_digest: SHA-256 of the exact body bytes sent upstream.
        record_digest: Digest of the identity record.
        runtime_digest: Runtime that the salt was made for.
        adapter_digest: Adapter that the salt was made for, or empty; a permit without one is written as before there were any.
        cache: Identity of the cache that it may use, where the engine knows no salts, or empty; as before.
        scope: Class of the request.
        epochs: The epochs of its targets.
        seen: The ledger states that the gateway saw.
        reuse: What the cache may do.
    """

    id: str
    pool_uid: str
    pod_uid: str
    boot_id: str
    tick: int
    method: str
    path: str
    body_digest: Digest
    record_digest: Digest
    runtime_digest: Digest
    scope: ScopeClass
    epochs: Epochs
    seen: Seen
    reuse: Reuse
    adapter_digest: Digest = ABSENT
    cache: CacheIdentity = NO_CACHE


def permit_keys(root: KeyRing, pool_uid: str) -> KeyRing:
    """The permit keys of a pool, derived from the root keys."""
    return root.derive(_PURPOSE, pool_uid)


def write_permit(key: Key, permit: Permit) -> str:
    """Sign a permit; the result is the value of the header `x-cachescope-permit`."""
    epochs, seen = permit.epochs, permit.seen
    written = {
        "epochs": (epochs.cache.entries, epochs.authorization.entries),
        "seen": (seen.lineage, seen.sequence, seen.authorization_lineage, seen.authorization_sequence),
    }
    return sign(key, _PURPOSE, without_empty({**vars(permit), **written}, "adapter_digest", "cache"))


def read_permit(keys: KeyRing, text: str) -> Permit:
    """Verify and read a permit.

    Raises:
        WireFormatError: It is no permit of this pool.
    """
    payload = read_signed(keys, _PURPOSE, text)
    try:
        return _parse(payload)
    except (KeyError, TypeError, ValueError, SpecError) as error:
        raise WireFormatError(f"the permit's fields cannot be read ({error}); update the older of gateway and guard") from error


def _parse(payload: dict[str, Any]) -> Permit:
    for name, value in payload.items():
        if name not in _PARSED and type(value) is not (int if name in _INTEGERS else str):
            raise TypeError(f"{name} is of another type")
    cache, authorization = payload["epochs"]
    fields = {
        **payload,
        "scope": ScopeClass(payload["scope"]),
        "reuse": Reuse(payload["reuse"]),
        "epochs": Epochs(_vector(cache), _vector(authorization)),
        "seen": _seen(payload["seen"]),
    }
    return Permit(**fields)


def _vector(entries: list[tuple[object, object]]) -> EpochVector:
    found = tuple((TargetName(str(name)), epoch(_integer(value))) for name, value in entries)
    if len(dict(found)) != len(found):
        raise ValueError("a target is named twice")
    return EpochVector(found)


def _seen(parts: list[object]) -> Seen:
    lineage, sequence, authorization_lineage, authorization_sequence = parts
    if type(lineage) is not str or type(authorization_lineage) is not str:
        raise TypeError("a lineage is of another type")
    return Seen(lineage, _integer(sequence), authorization_lineage, _integer(authorization_sequence))


def _integer(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is not an integer")
    return value
