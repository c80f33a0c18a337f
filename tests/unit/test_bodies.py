"""Bodies: no field that chooses or reveals a cache, our salt exactly once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from cachescope.core.digests import sha256
from cachescope.core.record import ABSENT
from cachescope.core.types import Salt
from cachescope.engines.routes import Dialect, Route
from cachescope.gateway.bodies import BadBody, content_digest, sanitize, toolset_digest, with_salt
from tests.unit.bodies import (
    BATCH,
    CHAT,
    CLASSIFICATION,
    COMPLETION,
    EMBEDDING,
    GOOD,
    POOLING,
    RESPONSE,
    ROUTES,
    SALT,
    TOKENIZATION,
    every_route,
    refused,
    salt_for,
    sent,
)

# --- what is removed


@every_route
def test_what_could_choose_a_cache_is_removed(route: Route) -> None:
    plain, good = sent(route), sanitize(route, GOOD[route.path])
    assert plain.get("cache_salt") == salt_for(route)
    for name in sorted(frozenset.intersection(*(route.body.drop for route in ROUTES))):
        for value in ("other-tenant", None, {"cache_salt": "x"}, 7):
            assert sent(route, **{name: value}) == plain
            fields = sanitize(route, GOOD[route.path] | {name: value})
            assert (fields.stripped, fields.content) == ((name,), good.content)


@every_route
def test_the_salt_is_the_last_field_and_stands_once_or_not_at_all(route: Route) -> None:
    body = with_salt(sanitize(route, GOOD[route.path] | {"cache_salt": "mine"}), salt_for(route))
    assert body.endswith(b',"cache_salt":"' + SALT.encode() + b'"}') == (route.salt is not None)
    assert body.count(b"cache_salt") == (route.salt is not None)


def test_a_body_that_was_not_cleaned_gets_no_second_salt() -> None:
    clean = sanitize(CHAT, GOOD[CHAT.path])
    assert with_salt(clean, SALT)
    with pytest.raises(RuntimeError, match="still holds a salt"):
        with_salt(replace(clean, fields={**clean.fields, "cache_salt": "mine"}), SALT)


@pytest.mark.parametrize("salt", ["", None])
def test_a_route_that_takes_a_salt_never_goes_without(salt: Salt | None) -> None:
    with pytest.raises(ValueError, match="never empty"):
        with_salt(sanitize(CHAT, GOOD[CHAT.path]), salt)


def test_a_route_that_takes_no_salt_gets_none() -> None:
    with pytest.raises(ValueError, match="takes no salt"):
        with_salt(sanitize(TOKENIZATION, GOOD[TOKENIZATION.path]), SALT)
    assert with_salt(sanitize(TOKENIZATION, GOOD[TOKENIZATION.path]), None)


def test_marks_in_text_parts_are_removed() -> None:
    part = {"type": "text", "text": "hi"}
    marked = part | {"uuid": "victim", "cache_control": {"type": "ephemeral"}, "cache_salt": "x"}
    body = sent(CHAT, messages=[{"role": "user", "content": [marked, part], "cache_salt": "x"}])
    assert body["messages"] == [{"role": "user", "content": [part, part]}]


def test_responses_are_never_stored() -> None:
    assert sent(RESPONSE)["store"] is False
    for value in (True, None, "true", {"ttl": 1}):
        assert sent(RESPONSE, store=value)["store"] is False
    assert "store" not in sent(CHAT, store=True)


# --- what is refused


MESSAGE = {"role": "user", "content": "hi"}
BOTH = {"add_generation_prompt": True, "continue_final_message": True}
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
FUNCTION: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def content(*parts: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


REFUSED: list[tuple[Route, dict[str, Any], str]] = [
    (CHAT, {"prompt_embeds": "AAAA"}, "prompt_embeds"),
    (COMPLETION, {"prompt_embeds": "AAAA"}, "prompt_embeds"),
    (CHAT, {"chat_template": "{{ x }}"}, "chat_template"),
    (CHAT, {"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs.chat_template"),
    (CHAT, {"vllm_xargs": {"session_id": "x"}}, "vllm_xargs"),
    (CHAT, {"functions": []}, "functions"),
    (CHAT, {"audio": {"voice": "x"}}, "audio"),
    (CHAT, {"Cache_Salt": "x"}, "Cache_Salt"),
    (CHAT, {"cache_salt ": "x"}, "cache_salt "),
    (CHAT, {"cache-salt": "x"}, "cache-salt"),
    (CHAT, {"cache_s\u0430lt": "x"}, "cache_s\\u0430lt"),
    (CHAT, {"c\u200bache_salt": "x"}, "c\\u200bache_salt"),
    (CHAT, {"cache_prompt": True}, "cache_prompt"),
    (CHAT, {"id_slot": 0}, "id_slot"),
    (CHAT, {"": 1}, ""),
    (CHAT, {"x" * 5000: 1}, "x" * 61 + "..."),
    (CHAT, content(IMAGE), "messages[0].content[0]"),
    (CHAT, content({"type": "text", "text": "a"}, {"type": "input_audio", "input_audio": {}}), "messages[0].content[1]"),
    (CHAT, content({"type": "video_url", "video_url": {"url": "x"}}), "messages[0].content[0]"),
    (CHAT, content({"type": "file", "file": {"file_id": "x"}}), "messages[0].content[0]"),
    (CHAT, content({"type": "image_embeds", "image_embeds": "x", "uuid": "victim"}), "messages[0].content[0]"),
    (CHAT, content({"type": "prompt_embeds", "data": "x"}), "messages[0].content[0]"),
    (CHAT, content({"type": "tool_reference", "name": "x"}), "messages[0].content[0]"),
    (CHAT, content({"image_url": "data:,"}), "messages[0].content[0]"),
    (CHAT, content({"type": "text", "text": "a", "image_url": "x", "uuid": "victim"}), "messages[0].content[0].image_url"),
    (CHAT, content({"type": ["text"], "text": "a"}), "messages[0].content[0]"),
    (CHAT, content(7), "messages[0].content[0]"),
    (CHAT, content("hi"), "messages[0].content[0]"),
    (CHAT, content({"type": "text", "text": "a"}, "of which type"), "messages[0].content[1]"),
    (CHAT, BOTH, "continue_final_message"),
    (BATCH, BOTH, "continue_final_message"),
    *((route, {"messages": [MESSAGE], **BOTH}, "continue_final_message")
      for route in (TOKENIZATION, EMBEDDING, POOLING, CLASSIFICATION)),
    (CHAT, {"messages": [{"role": "user", "content": {"type": "text"}}]}, "messages[0].content"),
    (CHAT, {"messages": [{"role": "user", "content": "a", "audio": {"id": "x"}}]}, "messages[0].audio"),
    (CHAT, {"messages": [{"role": "user", "content": "a", "tools": []}]}, "messages[0].tools"),
    (CHAT, {"messages": [MESSAGE, {"content": "a"}]}, "messages[1].role"),
    (CHAT, {"messages": [MESSAGE, "text"]}, "messages[1]"),
    (CHAT, {"messages": "hi"}, "messages"),
    (CHAT, {"messages": None}, "messages"),
    (CHAT, {"model": ""}, "model"),
    (CHAT, {"model": None}, "model"),
    (CHAT, {"model": ["tiny"]}, "model"),
    (CHAT, {"stream": "true"}, "stream"),
    (CHAT, {"stream": 1}, "stream"),
    (CHAT, {"stream_options": "x"}, "stream_options"),
    (CHAT, {"stream_options": {"cache_salt": "x"}}, "stream_options.cache_salt"),
    (CHAT, {"tools": [{"type": "mcp", "server_url": "https://x"}]}, "tools[0].type"),
    (CHAT, {"tools": [{"function": {"name": "f"}}]}, "tools[0].type"),
    (CHAT, {"tools": [{"type": "function"}]}, "tools[0].function"),
    (CHAT, {"tools": [{"type": "function", "function": {"name": "f", "cache_salt": "x"}}]}, "tools[0].function.cache_salt"),
    (CHAT, {"tools": {"type": "function"}}, "tools"),
    (CHAT, {"tool_choice": {"type": "allowed_tools"}}, "tool_choice.type"),
    (COMPLETION, {"best_of": 3}, "best_of"),
    (COMPLETION, {"messages": [MESSAGE]}, "messages"),
    (COMPLETION, {"prompt": {"prompt_embeds": "x"}}, "prompt"),
    (COMPLETION, {"prompt": [{"prompt": "x"}]}, "prompt"),
    (COMPLETION, {"prompt": [[1, "x"]]}, "prompt"),
    (COMPLETION, {"prompt": [True]}, "prompt"),
    (COMPLETION, {"prompt": None}, "prompt"),
    (COMPLETION, {"prompt": ""}, "prompt"),
    (COMPLETION, {"prompt": 7}, "prompt"),
    (RESPONSE, {"previous_response_id": "resp_1"}, "previous_response_id"),
    (RESPONSE, {"background": True}, "background"),
    (RESPONSE, {"conversation": "conv_1"}, "conversation"),
    (RESPONSE, {"previous_input_messages": []}, "previous_input_messages"),
    (RESPONSE, {"prompt": {"id": "pmpt_1"}}, "prompt"),
    (RESPONSE, {"vllm_xargs": {}}, "vllm_xargs"),
    (RESPONSE, {"messages": [MESSAGE]}, "messages"),
    (RESPONSE, {"input": None}, "input"),
    (RESPONSE, {"input": {"role": "user"}}, "input"),
    (RESPONSE, {"input": ["text"]}, "input[0]"),
    (RESPONSE, {"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
    (RESPONSE, {"input": [{"id": "msg_1"}]}, "input[0].type"),
    (RESPONSE, {"input": [{"type": "computer_call_output"}]}, "input[0].type"),
    (RESPONSE, {"input": [{"type": ["message"]}]}, "input[0].type"),
    (RESPONSE, {"input": [{"type": "function_call", "role": "user", "content": []}]}, "input[0].role"),
    (RESPONSE, {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content[0]"),
    (RESPONSE, {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]}, "input[0].content[0]"),
    (RESPONSE, {"input": [{"role": "user", "content": ["hi"]}]}, "input[0].content[0]"),
    (RESPONSE, {"input": [{"type": "function_call_output", "output": ["hi"]}]}, "input[0].output[0]"),
    (RESPONSE, {"input": [{"role": "assistant", "content": "a", "tool_calls": []}]}, "input[0].tool_calls"),
    (RESPONSE, {"input": [{"type": "function_call_output", "output": [{"type": "input_image"}]}]}, "input[0].output[0]"),
    (RESPONSE, {"input": [{"type": "reasoning", "summary": [], "encrypted_content": "x"}]}, "input[0].encrypted_content"),
    *((RESPONSE, {"tools": [{"type": kind}]}, "tools[0].type") for kind in (
        "web_search", "web_search_preview", "mcp", "code_interpreter", "file_search", "computer_use_preview", "image_generation",
        "local_shell", "custom", "namespace",
    )),
]  # fmt: skip


@pytest.mark.parametrize(("route", "fields", "param"), REFUSED, ids=[param[:40] for _, _, param in REFUSED])
def test_what_is_not_known_to_be_isolated_is_refused_by_name(route: Route, fields: dict[str, Any], param: str) -> None:
    assert sent(route).get("cache_salt") == salt_for(route)
    error = refused(route, **fields)
    assert error.param == param
    assert param[:40] in error.message
    assert len(error.message) < 300


@pytest.mark.parametrize(
    ("route", "name"),
    [(CHAT, "functions"), (RESPONSE, "previous_response_id"), (RESPONSE, "background"), (RESPONSE, "prompt")],
)
def test_a_refused_field_that_is_null_or_false_was_not_asked_for(route: Route, name: str) -> None:
    assert sent(route, **{name: None}) == sent(route, **{name: False}) == sent(route)


def test_text_without_a_type_is_refused_and_told_how_to_be_sent() -> None:
    assert sent(CHAT, **content({"type": "text", "text": "of which type"}))
    assert sent(CHAT, messages=[MESSAGE | {"content": "of which type"}])
    assert "send a text part, or all of the content as one text" in refused(CHAT, **content("of which type")).message


# --- what passes


@pytest.mark.parametrize(("begins", "continues"), [(True, False), (False, True), (False, False), (True, None), (None, True)])
def test_an_answer_is_begun_or_continued(begins: bool | None, continues: bool | None) -> None:
    fields = {"add_generation_prompt": begins, "continue_final_message": continues}
    assert sent(CHAT, **fields).items() >= fields.items()


def test_a_whole_chat_with_tools_passes_unchanged() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    fields: dict[str, Any] = {
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "be brief"}]},
            {"role": "user", "content": "hi", "name": "al"},
            {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None, "reasoning_content": "hm"},
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
        ],
        "tools": [FUNCTION],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "stream": True,
        "stream_options": {"include_usage": True},
        "n": 2,
        "temperature": 0.7,
        "logit_bias": {"5": -100},
        "seed": 2**63 - 1,
        "user": "u",
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"cache_salt": {"type": "string"}}}},
    }
    assert sent(CHAT, **fields) == GOOD[CHAT.path] | fields | {"cache_salt": SALT}


def test_an_answer_can_be_sent_back_as_the_engine_gave_it() -> None:
    answer = {"role": "assistant", "content": "a", "refusal": None, "annotations": None, "audio": None, "function_call": None}
    assert sent(CHAT, messages=[MESSAGE, answer])["messages"][1] == {"role": "assistant", "content": "a", "refusal": None}
    text: dict[str, Any] = {"type": "output_text", "text": "a", "annotations": [], "logprobs": None}
    items: list[dict[str, Any]] = [
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "a"}], "status": None,
         "encrypted_content": None},
        {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text], "phase": None},
        {"type": "function_call", "id": "f", "call_id": "c", "name": "f", "arguments": "{}", "status": None, "namespace": None},
        {"type": "function_call_output", "call_id": "c", "output": "42"},
    ]  # fmt: skip
    body = sent(RESPONSE, input=items, tools=[{"type": "function", "name": "f", "parameters": {}, "strict": True}])
    assert body["input"][2]["content"] == [{"type": "output_text", "text": "a"}]
    assert body["input"][3] == {k: v for k, v in items[3].items() if k != "namespace"}


@pytest.mark.parametrize("prompt", ["a", ["a", "b"], [1, 2, 3], [[1, 2], [3]]])
def test_a_prompt_is_text_or_tokens(prompt: object) -> None:
    assert sent(COMPLETION, prompt=prompt)["prompt"] == prompt


def test_what_the_gateway_needs_is_read_from_what_is_sent() -> None:
    clean = sanitize(CHAT, GOOD[CHAT.path] | {"stream": True, "tools": [FUNCTION]})
    assert (clean.model, clean.stream, clean.tools) == ("tiny", True, [FUNCTION])
    assert sanitize(CHAT, GOOD[CHAT.path] | {"stream": None, "tools": None}).tools == []


# --- digests


def said(dialect: str, content: Any) -> str:
    return sha256(rfc8785.dumps({"content": content, "dialect": dialect}))


def test_the_content_digest_is_over_canonical_json() -> None:
    clean = sanitize(CHAT, GOOD[CHAT.path] | {"tools": [FUNCTION], "chat_template_kwargs": {"é": 1.5}})
    assert content_digest(Dialect.CHAT, clean.content) == said("chat", clean.content)
    assert toolset_digest(clean.tools) == sha256(rfc8785.dumps([FUNCTION]))
    assert toolset_digest([]) == ABSENT
    numbers: dict[str, Any] = {"model": "tiny", "prompt": list(range(1000))}
    assert content_digest(Dialect.COMPLETION, sanitize(COMPLETION, numbers).content) == said("completion", numbers)


def test_the_same_words_in_another_dialect_are_another_content() -> None:
    digests = {content_digest(dialect, {"model": "tiny", "input": "hi"}) for dialect in Dialect}
    assert len(digests) == len(Dialect)


def test_the_sequence_of_tools_and_every_detail_of_them_counts() -> None:
    other = {"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}}
    sets: list[list[Any]] = [[FUNCTION], [other], [FUNCTION, other], [other, FUNCTION]]
    assert len({toolset_digest(tools) for tools in sets}) == 4
    reordered: list[Any] = [dict(reversed(FUNCTION.items()))]
    assert toolset_digest(reordered) == toolset_digest([FUNCTION])


@pytest.mark.parametrize(
    ("route", "fields", "advice"),
    [
        (COMPLETION, {"max_tokens": 2**53}, "is an integer beyond 2**53 - 1; send a smaller one"),
        (COMPLETION, {"prompt": [1, 2**53]}, "holds an integer beyond 2**53 - 1; send a smaller one"),
        (COMPLETION, {"prompt": [[1], [2**53]]}, "holds an integer beyond 2**53 - 1; send a smaller one"),
        (CHAT, {"chat_template_kwargs": {"a": 2**53}}, "holds an integer beyond 2**53 - 1; send a smaller one, or text"),
        (CHAT, {"tools": [FUNCTION | {"function": {"parameters": {"maximum": 2**53}}}]},
         "holds an integer beyond 2**53 - 1; send a smaller one, or text"),
    ],
)  # fmt: skip
def test_what_is_said_of_a_large_integer_is_what_its_field_takes(route: Route, fields: dict[str, Any], advice: str) -> None:
    with pytest.raises(BadBody) as caught:
        content_digest(route.dialect, sanitize(route, GOOD[route.path] | fields).content)
    assert caught.value.message == f"{next(iter(fields))} {advice}"


@pytest.mark.parametrize("number", [2**53, -(2**53), 2**64 - 1])
def test_an_integer_without_canonical_form_is_refused_with_its_field(number: int) -> None:
    bodies: list[dict[str, Any]] = [
        {"model": "tiny", "prompt": [1, number]},
        {"model": "tiny", "prompt": "a", "max_tokens": number},
    ]
    for fields in bodies:
        with pytest.raises(BadBody) as caught:
            content_digest(Dialect.COMPLETION, sanitize(COMPLETION, fields).content)
        assert caught.value.param in {"prompt", "max_tokens"}
    assert content_digest(Dialect.COMPLETION, sanitize(COMPLETION, {"model": "tiny", "prompt": [1, 2**53 - 1]}).content)


SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=4
)


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(sorted(CHAT.body.keep)), VALUES, max_size=3))
def test_every_digest_is_over_rfc_8785_whichever_way_it_was_made(content: dict[str, Any]) -> None:
    try:
        expected = said("chat", content)
    except rfc8785.CanonicalizationError:
        with pytest.raises(BadBody):
            content_digest(Dialect.CHAT, content)
    else:
        assert content_digest(Dialect.CHAT, content) == expected
