"""Signed documents: every changed bit, field, key, purpose or version is refused."""

from __future__ import annotations

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachescope.core.errors import WireFormatError
from cachescope.core.keys import Key, KeyRing
from cachescope.core.signed import MAX_CHARACTERS, claimed, key_id_of, read_signed, sign
from tests.unit.core_strategies import KEY, NEWER_KEY, OTHER_KEY

RING = KeyRing.of(KEY)
PAYLOAD = {"id": "x", "n": 7, "nested": [["a", 1]], "text": "é"}
TEXT = sign(KEY, "permit", PAYLOAD)
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.=+/ \n\0é"


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def test_a_document_is_read_as_it_was_signed() -> None:
    assert read_signed(RING, "permit", TEXT) == PAYLOAD
    assert TEXT.isascii()


@pytest.mark.parametrize("position", range(len(TEXT)))
def test_any_other_character_at_any_place_is_refused(position: int) -> None:
    for character in ALPHABET:
        if character != TEXT[position]:
            with pytest.raises(WireFormatError, match="; "):
                read_signed(RING, "permit", TEXT[:position] + character + TEXT[position + 1 :])


@given(st.integers(0, 3), st.integers(0, 10_000), st.integers(0, 7))
def test_any_flipped_bit_of_any_part_is_refused(part: int, place: int, bit: int) -> None:
    parts = TEXT.split(".")
    content = bytearray(base64.urlsafe_b64decode(parts[part] + "=" * (-len(parts[part]) % 4)) if part else parts[0].encode())
    content[place % len(content)] ^= 1 << bit
    parts[part] = _encoded(bytes(content)) if part else content.decode("latin-1")
    with pytest.raises(WireFormatError):
        read_signed(RING, "permit", ".".join(parts))


@given(st.text(max_size=60))
def test_any_text_is_refused_quietly(text: str) -> None:
    for candidate in (text, "v1." + text, f"v1.{text}.{text}.{text}", TEXT + text + "x"):
        with pytest.raises(WireFormatError):
            read_signed(RING, "permit", candidate)


def test_characters_left_out_or_added_are_refused() -> None:
    for length in range(len(TEXT)):
        with pytest.raises(WireFormatError):
            read_signed(RING, "permit", TEXT[:length])
    for candidate in (TEXT + "=", TEXT + "A", TEXT + ".", "." + TEXT, TEXT + "\n", TEXT.replace(".", "..", 1)):
        with pytest.raises(WireFormatError):
            read_signed(RING, "permit", candidate)


def test_a_document_of_one_purpose_is_worthless_for_another() -> None:
    for purpose in ("statement", "permi", "permitt", ""):
        with pytest.raises(WireFormatError, match="does not match"):
            read_signed(RING, purpose, TEXT)


def test_another_or_an_unknown_key_is_refused_and_an_older_one_is_read() -> None:
    with pytest.raises(WireFormatError, match="does not match"):
        read_signed(KeyRing.of(OTHER_KEY), "permit", TEXT)
    with pytest.raises(WireFormatError, match="unknown key"):
        read_signed(KeyRing.of(NEWER_KEY), "permit", TEXT)
    assert read_signed(KeyRing.of(NEWER_KEY, KEY), "permit", TEXT) == PAYLOAD


def test_a_document_names_its_key() -> None:
    assert (key_id_of(TEXT), key_id_of(sign(NEWER_KEY, "permit", PAYLOAD))) == (KEY.id, NEWER_KEY.id)
    with pytest.raises(WireFormatError):
        key_id_of("text")


def test_a_key_under_another_id_is_another_key() -> None:
    renamed = Key("renamed", KEY.secret)
    parts = TEXT.split(".")
    with pytest.raises(WireFormatError, match="does not match"):
        read_signed(KeyRing.of(renamed), "permit", ".".join([parts[0], _encoded(b"renamed"), *parts[2:]]))


@pytest.mark.parametrize("content", [b"[]", b"7", b"null", b"{", b"\xff", b""])
def test_a_signed_value_that_is_no_object_is_refused(content: bytes) -> None:
    mac = KEY.mac("cachescope/signed", "permit", "v1", KEY.id, content)
    text = ".".join(["v1", _encoded(KEY.id.encode()), _encoded(content), _encoded(mac)])
    with pytest.raises(WireFormatError, match="not a JSON object"):
        read_signed(RING, "permit", text)


def test_a_document_longer_than_a_header_may_be_is_refused() -> None:
    long = sign(KEY, "permit", {"x": "y" * MAX_CHARACTERS})
    with pytest.raises(WireFormatError, match="four parts"):
        read_signed(RING, "permit", long)


def test_a_document_that_is_too_deep_is_refused_and_ends_nothing() -> None:
    deep = b"[" * 5000 + b"]" * 5000
    mac = KEY.mac("cachescope/signed", "lease", "v1", KEY.id, deep)
    text = f"v1.{_encoded(KEY.id.encode())}.{_encoded(deep)}.{_encoded(mac)}"
    with pytest.raises(WireFormatError, match="not a JSON object"):
        read_signed(RING, "lease", text, most=100_000)


def _signed(body: bytes) -> str:
    """Whatever a holder of the key likes."""
    mac = KEY.mac("cachescope/signed", "lease", "v1", KEY.id, body)
    return f"v1.{_encoded(KEY.id.encode())}.{_encoded(body)}.{_encoded(mac)}"


@given(st.dictionaries(st.text(), st.integers() | st.text()))
def test_a_deflated_document_is_read_as_it_was_signed(payload: dict[str, int | str]) -> None:
    text = sign(KEY, "lease", payload, deflated=True)
    assert read_signed(RING, "lease", text, most_inflated=10**6) == claimed(text, most_inflated=10**6) == payload
    plain = sign(KEY, "lease", payload)
    assert read_signed(RING, "lease", plain, most_inflated=10**6) == payload


def test_a_document_is_inflated_where_it_may_be_and_up_to_a_length() -> None:
    text = sign(KEY, "lease", {"x": "y" * 100_000}, deflated=True)
    assert len(text) < 2000
    assert len(read_signed(RING, "lease", text, most_inflated=100_008)["x"]) == 100_000
    for most in (0, 1, 100_007):
        with pytest.raises(WireFormatError, match="not a JSON object"):
            read_signed(RING, "lease", text, most_inflated=most)


EMPTY = zlib.compress(b"{}")


@pytest.mark.parametrize("body", [b"", b"[1]", b"x", zlib.compress(b"[1]"), EMPTY[:-1], EMPTY + b"{}"])
def test_a_payload_that_is_cut_or_goes_on_is_refused(body: bytes) -> None:
    assert read_signed(RING, "lease", _signed(EMPTY), most_inflated=1000) == {}
    with pytest.raises(WireFormatError, match="not a JSON object"):
        read_signed(RING, "lease", _signed(body), most_inflated=1000)


def test_nothing_is_inflated_that_nobody_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    text = sign(KEY, "lease", PAYLOAD, deflated=True)
    monkeypatch.setattr(zlib, "decompressobj", pytest.fail)
    with pytest.raises(WireFormatError, match="MAC"):
        read_signed(RING, "lease", text[:-4] + ("AAAA" if text[-4:] != "AAAA" else "BBBA"), most_inflated=1000)
