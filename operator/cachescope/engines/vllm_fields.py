"""vLLM: fields that several of its routes share, as data.

Of each kept field two questions were asked in vLLM 0.32.0's source: can it change the tokens of the prompt (then it is content),
and can it name another cache, request, file, address or adapter (then it is removed or refused).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cachescope.engines.catalogue import facts
from cachescope.engines.facts import EngineType
from cachescope.engines.releases import first_enforced
from cachescope.engines.routes import Kind, SaltField

SALT_FIELD = "cache_salt"


def salt_of(path: str) -> SaltField:
    """How a route takes its salt, as the catalogue has it.

    Raises:
        RuntimeError: The catalogue has no release in which the route takes one.
    """
    known = next((route for route in facts(EngineType.VLLM).routes if path in route.paths), None)
    since = first_enforced(known.steps) if known else None
    if since is None:
        raise RuntimeError(f"the catalogue of vLLM has no salt for {path}; add the route to it")
    return SaltField(SALT_FIELD, since)


CACHE_FIELDS = frozenset({
    SALT_FIELD, "extra_key", "nvext", "kv_transfer_params", "ec_transfer_params", "request_id", "session_id", "priority",
    "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "mm_payload", "return_mm_kwargs", "media_io_kwargs",
    "mm_processor_kwargs",
})  # fmt: skip
"""Removed: what names a cache, a transfer, a request or a place in the queue.

`request_id` becomes the engine's own id, `session_id` goes to KV events, `kv_transfer_params` can name another request's blocks,
`media_io_kwargs` and its like belong to multimodal input, which is refused. `prompt_cache_*` are OpenAI's names; vLLM ignores them.
"""

IGNORED = frozenset({"metadata", "store", "service_tier", "safety_identifier"})
"""Removed on routes where vLLM ignores them: they change nothing in the answer."""

REFUSED: Mapping[str, str] = MappingProxyType({
    "prompt_embeds": "embeddings as a prompt are not isolated between tenants yet; send text",
    "chat_template": "the pool's own chat template is part of its identity; leave the field out",
    "vllm_xargs": "engine extensions can reach other requests' caches; leave the field out",
})  # fmt: skip
"""Refused on every route."""

TEMPLATE: Mapping[str, Kind] = MappingProxyType({
    "add_generation_prompt": Kind.BOOLEAN, "continue_final_message": Kind.BOOLEAN, "chat_template_kwargs": Kind.SHAPED,
})  # fmt: skip
"""What reaches the pool's chat template."""

TRUNCATION: Mapping[str, Kind] = MappingProxyType({"truncate_prompt_tokens": Kind.INTEGER, "truncation_side": Kind.TEXT})
"""How much of the prompt is left."""
