"""Verified hits: a cached block is used only if it is what the request expects, whatever its hash says.

Rules:

- the identity of a block is kept when it is cached, and compared at every hit: from the first that differs on it is a miss, and
  counted;
- a block without an identity, and a request without identities, hit nothing: that is no mismatch, and is counted apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from cachescope.guard.engine_plugin.chains import CHAIN, Chain
from cachescope.guard.engine_plugin.shapes import Block, Request


class VerifiedBlocks:
    """Identities of what an engine has cached.

    Attributes:
        mismatches: Hits that were none: a block of that hash was another one. Each is an alarm.
        unidentified: Hits that were not taken since an identity was not there.
    """

    def __init__(self) -> None:
        self.mismatches = 0
        self.unidentified = 0
        self._identities: dict[int, bytes] = {}

    def cached(self, request: Request, blocks: Sequence[Block], first: int, end: int) -> None:
        """Blocks `first` to `end` of a request were cached."""
        values = _values(request)
        for number in range(first, end):
            block_id = blocks[number].block_id
            if number < len(values):
                self._identities[block_id] = values[number]
            else:
                self._identities.pop(block_id, None)

    def confirmed(self, request: Request, blocks: Sequence[Block]) -> int:
        """How many of the blocks that were found, from the first on, are those of the request."""
        expected = _values(request)
        found = [self._identities.get(block.block_id) for block in blocks]
        if expected[: len(found)] == found:
            return len(found)
        kept = next(number for number, identity in enumerate(found) if number >= len(expected) or identity != expected[number])
        if kept < len(expected) and found[kept] is not None:
            self.mismatches += 1
        else:
            self.unidentified += 1
        return kept


def _values(request: Request) -> list[bytes]:
    chain: Chain | None = getattr(request, CHAIN, None)
    return chain.identities.values if chain is not None and chain.identities is not None else []
