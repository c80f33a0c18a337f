"""The prefix cache, keyed as vLLM keys it: a block's hash covers its tokens and the hash before it, the first one the salt too.

Source: vLLM 0.32.0, `v1/core/kv_cache_utils.py` (`hash_block_tokens`) and `v1/core/kv_cache_manager.py` (`get_computed_blocks`).
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence

BLOCK_TOKENS = 16
CAPACITY = 16_384


class PrefixCache:
    """Hashes of the blocks that the engine has, the least used ones dropped first.

    Args:
        capacity: How many blocks it keeps.

    Attributes:
        queries: Tokens that were looked up.
        hits: Those that were found.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[bytes, None] = OrderedDict()
        self.queries = 0
        self.hits = 0

    def look_up(self, salt: str, tokens: Sequence[str]) -> int:
        """How many tokens of a prompt are there. The last token is never: the engine needs it to make the next one."""
        found = 0
        for block in _hashes(salt, tokens[:-1]):
            if block not in self._blocks:
                break
            self._blocks.move_to_end(block)
            found += BLOCK_TOKENS
        self.queries += len(tokens)
        self.hits += found
        return found

    def fill(self, salt: str, tokens: Sequence[str]) -> None:
        """Keep all full blocks of a prompt."""
        for block in _hashes(salt, tokens):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)

    def reset(self) -> None:
        """Forget all blocks."""
        self._blocks.clear()


def _hashes(salt: str, tokens: Sequence[str]) -> Iterator[bytes]:
    before, extra = "", salt
    for start in range(0, len(tokens) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        # JSON keeps the parts apart, whatever is in them.
        block = hashlib.sha256(json.dumps([before, extra, *tokens[start : start + BLOCK_TOKENS]]).encode())
        yield block.digest()
        before, extra = block.hexdigest(), ""
