"""Hugging Face's Text Generation Inference: rendered, not run. The guard is beside it.

Read from its repository: `launcher/src/main.rs` @009c4e0b (options, each of which is a variable too; adapters by `name=path`;
SIGTERM gives the web server 90 seconds), `backends/v3/src/backend.rs` @1d0847a9 and `launcher/src/main.rs` @009c4e0b (reuse follows
`USE_PREFIX_CACHING` up to 2.3.1 and `PREFIX_CACHING` since; 2.3.1 needs both, huggingface/text-generation-inference#2676),
`docs/source/reference/launcher.md` @032fc4c4, and the router's `server.rs`: a host that is no IP address means 0.0.0.0, and a
request's `model` is an adapter's name unless it is `tgi`.

Not verified: whether later releases serve their metrics on a port of their own. Since 3.0 a body may have 2 MB (`--payload-limit`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from cachescope.manifests.engines.judging import judged
from cachescope.manifests.engines.launch import Adapters, Drain, Engine, Options, Serving, parallel

_NAME = "tgi"
_TUNNEL = "lets requests in beside the gateway; remove it"
_OPTIONS: Final = Options(
    owned=frozenset({"--model-id", "--hostname", "--port", "-p", "--lora-adapters", "--usage-stats"}),
    refused={"--ngrok": _TUNNEL, "--ngrok-authtoken": _TUNNEL, "--ngrok-edge": _TUNNEL},
    # clap reads each option from a variable too, so the names of all that matter here.
    variables=(
        *("MODEL_ID", "HOSTNAME", "PORT", "LORA_ADAPTERS", "USAGE_STATS"),
        *("NGROK", "PREFIX_CACHING", "USE_PREFIX_CACHING"),
    ),
)
_ADAPTERS: Final = Adapters(asked_as="{adapter}")
_common_problems = judged(_OPTIONS, _ADAPTERS)


def _problems(serving: Serving, env: Mapping[str, str]) -> Iterator[str]:
    yield from _common_problems(serving, env)
    if serving.name != _NAME:
        yield f"the engine takes the model {serving.name!r} of a request for an adapter; set model.name {_NAME}"


def _arguments(serving: Serving) -> list[str]:
    return [
        *serving.args,
        *("--model-id", serving.model, "--hostname", serving.host, "--port", str(serving.port)),
        *parallel("--num-shard", serving, others=frozenset({"--sharded"})),
        *_adapter_arguments(serving),
        *("--usage-stats", "off"),
    ]


def _adapter_arguments(serving: Serving) -> list[str]:
    listed = ",".join(f"{name}={path}" for name, path in serving.adapters.items())
    return ["--lora-adapters", listed] if listed else []


def _fixed(serving: Serving) -> Mapping[str, str]:
    """With reuse its launcher decides, since not every model and GPU can."""
    return {} if serving.reuse else {"PREFIX_CACHING": "0", "USE_PREFIX_CACHING": "0"}


ENGINE: Final = Engine(
    type="TGI",
    source="text-generation-inference 009c4e0b",
    program=("text-generation-launcher",),
    arguments=_arguments,
    problems=_problems,
    options=_OPTIONS,
    fixed=_fixed,
    drain=Drain.ON_SIGNAL,
    adapters=_ADAPTERS,
)
