"""What each route makes of each feature, against a statement of its own: content, sampling, removed, or refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from cachescope.engines.routes import Dialect, Route
from cachescope.gateway.bodies import BadBody
from tests.unit.bodies import (
    BATCH,
    CHAT,
    CLASSIFICATION,
    COMPLETION,
    COUNTING,
    DETOKENIZATION,
    EMBEDDING,
    MESSAGE,
    POOLING,
    RERANKING,
    RESPONSE,
    ROUTES,
    SCORE,
    TOKENIZATION,
    cleaned,
    every_route,
    refused,
)

COLUMNS = (
    CHAT, BATCH, COMPLETION, RESPONSE, MESSAGE, COUNTING, EMBEDDING, POOLING, CLASSIFICATION, SCORE, RERANKING, TOKENIZATION,
    DETOKENIZATION,
)  # fmt: skip
FUNCTION = {"type": "function", "function": {"name": "f"}}
TOOLS: dict[Dialect, Any] = {
    Dialect.RESPONSE: {"type": "function", "name": "f"},
    Dialect.MESSAGE: {"name": "f", "input_schema": {}},
    Dialect.COUNTING: {"name": "f", "input_schema": {}},
}
CHOICES: dict[Dialect, Any] = {Dialect.MESSAGE: {"type": "any"}, Dialect.COUNTING: {"type": "any"}}
BY_ROUTE: dict[str, dict[Dialect, Any]] = {
    "tools": {dialect: [TOOLS.get(dialect, FUNCTION)] for dialect in Dialect},
    "tool_choice": {dialect: CHOICES.get(dialect, "auto") for dialect in Dialect},
    "logprobs": {dialect: 1 if dialect is Dialect.COMPLETION else True for dialect in Dialect},
}
ONE_BY_ONE, STORED = "one by one", "not stored here"

# C content, S sampling or a form of the answer, D removed, R refused with the reason beside it, - unknown there, and so refused.
# In the columns' order: chat, its batch, completions, responses | messages, their count | embeddings, pooling, classify, score,
# rerank | tokenize, detokenize.
FEATURES: list[tuple[str, Any, str, str]] = [
    ("model", "an-adapter", "CCCC CC CCCCC CC", ""),
    ("n", 2, "SRS- -- ----- --", "one answer a conversation"),
    ("best_of", 2, "-RR- -- ----- --", "does not rank"),
    ("use_beam_search", True, "SRS- -- ----- --", ONE_BY_ONE),
    ("logprobs", ..., "SSS- -- ----- --", ""),
    ("top_logprobs", 3, "SS-S -- ----- --", ""),
    ("prompt_logprobs", 3, "SRS- -- ----- --", ONE_BY_ONE),
    ("logprob_token_ids", [5], "SSS- -- ----- --", ""),
    ("echo", True, "CCC- -- ----- --", ""),
    ("suffix", "end", "--C- -- ----- --", ""),
    ("seed", 7, "SSSS -- ----- --", ""),
    ("stop", ["a"], "SSSS -- ----- --", ""),
    ("stop_sequences", ["a"], "---- S- ----- --", ""),
    ("temperature", 0.5, "SSSS S- ----- --", ""),
    ("stream", True, "SRSS S- ----- --", ONE_BY_ONE),
    ("stream_options", {"include_usage": True}, "SRSD -- ----- --", ONE_BY_ONE),
    ("max_tokens", 5, "CCC- C- ----- --", ""),
    ("max_completion_tokens", 5, "CC-- -- ----- --", ""),
    ("max_output_tokens", 5, "---C -- ----- --", ""),
    ("response_format", {"type": "json_object"}, "CCC- -- ----- --", ""),
    ("structured_outputs", {"regex": "a"}, "CCCC -- ----- --", ""),
    ("text", {"format": {"type": "text"}}, "---C -- ----- --", ""),
    ("output_config", {"effort": "low"}, "---- CC ----- --", ""),
    ("reasoning", {"effort": "low"}, "---C -- ----- --", ""),
    ("reasoning_effort", "low", "C--- -- ----- --", ""),
    ("thinking", {"type": "disabled"}, "---- CC ----- --", ""),
    ("tools", ..., "CR-C CC ----- C-", ONE_BY_ONE),
    ("tool_choice", ..., "CR-C CC ----- --", ONE_BY_ONE),
    ("parallel_tool_calls", False, "C--C -- ----- --", ""),
    ("web_search_options", {}, "RR-- -- ----- --", "hosted tools"),
    ("mcp_servers", [], "---- RR ----- --", "hosted tools"),
    ("container", "c", "---- RR ----- --", "hosted tools"),
    ("functions", [], "RR-- -- ----- --", "replaced by tools"),
    ("modalities", ["audio"], "RR-- -- ----- --", "only text"),
    ("audio", {"voice": "x"}, "RR-- -- ----- --", "multimodal output"),
    ("documents", [{"text": "a"}], "C--- -- ---RR --", "not isolated between tenants"),
    ("chat_template_kwargs", {"a": 1}, "CC-C CC CCCCC C-", ""),
    ("add_generation_prompt", True, "CC-- -- CCC-- C-", ""),
    ("add_special_tokens", True, "C-C- -- CCC-- C-", ""),
    ("truncate_prompt_tokens", 5, "C-C- -- CCCCC --", ""),
    ("truncation", "auto", "---C -- ----- --", ""),
    ("padding", "max_length", "---- -- CCCCC --", ""),
    ("instruction", "rank", "---- -- ---CC --", ""),
    ("max_tokens_per_doc", 5, "---- -- ---CC --", ""),
    ("task", "token_embed", "---- -- -C--- --", ""),
    ("data", {"url": "http://x"}, "---- -- -R--- --", "files and addresses"),
    ("dimensions", 8, "---- -- SS--- --", ""),
    ("encoding_format", "base64", "---- -- SS--- --", ""),
    ("use_activation", True, "---- -- SSSSS --", ""),
    ("top_n", 1, "---- -- ----S --", ""),
    ("return_documents", True, "---- -- ----D --", ""),
    ("return_token_strs", True, "---- -- ----- S-", ""),
    ("chat_template", "{{ x }}", "RRRR RR RRRRR RR", "own chat template"),
    ("prompt_embeds", "AAAA", "RRRR RR RRRRR RR", "not isolated between tenants"),
    ("vllm_xargs", {"a": 1}, "RRRR RR RRRRR RR", "other requests' caches"),
    ("previous_response_id", "resp_1", "---R -- ----- --", STORED),
    ("conversation", "conv_1", "---R -- ----- --", STORED),
    ("background", True, "---R -- ----- --", "outlive the permission"),
    ("context_management", {}, "---- RR ----- --", "edits no conversations"),
    *((name, "x", "DDDD DD DDDDD DD", "") for name in (
        "cache_salt", "extra_key", "nvext", "kv_transfer_params", "ec_transfer_params", "request_id", "session_id", "priority",
        "prompt_cache_key", "prompt_cache_retention", "mm_processor_kwargs", "media_io_kwargs", "mm_payload", "return_mm_kwargs",
        "store", "safety_identifier",
    )),
    ("return_token_offsets", True, "---- -- ----- --", ""),
    ("mm_features", {}, "---- -- ----- --", ""),
    ("lora_request", {"path": "/x"}, "---- -- ----- --", ""),
    ("adapter", "x", "---- -- ----- --", ""),
    ("data_parallel_rank", 0, "---- -- ----- --", ""),
    ("guided_json", {}, "---- -- ----- --", ""),
]  # fmt: skip

# Said once for all routes: what decides how tokens are drawn, or how the answer looks, and never what is read.
CANNOT_CHANGE_THE_PROMPT = {
    "frequency_penalty", "ignore_eos", "include_stop_str_in_output", "logit_bias", "min_p", "presence_penalty",
    "repetition_penalty", "seed", "skip_special_tokens", "stop", "stop_sequences", "stop_token_ids", "temperature", "top_k",
    "top_p", "watermarking", "allowed_token_ids", "bad_words", "length_penalty", "min_tokens", "n", "repetition_detection",
    "use_beam_search", "spaces_between_special_tokens", "stream", "stream_interval", "stream_options", "logprobs",
    "top_logprobs", "prompt_logprobs", "logprob_token_ids", "include", "enable_response_messages", "return_prompt_text",
    "return_token_ids", "return_token_strs", "return_tokens_as_token_ids", "routed_experts_prompt_start", "dimensions",
    "embed_dtype", "encoding_format", "endianness", "top_n", "use_activation", "max_tool_calls", "metadata", "service_tier",
    "user",
}  # fmt: skip


def verdict(route: Route, name: str, value: Any) -> tuple[str, str]:
    """The letter of a cell, and what was said."""
    given = BY_ROUTE[name][route.dialect] if value is ... else value
    try:
        clean = cleaned(route, {name: given})
    except BadBody as error:
        unknown = error.message == f"{name} is not supported; remove it"
        return "-" if unknown else "R", error.message
    if name in clean.stripped:
        return "D", ""
    assert clean.fields[name] == given
    return "C" if name in clean.content else "S", ""


@pytest.mark.parametrize(("name", "value", "letters", "reason"), FEATURES, ids=[row[0] for row in FEATURES])
def test_each_feature_is_content_or_sampling_or_goes_or_is_refused(name: str, value: Any, letters: str, reason: str) -> None:
    cells = [verdict(route, name, value) for route in COLUMNS]
    assert "".join(letter for letter, _ in cells) == letters.replace(" ", "")
    for letter, message in cells:
        assert letter != "R" or (reason and reason in message), message


def test_the_columns_are_all_dialects_and_other_paths_are_the_same_route() -> None:
    assert {route.dialect for route in COLUMNS} == set(Dialect)
    for route in ROUTES:
        (column,) = (item for item in COLUMNS if item.dialect is route.dialect)
        assert (route.body, route.not_content, route.salt, route.asks) == (
            column.body,
            column.not_content,
            column.salt,
            column.asks,
        )


@every_route
def test_all_that_is_kept_is_content_but_what_cannot_change_the_prompt(route: Route) -> None:
    assert route.not_content == CANNOT_CHANGE_THE_PROMPT & route.body.keep.keys()


def parts(*kinds: str) -> list[dict[str, Any]]:
    return [{"type": kind, kind: {"url": "data:,"}, "uuid": "victim"} for kind in kinds]


PARTS = parts(
    "image_url", "input_audio", "audio_url", "video_url", "file", "image_embeds", "audio_embeds", "video_embeds", "image_pil",
    "prompt_embeds", "tool_reference",
)  # fmt: skip
ITEMS = parts("input_image", "input_file", "input_audio")
BLOCKS = parts(
    "image", "document", "search_result", "redacted_thinking", "tool_reference", "tool_addition", "tool_removal", "server_tool_use",
    "mcp_tool_use", "web_search_tool_result", "container_upload",
)  # fmt: skip


def messages(part: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, part]}]}


def results(part: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [part]}]}]}


MEDIA: list[tuple[Route, dict[str, Any]]] = [
    *((route, messages(part)) for part in PARTS for route in (CHAT, EMBEDDING, POOLING, CLASSIFICATION, TOKENIZATION)),
    *((BATCH, {"messages": [messages(part)["messages"]]}) for part in PARTS),
    *((COMPLETION, {"prompt": prompt}) for part in PARTS for prompt in (part, [part], ["a", part], {"multi_modal_data": part})),
    *((RESPONSE, {"input": [{"role": "user", "content": [part]}]}) for part in ITEMS),
    *((route, make(part)) for part in BLOCKS for route in (MESSAGE, COUNTING) for make in (messages, results)),
    *((route, {"system": [part]}) for part in BLOCKS for route in (MESSAGE, COUNTING)),
    *((route, {"input": messages(part)["messages"]}) for part in PARTS for route in (EMBEDDING, POOLING, CLASSIFICATION)),
    *((SCORE, {"queries": "a", "documents": [{"content": [part]}]}) for part in PARTS),
    *((SCORE, {"data_1": {"content": [part]}, "data_2": "a"}) for part in PARTS),
    *((RERANKING, {"query": {"content": [part]}}) for part in PARTS),
    *((RERANKING, {"documents": ["a", {"content": [part]}]}) for part in PARTS),
    *((DETOKENIZATION, {"tokens": [part]}) for part in PARTS),
]


@pytest.mark.parametrize("dialect", Dialect)
def test_whatever_is_not_text_is_refused_and_named(dialect: Dialect) -> None:
    cases = [(route, fields) for route, fields in MEDIA if route.dialect is dialect]
    assert cases
    for route, fields in cases:
        error = refused(route, **fields)
        assert error.code in {"unsupported_value", "invalid_type"}
        assert error.param is not None
        assert error.param.split(".")[0].split("[")[0] in fields
        assert "text" in error.message or dialect is Dialect.DETOKENIZATION
