"""SGLang: rendered, not run. The guard is beside it.

Read from the wheel of 0.5.23: `srt/arg_groups/fields/{model,serving,memory,lora,parallel,observability}.py` (options and defaults),
`srt/server_args.py` (argparse, which takes abbreviations; `--config`), `srt/entrypoints/http_server.py` (`/health`, `/metrics`),
`srt/managers/tokenizer_manager.py` (`sigterm_watchdog` waits until no request is left), `srt/plugins/__init__.py`.
"""

from __future__ import annotations

from typing import Final

from cachescope.engines.facts import EngineType
from cachescope.manifests.engines.launch import Adapters, Drain, Engine, Instead, Serving, demanded_options, parallel

_TYPE: Final = EngineType.SGLANG
_OWNED: Final = {
    "--model-path": Instead.MODEL,
    "--served-model-name": Instead.NAME,
    "--host": Instead.NOTHING,
    "--port": Instead.NOTHING,
    "--enable-lora": Instead.ADAPTERS,
    "--lora-paths": Instead.ADAPTERS,
}
_SPREAD = frozenset({"--tp", "--tensor-parallel-size", "--dp", "--dp-size", "--data-parallel-size", "--pp-size", "--nnodes"})


def _arguments(serving: Serving) -> list[str]:
    return [
        *serving.args,
        *("--model-path", serving.model, "--served-model-name", serving.name),
        *("--host", serving.host, "--port", str(serving.port)),
        *parallel("--tp-size", serving, others=_SPREAD),
        *_adapter_arguments(serving),
        *demanded_options(_TYPE, serving),
    ]


def _adapter_arguments(serving: Serving) -> list[str]:
    """Adapters by name; without a limit of their own all of them stay in memory."""
    if not serving.adapters:
        return []
    return ["--enable-lora", "--lora-paths", *(f"{name}={path}" for name, path in serving.adapters.items())]


ENGINE: Final = Engine(
    type=_TYPE,
    source="sglang 0.5.23",
    program=("python3", "-m", "sglang.launch_server"),
    arguments=_arguments,
    owned=_OWNED,
    drain=Drain.ON_SIGNAL,
    adapters=Adapters(asked_as="{model}:{adapter}"),
)
