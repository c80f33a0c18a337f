"""Statements that are short enough to be read: what goes first when a gateway serves thousands of pools.

A statement that nobody can read ends the right. So of one that is too long the pods that it routes to are left out, as many as
must be, then what is wanted, then witnesses (guards publish them too), then acknowledgements of pools, which fences count and do
not wait for, and those of authorization heads last: revocations wait for them until there are fewer pools.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from cachescope.core.keys import Key
from cachescope.core.leases import MAX_CHARACTERS, LeaseStatement, write_lease
from cachescope.core.ledgers import AUTHORIZATION, write_mark

log = logging.getLogger(__name__)

MOST_BYTES: Final = MAX_CHARACTERS * 3 // 4 - 4096
"""Of the JSON below the base64; the rest is for what is always there, and the MAC."""


class ReadableStatements:
    """Writes the statements of one process; what is left out is logged when that begins or changes, and not with each of them."""

    def __init__(self) -> None:
        self._lost: frozenset[str] = frozenset()

    def write(self, key: Key, statement: LeaseStatement) -> str:
        """Sign a statement, or as much of it as can be read."""
        text, lost = write_lease(key, statement), dict[str, int]()
        if len(text) > MAX_CHARACTERS:
            fits, lost = _fitting(statement)
            text = write_lease(key, fits)
        if lost and self._lost != lost.keys():
            log.warning("the lease is too long: something is left out; run another installation for some of the pools", extra=lost)
        self._lost = frozenset(lost)
        return text


def _fitting(statement: LeaseStatement) -> tuple[LeaseStatement, dict[str, int]]:
    """As much of a statement as can be read, and how many entries of which parts are left out."""
    left = MOST_BYTES
    heads_first = sorted(statement.acknowledged.items(), key=lambda item: not item[0].startswith(AUTHORIZATION))
    marks = {name: write_mark(mark) for name, mark in heads_first}
    kept: dict[str, dict[str, Any]] = {}
    parts: dict[str, Mapping[str, Any]] = {
        "acknowledged": marks,
        "witnesses": statement.witnesses,
        "wanted": statement.wanted,
        "routable": statement.routable,
    }
    for field, entries in parts.items():
        kept[field], left = _first(entries, left)
    lost = {field: len(entries) - len(kept[field]) for field, entries in parts.items() if len(kept[field]) < len(entries)}
    acknowledged = {name: statement.acknowledged[name] for name in kept["acknowledged"]}
    witnesses, wanted, routable = kept["witnesses"], kept["wanted"], kept["routable"]
    return replace(statement, acknowledged=acknowledged, witnesses=witnesses, wanted=wanted, routable=routable), lost


def _first(entries: Mapping[str, Any], left: int) -> tuple[dict[str, Any], int]:
    """As many entries as fit, and what is left then."""
    kept = {}
    for name, value in entries.items():
        size = len(json.dumps({name: value}, separators=(",", ":")))
        if size <= left:
            kept[name] = value
            left -= size
    return kept, left
