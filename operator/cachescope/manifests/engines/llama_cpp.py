"""llama.cpp's server, of a GGUF file. The guard is beside it.

Read from the options and help texts in the wheel of xllamacpp 2026.10.11549 (`xllamacpp.abi3.so`, which holds the server's own
parser), and from `.devops/cpu.Dockerfile` of llama.cpp @1cad66d7 (`/app/llama-server`, which the image here has too).
Tried with that package: a request finds what another left, whatever salt either has; with the switches below it finds nothing,
**unless its body says `cache_prompt: true`**, which wins over `--no-cache-prompt`: the gateway has to force that field.

It tells no adapter by a request's `model`, and cuts what runs when it is told to stop.
"""

from __future__ import annotations

from typing import Final

from cachescope.manifests.engines.judging import judged
from cachescope.manifests.engines.launch import Adapters, Drain, Engine, Options, Serving

# The slots' own prompts, the memory that idle ones are saved to, the slot that resembles a prompt, and chunks moved within a slot.
_WITHOUT_REUSE = (
    "--no-cache-prompt",
    "--cache-ram",
    "0",
    "--no-cache-idle-slots",
    "--slot-prompt-similarity",
    "0",
    "--cache-reuse",
    "0",
)
_DISK = "keeps what requests left on a disk; remove it"
_FETCH = "fetches a model; declare it in model.source"
_DOORS = "opens routes that act for a request; remove it"
_LORA = "applies an adapter to every request; merge it into a model, and give that a pool"
_OPTIONS: Final = Options(
    owned=frozenset({"--model", "-m", "--alias", "-a", "--host", "--port", "--metrics", "--slots", "--no-slots", "--offline"}),
    refused={
        "--slot-save-path": _DISK,
        "--lookup-cache-dynamic": _DISK,
        "-lcd": _DISK,
        "--lookup-cache-static": _DISK,
        "-lcs": _DISK,
        "--log-prompts-dir": _DISK,
        "--models-dir": "serves models by name that no permit knows; run one pool for each",
        "--models-preset": "serves models by name that no permit knows; run one pool for each",
        "--model-url": _FETCH,
        "-mu": _FETCH,
        "--hf-repo": _FETCH,
        "-hf": _FETCH,
        "-hfr": _FETCH,
        "--docker-repo": _FETCH,
        "-dr": _FETCH,
        "--lora": _LORA,
        "--lora-scaled": _LORA,
        "--lora-init-without-apply": _LORA,
        "--api-prefix": "makes the engine read another path than the permit names; remove it",
        "--agent": _DOORS,
        "--mcp-servers-config": _DOORS,
        "--mcp-servers-json": _DOORS,
        "--tools": _DOORS,
        "--ui-mcp-proxy": _DOORS,
        "--webui-mcp-proxy": _DOORS,
        "--rpc": "computes on other machines; remove it",
    },
    variables=("LLAMA_ARG_", "LLAMA_API_KEY"),
)
_ADAPTERS: Final = Adapters(why_not="llama.cpp tells no adapter by a request's model; merge each into a model, and give it a pool")


def _arguments(serving: Serving) -> list[str]:
    return [
        *serving.args,
        *("--model", serving.model, "--alias", serving.name),
        *("--host", serving.host, "--port", str(serving.port)),
        *("--metrics", "--no-slots", "--offline"),
        *(("--cache-prompt",) if serving.reuse else _WITHOUT_REUSE),
    ]


ENGINE: Final = Engine(
    type="llama.cpp",
    source="xllamacpp 2026.10.11549",
    tried=True,
    program=("/app/llama-server",),
    arguments=_arguments,
    problems=judged(_OPTIONS, _ADAPTERS),
    options=_OPTIONS,
    asks_itself=False,
    drain=Drain.BEFORE_SIGNAL,
    adapters=_ADAPTERS,
)
