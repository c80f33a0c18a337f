"""JSON that has one meaning: what two parsers could read differently is refused.

Rules (RFC 8259 and I-JSON, RFC 7493):

- UTF-8 without a byte order mark, one value, nothing after it;
- no name twice in an object, at any depth: of two parsers one takes the first, the other the last;
- no NaN, no infinity, no number that overflows; integers fit 64 bits, signed or unsigned;
- no half of a surrogate pair; at most 64 levels, counted before parsing, so that no input exhausts the stack.
"""

from __future__ import annotations

import json
import math
import re
from typing import TypeAlias

MAX_DEPTH = 64
MAX_PIECES = 200_000
"""Most commas, colons and brackets outside of texts; a prompt of 200,000 token ids just passes."""

_PIECES = (b",", b":", b"[", b"{")

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
"""A parsed JSON value."""

_SHOWN = 64
_INTEGERS = range(-(2**63), 2**64)
_BOM = b"\xef\xbb\xbf"
# The closing quote is optional: an unterminated text is consumed to the end, once, so that the scan stays linear.
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class NotStrictJson(ValueError):  # noqa: N818 - a finding, not a failure
    """The bytes are not JSON with one meaning.

    Attributes:
        name: The object member at fault, where there is one.
    """

    def __init__(self, message: str, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


def parse(content: bytes) -> Json:
    """Parse one strict JSON value.

    Raises:
        NotStrictJson: A rule of this module is broken; the message says which, and quotes no value.
    """
    if content.startswith(_BOM):
        raise NotStrictJson("starts with a byte order mark; send UTF-8 without one")
    _check_depth(content)
    _check_pieces(content)
    try:
        value: Json = _DECODER.decode(content.decode())
    except UnicodeDecodeError as error:
        raise NotStrictJson(f"is not UTF-8 at byte {error.start}; encode it as UTF-8") from None
    except json.JSONDecodeError as error:
        raise NotStrictJson(f"is not JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    if _SURROGATE.search(content):
        _check_surrogates(value)
    return value


def parse_object(content: bytes) -> dict[str, Json]:
    """Parse one strict JSON object.

    Raises:
        NotStrictJson: The bytes are not strict JSON, or another kind of value.
    """
    value = parse(content)
    if not isinstance(value, dict):
        raise NotStrictJson("is not a JSON object; send an object in braces")
    return value


def shown(name: str) -> str:
    """A client's name as it may stand in a message or a log line: short, printable ASCII."""
    text = ascii(name)[1:-1]
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _check_depth(content: bytes) -> None:
    if content.count(b"[") + content.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for bracket in _TEXT.sub(b"", content).translate(None, _NOT_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise NotStrictJson(f"is nested deeper than {MAX_DEPTH} levels; flatten it")


def _check_pieces(content: bytes) -> None:
    """Bound the work, not only the bytes: sixteen megabytes of `[],[],` cost a thousand times what one long text does."""
    if sum(map(content.count, _PIECES)) <= MAX_PIECES:
        return
    outside = _TEXT.sub(b"", content)
    if sum(map(outside.count, _PIECES)) > MAX_PIECES:
        raise NotStrictJson(f"holds more than {MAX_PIECES} values; send fewer")


def _check_surrogates(value: Json) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise NotStrictJson("holds half of a surrogate pair; send whole characters") from None


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise NotStrictJson(f"holds the name '{shown(twice)}' twice in one object; send it once", twice)
    return fields


def _integer(text: str) -> int:
    if len(text) < 19:  # always fits; token ids come by the hundred thousand
        return int(text)
    # 20 characters hold every 64-bit integer; longer text is never converted, which takes quadratic time.
    if len(text) > 20 or int(text) not in _INTEGERS:
        raise NotStrictJson("holds an integer beyond 64 bits; send a smaller one, or text where text may stand")
    return int(text)


def _real(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise NotStrictJson("holds a number that overflows; send a smaller one")
    return value


def _constant(text: str) -> float:
    raise NotStrictJson(f"holds {text}, which is not JSON; send a number or null")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_real, parse_constant=_constant)
