"""What Anthropic's messages, pooled inputs, batches and compared texts may hold; each refusal beside what passes."""

from __future__ import annotations

from typing import Any

import pytest

from cachescope.engines.routes import Route
from tests.unit.bodies import (
    BATCH,
    CLASSIFICATION,
    COUNTING,
    DETOKENIZATION,
    EMBEDDING,
    GOOD,
    MESSAGE,
    POOLING,
    RERANKING,
    SAID,
    SALT,
    SCORE,
    TOKENIZATION,
    every_route,
    refused,
    sent,
)

TOOL: dict[str, Any] = {"name": "f", "description": "d", "input_schema": {"type": "object", "cache_salt": 1}, "strict": True}
WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def content(*blocks: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


NO_INPUT: list[Any] = ["", [], [[]], None, 7, {"text": "hi"}, [[1, "a"]], [True], [1.5], [SAID]]
NO_TEXTS: list[Any] = ["", [], [[]], ["", 7], 7, [[1, 2]], {"content": []}]
REFUSED: list[tuple[Route, dict[str, Any], str]] = [
    (MESSAGE, {"messages": []}, "messages"),
    (MESSAGE, {"messages": "hi"}, "messages"),
    (MESSAGE, {"messages": None}, "messages"),
    (MESSAGE, {"messages": [{"content": "hi"}]}, "messages[0].role"),
    (MESSAGE, {"messages": [{"role": "user"}]}, "messages[0].content"),
    (MESSAGE, {"messages": [{"role": "user", "content": {"type": "text"}}]}, "messages[0].content"),
    (MESSAGE, {"messages": [SAID | {"tool_calls": []}]}, "messages[0].tool_calls"),
    (MESSAGE, content("hi"), "messages[0].content[0]"),
    (MESSAGE, content({"text": "hi"}), "messages[0].content[0]"),
    (MESSAGE, content({"type": ["text"], "text": "hi"}), "messages[0].content[0]"),
    (MESSAGE, content({"type": "text", "text": {"url": "x"}}), "messages[0].content[0].text"),
    (MESSAGE, content({"type": "text", "text": "hi", "source": {"type": "url", "url": "x"}}), "messages[0].content[0].source"),
    (MESSAGE, content({"type": "text", "text": "hi", "citations": [{}]}), "messages[0].content[0].citations"),
    (MESSAGE, content({"type": "tool_use", "id": "t", "name": "f", "input": "{}"}), "messages[0].content[0].input"),
    (MESSAGE, content({"type": "tool_use", "id": "t", "name": "f", "caller": {"type": "x"}}), "messages[0].content[0].caller"),
    (MESSAGE, content({"type": "tool_result", "content": [{"type": "image"}]}), "messages[0].content[0].content[0]"),
    (MESSAGE, content({"type": "tool_result", "content": 7}), "messages[0].content[0].content"),
    (MESSAGE, content({"type": "tool_result", "content": ["hi"]}), "messages[0].content[0].content[0]"),
    (MESSAGE, {"system": 7}, "system"),
    (MESSAGE, {"system": ["hi"]}, "system[0]"),
    (MESSAGE, {"system": [{"type": "thinking", "thinking": "hm"}]}, "system[0]"),
    (MESSAGE, {"tools": [WEB_SEARCH]}, "tools[0].type"),
    (MESSAGE, {"tools": [TOOL | {"type": ["custom"]}]}, "tools[0].type"),
    (MESSAGE, {"tools": [TOOL | {"defer_loading": True}]}, "tools[0].defer_loading"),
    (MESSAGE, {"tools": [TOOL | {"url": "x"}]}, "tools[0].url"),
    (MESSAGE, {"tools": TOOL}, "tools"),
    (MESSAGE, {"tool_choice": "auto"}, "tool_choice"),
    (MESSAGE, {"tool_choice": {"type": "auto", "cache_salt": "x"}}, "tool_choice.cache_salt"),
    (MESSAGE, {"thinking": {"type": "enabled", "budget_tokens": "many"}}, "thinking.budget_tokens"),
    (MESSAGE, {"thinking": True}, "thinking"),
    (MESSAGE, {"output_config": {"format": {"type": "json_schema", "schema": {}, "url": "x"}}}, "output_config.format.url"),
    (MESSAGE, {"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs.chat_template"),
    (MESSAGE, {"max_tokens": None}, "max_tokens"),
    (MESSAGE, {"stop": ["a"]}, "stop"),
    (COUNTING, {"max_tokens": 8}, "max_tokens"),
    (COUNTING, {"tools": [WEB_SEARCH]}, "tools[0].type"),
    (BATCH, {"messages": []}, "messages"),
    (BATCH, {"messages": [[]]}, "messages[0]"),
    (BATCH, {"messages": [SAID]}, "messages[0]"),
    (BATCH, {"messages": [[SAID], [SAID, {"content": "hi"}]]}, "messages[1][1].role"),
    (BATCH, {"n": True}, "n"),
    (BATCH, {"n": 0}, "n"),
    *((route, {"input": value}, "input") for route in (EMBEDDING, POOLING, CLASSIFICATION) for value in NO_INPUT),
    (EMBEDDING, {"input": "hi", "messages": [SAID]}, "messages"),
    (EMBEDDING, {"input": "hi", "messages": None}, "messages"),
    (EMBEDDING, {"messages": [[SAID]]}, "messages[0]"),
    (POOLING, {"task": "plugin"}, "task"),
    (POOLING, {"task": ["embed"]}, "task"),
    (POOLING, {"task": "score"}, "task"),
    *((SCORE, {"queries": "a", "documents": value}, "documents") for value in NO_TEXTS),
    (SCORE, {"queries": "a", "items": "b", "documents": "c"}, "queries"),
    (SCORE, {"text_1": "a", "data_2": "b"}, "text_1"),
    (SCORE, {"text_1": "a"}, "text_2"),
    (SCORE, {"data_1": None, "data_2": "a"}, "data_1"),
    (RERANKING, {"query": ["hi"]}, "query"),
    (RERANKING, {"query": ""}, "query"),
    (RERANKING, {"queries": "hi"}, "queries"),
    (TOKENIZATION, {"prompt": ["hi"]}, "prompt"),
    (TOKENIZATION, {"prompt": "hi", "messages": [SAID]}, "prompt"),
    (TOKENIZATION, {"messages": [SAID], "tools": [{"type": "mcp"}]}, "tools[0].type"),
    (DETOKENIZATION, {"tokens": ["hi"]}, "tokens"),
    (DETOKENIZATION, {"tokens": [True]}, "tokens"),
    (DETOKENIZATION, {"tokens": None}, "tokens"),
    (DETOKENIZATION, {"tokens": "hi"}, "tokens"),
]  # fmt: skip


@pytest.mark.parametrize(("route", "fields", "param"), REFUSED, ids=[f"{row[0].path} {row[2]}" for row in REFUSED])
def test_what_is_not_known_to_be_isolated_is_refused_by_name(route: Route, fields: dict[str, Any], param: str) -> None:
    assert sent(route)
    error = refused(route, **fields)
    assert error.param == param
    assert param in error.message
    assert len(error.message) < 300


@every_route
def test_what_is_asked_for_must_be_there(route: Route) -> None:
    good = GOOD[route.path]
    names = next(names for names in route.asks if names <= good.keys())
    for name in names:
        error = refused(route, **{name: None})
        assert (error.param, error.code) == (name, "invalid_type")
    assert refused(route, model=None).param == "model"


def test_a_whole_conversation_with_tools_passes_in_anthropics_words() -> None:
    fields: dict[str, Any] = {
        "system": [{"type": "text", "text": "be brief"}],
        "messages": [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "t", "name": "f", "input": {"cache_salt": "x", "uuid": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "42"}], "is_error": False},
                    {"type": "tool_result", "tool_use_id": "u", "content": "43"},
                    {"type": "tool_result", "tool_use_id": "v"},
                ],
            },
        ],
        "tools": [TOOL, {"type": "custom", "name": "g", "input_schema": {}}],
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"a": 1}}},
        "stop_sequences": ["end"],
        "max_tokens": 2000,
        "stream": True,
    }
    assert sent(MESSAGE, **fields) == {"model": "tiny", **fields, "cache_salt": SALT}
    del fields["stop_sequences"], fields["max_tokens"], fields["stream"]
    assert sent(COUNTING, **fields) == {"model": "tiny", **fields}


