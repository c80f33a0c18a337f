"""The client's body: parsed strictly, cleaned of what could choose or reveal a cache, and sent on with our salt.

Rules:

- what goes upstream is built from the parsed value, so that the engine reads what was checked here and nothing else;
- a field is kept by list, removed by list, or refused by name; nothing unknown passes;
- the salt is set last and stands exactly once, and on a route that takes none there is none;
- whatever is kept is content unless the route lists it as no content: a new field separates, it never joins;
- the dialect is part of the content: the same words make other tokens, or another answer, on another route. It is no part of the
  salt: engines compare blocks by their tokens, so that within a scope two routes share what is equal, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import orjson
import rfc8785

from cachescope.core.digests import Plain, canonical, sha256
from cachescope.core.record import ABSENT
from cachescope.core.types import Digest, Salt
from cachescope.engines.routes import Dialect, Route
from cachescope.gateway import anthropic_contents, contents, text_contents
from cachescope.gateway.sieve import BadBody, Check, Sieve
from cachescope.gateway.strict_json import Json, NotStrictJson, parse_object, shown

__all__ = ["BadBody", "Json", "Sanitized", "content_digest", "parse_body", "sanitize", "toolset_digest", "with_bypass", "with_salt"]

_SAFE_INTEGER = 2**53 - 1
# The library that canonicalises fractions is written in Python: this much takes it some ten milliseconds.
_MAX_BYTES_WITH_FRACTIONS = 32 * 1024


@dataclass(frozen=True, slots=True)
class Sanitized:
    """A body that is fit to be sent to an engine, but for its salt.

    Attributes:
        route: The route it is for.
        fields: The body; without the salt.
        stripped: Sorted names of what was removed; from fixed lists, so fit for a metric label.
        content: The fields that can change the tokens of the prompt.
        tools: The tool declarations, or an empty list.
        model: The model that the client asks for.
        stream: Whether the client asks for a stream.
    """

    route: Route
    fields: Mapping[str, Json]
    stripped: tuple[str, ...]
    content: Mapping[str, Json]
    tools: list[Json]
    model: str
    stream: bool


def parse_body(body: bytes) -> dict[str, Json]:
    """Parse a request's body.

    Raises:
        BadBody: It is not one JSON object with one meaning (`strict_json`).
    """
    try:
        return parse_object(body)
    except NotStrictJson as error:
        name = None if error.name is None else shown(error.name)
        raise BadBody(f"The body {error}", name, code="invalid_json") from None


def sanitize(route: Route, fields: Mapping[str, Json]) -> Sanitized:
    """Remove what could choose or reveal a cache, and refuse what is not known to be isolated.

    Args:
        route: The route that was asked for.
        fields: The parsed body; it is not changed.

    Raises:
        BadBody: A field is refused, unknown, missing or of the wrong kind; `param` names it.
    """
    sieve = Sieve()
    held = sieve.held(dict(fields), route.body, "")
    model = _model(held)
    _require(route, held)
    _begins_or_continues(held)
    checks = CHECKS[route.dialect]
    checked = {name: checks[name](value, sieve) if name in checks and value is not None else value for name, value in held.items()}
    clean = checked | dict(route.forced)
    tools = clean.get("tools")
    return Sanitized(
        route=route,
        fields=clean,
        stripped=tuple(sorted(sieve.removed)),
        content={name: value for name, value in clean.items() if name not in route.not_content and name not in route.forced},
        tools=tools if isinstance(tools, list) else [],
        model=model,
        stream=clean.get("stream") is True,
    )


def with_salt(sanitized: Sanitized, salt: Salt | None) -> bytes:
    """The exact bytes to send upstream.

    Args:
        sanitized: What `sanitize` returned.
        salt: The salt; `None` exactly where the route takes none.

    Raises:
        ValueError: The salt is empty, or missing, or there is one for a route without: an engine would serve without it in silence.
    """
    takes = sanitized.route.salt
    if takes is None:
        if salt is not None:
            raise ValueError(f"{sanitized.route.path} takes no salt; pass None")
        return orjson.dumps(sanitized.fields)
    if not salt:
        raise ValueError("a salt is never empty; build one with cachescope.core.salts")
    if takes.name in sanitized.fields:
        raise RuntimeError("the body still holds a salt; pass what sanitize() returned")
    return orjson.dumps({**sanitized.fields, takes.name: salt})


def with_bypass(sanitized: Sanitized, *, reuse: bool) -> bytes:
    """The exact bytes to send to an engine that knows no salts.

    Args:
        sanitized: What `sanitize` returned.
        reuse: Whether it may use what the engine has; otherwise it carries the field that says so, where there is one.

    Raises:
        ValueError: The route takes a salt: without one an engine would serve it in silence.
    """
    if sanitized.route.salt is not None:
        raise ValueError(f"{sanitized.route.path} takes a salt; use with_salt")
    bypass = sanitized.route.unsalted.bypass if sanitized.route.unsalted and not reuse else {}
    return orjson.dumps({**sanitized.fields, **bypass})


def content_digest(dialect: Dialect, content: Mapping[str, Json]) -> Digest:
    """Digest of what a request says in a dialect, over canonical JSON (RFC 8785).

    Raises:
        BadBody: A number has no canonical form; `param` names its field.
    """
    lines = b",".join(orjson.dumps(name) + b":" + _canonical(name, content[name]) for name in sorted(content))
    return sha256(b'{"content":{' + lines + b'},"dialect":' + orjson.dumps(dialect.value) + b"}")


def toolset_digest(tools: list[Json]) -> Digest:
    """Digest of the tool declarations, over canonical JSON; `ABSENT` where there are none.

    Raises:
        BadBody: A number has no canonical form.
    """
    return sha256(_canonical("tools", tools)) if tools else ABSENT


def _canonical(name: str, value: Json) -> bytes:
    if _is_token_ids(value):
        return orjson.dumps(value)  # its own canonical form; prompts of 100,000 tokens come this way
    try:
        return canonical(cast("Plain", value))  # the same bytes, an order of magnitude sooner, for all that has no fractions
    except ValueError:
        return _canonical_with_fractions(name, value)


def _canonical_with_fractions(name: str, value: Json) -> bytes:
    if len(orjson.dumps(value)) > _MAX_BYTES_WITH_FRACTIONS:
        raise BadBody(f"{name} is too large for a value with fractions; send the numbers as text", name)
    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError:
        raise BadBody(f"{name} {_beyond(value)}", name) from None


def _beyond(value: Json) -> str:
    """What is wrong with a value that holds too large an integer, and what to send: only within objects text may stand for it."""
    if isinstance(value, int):
        return "is an integer beyond 2**53 - 1; send a smaller one"
    objects = [value] if isinstance(value, dict) else [item for item in cast("list[Json]", value) if isinstance(item, dict)]
    return f"holds an integer beyond 2**53 - 1; send a smaller one{', or text' if objects else ''}"


def _is_token_ids(value: Json) -> bool:
    if not isinstance(value, list) or set(map(type, value)) != {int}:
        return False
    numbers = cast("list[int]", value)
    return min(numbers) >= 0 and max(numbers) <= _SAFE_INTEGER


def _model(fields: Mapping[str, Json]) -> str:
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise BadBody("model is missing or not text; name one of GET /v1/models", "model", code="missing_required_parameter")
    return model


def _require(route: Route, fields: Mapping[str, Json]) -> None:
    """What is asked for is there: exactly one of the route's alternatives."""
    given = fields.keys() & frozenset().union(*route.asks)
    if empty := sorted(name for name in given if fields[name] is None):
        raise BadBody(f"{empty[0]} is null; send {_choices(route)}", empty[0], code="invalid_type")
    if given in route.asks:
        return
    if begun := [names for names in route.asks if given < names]:
        name = sorted(begun[0] - given)[0]
        raise BadBody(f"{name} is missing; send {_choices(route)}", name, code="missing_required_parameter")
    one = sorted(given)[-1]
    raise BadBody(f"{one} is one too many; send {_choices(route)}", one, code="unsupported_parameter")


