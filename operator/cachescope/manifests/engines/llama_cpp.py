"""llama.cpp's server, of a GGUF file. The guard is beside it.

Read from the options and help texts in the wheel of xllamacpp 2026.10.11549 (`xllamacpp.abi3.so`, which holds the server's own
parser), and from `.devops/cpu.Dockerfile` of llama.cpp @1cad66d7 (`/app/llama-server`, which the image here has too).
Tried with that package: a request finds what another left, whatever salt either has; with what the catalogue demands it finds
nothing, **unless its body says `cache_prompt: true`** (`bypass` of the catalogue).

It tells no adapter by a request's `model`, and cuts what runs when it is told to stop.
"""

from __future__ import annotations

from typing import Final

from cachescope.engines.facts import EngineType
from cachescope.manifests.engines.launch import Adapters, Drain, Engine, Instead, Serving, demanded_options

_TYPE: Final = EngineType.LLAMA_CPP
_ADAPTERS: Final = Adapters(why_not="llama.cpp tells no adapter by a request's model; merge each into a model, and give it a pool")


def _arguments(serving: Serving) -> list[str]:
    return [
        *serving.args,
        *("--model", serving.model, "--alias", serving.name),
        *("--host", serving.host, "--port", str(serving.port)),
        *demanded_options(_TYPE, serving),
    ]


ENGINE: Final = Engine(
    type=_TYPE,
    source="xllamacpp 2026.10.11549",
    tried=True,
    program=("/app/llama-server",),
    arguments=_arguments,
    owned={"--model": Instead.MODEL, "--alias": Instead.NAME, "--host": Instead.NOTHING, "--port": Instead.NOTHING},
    asks_itself=False,
    drain=Drain.BEFORE_SIGNAL,
    adapters=_ADAPTERS,
)
