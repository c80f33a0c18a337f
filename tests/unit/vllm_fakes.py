"""As much of vLLM as the plugin touches, with vLLM's own names: chain of hashes, pool of blocks, manager, scheduler."""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

Hash = Callable[[Any], bytes]
NONE_HASH = b"root of every chain"


def sha256(value: Any) -> bytes:
    return hashlib.sha256(pickle.dumps(value, protocol=5)).digest()


class Short:
    """A hash that is so short that it collides all the time."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def digest(self) -> bytes:
        return hashlib.sha256(self._content).digest()[:1]


def short_hash(value: Any) -> bytes:
    return Short(pickle.dumps(value, protocol=5)).digest()


def generate_block_hash_extra_keys(request: Any, start_token_idx: int, _end_token_idx: int, start_mm_idx: int) -> Any:
    keys = [("lora", request.lora_request)] if request.lora_request else []
    keys += [("mm", item) for item in request.mm_features]
    keys += [("cache_salt", request.cache_salt)] if start_token_idx == 0 and request.cache_salt else []
    return (tuple(keys) or None), start_mm_idx + len(request.mm_features)


def hash_block_tokens(function: Hash, parent: bytes | None, tokens: Sequence[int], keys: Any = None) -> bytes:
    return function((parent or NONE_HASH, tuple(tokens), keys))


def get_request_block_hasher(hash_block_size: int, caching_hash_fn: Hash) -> Callable[[Any], list[bytes]]:
    def hasher(request: Any) -> list[bytes]:
        found, parent = [], request.block_hashes[-1] if request.block_hashes else None
        for start in range(len(request.block_hashes) * hash_block_size, request.num_tokens - hash_block_size + 1, hash_block_size):
            keys, _ = generate_block_hash_extra_keys(request, start, start + hash_block_size, 0)
            parent = hash_block_tokens(caching_hash_fn, parent, request.all_token_ids[start : start + hash_block_size], keys)
            found.append(parent)
        return found

    return hasher


@dataclass(eq=False)
class Request:
    """A request that its engine hashes when tokens are appended."""

    tokens: Sequence[int]
    cache_salt: str | None = None
    lora_request: object | None = None
    mm_features: Sequence[Any] = ()
    prompt_embeds: object | None = None
    kv_transfer_params: object | None = None
    block_hashes: list[bytes] = field(default_factory=list)
    hasher: Callable[[Any], list[bytes]] = lambda _request: []
    finished: bool = False

    def __post_init__(self) -> None:
        self.all_token_ids = list(self.tokens)
        self.num_prompt_tokens = len(self.tokens)
        self.block_hashes.extend(self.hasher(self))

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)

    def is_finished(self) -> bool:
        return self.finished

    def append(self, *tokens: int) -> None:
        for token in tokens:
            self.all_token_ids.append(token)
            self.block_hashes.extend(self.hasher(self))


@dataclass(eq=False)
class Block:
    block_id: int


class BlockPool:
    def __init__(self) -> None:
        self.cached: dict[bytes, Block] = {}
        self.made = 0

    def new_blocks(self, number: int) -> list[Block]:
        self.made += number
        return [Block(self.made - number + at) for at in range(number)]

    def cache_full_blocks(  # noqa: PLR0917 - vLLM's own
        self, request: Any, blocks: Sequence[Block], num_cached_blocks: int, num_full_blocks: int, block_size: int, group: int
    ) -> None:
        assert (block_size, group) != (0, 1)
        for number in range(num_cached_blocks, num_full_blocks):
            self.cached[request.block_hashes[number]] = blocks[number]


class KVCacheManager:
    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.block_pool = BlockPool()

    def get_computed_blocks(self, request: Any) -> tuple[Any, int, int]:
        found = []
        for block_hash in request.block_hashes[: (request.num_tokens - 1) // self.block_size]:
            block = self.block_pool.cached.get(block_hash)
            if block is None:
                break
            found.append(block)
        return self.create_kv_cache_blocks((found,)), len(found) * self.block_size, 0

    def create_kv_cache_blocks(self, blocks: Any) -> Any:
        return SimpleNamespace(blocks=blocks)


class FullAttentionSpec:
    def __init__(self, block_size: int) -> None:
        self.block_size = block_size


def config() -> Any:
    """A configuration in which everything was tried."""
    return SimpleNamespace(
        cache_config=SimpleNamespace(enable_prefix_caching=True, prefix_caching_hash_algo="sha256"),
        speculative_config=None,
        kv_transfer_config=None,
        ec_transfer_config=None,
        kv_events_config=None,
        model_config=SimpleNamespace(runner_type="generate", is_encoder_decoder=False, is_diffusion=False),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1, prefill_context_parallel_size=1),
    )


class Scheduler:
    def __init__(self, vllm_config: Any, *, block_size: int) -> None:
        self.vllm_config = vllm_config
        self.block_size = self.hash_block_size = block_size
        self.kv_cache_config = SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=FullAttentionSpec(block_size))])
        self.kv_cache_manager = KVCacheManager(block_size)


class Core:
    """An engine core: a scheduler, then a hasher, as vLLM makes them.

    Args:
        modules: What `installed` returned.
    """

    def __init__(self, modules: Any, *, block_size: int = 4, vllm_config: Any = None, hash_function: Hash = sha256) -> None:
        self.size = block_size
        self.manager: KVCacheManager = modules.scheduler.Scheduler(vllm_config or config(), block_size=block_size).kv_cache_manager
        self.hasher = modules.core.get_request_block_hasher(block_size, hash_function)

    def request(self, tokens: Sequence[int], salt: str | None = None, **named: Any) -> Request:
        return Request(tokens, salt, hasher=self.hasher, **named)

    def serve(self, tokens: Sequence[int], salt: str | None = None, **named: Any) -> int:
        """How many tokens of a request were found; what it computes is cached."""
        request = self.request(tokens, salt, **named)
        found, cached, _ = self.manager.get_computed_blocks(request)
        (hit,), full = found.blocks, request.num_tokens // self.size
        blocks = [*hit, *self.manager.block_pool.new_blocks(full - len(hit))]
        self.manager.block_pool.cache_full_blocks(request, blocks, len(hit), full, self.size, 0)
        return cached


def installed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Modules of a vLLM of its own, as an engine's process would import them."""

    def module(name: str, **contents: Any) -> ModuleType:
        made = ModuleType(name)
        vars(made).update(contents)
        monkeypatch.setitem(sys.modules, name, made)
        return made

    for package in ("vllm", "vllm.v1", "vllm.v1.core", "vllm.v1.core.sched", "vllm.v1.engine"):
        module(package, __path__=[])
    for owner, name in ((BlockPool, "cache_full_blocks"), (KVCacheManager, "get_computed_blocks"), (Scheduler, "__init__")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # so that what is put around it goes with the test
    functions = {item.__name__: item for item in (generate_block_hash_extra_keys, hash_block_tokens, get_request_block_hasher)}
    return SimpleNamespace(
        utils=module("vllm.v1.core.kv_cache_utils", NONE_HASH=NONE_HASH, **functions),
        pool=module("vllm.v1.core.block_pool", BlockPool=BlockPool),
        manager=module("vllm.v1.core.kv_cache_manager", KVCacheManager=KVCacheManager),
        scheduler=module("vllm.v1.core.sched.scheduler", Scheduler=Scheduler),
        core=module("vllm.v1.engine.core", get_request_block_hasher=get_request_block_hasher),
    )
