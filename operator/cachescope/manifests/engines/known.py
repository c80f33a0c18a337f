"""Every engine that the operator can start. The API accepts those for which it can also do the rest."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from cachescope.manifests.engines import custom, llama_cpp, lmdeploy, sglang, tensorrt_llm, tgi, vllm
from cachescope.manifests.engines.launch import Engine

ENGINES: Final[Mapping[str, Engine]] = MappingProxyType(
    {module.ENGINE.type: module.ENGINE for module in (vllm, sglang, tensorrt_llm, tgi, lmdeploy, llama_cpp, custom)}
)
"""By their names in `spec.engine.type`."""
