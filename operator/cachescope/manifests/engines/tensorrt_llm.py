"""TensorRT-LLM (`trtllm-serve`, PyTorch backend): rendered, not run. The guard is beside it.

Read from its repository, commit 0ad591fc (2026): `tensorrt_llm/commands/serve.py` (options and the command `serve`; click, so no
abbreviations) and `tensorrt_llm/commands/_config_overrides.py`; and, of other commits, `KvCacheConfig.enable_block_reuse` (on by
default) in `llmapi/llm_args.py`, and `serve/openai_server.py`: `/metrics` is JSON, and `/prometheus/metrics` is there with
`return_perf_metrics`. Releases without `--served_model_name` (1.2 has none) end at once with what they do not know.

Not verified: that running requests end after SIGTERM, so they get their time before it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from cachescope.engines.facts import EngineType
from cachescope.manifests.engines.launch import FILES_FOLDER, Adapters, Drain, Engine, Instead, Serving, parallel

_FILE = "options.yaml"
_SPREAD = frozenset({"--tensor-parallel-size", "--pipeline-parallel-size", "--pp-size", "--context-parallel-size", "--cp-size"})
_ADAPTERS: Final = Adapters(
    why_not="TensorRT-LLM takes an adapter's path from the request's body; merge each into a model, and give it a pool"
)


def _arguments(serving: Serving) -> list[str]:
    return [
        *("serve", serving.model),
        *serving.args,
        *("--served_model_name", serving.name, "--host", serving.host, "--port", str(serving.port)),
        *parallel("--tp_size", serving, others=_SPREAD),
        *("--extra_llm_api_options", f"{FILES_FOLDER}/{_FILE}"),
    ]


def _files(serving: Serving) -> Mapping[str, str]:
    # JSON is YAML, and needs no library here.
    return {_FILE: json.dumps({"kv_cache_config": {"enable_block_reuse": serving.reuse}, "return_perf_metrics": True})}


ENGINE: Final = Engine(
    type=EngineType.TENSORRT_LLM,
    source="TensorRT-LLM 0ad591fc",
    program=("trtllm-serve",),
    arguments=_arguments,
    owned={"--served-model-name": Instead.NAME, "--host": Instead.NOTHING, "--port": Instead.NOTHING},
    files=_files,
    metrics="/prometheus/metrics",
    drain=Drain.BEFORE_SIGNAL,
    adapters=_ADAPTERS,
)
