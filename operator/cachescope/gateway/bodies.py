"""The client's body: parsed strictly, cleaned of what could choose or reveal a cache, and sent on with our salt.

Rules:

- what goes upstream is built from the parsed value, so that the engine reads what was checked here and nothing else;
- a field is kept by list, removed by list, or refused by name; nothing unknown passes;
- the salt is set last and stands exactly once;
- whatever is kept is content unless the route lists it as no content: a new field separates, it never joins.
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
from cachescope.gateway import contents
from cachescope.gateway.contents import BadBody, Check, Sieve
from cachescope.gateway.strict_json import Json, NotStrictJson, parse_object, shown

__all__ = ["BadBody", "Json", "Sanitized", "content_digest", "parse_body", "sanitize", "toolset_digest", "with_salt"]

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
    checked = {name: _checked(route, name, value, sieve) for name, value in held.items()}
    _require(route, checked)
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


def with_salt(sanitized: Sanitized, salt: Salt) -> bytes:
    """The exact bytes to send upstream.

    Raises:
        ValueError: The salt is empty; an engine would take the request for an unsalted one.
    """
    if not salt:
        raise ValueError("a salt is never empty; build one with cachescope.core.salts")
    salt_field = sanitized.route.salt_field
    if salt_field in sanitized.fields:
        raise RuntimeError("the body still holds a salt; pass what sanitize() returned")
    return orjson.dumps({**sanitized.fields, salt_field: salt})


def content_digest(content: Mapping[str, Json]) -> Digest:
    """Digest of what a request says, over canonical JSON (RFC 8785).

    Raises:
        BadBody: A number has no canonical form; `param` names its field.
    """
    lines = b",".join(orjson.dumps(name) + b":" + _canonical(name, content[name]) for name in sorted(content))
    return sha256(b"{" + lines + b"}")


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
        raise BadBody(f"{name} holds an integer beyond 2**53 - 1; send it as text", name) from None


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


def _checked(route: Route, name: str, value: Json, sieve: Sieve) -> Json:
    check = _CHECKS[route.dialect].get(name)
    if check is None or (value is None and name not in _REQUIRED.values()):
        return value
    return check(value, sieve)


def _require(route: Route, fields: Mapping[str, Json]) -> None:
    name = _REQUIRED[route.dialect]
    if name not in fields:
        raise BadBody(f"{name} is missing; send it", name, code="missing_required_parameter")


_REQUIRED = {Dialect.CHAT: "messages", Dialect.COMPLETION: "prompt", Dialect.RESPONSE: "input"}
_EVERYWHERE: Mapping[str, Check] = {
    "stream": contents.stream,
    "stream_options": contents.stream_options,
    "tool_choice": contents.tool_choice,
    "chat_template_kwargs": contents.template_arguments,
}
_CHECKS: Mapping[Dialect, Mapping[str, Check]] = {
    Dialect.CHAT: {**_EVERYWHERE, "messages": contents.messages, "tools": contents.chat_tools},
    Dialect.COMPLETION: {**_EVERYWHERE, "prompt": contents.prompt},
    Dialect.RESPONSE: {**_EVERYWHERE, "input": contents.items, "tools": contents.response_tools},
}
