"""Chains: which salt enters which block of a request, and the hashes that follow.

Rules:

- what may be shared is decided once, when a request is first hashed, from its prompt and the table that is in force then; what is
  generated is never approved;
- each segment enters once (`segments.entries`), under a label of its own, so that no segment is ever taken for a plain salt;
- a request with anything that changes attention beside tokens (adapter, media, embeddings, transfer) shares nothing across
  segments: its salt enters whole, with the first block, as without this plugin. So does a salt that is not of the one form;
- a request whose tokens cannot be identified has no identities: it is served, and hits nothing.

For requests without segments the hashes are those of the engine itself; a self-test compares them (`internals`).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final
from weakref import WeakSet

from cachescope.core.approvals import TOKEN_BYTES, Table, token_bytes
from cachescope.core.errors import WireFormatError
from cachescope.core.ledgers import Mark
from cachescope.core.segments import PREFIX, SegmentedSalt, entries, read_segmented
from cachescope.guard.engine_plugin.identities import Identities
from cachescope.guard.engine_plugin.shapes import EngineKeys, ExtraKeys, HashBlock, Request

CHAIN: Final = "cachescope_chain"
"""Where a request keeps its chain."""
_PLAIN: Final = "cache_salt"
_SEGMENT: Final = "cachescope/segment/"


class Chain:
    """What enters the blocks of one request.

    Args:
        entering: Extra keys by the number of the first token of their block.
        secret: For its identities.
        version: The table that decided it, or `None` when none was asked.

    Attributes:
        blocks: How many were hashed.
        identities: Of the blocks so far, or `None` when they cannot be told.
        version: The table that decided it.
    """

    __slots__ = ("__weakref__", "_entering", "blocks", "identities", "version")

    def __init__(self, entering: dict[int, tuple[tuple[str, str], ...]], secret: bytes, version: Mark | None = None) -> None:
        self.blocks = 0
        self.identities: Identities | None = Identities(secret)
        self.version = version
        self._entering = entering

    def keys(self, _request: Request, start: int, _end: int) -> ExtraKeys:
        """What enters the block from one token to another."""
        return self._entering.get(start)

    def cut(self, blocks: int, start: int) -> None:
        """Only so many blocks are left, and others follow from this token on: whatever has not entered before enters now."""
        later = sorted(at for at in self._entering if at >= start)
        if late := tuple(key for at in later for key in self._entering.pop(at)):
            self._entering[start] = late
        self.blocks, self.identities = blocks, None


class WholeChain(Chain):
    """A chain whose extra keys are the engine's own.

    Args:
        engine_keys: Asks the engine for them.
        secret: For its identities.
    """

    __slots__ = ("_ask", "_index")

    def __init__(self, engine_keys: EngineKeys, secret: bytes) -> None:
        super().__init__({}, secret)
        self._ask, self._index = engine_keys, 0

    def keys(self, request: Request, start: int, end: int) -> ExtraKeys:
        """What the engine lets enter."""
        found, self._index = self._ask(request, start, end, self._index)
        return found

    def cut(self, blocks: int, start: int) -> None:
        """The engine looks for media from the first one on again."""
        super().cut(blocks, start)
        self._index = 0


class BlockHasher:
    """Hashes the blocks of requests, in place of vLLM's `request_block_hasher`.

    Args:
        block_size: Tokens of a block.
        hash_block: The engine's hash of one block.
        engine_keys: The engine's own extra keys.
        table: The approval table that is in force, or `None`.
        secret: 32 random bytes of this process.
        clock: Seconds since 1970.

    Attributes:
        malformed: How many salts began as a segmented one and were none.
    """

    def __init__(
        self,
        block_size: int,
        hash_block: HashBlock,
        engine_keys: EngineKeys,
        *,
        table: Callable[[], Table | None],
        secret: bytes,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.malformed = 0
        self._size = block_size
        self._hash_block = hash_block
        self._engine_keys = engine_keys
        self._table = table
        self._secret = secret
        self._clock = clock
        self._segmented: WeakSet[Chain] = WeakSet()

    def __call__(self, request: Request) -> list[bytes]:
        """Hashes of the blocks that became full since it was last asked."""
        begin = len(request.block_hashes) * self._size
        whole = (request.num_tokens - begin) // self._size * self._size
        return self._hashes(request, begin, begin + whole) if whole > 0 else []

    def versions(self) -> set[Mark]:
        """Versions of the tables that decided what requests of this moment share."""
        return {chain.version for chain in tuple(self._segmented) if chain.version is not None}

    def _hashes(self, request: Request, begin: int, end: int) -> list[bytes]:
        chain = self._chain(request)
        tokens = request.all_token_ids[begin:end]
        raw = _identified(chain, tokens)
        identities, parent, found = chain.identities, request.block_hashes[-1] if begin else None, list[bytes]()
        for at in range(0, end - begin, self._size):
            keys = chain.keys(request, begin + at, begin + at + self._size)
            parent = self._hash_block(parent, tokens[at : at + self._size], keys)
            found.append(parent)
            if identities is not None:
                identities.add(raw[at * TOKEN_BYTES : (at + self._size) * TOKEN_BYTES], keys)
        chain.blocks += len(found)
        return found

    def _chain(self, request: Request) -> Chain:
        chain: Chain | None = getattr(request, CHAIN, None)
        if chain is None:
            chain = self._begun(request)
            setattr(request, CHAIN, chain)
        if chain.blocks != (left := len(request.block_hashes)):
            chain.cut(left, left * self._size)
        return chain

    def _begun(self, request: Request) -> Chain:
        text = request.cache_salt or ""
        if request.lora_request or request.mm_features or request.prompt_embeds is not None or request.kv_transfer_params:
            return WholeChain(self._engine_keys, self._secret)
        salt = self._read(text) if text.startswith(PREFIX) else None
        if salt is None:
            return Chain({0: ((_PLAIN, text),)} if text else {}, self._secret)
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
        chain = Chain(dict(entering), self._secret, table.version if table else None)
        self._segmented.add(chain)
        return chain

    def _approved(self, table: Table | None, salt: SegmentedSalt, request: Request) -> tuple[int, ...]:
        try:
            prompt = token_bytes(request.all_token_ids[: request.num_prompt_tokens])
        except ValueError:
            return entries(salt, {})
        found = table.approved(salt.approvals, prompt, self._clock()) if table else {}
        return entries(salt, {scope: tokens // self._size for scope, tokens in found.items()})


def _identified(chain: Chain, tokens: Sequence[int]) -> memoryview:
    """The bytes of tokens; of what is none the chain has no identities any more."""
    try:
        return token_bytes(tokens)
    except ValueError:
        chain.identities = None
        return memoryview(b"")
