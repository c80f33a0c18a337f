"""Chains: which salt enters which block of a request, and the hashes that follow.

Rules:

- what may be shared is decided once, when a request is first hashed, from its prompt and the table that is in force then; what is
  generated is never approved;
- each segment enters once (`segments.entries`), under a label of its own, so that no segment is ever taken for a plain salt;
- a request with anything that changes attention beside tokens (adapter, media, embeddings, transfer) shares nothing across
  segments: its salt enters whole, with the first block, as without this plugin. So does a salt that is not of the one form;
- what was hashed is kept with the request, whole: hits are verified by it (`verification`).

For requests without segments the hashes are those of the engine itself; a self-test compares them (`internals`).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Final
from weakref import WeakSet

from cachescope.core.approvals import Table, token_bytes
from cachescope.core.errors import WireFormatError
from cachescope.core.ledgers import Mark
from cachescope.core.segments import PREFIX, SegmentedSalt, entries, read_segmented
from cachescope.guard.engine_plugin.shapes import EngineKeys, ExtraKeys, Hashing, Request

CHAIN: Final = "cachescope_chain"
"""Where a request keeps its chain."""
_PLAIN: Final = "cache_salt"
_SEGMENT: Final = "cachescope/segment/"


class Chain:
    """What enters the blocks of one request.

    Args:
        entering: Extra keys by the number of the first token of their block.
        version: The table that decided it, or `None` when none was asked.

    Attributes:
        payloads: What was hashed of each block so far.
        version: The table that decided it.
    """

    __slots__ = ("_entering", "payloads", "version")

    def __init__(self, entering: dict[int, tuple[tuple[str, str], ...]], version: Mark | None = None) -> None:
        self.payloads: list[bytes] = []
        self.version = version
        self._entering = entering

    def keys_of(self, _request: Request) -> Callable[[int], ExtraKeys]:
        """What enters a block, by the number of its first token."""
        return self._entering.get

    def cut(self, blocks: int, start: int) -> None:
        """Only so many blocks are left, and others follow from this token on: whatever has not entered before enters now."""
        later = sorted(at for at in self._entering if at >= start)
        if late := tuple(key for at in later for key in self._entering.pop(at)):
            self._entering[start] = late
        del self.payloads[blocks:]


class WholeChain(Chain):
    """A chain whose extra keys are the engine's own.

    Args:
        engine_keys: Asks the engine for them.
        block_size: Tokens of a block.
    """

    __slots__ = ("_ask", "_index", "_size")

    def __init__(self, engine_keys: EngineKeys, block_size: int) -> None:
        super().__init__({})
        self._ask, self._size, self._index = engine_keys, block_size, 0

    def keys_of(self, request: Request) -> Callable[[int], ExtraKeys]:
        """What the engine lets enter; blocks are asked for in their order."""

        def keys(start: int) -> ExtraKeys:
            found, self._index = self._ask(request, start, start + self._size, self._index)
            return found

        return keys

    def cut(self, blocks: int, start: int) -> None:
        """The engine looks for media from the first one on again."""
        super().cut(blocks, start)
        self._index = 0


class BlockHasher:
    """Hashes the blocks of requests, in place of vLLM's `request_block_hasher`.

    Args:
        block_size: Tokens of a block.
        hashing: How the engine hashes one block.
        engine_keys: The engine's own extra keys.
        table: The approval table that is in force, or `None`.
        clock: Seconds since 1970.

    Attributes:
        malformed: How many salts began as a segmented one and were none.
    """

    def __init__(
        self,
        block_size: int,
        hashing: Hashing,
        engine_keys: EngineKeys,
        *,
        table: Callable[[], Table | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.malformed = 0
        self._size = block_size
        self._hashing = hashing
        self._engine_keys = engine_keys
        self._table = table
        self._clock = clock
        self._segmented: WeakSet[Request] = WeakSet()

    def __call__(self, request: Request) -> list[bytes]:
        """Hashes of the blocks that became full since it was last asked."""
        begin = len(request.block_hashes) * self._size
        whole = (request.num_tokens - begin) // self._size * self._size
        return self._hashes(request, begin, begin + whole) if whole > 0 else []

    def versions(self) -> set[Mark]:
        """Versions of the tables that decided what requests of this moment share; an idle engine keeps hold of finished ones."""
        chains: list[Chain] = [getattr(request, CHAIN) for request in tuple(self._segmented) if not request.is_finished()]
        return {chain.version for chain in chains if chain.version is not None}

    def _hashes(self, request: Request, begin: int, end: int) -> list[bytes]:
        """VLLM's own loop, with the extra keys of the chain; it is the hot path of a request."""
        chain = self._chain(request)
        keys, kept, tokens = chain.keys_of(request), chain.payloads.append, tuple(request.all_token_ids[begin:end])
        serialize, hashed, size = self._hashing.serialize, self._hashing.hashed, self._size
        parent = request.block_hashes[-1] if begin else self._hashing.root
        found = []
        for at in range(0, end - begin, size):
            payload = serialize((parent, tokens[at : at + size], keys(begin + at)))
            parent = hashed(payload).digest()
            found.append(parent)
            kept(payload)
        return found

    def _chain(self, request: Request) -> Chain:
        chain: Chain | None = getattr(request, CHAIN, None)
        if chain is None:
            chain = self._begun(request)
            setattr(request, CHAIN, chain)
            if chain.version is not None:
                self._segmented.add(request)
        if len(chain.payloads) != (left := len(request.block_hashes)):
            chain.cut(left, left * self._size)
        return chain

    def _begun(self, request: Request) -> Chain:
        text = request.cache_salt or ""
        if request.lora_request or request.mm_features or request.prompt_embeds is not None or request.kv_transfer_params:
            return WholeChain(self._engine_keys, self._size)
        salt = self._read(text) if text.startswith(PREFIX) else None
        if salt is None:
            return Chain({0: ((_PLAIN, text),)} if text else {})
        return self._shared(salt, request)

    def _read(self, text: str) -> SegmentedSalt | None:
        try:
            return read_segmented(text)
        except WireFormatError:
            self.malformed += 1
            return None

    def _shared(self, salt: SegmentedSalt, request: Request) -> Chain:
        table, entering = self._table(), defaultdict[int, tuple[tuple[str, str], ...]](tuple)
        blocks = self._approved(table, salt, request)
        for segment, block in zip(salt.segments, blocks):  # noqa: B905 - as many of each
            entering[block * self._size] += ((f"{_SEGMENT}{segment.scope.width}", segment.value),)
        return Chain(dict(entering), table.version if table else None)

    def _approved(self, table: Table | None, salt: SegmentedSalt, request: Request) -> tuple[int, ...]:
        if table is None:
            return entries(salt, {})
        try:
            prompt = token_bytes(request.all_token_ids[: min(request.num_prompt_tokens, table.longest)])
        except ValueError:  # what is no token was never approved
            return entries(salt, {})
        found = table.approved(salt.approvals, prompt, self._clock())
        return entries(salt, {scope: tokens // self._size for scope, tokens in found.items()})
