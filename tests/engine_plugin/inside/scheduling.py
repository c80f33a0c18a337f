"""vLLM's real scheduler without a model, in vLLM's own environment: requests are hashed, looked up, scheduled, cached and finished.

What a model would compute is one token for each request. Built as vLLM 0.32 builds it in `v1/engine/core.py`.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch  # type: ignore[import-not-found] # only vLLM's environment has these
import vllm.v1.engine.core as engine_core  # type: ignore[import-not-found]
from vllm.engine.arg_utils import EngineArgs  # type: ignore[import-not-found]
from vllm.sampling_params import SamplingParams  # type: ignore[import-not-found]
from vllm.v1.core.kv_cache_utils import init_none_hash  # type: ignore[import-not-found]
from vllm.v1.core.sched.scheduler import Scheduler  # type: ignore[import-not-found]
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec  # type: ignore[import-not-found]
from vllm.v1.outputs import ModelRunnerOutput  # type: ignore[import-not-found]
from vllm.v1.request import Request  # type: ignore[import-not-found]
from vllm.v1.structured_output import StructuredOutputManager  # type: ignore[import-not-found]

BLOCKS = 20_000
MODEL = sys.argv[1]


class Core:
    """A scheduler and its hasher.

    Args:
        block_size: Tokens of a block.
        hash_function: Hash of blocks.
    """

    def __init__(self, block_size: int, hash_function: Callable[[Any], bytes]) -> None:
        config = EngineArgs(
            model=MODEL, block_size=block_size, max_model_len=8192, max_num_batched_tokens=8192, enforce_eager=True, dtype="float32"
        ).create_engine_config()
        config.cache_config.num_gpu_blocks = BLOCKS
        spec = FullAttentionSpec(block_size=block_size, num_kv_heads=2, head_size=64, dtype=torch.float32)
        cache = KVCacheConfig(num_blocks=BLOCKS, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
        self.scheduler = Scheduler(
            vllm_config=config,
            kv_cache_config=cache,
            structured_output_manager=StructuredOutputManager(config),
            block_size=block_size,
            hash_block_size=block_size,
            log_stats=True,
        )
        init_none_hash(hash_function)
        self.hasher = engine_core.get_request_block_hasher(block_size, hash_function)
        self._ids = map(str, itertools.count())

    def serve(self, tokens: Sequence[int], salt: str | None) -> int:
        """How many tokens of a request were found in the cache."""
        request = Request(
            next(self._ids),
            prompt_token_ids=list(tokens),
            sampling_params=SamplingParams(max_tokens=1, temperature=0),
            pooling_params=None,
            cache_salt=salt,
            block_hasher=self.hasher,
        )
        self.scheduler.add_request(request)
        found: int | None = None
        while self.scheduler.has_unfinished_requests():
            output = self.scheduler.schedule()
            if found is None:
                found = output.scheduled_new_reqs[0].num_computed_tokens
            self.scheduler.update_from_output(output, _answer(request.request_id))
        return found or 0


def _answer(request_id: str) -> Any:
    return ModelRunnerOutput(req_ids=[request_id], req_id_to_index={request_id: 0}, sampled_token_ids=[[5]])
