"""Verified hits: a cached block is used only if it is what the request expects, whatever its hash says.

Rules:

- the identity of a block is everything that was hashed of it, and the identity of the block before it. It is kept whole beside the
  block's hash, and compared whole: bytes that are equal are no coincidence, as two digests could be, and cost less than a digest;
- it is compared at every hit, from the first block on; the first that differs is a miss, and so is whatever follows it;
- a block without an identity, and a request without one, hit nothing: that is no mismatch, and is counted apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from cachescope.guard.engine_plugin.chains import CHAIN, Chain
from cachescope.guard.engine_plugin.shapes import Block, Request

Identity: TypeAlias = "tuple[Identity | None, bytes]"
"""The identity of the block before, and what was hashed."""


class VerifiedBlocks:
    """Identities of what an engine has cached.

    Attributes:
        mismatches: Hits that were none: a block of that hash was another one. Each is an alarm.
        unidentified: Hits that were not taken since an identity was not there.
    """

    def __init__(self) -> None:
        self.mismatches = 0
        self.unidentified = 0
        self._identities: dict[int, Identity] = {}

    def cached(self, request: Request, blocks: Sequence[Block], first: int, end: int) -> None:
        """Blocks `first` to `end` of a request were cached; those before it are its own too."""
        payloads, identities = _payloads(request), self._identities
        before = identities.get(blocks[first - 1].block_id) if first else None
        if len(payloads) < end or (first and before is None):
            for block in blocks[first:end]:
                identities.pop(block.block_id, None)
            return
        for number in range(first, end):
            before = identities[blocks[number].block_id] = (before, payloads[number])

    def confirmed(self, request: Request, blocks: Sequence[Block]) -> int:
        """How many of the blocks that were found, from the first on, are those of the request."""
        payloads, identities, before = _payloads(request), self._identities, None
        for number, block in enumerate(blocks):
            identity = identities.get(block.block_id)
            if identity is None or number >= len(payloads):
                self.unidentified += 1
                return number
            if identity[1] != payloads[number] or not (identity[0] is before or _same(identity[0], before)):
                self.mismatches += 1
                return number
            before = identity
        return len(blocks)


def _same(one: Identity | None, other: Identity | None) -> bool:
    """Whether two identities are equal; where a block was computed twice they are two objects. Long ones rule out recursion."""
    while one is not other:
        if one is None or other is None or one[1] != other[1]:
            return False
        one, other = one[0], other[0]
    return True


def _payloads(request: Request) -> list[bytes]:
    chain: Chain | None = getattr(request, CHAIN, None)
    return chain.payloads if chain is not None else []
