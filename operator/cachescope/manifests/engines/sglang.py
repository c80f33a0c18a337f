"""SGLang: rendered, not run. The guard is beside it.

Read from the wheel of 0.5.23: `srt/arg_groups/fields/{model,serving,memory,lora,parallel,observability}.py` (options and defaults),
`srt/server_args.py` (argparse, which takes abbreviations; `--config`), `srt/entrypoints/http_server.py` (`/health`, `/metrics`),
`srt/managers/tokenizer_manager.py` (`sigterm_watchdog` waits until no request is left), `srt/plugins/__init__.py`.
"""

from __future__ import annotations

from typing import Final

from cachescope.manifests.engines.judging import judged
from cachescope.manifests.engines.launch import Adapters, Drain, Engine, Options, Serving, parallel

_STORE = "keeps cache blocks where they outlive the engine; remove it"
_SERVER = "starts another server, which no guard sees; remove it"
_OPTIONS: Final = Options(
    owned=frozenset(
        {
            *("--model-path", "--model", "--served-model-name", "--host", "--port", "--enable-metrics", "--enable-cache-report"),
            *("--enable-lora", "--lora-paths", "--max-loaded-loras", "--disable-radix-cache"),
        }
    ),
    refused={
        "--config": "reads arguments from a file that nobody checked; pass them as arguments",
        "--enable-flexkv": _STORE,
        "--enable-lmcache": _STORE,
        "--hicache-storage-backend": _STORE,
        "--hicache-storage-backend-extra-config": _STORE,
        "--lmcache-config-file": _STORE,
        "--radix-cache-backend": "puts another cache in the place of the one whose isolation is known; remove it",
        "--crash-dump-folder": "writes requests to a disk; remove it",
        "--fastapi-root-path": "makes the engine read another path than the permit names; remove it",
        "--grpc-mode": _SERVER,
        "--grpc-port": _SERVER,
        "--kv-events-config": "publishes tokens and salts on a socket of its own; remove it",
        "--load-publish-endpoint": _SERVER,
        "--sidecar": _SERVER,
        "--smg-grpc-mode": _SERVER,
    },
    abbreviated=True,
    variables=("SGLANG_GRPC_PORT",),
)
_SPREAD = frozenset({"--tp", "--tensor-parallel-size", "--dp", "--dp-size", "--data-parallel-size", "--pp-size", "--nnodes"})
_ADAPTERS: Final = Adapters(asked_as="{model}:{adapter}")


def _arguments(serving: Serving) -> list[str]:
    return [
        *serving.args,
        *("--model-path", serving.model, "--served-model-name", serving.name),
        *("--host", serving.host, "--port", str(serving.port)),
        *parallel("--tp-size", serving, others=_SPREAD),
        *_adapter_arguments(serving),
        *("--enable-metrics", "--enable-cache-report"),
        *(() if serving.reuse else ("--disable-radix-cache",)),
    ]


def _adapter_arguments(serving: Serving) -> list[str]:
    """Adapters by name; without a limit of their own all of them stay in memory."""
    if not serving.adapters:
        return []
    return ["--enable-lora", "--lora-paths", *(f"{name}={path}" for name, path in serving.adapters.items())]


ENGINE: Final = Engine(
    type="SGLang",
    source="sglang 0.5.23",
    program=("python3", "-m", "sglang.launch_server"),
    arguments=_arguments,
    problems=judged(_OPTIONS, _ADAPTERS),
    options=_OPTIONS,
    # An empty list of plugins loads all that are installed; this name is nobody's.
    variables={"SGLANG_PLUGINS": "none"},
    drain=Drain.ON_SIGNAL,
    adapters=_ADAPTERS,
)
