"""Seals: the MAC by which the operator knows a ledger, or the copy of one in a lease, as its own.

The key is the operator's alone; guards and gateways cannot make one, and need none: they believe what they read by quorum. The MAC
covers the digest, so that a copy without history (a *witness*) can be verified as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from cachescope.core.digests import sha256
from cachescope.core.errors import SpecError
from cachescope.core.keys import Key, KeyRing, matches
from cachescope.core.ledger_documents import parse_ledger, parse_mark, write_ledger
from cachescope.core.ledgers import Ledger, Lineage, Mark

Place = str
"""Where a ledger belongs: a pool's UID, or `authorization_key` of a namespace; a shard's is that and its name."""

_BESIDE = frozenset({"history", "ancestors"})
"""What the digest does not cover."""
_NOWHERE = Lineage(1, "unreadable")
_FORM = re.compile(r"[0-9a-f]{64}\Z")


def seal_keys(root: KeyRing) -> KeyRing:
    """The keys of seals, derived from the root keys; old ones still verify."""
    return root.derive("head")


def sealed(keys: KeyRing, place: Place, ledger: Ledger) -> dict[str, Any]:
    """The spec of an `EpochLedger`: `write_ledger` and the MAC."""
    return {**write_ledger(ledger), "mac": {"key": keys.current.id, "value": _mac(keys.current, place, ledger)}}


def witness(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The copy of a ledger that a process publishes: its content, its digest and its MAC."""
    return {name: value for name, value in spec.items() if name not in _BESIDE}


def verified(keys: KeyRing, place: Place, spec: Any) -> Ledger:  # noqa: ANN401 - the parser is where untyped JSON ends
    """Read a ledger or a witness, and hold it against its seal.

    Raises:
        SpecError: It cannot be read, or no operator of this installation sealed it for that place.
    """
    ledger = parse_ledger(spec)
    given = spec.get("mac")
    named, value = (given.get("key"), given.get("value")) if isinstance(given, Mapping) else (None, None)
    key = keys.find(str(named))
    # Its form first: a text with half a character in it has no bytes to compare.
    if key is None or not _FORM.match(str(value)) or not matches(_mac(key, place, ledger).encode(), str(value).encode()):
        raise SpecError(
            "the ledger carries no seal of this installation's operator; see who wrote it, and whether root keys were lost"
        )
    return ledger


def claimed_mark(spec: Mapping[str, Any]) -> Mark:
    """The state that a copy says it is of, whoever made it: for telling one that nobody can verify from others.

    One that does not even say that is told by its content, as a state that no ledger ever had.
    """
    try:
        return parse_mark(spec)
    except SpecError:
        return Mark(_NOWHERE, 0, sha256(json.dumps(spec, sort_keys=True).encode()))


def _mac(key: Key, place: Place, ledger: Ledger) -> str:
    return key.mac("cachescope/ledger/v1", key.id, place, ledger.digest).hex()
