"""What of vLLM the plugin relies on, and whether it is that: the version, the source of each part, and what it computes.

Rules:

- only a version whose parts were read and tried is taken, and only if the source of each part is the one that was read: a changed
  signature, a patch or a fork is another engine;
- before the first request known blocks are hashed: the engine's own function must give the known hash, and the plugin's chain
  that of the engine for a request without segments;
- whatever is not as expected leaves the engine as it is. A segmented salt is then one salt for the whole request.
"""

from __future__ import annotations

import hashlib
import inspect
import pickle
from collections.abc import Callable, Iterator, Mapping
from functools import partial, reduce
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final

from cachescope.core.approvals import Table
from cachescope.guard.engine_plugin.chains import BlockHasher
from cachescope.guard.engine_plugin.shapes import Hashed, Hashing

UTILS: Final = "vllm.v1.core.kv_cache_utils"
POOL: Final = "vllm.v1.core.block_pool"
MANAGER: Final = "vllm.v1.core.kv_cache_manager"
LOOKUP: Final = "vllm.v1.core.single_type_kv_cache_manager"
SCHEDULER: Final = "vllm.v1.core.sched.scheduler"

SOURCES: Final[Mapping[str, Mapping[str, str]]] = {
    "0.32.0": {
        f"{UTILS}:get_request_block_hasher": "68c195e3879cc4c29a58b6950876290c4c70a3a39fa5dd0ef75cd46767d6754f",
        f"{UTILS}:generate_block_hash_extra_keys": "fabb6e4b928af21a67a57d3268e5ced668c8188b22e8e31177a237e4cd9ad3c4",
        f"{UTILS}:hash_block_tokens": "8b8ae296b756507875eb40ee6763dd37854ed7ca326fb0168af579930d2f89bd",
        f"{UTILS}:resolve_block_hashes": "52bbbf4bef20acfc3c258dfb0be77d11302c1c261d746a6a8d3d4d595610d9ee",
        f"{POOL}:BlockPool.get_cached_block": "900b7434e95c66f6f6f71ec8455ed591c8e05ca26183599585b89371e43f038c",
        f"{POOL}:BlockPool.cache_full_blocks": "5fbbcc0cf6eb1c7ea3450584a3f4589e699c87dad6548308c9a70eccf8ece16e",
        f"{POOL}:BlockPool.cache_partial_block": "b621b285bf9ca9abe278f980c61c95307fb6a192cf649bd754673bde6f00400d",
        f"{MANAGER}:KVCacheManager.get_computed_blocks": "77f434d88d573bfe05905a20df26ff51a86156214cf297ff9bbe5d5f05f32d07",
        f"{MANAGER}:KVCacheManager.create_kv_cache_blocks": "300bc309b9a127098bcfdda2d7f39b502df52cced294484bc8c446c06992923e",
        f"{SCHEDULER}:Scheduler.__init__": "c026802456720b432a00b7a4cc2dfb14e9e90d6a9a0711aa8c41c76bf0319703",
        f"{LOOKUP}:FullAttentionManager": "c737ca3735a42a3782b85b8fcf1cbdb70a8ae7139d01a73bb1a84b088dd87460",
        "vllm.v1.request:Request": "53bd7cff8118743c211854828dfec601a15a4451295d55cb2406a277c21d4cc3",
        "vllm.v1.engine.core:EngineCore.__init__": "a828c07af25a054a3e45ecf0d2dd4414ea86033938d6306223adc198872f9720",
        "vllm.v1.utils:ConstantList": "2a1ae6d0f3ae25724b3567b8233aafc41aa9c5d656ab3abe3d02692945ee42a6",
    }
}
"""By version, the parts that the plugin relies on, each with the SHA-256 of its source."""

