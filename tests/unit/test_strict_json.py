"""Parsing: a body has one meaning, or is refused in linear time."""

from __future__ import annotations

import contextlib
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachescope.gateway.bodies import BadBody, parse_body


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"{}", {}),
        (b' \t\r\n{"a": 1}\n', {"a": 1}),
        ('{"\u00e9": "\U0001f600", "e\\u0301": "\\ud83d\\ude00"}'.encode(), {"\u00e9": "\U0001f600", "e\u0301": "\U0001f600"}),
        (b'{"a": {"x": 1}, "b": {"x": 1}}', {"a": {"x": 1}, "b": {"x": 1}}),
        (b'{"a": [-9223372036854775808, 18446744073709551615, 1e308, -0.0]}', {"a": [-(2**63), 2**64 - 1, 1e308, 0.0]}),
        (b'{"a": "[[[[{{{{\\"[[["}', {"a": '[[[[{{{{"[[['}),
        (b'{"a": ' + b"[" * 63 + b"]" * 63 + b"}", None),
        (b'{"a": [' + b"[]," * 500 + b'"' + b"[" * 500 + b'"]}', None),
        (b'{"a": "\\\\ud800"}', {"a": "\\ud800"}),
    ],
)
def test_strict_json_is_parsed(body: bytes, value: object) -> None:
    assert parse_body(body) == (json.loads(body) if value is None else value)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        pytest.param(b'{"cache_salt": "a", "cache_salt": "b"}', "cache_salt", id="a salt twice"),
        pytest.param(b'{"cache_salt": "a", "\\u0063ache_salt": "b"}', "cache_salt", id="a salt twice, once escaped"),
        pytest.param(b'{"a": {"b": [{"c": 1, "c": 1}]}}', "c", id="a name twice, deep and equal"),
        pytest.param(b'{"": 1, "": 2}', "", id="an empty name twice"),
        pytest.param(b'\xef\xbb\xbf{"a": 1}', None, id="byte order mark"),
        pytest.param('{"a": 1}'.encode("utf-16"), None, id="UTF-16 with mark"),
        pytest.param('{"a": 1}'.encode("utf-16-le"), None, id="UTF-16"),
        pytest.param('{"a": 1}'.encode("utf-32"), None, id="UTF-32 with mark"),
        pytest.param('{"a": 1}'.encode("utf-32-be"), None, id="UTF-32"),
        pytest.param(b'{"a": "\xff"}', None, id="no UTF-8"),
        pytest.param(b'{"a": "\xc0\xaf"}', None, id="overlong UTF-8"),
        pytest.param(b'{"a": "\xed\xa0\x80"}', None, id="a surrogate in UTF-8"),
        pytest.param(b'{"a": "\\ud800"}', None, id="half of a pair"),
        pytest.param(b'{"a": "\\uDC00\\uD800"}', None, id="a pair the wrong way round"),
        pytest.param(b'{"\\udfff": 1}', None, id="half of a pair in a name"),
        pytest.param(b'{"a": 1} {"a": 2}', None, id="a second value"),
        pytest.param(b'{"a": 1}x', None, id="trailing garbage"),
        pytest.param(b'{"a": 1}\x00', None, id="trailing NUL"),
        pytest.param(b'{"a": 1,}', None, id="trailing comma"),
        pytest.param(b"{'a': 1}", None, id="single quotes"),
        pytest.param(b'{"a": 1 /* b */}', None, id="a comment"),
        pytest.param(b'{"a": "\n"}', None, id="raw line end in text"),
        pytest.param(b'{"a": NaN}', None, id="NaN"),
        pytest.param(b'{"a": -Infinity}', None, id="infinity"),
        pytest.param(b'{"a": 1e999}', None, id="overflow"),
        pytest.param(b'{"a": -1e999}', None, id="negative overflow"),
        pytest.param(b'{"a": 01}', None, id="leading zero"),
        pytest.param(b'{"a": +1}', None, id="plus"),
        pytest.param(b'{"a": 18446744073709551616}', None, id="above unsigned 64 bits"),
        pytest.param(b'{"a": -9223372036854775809}', None, id="below signed 64 bits"),
        pytest.param(b'{"a": ' + b"9" * 100_000 + b"}", None, id="a hundred thousand digits"),
        pytest.param(b'{"a": ' + b"[" * 64 + b"]" * 64 + b"}", None, id="65 levels"),
        pytest.param(b"[" * 1_000_000, None, id="a million levels"),
        pytest.param(b'{"a":' * 100_000, None, id="a hundred thousand objects"),
        pytest.param(b'{"a": "\\"' + b"[" * 100 + b'", "b": ' + b"[" * 100 + b"]" * 100 + b"}", None, id="levels behind text"),
        pytest.param(b"[]", None, id="a list"),
        pytest.param(b'"text"', None, id="text"),
        pytest.param(b"null", None, id="null"),
        pytest.param(b"", None, id="nothing"),
        pytest.param(b"\x1f\x8b\x08\x00", None, id="compressed"),
    ],
)
def test_json_with_more_than_one_meaning_is_refused(body: bytes, param: str | None) -> None:
    with pytest.raises(BadBody) as caught:
        parse_body(body)
    assert caught.value.code == "invalid_json"
    assert caught.value.param == param
    assert len(caught.value.message) < 300


def test_hostile_bodies_are_judged_in_linear_time() -> None:
    quotes = b'{"a":' * 70 + b'"' + b'\\"' * 2_000_000
    digits = b'{"a": ' + b"1" * 2_000_000 + b"}"
    start = time.thread_time()
    for body in (quotes, digits, b"[" * 4_000_000):
        with pytest.raises(BadBody):
            parse_body(body)
    assert time.thread_time() - start < 2, "seconds of this thread's own work, however busy the machine is"


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_a_bad_body(body: bytes) -> None:
    with contextlib.suppress(BadBody):
        assert isinstance(parse_body(body), dict)
