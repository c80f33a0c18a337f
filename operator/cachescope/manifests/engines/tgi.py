"""Hugging Face's Text Generation Inference: rendered, not run. The guard is beside it.

Read from its repository: `launcher/src/main.rs` @009c4e0b (options, each of which is a variable too; adapters by `name=path`;
SIGTERM gives the web server 90 seconds), `backends/v3/src/backend.rs` @1d0847a9 and `launcher/src/main.rs` @009c4e0b (reuse follows
`USE_PREFIX_CACHING` up to 2.3.1 and `PREFIX_CACHING` since; 2.3.1 needs both, huggingface/text-generation-inference#2676),
`docs/source/reference/launcher.md` @032fc4c4, and the router's `server.rs`: a host that is no IP address means 0.0.0.0, and a
request's `model` is an adapter's name unless it is `tgi`.

Not verified: whether later releases serve their metrics on a port of their own. Since 3.0 a body may have 2 MB (`--payload-limit`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cachescope.engines.facts import EngineType
from cachescope.manifests.engines.launch import Adapters, Drain, Engine, Instead, Serving, demanded_options, parallel

_TYPE: Final = EngineType.TGI
_NAME = "tgi"
_OWNED: Final = {
    "--model-id": Instead.MODEL,
    "--hostname": Instead.NOTHING,
    "--port": Instead.NOTHING,
    "--lora-adapters": Instead.ADAPTERS,
}


def _problems(serving: Serving) -> Iterator[str]:
    if serving.name != _NAME:
        yield f"the engine takes the model {serving.name!r} of a request for an adapter; set model.name {_NAME}"


def _arguments(serving: Serving) -> list[str]:
    return [
        *serving.args,
        *("--model-id", serving.model, "--hostname", serving.host, "--port", str(serving.port)),
        *parallel("--num-shard", serving, others=frozenset({"--sharded"})),
        *_adapter_arguments(serving),
        *demanded_options(_TYPE, serving),
    ]


def _adapter_arguments(serving: Serving) -> list[str]:
    listed = ",".join(f"{name}={path}" for name, path in serving.adapters.items())
    return ["--lora-adapters", listed] if listed else []


ENGINE: Final = Engine(
    type=_TYPE,
    source="text-generation-inference 009c4e0b",
    program=("text-generation-launcher",),
    arguments=_arguments,
    owned=_OWNED,
    own_problems=_problems,
    drain=Drain.ON_SIGNAL,
    adapters=Adapters(asked_as="{adapter}"),
)