_BLOCK = 16
_KEYS = (("cachescope/segment/0", "A" * 22), ("cachescope/segment/1", "B" * 22))
KNOWN: Final[Mapping[str, str]] = {
    "sha256": "af3d486f0cae48f0d7d832a77da64148733e96d64dbd74a27904f2cd09af363a",
    "sha256_cbor": "51ea60f1e08c9ca7be9e9ad3efc3232aa35f8ef4df13a2cc8708a74940d376f3",
}
"""Hash of the known block by algorithm: a parent of 32 zero bytes, the tokens from 0 to 15, two segments."""


def unknown(version: str) -> tuple[str, ...]:
    """What of this vLLM is not as it was read; empty when all is.

    Args:
        version: As its distribution says it.
    """
    sources = SOURCES.get(version.partition("+")[0])
    if sources is None:
        return (f"vLLM {version} was not tried with segments; {', '.join(SOURCES)} was",)
    return tuple(f"{name} is not as in vLLM {version}" for name, digest in sources.items() if source_digest(name) != digest)


def source_digest(name: str) -> str:
    """SHA-256 of the source of a part, or why there is none."""
    module, _, path = name.partition(":")
    try:
        return hashlib.sha256(inspect.getsource(reduce(getattr, path.split("."), import_module(module))).encode()).hexdigest()
    except (ImportError, AttributeError, OSError, TypeError) as error:
        return type(error).__name__


def surprises(engines_own: Callable[..., Any], hash_function: Callable[[Any], bytes]) -> Iterator[str]:
    """What the engine computes otherwise than expected, on known blocks.

    Args:
        engines_own: Its `get_request_block_hasher`.
        hash_function: Its hash of prefix caching.
    """
    utils, name = import_module(UTILS), _name(hash_function)
    if name not in ALGORITHMS:
        yield f"blocks are hashed by {name or 'an unknown algorithm'}"
        return
    if utils.hash_block_tokens(hash_function, bytes(32), range(_BLOCK), _KEYS).hex() != KNOWN.get(name):
        yield f"a known block has another hash under {name}"
    own = BlockHasher(_BLOCK, hashing_of(hash_function), utils.generate_block_hash_extra_keys, table=_no_table)
    for salt in (None, "plain"):
        if own(_request(salt)) != engines_own(_BLOCK, hash_function)(_request(salt)):
            yield f"the hashes of a request with the salt {salt} are not those of the engine"


def hashing_of(hash_function: Callable[[Any], bytes]) -> Hashing:
    """How the engine hashes a block under an algorithm, in the two parts that its own function joins.

    Raises:
        KeyError: The algorithm is none of `ALGORITHMS`.
    """
    serialize, hashed = ALGORITHMS[_name(hash_function)]
    return Hashing(serialize, hashed, import_module(UTILS).NONE_HASH)


def _name(hash_function: Callable[[Any], bytes]) -> str:
    return getattr(hash_function, "__name__", "")


def _cbor(value: object) -> bytes:
    found: bytes = import_module("cbor2").dumps(value, canonical=True)
    return found


ALGORITHMS: Final[Mapping[str, tuple[Callable[[Any], bytes], Callable[[bytes], Hashed]]]] = {
    "sha256": (partial(pickle.dumps, protocol=pickle.HIGHEST_PROTOCOL), hashlib.sha256),
    "sha256_cbor": (_cbor, hashlib.sha256),
}
"""The algorithms of `vllm.utils.hashing` that are allowed: how each makes bytes of a block, and hashes them."""


def _no_table() -> Table | None:
    return None


def _request(salt: str | None) -> Any:  # noqa: ANN401 - as much of a vLLM request as is asked for
    tokens = list(range(7, 7 + 5 * _BLOCK // 2))
    return SimpleNamespace(
        all_token_ids=tokens,
        num_tokens=len(tokens),
        num_prompt_tokens=len(tokens),
        block_hashes=[],
        cache_salt=salt,
        lora_request=None,
        mm_features=[],
        prompt_embeds=None,
        kv_transfer_params=None,
    )
