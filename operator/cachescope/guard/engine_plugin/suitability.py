"""Which engines share segments: those of which all was tried. To any other a segmented salt is one salt of the whole request.

Read from vLLM 0.32.0: `v1/core/sched/scheduler.py`, `config`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_HASHES = frozenset({"sha256", "sha256_cbor"})
_SPECS = frozenset({"FullAttentionSpec"})


def unsuitable(scheduler: Any) -> tuple[str, ...]:  # noqa: ANN401 - vLLM's Scheduler
    """What of this engine was not tried with segments; empty when all was.

    Raises:
        AttributeError: It is not built as expected.
    """
    return (*_features(scheduler.vllm_config), *_cache(scheduler))


def _features(config: Any) -> Iterator[str]:  # noqa: ANN401 - vLLM's VllmConfig
    if not config.cache_config.enable_prefix_caching:
        yield "prefix caching is off"
    if config.cache_config.prefix_caching_hash_algo not in _HASHES:
        yield "the hash of blocks is not SHA-256"
    if config.speculative_config is not None:
        yield "speculative decoding is on"
    if config.kv_transfer_config is not None or config.ec_transfer_config is not None:
        yield "a connector moves cached blocks"
    if config.kv_events_config is not None and config.kv_events_config.enable_kv_cache_events:
        yield "cache events are published"
    if config.model_config.runner_type != "generate" or config.model_config.is_encoder_decoder or config.model_config.is_diffusion:
        yield "the model does not generate token by token from one prompt"
    parallel = config.parallel_config
    if parallel.decode_context_parallel_size != 1 or parallel.prefill_context_parallel_size != 1:
        yield "context is parallel"


def _cache(scheduler: Any) -> Iterator[str]:  # noqa: ANN401 - vLLM's Scheduler
    specs = [group.kv_cache_spec for group in scheduler.kv_cache_config.kv_cache_groups]
    if [type(spec).__name__ for spec in specs] not in [[name] for name in _SPECS]:
        yield "the cache is not of one group with full attention"
    elif not scheduler.hash_block_size == scheduler.block_size == specs[0].block_size:
        yield "blocks are hashed in parts"
