"""vLLM: which versions enforce a salt, and what its OpenAI routes accept, as data.

Field names were read in vLLM 0.32.0: `entrypoints/openai/{chat_completion,completion,responses}/protocol.py`. All three request
models are declared with `extra="allow"`: vLLM ignores a field that it does not know, so the list here is what refuses one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from packaging.version import InvalidVersion, Version

from cachescope.engines.routes import Capability, Dialect, Route, Shape

SALT_FIELD = "cache_salt"

# The field came to chat in 0.9.0 (vllm-project/vllm#17045); older versions ignore it and answer 200.
_FIRST_WITH_SALT = Version("0.9.0")
# Extra keys of a block's hash carry their type since 0.31.0 (`v1/core/kv_cache_utils.py`); before, a salt equal to a LoRA
# adapter's name hit that adapter's blocks (vllm-project/vllm#44701). 0.30.0 brought the check of a salt's length and characters.
_FIRST_ENFORCED = Version("0.31.0")
# Sources were read up to and including the 0.33 releases; what comes later is unknown until somebody has read it.
_FIRST_UNREAD = Version("0.34.0")


def capability(version: str) -> Capability:
    """What a version of vLLM does with a salt on the routes of `ROUTES`.

    Args:
        version: The engine's version as it reports it, e.g. `0.32.0`.

    Returns:
        `ENFORCED` for the releases 0.31 to 0.33; `UNKNOWN` for later ones, and for what is no release: builds from source,
        release candidates, builds with a local suffix, and text that is no version, such as `latest`.
    """
    try:
        parsed = Version(version)
    except InvalidVersion:
        return Capability.UNKNOWN
    if parsed.is_prerelease or parsed.local or parsed.epoch:
        return Capability.UNKNOWN
    if parsed >= _FIRST_UNREAD:
        return Capability.UNKNOWN
    if parsed >= _FIRST_ENFORCED:
        return Capability.ENFORCED
    return Capability.BROKEN if parsed >= _FIRST_WITH_SALT else Capability.UNSUPPORTED


# Removed: what names a cache, a transfer, a request or a place in the queue. `request_id` becomes the engine's own id, `session_id`
# goes to KV events, `kv_transfer_params` can name another request's blocks, `media_io_kwargs` and its like belong to multimodal
# input, which is refused. `prompt_cache_*` are OpenAI's names; vLLM ignores them.
_CACHE_FIELDS = frozenset({
    SALT_FIELD, "extra_key", "nvext", "kv_transfer_params", "ec_transfer_params", "request_id", "session_id", "priority",
    "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "mm_payload", "return_mm_kwargs", "media_io_kwargs",
    "mm_processor_kwargs",
})  # fmt: skip
# Removed on routes where vLLM ignores them: they change nothing in the answer.
_IGNORED = frozenset({"metadata", "store", "service_tier", "safety_identifier"})

_SAMPLING = frozenset({
    "frequency_penalty", "ignore_eos", "include_stop_str_in_output", "logit_bias", "min_p", "presence_penalty",
    "repetition_penalty", "seed", "skip_special_tokens", "stop", "stop_token_ids", "stream", "temperature", "top_k", "top_logprobs",
    "top_p", "user", "watermarking",
})  # fmt: skip
_SAMPLING_OF_COMPLETIONS = _SAMPLING | {
    "allowed_token_ids", "bad_words", "length_penalty", "logprob_token_ids", "logprobs", "min_tokens", "n", "prompt_logprobs",
    "repetition_detection", "return_prompt_text", "return_token_ids", "return_tokens_as_token_ids", "routed_experts_prompt_start",
    "spaces_between_special_tokens", "stream_interval", "stream_options", "use_beam_search",
}  # fmt: skip
_SAMPLING_OF_RESPONSES = _SAMPLING | {"enable_response_messages", "include", "max_tool_calls", "metadata", "service_tier"}

# `max_tokens` and its like are content: with `truncate_prompt_tokens` or `truncation` they decide how much of the prompt is left.
_CONTENT_OF_COMPLETIONS = frozenset({
    "model", "max_tokens", "response_format", "structured_outputs", "thinking_token_budget", "truncate_prompt_tokens",
    "truncation_side", "add_special_tokens", "echo",
})  # fmt: skip
_CONTENT_OF_CHAT = _CONTENT_OF_COMPLETIONS | {
    "messages", "tools", "tool_choice", "parallel_tool_calls", "max_completion_tokens", "reasoning_effort", "include_reasoning",
    "add_generation_prompt", "continue_final_message", "documents", "chat_template_kwargs",
}  # fmt: skip
_CONTENT_OF_COMPLETION = _CONTENT_OF_COMPLETIONS | {"prompt", "suffix"}
_CONTENT_OF_RESPONSE = frozenset({
    "model", "input", "instructions", "max_output_tokens", "parallel_tool_calls", "reasoning", "include_reasoning", "text",
    "tool_choice", "tools", "truncation", "structured_outputs", "chat_template_kwargs",
})  # fmt: skip

_STORED = "answers are not stored here; send the whole conversation in `input`"
_REFUSED: Mapping[str, str] = {
    "prompt_embeds": "embeddings as a prompt are not isolated between tenants yet; send text",
    "chat_template": "the pool's own chat template is part of its identity; leave the field out",
    "vllm_xargs": "engine extensions can reach other requests' caches; leave the field out",
}
_REFUSED_IN_CHAT: Mapping[str, str] = {
    **_REFUSED,
    "functions": "functions are replaced by tools; use `tools`",
    "function_call": "functions are replaced by tools; use `tool_choice`",
    "audio": "multimodal output is not offered; leave the field out",
    "modalities": "only text is offered; leave the field out",
    "web_search_options": "hosted tools are not offered; use function tools",
}
_REFUSED_IN_COMPLETION: Mapping[str, str] = {**_REFUSED, "best_of": "the engine does not rank answers; use `n`"}
_REFUSED_IN_RESPONSE: Mapping[str, str] = {
    **_REFUSED,
    "background": "background jobs outlive the permission that started them; wait for the answer or stream it",
    "previous_response_id": _STORED,
    "conversation": _STORED,
    "previous_input_messages": _STORED,
    "prompt": "stored prompt templates are not offered; send the text in `instructions` and `input`",
}

CHAT_COMPLETIONS = Route(
    method="POST",
    path="/v1/chat/completions",
    dialect=Dialect.CHAT,
    body=Shape(_CONTENT_OF_CHAT | _SAMPLING_OF_COMPLETIONS, _CACHE_FIELDS | _IGNORED, MappingProxyType(_REFUSED_IN_CHAT)),
    salt_field=SALT_FIELD,
    not_content=_SAMPLING_OF_COMPLETIONS,
)
COMPLETIONS = Route(
    method="POST",
    path="/v1/completions",
    dialect=Dialect.COMPLETION,
    body=Shape(
        _CONTENT_OF_COMPLETION | (_SAMPLING_OF_COMPLETIONS - {"top_logprobs", "return_prompt_text"}),
        _CACHE_FIELDS | _IGNORED,
        MappingProxyType(_REFUSED_IN_COMPLETION),
    ),
    salt_field=SALT_FIELD,
    not_content=_SAMPLING_OF_COMPLETIONS,
)
# `store` would keep prompts in the engine's memory for whoever knows the response's id; `stream_options` is unknown to vLLM here.
RESPONSES = Route(
    method="POST",
    path="/v1/responses",
    dialect=Dialect.RESPONSE,
    body=Shape(
        _CONTENT_OF_RESPONSE | _SAMPLING_OF_RESPONSES,
        _CACHE_FIELDS | {"store", "safety_identifier", "stream_options"},
        MappingProxyType(_REFUSED_IN_RESPONSE),
    ),
    salt_field=SALT_FIELD,
    not_content=_SAMPLING_OF_RESPONSES,
    forced=MappingProxyType({"store": False}),
)

ROUTES: Mapping[tuple[str, str], Route] = MappingProxyType(
    {(route.method, route.path): route for route in (CHAT_COMPLETIONS, COMPLETIONS, RESPONSES)}
)
"""Every route that enforces a salt, by method and path."""
