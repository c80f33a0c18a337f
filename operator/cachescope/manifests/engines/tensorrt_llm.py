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

from cachescope.manifests.engines.judging import judged
from cachescope.manifests.engines.launch import FILES_FOLDER, Adapters, Drain, Engine, Options, Serving, parallel

_FILE = "options.yaml"
_FILES_ONLY = "reads settings that nobody checked, and could switch reuse on again; pass arguments"
_OPTIONS: Final = Options(
    owned=frozenset({"--served-model-name", "--host", "--port", "--backend"}),
    refused={
        "--config": _FILES_ONLY,
        "--extra-llm-api-options": _FILES_ONLY,
        "--set": _FILES_ONLY,
        "--custom-module-dirs": "loads code into the engine that nobody checked; remove it",
        "--disagg-cluster-uri": "moves cache blocks between engines; remove it",
        "--grpc": "serves gRPC, which no guard sees; remove it",
        "--metadata-server-config-file": "moves cache blocks between engines; remove it",
        "--middleware": "could answer or change requests behind the guard; remove it",
        "--num-serve-frontends": "starts several API servers; run one replica of the pool for each",
        "--post-processor-hook": "loads code into the engine that nobody checked; remove it",
        "--report-addr": "writes to a file of the user's choice; remove it",
        "--server-role": "moves cache blocks between engines; remove it",
    },
)
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
    type="TensorRT-LLM",
    source="TensorRT-LLM 0ad591fc",
    program=("trtllm-serve",),
    arguments=_arguments,
    problems=judged(_OPTIONS, _ADAPTERS),
    options=_OPTIONS,
    files=_files,
    metrics="/prometheus/metrics",
    drain=Drain.BEFORE_SIGNAL,
    adapters=_ADAPTERS,
)
