"""What the plugin uses of vLLM's own objects; nothing else of them is touched.

Read from vLLM 0.32.0: `v1/request.py`, `v1/core/kv_cache_utils.py`, `utils/hashing.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

ExtraKeys = tuple[tuple[Any, ...], ...] | None
"""What enters the hash of a block beside its tokens: labelled, as vLLM 0.31 and later label its own."""
EngineKeys = Callable[[Any, int, int, int], tuple[ExtraKeys, int]]
"""`generate_block_hash_extra_keys`: of a request, from one token to another, from an index of its media on."""


class Hashed(Protocol):
    """As `hashlib` has them."""

    def digest(self) -> bytes:
        """The hash."""


@dataclass(frozen=True, slots=True)
class Hashing:
    """How an engine hashes a block: of the hash before it (or the root), its tokens and its extra keys as one tuple.

    Attributes:
        serialize: The bytes of that tuple, from which it can be told again.
        hashed: Their hash.
        root: What the first block has in place of a hash before it.
    """

    serialize: Callable[[tuple[bytes, tuple[int, ...], ExtraKeys]], bytes]
    hashed: Callable[[bytes], Hashed]
    root: bytes


class Request(Protocol):
    """`vllm.v1.request.Request`, as far as its constructor has come when it is first hashed."""

    cache_salt: str | None
    block_hashes: list[bytes]
    num_prompt_tokens: int
    lora_request: object | None
    mm_features: Sequence[Any]
    prompt_embeds: object | None
    kv_transfer_params: object | None

    def is_finished(self) -> bool:
        """Whether it is served, or was given up."""

    @property
    def num_tokens(self) -> int:
        """Tokens of prompt and answer so far."""

    @property
    def all_token_ids(self) -> Sequence[int]:
        """These tokens."""


class Block(Protocol):
    """`KVCacheBlock`."""

    block_id: int