def test_marks_for_caches_are_removed_from_blocks_and_tools() -> None:
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    text, result = {"type": "text", "text": "hi"}, {"type": "tool_result", "tool_use_id": "t"}
    body = sent(
        MESSAGE,
        cache_control=mark["cache_control"],
        metadata={"user_id": "u"},
        system=[text | mark],
        tools=[TOOL | mark],
        messages=[{"role": "user", "content": [text | mark | {"uuid": "victim", "citations": None}, result | mark]} | mark],
    )
    assert (body["system"], body["tools"], body["messages"]) == ([text], [TOOL], [{"role": "user", "content": [text, result]}])
    assert not {"cache_control", "metadata"} & body.keys()


PASSES: list[tuple[Route, dict[str, Any]]] = [
    *((route, {"input": value}) for route in (EMBEDDING, POOLING, CLASSIFICATION)
      for value in ("a", ["a", "b"], [1, 2], [[1], [2]])),
    *((route, {"messages": [SAID]}) for route in (EMBEDDING, POOLING, CLASSIFICATION, TOKENIZATION)),
    *((SCORE, {one: "a", other: ["b", "c"]}) for one, other in (
        ("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2"),
    )),
    (BATCH, {"n": 1}),
    (TOKENIZATION, {"prompt": ""}),
    (DETOKENIZATION, {"tokens": []}),
]  # fmt: skip


@pytest.mark.parametrize(("route", "fields"), PASSES, ids=[f"{route.path} {'+'.join(fields)}" for route, fields in PASSES])
def test_what_is_text_or_tokens_passes_unchanged(route: Route, fields: dict[str, Any]) -> None:
    body = sent(route, **fields)
    assert body | fields == body
    assert body.keys() - {"model", "cache_salt"} == fields.keys() | (set() if "n" not in fields else {"messages"})
