"""vLLM: the routes that generate text, as data.

Field names were read in vLLM 0.32.0: `entrypoints/openai/{chat_completion,completion,responses}/protocol.py` and
`entrypoints/anthropic/protocol.py`. All these request models ignore a field that they do not know, so the lists here are what
refuses one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cachescope.engines.routes import Dialect, Kind, Route, Shape
from cachescope.engines.vllm_fields import CACHE_FIELDS, IGNORED, REFUSED, TEMPLATE, TRUNCATION, salt_of

_SAMPLING: Mapping[str, Kind] = {
    "frequency_penalty": Kind.NUMBER, "ignore_eos": Kind.BOOLEAN, "include_stop_str_in_output": Kind.BOOLEAN,
    "logit_bias": Kind.OBJECT, "min_p": Kind.NUMBER, "presence_penalty": Kind.NUMBER, "repetition_penalty": Kind.NUMBER,
    "seed": Kind.INTEGER, "skip_special_tokens": Kind.BOOLEAN, "stop": Kind.TEXT_OR_TEXTS, "stop_token_ids": Kind.INTEGERS,
    "stream": Kind.BOOLEAN, "temperature": Kind.NUMBER, "top_k": Kind.INTEGER, "top_p": Kind.NUMBER, "user": Kind.TEXT,
    "watermarking": Kind.BOOLEAN,
}  # fmt: skip
_SAMPLING_OF_COMPLETION: Mapping[str, Kind] = {
    **_SAMPLING, "allowed_token_ids": Kind.INTEGERS, "bad_words": Kind.TEXTS, "length_penalty": Kind.NUMBER,
    "logprob_token_ids": Kind.INTEGERS, "logprobs": Kind.INTEGER, "min_tokens": Kind.INTEGER, "n": Kind.INTEGER,
    "prompt_logprobs": Kind.INTEGER, "repetition_detection": Kind.OBJECT, "return_token_ids": Kind.BOOLEAN,
    "return_tokens_as_token_ids": Kind.BOOLEAN, "routed_experts_prompt_start": Kind.INTEGER,
    "spaces_between_special_tokens": Kind.BOOLEAN, "stream_interval": Kind.INTEGER, "stream_options": Kind.SHAPED,
    "use_beam_search": Kind.BOOLEAN,
}  # fmt: skip
_SAMPLING_OF_CHAT: Mapping[str, Kind] = {
    **_SAMPLING_OF_COMPLETION, "logprobs": Kind.BOOLEAN, "top_logprobs": Kind.INTEGER, "return_prompt_text": Kind.BOOLEAN,
}  # fmt: skip
_SAMPLING_OF_BATCH: Mapping[str, Kind] = {
    **{name: _SAMPLING_OF_CHAT[name] for name in (
        "frequency_penalty", "include_stop_str_in_output", "length_penalty", "logit_bias", "logprob_token_ids", "logprobs", "min_p",
        "presence_penalty", "repetition_penalty", "return_token_ids", "return_tokens_as_token_ids", "seed", "stop", "temperature",
        "top_k", "top_logprobs", "top_p", "user", "watermarking",
    )},
    "n": Kind.SHAPED,
}  # fmt: skip
_SAMPLING_OF_RESPONSE: Mapping[str, Kind] = {
    **_SAMPLING, "enable_response_messages": Kind.BOOLEAN, "include": Kind.TEXTS, "max_tool_calls": Kind.INTEGER,
    "metadata": Kind.OBJECT, "service_tier": Kind.TEXT, "top_logprobs": Kind.INTEGER,
}  # fmt: skip
_SAMPLING_OF_MESSAGE: Mapping[str, Kind] = {
    "stop_sequences": Kind.TEXTS, "stream": Kind.BOOLEAN, "temperature": Kind.NUMBER, "top_k": Kind.INTEGER, "top_p": Kind.NUMBER,
    "watermarking": Kind.BOOLEAN,
}  # fmt: skip

# `max_tokens` and its like are content: with `truncate_prompt_tokens` or `truncation` they decide how much of the prompt is left.
_CONTENT: Mapping[str, Kind] = {
    "model": Kind.TEXT, "max_tokens": Kind.INTEGER, "response_format": Kind.OBJECT, "structured_outputs": Kind.OBJECT,
    "echo": Kind.BOOLEAN,
}  # fmt: skip
_CONTENT_OF_COMPLETIONS: Mapping[str, Kind] = {
    **_CONTENT, **TRUNCATION, "thinking_token_budget": Kind.INTEGER, "add_special_tokens": Kind.BOOLEAN,
}  # fmt: skip
_CONTENT_OF_BATCH: Mapping[str, Kind] = {
    **_CONTENT, **TEMPLATE, "messages": Kind.SHAPED, "max_completion_tokens": Kind.INTEGER, "include_reasoning": Kind.BOOLEAN,
}  # fmt: skip
_CONTENT_OF_CHAT: Mapping[str, Kind] = {
    **_CONTENT_OF_COMPLETIONS, **_CONTENT_OF_BATCH, "tools": Kind.SHAPED, "tool_choice": Kind.SHAPED,
    "parallel_tool_calls": Kind.BOOLEAN, "reasoning_effort": Kind.TEXT, "documents": Kind.LIST,
}  # fmt: skip
_CONTENT_OF_COMPLETION: Mapping[str, Kind] = {**_CONTENT_OF_COMPLETIONS, "prompt": Kind.SHAPED, "suffix": Kind.TEXT}
_CONTENT_OF_RESPONSE: Mapping[str, Kind] = {
    "model": Kind.TEXT, "input": Kind.SHAPED, "instructions": Kind.TEXT, "max_output_tokens": Kind.INTEGER,
    "parallel_tool_calls": Kind.BOOLEAN, "reasoning": Kind.OBJECT, "include_reasoning": Kind.BOOLEAN, "text": Kind.OBJECT,
    "tool_choice": Kind.SHAPED, "tools": Kind.SHAPED, "truncation": Kind.TEXT, "structured_outputs": Kind.OBJECT,
    "chat_template_kwargs": Kind.SHAPED,
}  # fmt: skip
_CONTENT_OF_COUNTING: Mapping[str, Kind] = {
    "model": Kind.TEXT, "messages": Kind.SHAPED, "system": Kind.SHAPED, "tools": Kind.SHAPED, "tool_choice": Kind.SHAPED,
    "thinking": Kind.SHAPED, "output_config": Kind.SHAPED, "chat_template_kwargs": Kind.SHAPED,
}  # fmt: skip
_CONTENT_OF_MESSAGE: Mapping[str, Kind] = {**_CONTENT_OF_COUNTING, "max_tokens": Kind.INTEGER}

_STORED = "answers are not stored here; send the whole conversation in `input`"
_HOSTED = "hosted tools are not offered; use function tools"
_REFUSED_IN_CHAT: Mapping[str, str] = {
    **REFUSED,
    "functions": "functions are replaced by tools; use `tools`",
    "function_call": "functions are replaced by tools; use `tool_choice`",
    "audio": "multimodal output is not offered; leave the field out",
    "modalities": "only text is offered; leave the field out",
    "web_search_options": _HOSTED,
}
_ONE_BY_ONE = "a batch does not offer it; send the conversations one by one to /v1/chat/completions"
_REFUSED_IN_BATCH: Mapping[str, str] = {
    **_REFUSED_IN_CHAT,
    "best_of": "the engine does not rank answers; leave the field out",
    **dict.fromkeys(("stream", "stream_options", "tools", "tool_choice", "use_beam_search", "prompt_logprobs"), _ONE_BY_ONE),
}
_REFUSED_IN_COMPLETION: Mapping[str, str] = {**REFUSED, "best_of": "the engine does not rank answers; use `n`"}
_REFUSED_IN_RESPONSE: Mapping[str, str] = {
    **REFUSED,
    "background": "background jobs outlive the permission that started them; wait for the answer or stream it",
    "previous_response_id": _STORED,
    "conversation": _STORED,
    "previous_input_messages": _STORED,
    "prompt": "stored prompt templates are not offered; send the text in `instructions` and `input`",
}
_REFUSED_IN_MESSAGE: Mapping[str, str] = {
    **REFUSED,
    "container": _HOSTED,
    "mcp_servers": _HOSTED,
    "context_management": "the engine edits no conversations; send what it shall read",
}
_IGNORED_IN_MESSAGE = IGNORED | {"cache_control"}

CHAT_COMPLETIONS = Route(
    method="POST",
    path="/v1/chat/completions",
    dialect=Dialect.CHAT,
    body=Shape({**_CONTENT_OF_CHAT, **_SAMPLING_OF_CHAT}, CACHE_FIELDS | IGNORED, MappingProxyType(_REFUSED_IN_CHAT)),
    asks=(frozenset({"messages"}),),
    salt=salt_of("/v1/chat/completions"),
    not_content=frozenset(_SAMPLING_OF_CHAT),
)
# One salt stands for all conversations of a batch, which are one client's.
CHAT_BATCH = Route(
    method="POST",
    path="/v1/chat/completions/batch",
    dialect=Dialect.CHAT_BATCH,
    body=Shape({**_CONTENT_OF_BATCH, **_SAMPLING_OF_BATCH}, CACHE_FIELDS | IGNORED, MappingProxyType(_REFUSED_IN_BATCH)),
    asks=(frozenset({"messages"}),),
    salt=salt_of("/v1/chat/completions/batch"),
    not_content=frozenset(_SAMPLING_OF_BATCH),
)
COMPLETIONS = Route(
    method="POST",
    path="/v1/completions",
    dialect=Dialect.COMPLETION,
    body=Shape(
        {**_CONTENT_OF_COMPLETION, **_SAMPLING_OF_COMPLETION}, CACHE_FIELDS | IGNORED, MappingProxyType(_REFUSED_IN_COMPLETION)
    ),
    asks=(frozenset({"prompt"}),),
    salt=salt_of("/v1/completions"),
    not_content=frozenset(_SAMPLING_OF_COMPLETION),
)
# `store` would keep prompts in the engine's memory for whoever knows the response's id; `stream_options` is unknown to vLLM here.
RESPONSES = Route(
    method="POST",
    path="/v1/responses",
    dialect=Dialect.RESPONSE,
    body=Shape(
        {**_CONTENT_OF_RESPONSE, **_SAMPLING_OF_RESPONSE},
        CACHE_FIELDS | {"store", "safety_identifier", "stream_options"},
        MappingProxyType(_REFUSED_IN_RESPONSE),
    ),
    asks=(frozenset({"input"}),),
    salt=salt_of("/v1/responses"),
    not_content=frozenset(_SAMPLING_OF_RESPONSE),
    forced=MappingProxyType({"store": False}),
)
MESSAGES = Route(
    method="POST",
    path="/v1/messages",
    dialect=Dialect.MESSAGE,
    body=Shape(
        {**_CONTENT_OF_MESSAGE, **_SAMPLING_OF_MESSAGE}, CACHE_FIELDS | _IGNORED_IN_MESSAGE, MappingProxyType(_REFUSED_IN_MESSAGE)
    ),
    asks=(frozenset({"messages", "max_tokens"}),),
    salt=salt_of("/v1/messages"),
    not_content=frozenset(_SAMPLING_OF_MESSAGE),
)
# It renders the prompt and counts; nothing of it reaches the engine's scheduler.
COUNT_TOKENS = Route(
    method="POST",
    path="/v1/messages/count_tokens",
    dialect=Dialect.COUNTING,
    body=Shape(_CONTENT_OF_COUNTING, CACHE_FIELDS | _IGNORED_IN_MESSAGE, MappingProxyType(_REFUSED_IN_MESSAGE)),
    asks=(frozenset({"messages"}),),
    salt=None,
    not_content=frozenset(),
)

ROUTES = (CHAT_COMPLETIONS, CHAT_BATCH, COMPLETIONS, RESPONSES, MESSAGES, COUNT_TOKENS)
