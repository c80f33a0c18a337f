"""Which root keys are in use: one that was rotated is dropped once nothing rests on it, and one that was added is the latest.

What leases say is read here as whoever wrote them claims it: a lease that somebody made up can only keep an old key longer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from cachescope.cli.doctor.findings import Document, Finding, Unseen, noted, passed, unseen
from cachescope.cli.doctor.observed import ROOT_KEYS, Observed, title
from cachescope.core.errors import WireFormatError
from cachescope.core.keys import passed_over
from cachescope.core.leases import MAX_CHARACTERS, claimed_lease
from cachescope.core.signed import key_id_of

NAME = "keys in use"
_SHOWN = 3


def check(observed: Observed) -> Iterator[Finding]:
    """Every check of this file."""
    ledgers, leases = observed.of("epochledgers"), observed.of("fenceleases")
    if isinstance(ledgers, Unseen) or isinstance(leases, Unseen):
        yield from (unseen(NAME, part) for part in (ledgers, leases) if isinstance(part, Unseen))
        return
    users: defaultdict[str, list[str]] = defaultdict(list)
    for document, keys in (*((item, _of_ledger(item)) for item in ledgers), *((item, _of_lease(item)) for item in leases)):
        for key_id in keys:
            users[key_id].append(title(document))
    yield from _unused(observed, users)
    *older, newest = sorted(users) or [""]
    for key_id in older:
        yield noted(NAME, f"{key_id} is in use beside {newest}: {_some(users[key_id])}", "leave it in the Secret until it is not")
    if newest and not older:
        yield passed(NAME, f"everything that is sealed or signed is so with {newest}; older ones may be dropped")


def _unused(observed: Observed, users: Mapping[str, list[str]]) -> Iterator[Finding]:
    """Keys on which nothing rests and nothing will: old ones, or new ones whose id does not sort as its author thought."""
    ids = [key_id for secret in observed.seen(ROOT_KEYS) for key_id in secret.get("data") or {}]
    if why := passed_over([key_id for key_id in ids if key_id not in users], ids):
        yield noted(NAME, why, "remove it from the Secret if it is an old one: nothing rests on it")


def _of_ledger(document: Document) -> set[str]:
    """Id of the key of its seal."""
    return set(_seal(document.get("spec")))


def _of_lease(document: Document) -> set[str]:
    """Ids of the keys that its statement, and the copies of ledgers in it, rest on."""
    text = str((document.get("spec") or {}).get("statement", ""))
    try:
        copies = claimed_lease(text).get("witnesses")
        signed = key_id_of(text, most=MAX_CHARACTERS)
    except WireFormatError:
        return set()
    seals = (_seal(copy) for copy in copies.values()) if isinstance(copies, dict) else ()
    return {signed, *(key_id for seal in seals for key_id in seal)}


def _seal(ledger: Any) -> Iterator[str]:  # noqa: ANN401 - anybody may have written it
    mac = ledger.get("mac") if isinstance(ledger, Mapping) else None
    if isinstance(mac, Mapping) and isinstance(mac.get("key"), str):
        yield mac["key"]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