def _begins_or_continues(fields: Mapping[str, Json]) -> None:
    """An answer is not both begun and continued: vLLM refuses that, and 0.31 may quote the body with its salt when it does."""
    if fields.get("add_generation_prompt") is True and fields.get("continue_final_message") is True:
        why = "continue_final_message and add_generation_prompt are both true; set one of them to false"
        raise BadBody(why, "continue_final_message")


def _choices(route: Route) -> str:
    return ", or ".join(" and ".join(sorted(names)) for names in route.asks)


_OF_CHATS: Mapping[str, Check] = {"messages": contents.messages, "chat_template_kwargs": contents.template_arguments}
_OF_CHAT: Mapping[str, Check] = {
    **_OF_CHATS,
    "stream_options": contents.stream_options,
    "tool_choice": contents.tool_choice,
    "tools": contents.chat_tools,
}
_OF_INPUT: Mapping[str, Check] = {**_OF_CHATS, "input": text_contents.prompt("input")}
_OF_MESSAGE: Mapping[str, Check] = {
    "messages": anthropic_contents.messages,
    "system": anthropic_contents.system,
    "tools": anthropic_contents.tools,
    "tool_choice": anthropic_contents.tool_choice,
    "thinking": anthropic_contents.thinking,
    "output_config": anthropic_contents.output_config,
    "chat_template_kwargs": contents.template_arguments,
}
_OF_PAIRS: Mapping[str, Check] = {
    "chat_template_kwargs": contents.template_arguments,
    **{name: text_contents.texts(name) for name in (
        "queries", "documents", "items", "data_1", "data_2", "text_1", "text_2",
    )},
}  # fmt: skip
CHECKS: Mapping[Dialect, Mapping[str, Check]] = {
    Dialect.CHAT: _OF_CHAT,
    Dialect.CHAT_BATCH: {**_OF_CHATS, "messages": contents.conversations, "n": contents.one_answer},
    Dialect.COMPLETION: {"prompt": text_contents.prompt("prompt"), "stream_options": contents.stream_options},
    Dialect.RESPONSE: {
        "input": contents.items,
        "tools": contents.response_tools,
        "tool_choice": contents.tool_choice,
        "chat_template_kwargs": contents.template_arguments,
    },
    Dialect.MESSAGE: _OF_MESSAGE,
    Dialect.COUNTING: _OF_MESSAGE,
    Dialect.EMBEDDING: _OF_INPUT,
    Dialect.POOLING: {**_OF_INPUT, "task": text_contents.task},
    Dialect.CLASSIFICATION: _OF_INPUT,
    Dialect.SCORE: _OF_PAIRS,
    Dialect.RERANKING: {**_OF_PAIRS, "query": text_contents.query},
    Dialect.TOKENIZATION: {**_OF_CHATS, "tools": contents.chat_tools},
    Dialect.DETOKENIZATION: {},
}
"""By dialect and name: how a field of kind `SHAPED` is held to its shape."""
