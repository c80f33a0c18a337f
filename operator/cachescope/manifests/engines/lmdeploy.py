"""LMDeploy: rendered, not run. The guard is beside it.

Read from the wheel of 0.18.0: `cli/serve.py` and `cli/utils.py` (options and defaults; its parser takes abbreviations),
`serve/openai/api_server.py` (uvicorn without a limit for the end of running requests; `/metrics` unless it is switched off),
`serve/openai/endpoints/management.py` (`/health`), `serve/openai/utils.py` (adapters are models of their own names),
`cli/entrypoint.py` (a model that is a path on the disk is not fetched).

Reuse is off unless it is asked for, and there is no option that takes a wish back: so nobody but the platform may ask for it.
"""

from __future__ import annotations

from typing import Final

from cachescope.engines.facts import EngineType
from cachescope.manifests.engines.launch import Adapters, Drain, Engine, Instead, Serving, demanded_options, parallel

_TYPE: Final = EngineType.LMDEPLOY
_SPREAD = frozenset({"--dp", "--ep", "--cp", "--nnodes"})


def _arguments(serving: Serving) -> list[str]:
    return [
        *("serve", "api_server", serving.model),
        *serving.args,
        *("--model-name", serving.name),
        *("--server-name", serving.host, "--server-port", str(serving.port)),
        *parallel("--tp", serving, others=_SPREAD),
        *_adapter_arguments(serving),
        *demanded_options(_TYPE, serving),
    ]


def _adapter_arguments(serving: Serving) -> list[str]:
    """Adapters by name, which the PyTorch engine alone serves."""
    if not serving.adapters:
        return []
    return ["--backend", "pytorch", "--adapters", *(f"{name}={path}" for name, path in serving.adapters.items())]


ENGINE: Final = Engine(
    type=_TYPE,
    source="lmdeploy 0.18.0",
    program=("lmdeploy",),
    arguments=_arguments,
    owned={
        "--model-name": Instead.NAME,
        "--server-name": Instead.NOTHING,
        "--server-port": Instead.NOTHING,
        "--adapters": Instead.ADAPTERS,
    },
    drain=Drain.ON_SIGNAL,
    adapters=Adapters(asked_as="{adapter}"),
)
