"""vLLM: the one engine that loads its guard.

Read from 0.32.0: `entrypoints/launchers/cli_args.py`, `engine/arg_utils.py`.
"""

from __future__ import annotations

from typing import Final

from cachescope.core.adapters import OWN_OPTIONS, adapter_arguments
from cachescope.core.front_doors import MIDDLEWARE
from cachescope.engines.facts import EngineType
from cachescope.manifests.engines.launch import Adapters, Drain, Engine, Instead, Serving, demanded_options

_TYPE: Final = EngineType.VLLM


def _arguments(serving: Serving) -> list[str]:
    return [
        *serving.args,
        *("--model", serving.model, "--served-model-name", serving.name),
        *("--host", serving.host, "--port", str(serving.port)),
        *adapter_arguments(serving.adapters, serving.args),
        *demanded_options(_TYPE, serving),
        *(("--middleware", MIDDLEWARE) if serving.guarded_inside else ()),
    ]


ENGINE: Final = Engine(
    type=_TYPE,
    source="vLLM 0.32.0",
    tried=True,
    program=("python3", "-m", "vllm.entrypoints.openai.api_server"),
    arguments=_arguments,
    owned=dict.fromkeys(sorted(OWN_OPTIONS), Instead.ADAPTERS),
    variables={"VLLM_NO_USAGE_STATS": "1"},
    drain=Drain.BY_OPTION,
    drain_option="--shutdown-timeout",
    adapters=Adapters(asked_as="{adapter}"),
    takes_guard=True,
)
