"""A fuzzer of the pure session: parse, sanitize, digest, salt, on every route.

The invariants, for whatever a client sends:

- it is refused as a `BadBody`, or goes out; nothing else happens;
- our salt stands exactly once where the route takes one, and nowhere else;
- of what is removed or refused by name, nothing is in the bytes that are sent;
- what is sent parses strictly, and is itself clean;
- the content's digest is the same in any order of names, changes with every field that is content, and with no other.

`CACHESCOPE_FUZZ_EXAMPLES` asks for more than the unit tests have time for. What it found is among the cases of `test_contents`.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from cachescope.core.types import Salt
from cachescope.engines.routes import Dialect, Kind, Route
from cachescope.gateway.bodies import BadBody, Sanitized, content_digest, parse_body, sanitize, toolset_digest, with_salt
from cachescope.gateway.sieve import MARKS
from tests.unit.bodies import GOOD, ROUTES, SALT, salt_for

EXAMPLES = int(os.environ.get("CACHESCOPE_FUZZ_EXAMPLES", "60"))
CANARY = "canary-5be7"
# Below these names JSON is the client's own: schemas, and arguments of templates and tools.
FREE = {
    "parameters", "input_schema", "schema", "chat_template_kwargs", "response_format", "structured_outputs", "text", "reasoning",
    "logit_bias", "repetition_detection", "metadata", "documents",
}  # fmt: skip
ATTACKS = {
    "Cache_Salt",
    "cache_salt ",
    "cache-salt",
    "x-cache-salt",
    "cache_s\u0430lt",
    "image_url",
    "source",
    "url",
    "file_id",
    "",
}
HOSTILE = sorted(MARKS | ATTACKS | {name for route in ROUTES for name in (*route.body.drop, *route.body.refuse)})

routes = st.sampled_from(ROUTES)
texts = st.text(max_size=6)
integers = st.integers(-(2**53) + 1, 2**53 - 1)
numbers = integers | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | numbers | texts
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=5
)
objects = st.dictionaries(texts, anything, max_size=3)
OF_KIND: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.TEXT: texts,
    Kind.TEXTS: st.lists(texts, max_size=3),
    Kind.TEXT_OR_TEXTS: texts | st.lists(texts, max_size=3),
    Kind.BOOLEAN: st.booleans(),
    Kind.INTEGER: integers,
    Kind.INTEGERS: st.lists(integers, max_size=3),
    Kind.NUMBER: numbers,
    Kind.OBJECT: objects,
    Kind.LIST: st.lists(anything, max_size=3),
}


def parts(*names: str) -> st.SearchStrategy[Any]:
    return st.one_of(*(st.fixed_dictionaries({"type": st.just(kind), kind.split("_")[-1]: texts}) for kind in names))


def said(parts: st.SearchStrategy[Any], **more: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = {"role": st.sampled_from(["user", "assistant", "system", "tool"]), "content": texts | st.lists(parts, max_size=3)}
    return st.fixed_dictionaries(fields, optional=more)


function = st.fixed_dictionaries({"name": texts, "parameters": objects})
call = st.fixed_dictionaries({"type": st.just("function"), "id": texts, "function": st.just({"name": "f", "arguments": "{}"})})
chat = st.lists(
    said(parts("text", "refusal", "thinking"), name=texts, tool_calls=st.lists(call, max_size=2)), min_size=1, max_size=3
)
tool_use = st.fixed_dictionaries({"type": st.just("tool_use"), "id": texts, "name": texts})
tool_result = st.fixed_dictionaries({"type": st.just("tool_result"), "content": texts | st.lists(parts("text"), max_size=2)})
conversation = st.lists(said(parts("text", "thinking") | tool_use | tool_result), min_size=1, max_size=3)
item = said(parts("input_text", "output_text")) | st.fixed_dictionaries(
    {"type": st.just("function_call_output"), "call_id": texts, "output": texts | st.lists(parts("input_text"), max_size=2)}
)
prompts = st.text(min_size=1, max_size=6) | st.lists(integers, min_size=1, max_size=4) | st.lists(texts, min_size=1, max_size=3)
compared = st.text(min_size=1, max_size=6) | st.lists(texts, min_size=1, max_size=3)
ANTHROPIC: dict[str, st.SearchStrategy[Any]] = {
    "messages": conversation,
    "system": texts | st.lists(parts("text"), max_size=2),
    "tools": st.lists(st.fixed_dictionaries({"name": texts, "input_schema": objects}), max_size=2),
    "tool_choice": st.fixed_dictionaries({"type": texts}, optional={"name": texts}),
    "thinking": st.fixed_dictionaries({"type": texts}, optional={"budget_tokens": integers}),
    "output_config": st.fixed_dictionaries({}, optional={"format": st.fixed_dictionaries({"schema": objects})}),
}
SHAPED: dict[Dialect, dict[str, st.SearchStrategy[Any]]] = {
    Dialect.MESSAGE: ANTHROPIC,
    Dialect.COUNTING: ANTHROPIC,
    Dialect.RESPONSE: {
        "input": texts | st.lists(item, max_size=3),
        "tools": st.lists(function.map(lambda value: {"type": "function", **value}), max_size=2),
    },
    Dialect.CHAT_BATCH: {"messages": st.lists(chat, min_size=1, max_size=2), "n": st.just(1)},
}
ELSEWHERE: dict[str, st.SearchStrategy[Any]] = {
    "messages": chat,
    "prompt": prompts,
    "input": prompts,
    "tools": st.lists(function.map(lambda value: {"type": "function", "function": value}), max_size=2),
    "tool_choice": st.sampled_from(["auto", {"type": "function", "function": {"name": "f"}}]),
    "stream_options": st.just({"include_usage": True}),
    "chat_template_kwargs": objects,
    "task": st.sampled_from(["embed", "token_embed"]),
    "query": st.text(min_size=1, max_size=6),
}


def value_of(route: Route, name: str) -> st.SearchStrategy[Any]:
    kind = route.body.keep[name]
    if kind is not Kind.SHAPED:
        return OF_KIND[kind]
    return {**ELSEWHERE, **SHAPED.get(route.dialect, {})}.get(name, compared)


@st.composite
def well_meant(draw: st.DrawFn, route: Route) -> dict[str, Any]:
    """A body that the route takes, with some of all its fields."""
    asked = draw(st.sampled_from(route.asks))
    beside = sorted(route.body.keep.keys() - {name for names in route.asks for name in names} - {"model"})
    names = sorted(asked) + draw(st.lists(st.sampled_from(beside), unique=True, max_size=5) if beside else st.just([]))
    return {"model": "tiny", **{name: draw(value_of(route, name)) for name in names}}


def held(value: Any, name: str = "") -> Iterator[dict[str, Any]]:
    """The objects of a body that are held to a list of names."""
    if name in FREE or (name == "input" and isinstance(value, dict)):
        return
    if isinstance(value, dict):
        yield value
    for key, inner in value.items() if isinstance(value, dict) else ((name, item) for item in value):
        if isinstance(inner, dict | list):
            yield from held(inner, key)


@st.composite
def attacked(draw: st.DrawFn, route: Route) -> dict[str, Any]:
    """The same with names in it that must not pass, or with a part of any kind at all."""
    body = copy.deepcopy(draw(well_meant(route)))  # strategies hand out the same object again
    for _ in range(draw(st.integers(1, 3))):
        target = draw(st.sampled_from(list(held(body))))
        name = draw(st.sampled_from(HOSTILE) | texts)
        if not (target is body and name in route.body.keep) and name not in target:
            target[name] = copy.deepcopy(draw(st.sampled_from([CANARY, [CANARY], {"cache_salt": CANARY}])))
    return body


def session(route: Route, body: bytes) -> tuple[Sanitized, bytes] | None:
    """All that the gateway makes of a body before it knows who asks; `None` when that is refused."""
    try:
        clean = sanitize(route, parse_body(body))
        content_digest(route.dialect, clean.content)
        toolset_digest(clean.tools)
    except BadBody:
        return None
    return clean, with_salt(clean, salt_for(route))


def check(route: Route, clean: Sanitized, body: bytes) -> None:
    """The invariants of one body that goes out."""
    again = parse_body(body)
    assert again.pop("cache_salt", None) == salt_for(route)
    assert again == clean.fields
    assert again.keys() <= route.body.keep.keys() | route.forced.keys()
    assert body.count(SALT.encode()) == (route.salt is not None)
    assert sanitize(route, again).fields == clean.fields
    assert CANARY.encode() not in body


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: reordered(value[name]) for name in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@settings(max_examples=EXAMPLES)
@given(routes, st.data())
def test_what_is_meant_well_goes_out_as_it_is_with_our_salt(route: Route, data: st.DataObject) -> None:
    fields = data.draw(well_meant(route))
    found = session(route, json.dumps(fields).encode())
    if found is None:
        reject()  # a number without canonical form, or a template for the template's arguments; were it most of them, this fails
    clean, body = found
    check(route, clean, body)
    assert clean.fields == fields | dict(route.forced)
    assert not clean.stripped
    digest = content_digest(route.dialect, clean.content)
    assert content_digest(route.dialect, sanitize(route, reordered(fields)).content) == digest
    for name in fields:
        without = content_digest(route.dialect, {key: value for key, value in clean.content.items() if key != name})
        assert (without != digest) == (name not in route.not_content), name


@settings(max_examples=EXAMPLES)
@given(routes, st.data())
def test_what_must_not_pass_is_refused_or_gone(route: Route, data: st.DataObject) -> None:
    found = session(route, json.dumps(data.draw(attacked(route))).encode())
    if found is not None:
        check(route, *found)


@settings(max_examples=EXAMPLES)
@given(routes, st.dictionaries(texts | st.sampled_from(HOSTILE), anything, max_size=4), st.data())
def test_any_object_is_refused_or_goes_out_clean(route: Route, more: dict[str, Any], data: st.DataObject) -> None:
    some = data.draw(st.dictionaries(st.sampled_from(sorted(route.body.keep)), anything, max_size=4))
    found = session(route, json.dumps(GOOD[route.path] | more | some).encode())
    if found is not None:
        check(route, *found)


@settings(max_examples=EXAMPLES)
@given(routes, st.data())
def test_any_bytes_are_refused_or_go_out_clean(route: Route, data: st.DataObject) -> None:
    whole = json.dumps(data.draw(attacked(route))).replace(CANARY, "").encode()
    start, end = sorted(data.draw(st.tuples(st.integers(0, len(whole)), st.integers(0, len(whole)))))
    found = session(route, whole[:start] + data.draw(st.binary(max_size=8)) + whole[end:])
    if found is not None:
        check(route, *found)


@pytest.mark.parametrize("leak", ["a salt that is not ours", "a field that stays", "a salt twice"])
def test_the_fuzzer_notices_a_leak(leak: str) -> None:
    route = ROUTES[0]
    clean = sanitize(route, GOOD[route.path])
    body = {
        "a salt that is not ours": with_salt(clean, Salt("theirs")),
        "a field that stays": with_salt(clean, SALT).replace(b'"tiny"', b'"tiny","uuid":"' + CANARY.encode() + b'"'),
        "a salt twice": with_salt(clean, SALT).replace(b'"hi"', b'"hi","user":"' + SALT.encode() + b'"'),
    }[leak]
    with pytest.raises(AssertionError):
        check(route, clean, body)
    check(route, clean, with_salt(clean, SALT))
