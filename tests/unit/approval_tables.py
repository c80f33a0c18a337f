"""Approval tables for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cachescope.core.approvals import ApprovedPrefix, Contents, PrefixDigests
from cachescope.core.keys import Key
from cachescope.core.ledgers import Lineage, Mark
from cachescope.core.segments import approval_set
from cachescope.core.types import ScopeClass
from tests.unit.core_strategies import KEY, digest_of

POOL = "pool-uid"
TOKENIZER = digest_of("2")
SET = approval_set("scope-uid")


def mark(sequence: int, generation: int = 1) -> Mark:
    return Mark(Lineage(generation, "0" * 32), sequence, digest_of("a"))


def prefix(tokens: Sequence[int], *, unit: int, key: Key = KEY, until: int | None = None) -> ApprovedPrefix:
    return PrefixDigests(key, TOKENIZER, unit).prefix(tokens, until)


def contents(
    approved: Mapping[ScopeClass, Sequence[Sequence[int]]], *, unit: int = 4, key: Key = KEY, sequence: int = 1
) -> Contents:
    """A table with one set, that approves token sequences for classes."""
    named = {f"{scope.value}-{number}": tokens for scope, many in approved.items() for number, tokens in enumerate(many)}
    sets = {SET: {scope: [f"{scope.value}-{number}" for number in range(len(many))] for scope, many in approved.items()}}
    prefixes = {name: prefix(tokens, unit=unit, key=key) for name, tokens in named.items()}
    return Contents(POOL, mark(sequence), TOKENIZER, unit, prefixes, sets)
