"""vLLM: the one engine that loads its guard.

Read from 0.32.0: `entrypoints/launchers/cli_args.py`, `engine/arg_utils.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from cachescope.core.adapters import OWN_OPTIONS, adapter_arguments
from cachescope.core.front_doors import MIDDLEWARE, forbidden, options
from cachescope.engines.routes import Capability
from cachescope.engines.vllm import SERVED, capability
from cachescope.manifests.engines.launch import Adapters, Drain, Engine, Options, Serving

# Without the variable vLLM loads every plugin that is installed; with nothing in it, none.
_QUIET = {"VLLM_NO_USAGE_STATS": "1", "VLLM_PLUGINS": ""}
_REUSING = ("--enable-prefix-caching", "--prefix-caching-hash-algo", "sha256")


def _arguments(serving: Serving) -> list[str]:
    return [
        *serving.args,
        *("--model", serving.model, "--served-model-name", serving.name),
        *("--host", serving.host, "--port", str(serving.port)),
        *adapter_arguments(serving.adapters, serving.args),
        *(_REUSING if serving.reuse else ("--no-enable-prefix-caching",)),
        "--enable-prompt-tokens-details",
        *(("--middleware", MIDDLEWARE) if serving.guarded_inside else ()),
    ]


def _problems(serving: Serving, env: Mapping[str, str]) -> Iterator[str]:
    yield from forbidden(serving.args, env)
    for name in sorted({option.name for option in options(serving.args)} & OWN_OPTIONS):
        yield f"{name} is set by the platform; declare adapters in engine.adapters, and remove it from engine.args"


def _release_problems(version: str) -> Iterator[str]:
    verdict = capability(version)
    if verdict is not Capability.ENFORCED:
        yield f"vLLM {version} is {verdict.value} for per-request salts; use {SERVED}"


ENGINE: Final = Engine(
    type="vLLM",
    source="vLLM 0.32.0",
    tried=True,
    program=("python3", "-m", "vllm.entrypoints.openai.api_server"),
    arguments=_arguments,
    problems=_problems,
    releases=_release_problems,
    options=Options(owned=OWN_OPTIONS),
    variables=_QUIET,
    drain=Drain.BY_OPTION,
    drain_option="--shutdown-timeout",
    adapters=Adapters(asked_as="{adapter}"),
    takes_guard=True,
)
