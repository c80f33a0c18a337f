"""What counts as text of a source: only what the template takes whole; everything else is something else."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from cachescope.core.digests import sha256
from cachescope.engines.vllm import ROUTES
from cachescope.gateway.bodies import BadBody, parse_body, sanitize
from cachescope.gateway.sent_texts import sent_texts

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
ASK = {"role": "user", "content": "one"}
FUNCTION = {"type": "function", "function": {"name": "f"}}
BASE: dict[str, dict[str, Any]] = {CHAT: {"messages": [ASK]}, COMPLETIONS: {"prompt": "one"}, RESPONSES: {"input": "one"}}


def sent(path: str, **fields: Any) -> set[str] | None:
    """The texts that are sent, by what they are the digests of."""
    body = {"model": "tiny", **BASE[path], **fields}
    found = sent_texts(sanitize(ROUTES["POST", path], parse_body(json.dumps(body).encode())))
    known = {sha256(text.encode()): text for text in ("one", "two", "drei ü", "")}
    return None if found is None else {known[digest] for digest in found}


SOURCES = [
    (CHAT, {}, {"one"}),
    (CHAT, {"messages": [{"role": "system", "content": "drei ü"}, ASK]}, {"one", "drei ü"}),
    (CHAT, {"messages": [{**ASK, "content": [{"type": "text", "text": text} for text in ("one", "two")]}]}, {"one", "two"}),
    (CHAT, {"messages": [{"role": "assistant", "content": None}, ASK]}, {"one"}),
    (CHAT, {"messages": [{"role": "user", "content": ""}, ASK]}, {"one", ""}),
    (CHAT, {"messages": [{**ASK, "name": None}]}, {"one"}),
    (CHAT, {"tools": [FUNCTION], "tool_choice": "auto"}, {"one"}),
    (CHAT, {"max_tokens": 8, "temperature": 0.5, "stream": True, "stream_options": {"include_usage": True}, "seed": 1}, {"one"}),
    (CHAT, {"stop": None, "response_format": None, "n": 2, "logprobs": True}, {"one"}),
    (COMPLETIONS, {}, {"one"}),
    (COMPLETIONS, {"prompt": ["one", "two"], "echo": True}, {"one", "two"}),
    (RESPONSES, {"instructions": "two", "max_output_tokens": 8}, {"one", "two"}),
    (RESPONSES, {"input": [{"type": "message", **ASK}, {"role": "user", "content": [{"type": "input_text", "text": "two"}]}]},
     {"one", "two"}),
]  # fmt: skip
OTHERS = [
    (CHAT, {"messages": [{**ASK, "name": "alice"}]}),
    (CHAT, {"messages": [{**ASK, "role": "alice"}]}),
    (CHAT, {"messages": [{**ASK, "role": "tool", "tool_call_id": "c1"}]}),
    (
        CHAT,
        {
            "messages": [
                {"role": "assistant", "tool_calls": [{**FUNCTION, "id": "c1", "function": {"name": "f", "arguments": "{}"}}]}
            ]
        },
    ),
    (CHAT, {"messages": [{**ASK, "reasoning": "because"}]}),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "refusal", "refusal": "one"}]}]}),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "thinking", "thinking": "one"}]}]}),
    (CHAT, {"tools": [FUNCTION], "tool_choice": FUNCTION}),
    (CHAT, {"tool_choice": "alice"}),
    (CHAT, {"documents": [{"title": "t", "text": "one"}]}),
    (CHAT, {"chat_template_kwargs": {"today": "monday"}}),
    (CHAT, {"chat_template_kwargs": {}}),
    (CHAT, {"reasoning_effort": "high"}),
    (CHAT, {"response_format": {"type": "text"}}),
    (CHAT, {"structured_outputs": {"regex": "a"}}),
    (CHAT, {"truncate_prompt_tokens": 7}),
    (CHAT, {"continue_final_message": True, "add_generation_prompt": False}),
    (CHAT, {"stop": ["alice"]}),
    (CHAT, {"stop": "alice"}),
    (CHAT, {"user": "alice"}),
    (CHAT, {"bad_words": ["alice"]}),
    (CHAT, {"logit_bias": {"7": 1}}),
    (CHAT, {"stop_token_ids": [7]}),
    (COMPLETIONS, {"suffix": "two"}),
    (COMPLETIONS, {"prompt": [1, 2, 3]}),
    (COMPLETIONS, {"prompt": [[1, 2], [3]]}),
    (COMPLETIONS, {"prompt": ["one", [3]]}),
    (RESPONSES, {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]}),
    (RESPONSES, {"input": [{"type": "message", **ASK, "id": "m1"}]}),
    (RESPONSES, {"input": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "one"}]}]}),
    (RESPONSES, {"reasoning": {"effort": "high"}}),
    (RESPONSES, {"text": {"format": {"type": "text"}}}),
    (RESPONSES, {"metadata": {"a": "b"}}),
    (RESPONSES, {"include": ["alice"]}),
]


@pytest.mark.parametrize(("path", "fields", "texts"), SOURCES)
def test_texts_are_found_where_the_template_takes_them_whole(path: str, fields: dict[str, Any], texts: set[str]) -> None:
    assert sent(path, **fields) == texts


@pytest.mark.parametrize(("path", "fields"), OTHERS)
def test_anything_else_is_no_text_of_a_source(path: str, fields: dict[str, Any]) -> None:
    assert sent(path) == {"one"}
    assert sent(path, **fields) is None


@pytest.mark.parametrize("path", BASE)
def test_any_other_field_that_holds_text_is_something_else(path: str) -> None:
    route = ROUTES["POST", path]
    texts = {"model", "messages", "prompt", "input", "instructions"}
    found: dict[str, object] = {}
    for name in sorted(
        route.body.keep.keys() - texts - {"tools", "tool_choice", "stream", "stream_options", "chat_template_kwargs"}
    ):
        with suppress(BadBody):  # it takes no text
            found[name] = sent(path, **{name: "one"})
    assert found
    assert set(found.values()) == {None}, found
