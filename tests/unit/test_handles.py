"""Handles: an expectation that is compared whole, and that tells its holder nothing."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachescope.core.handles import _REASONS, MAX_CHARACTERS, Expectation, Outcome, compared, read, written
from cachescope.core.keys import Key, KeyRing
from cachescope.core.record import IdentityRecord
from cachescope.gateway import handles
from cachescope.gateway.handles import presented, seal
from tests.unit.core_strategies import KEY, NEWER_KEY, OTHER_KEY, RECORD, variants

NOW, LATER = 1_000.0, 4_600
RING = KeyRing.of(KEY)
EXPECTED = Expectation(RECORD, LATER)
VARIANTS = variants(RECORD)


def sealed(expected: Expectation = EXPECTED, key: Key = KEY) -> str:
    return seal(key, expected, os.urandom)


def test_the_same_request_matches() -> None:
    assert presented(RING, sealed(), RECORD, now=NOW) is Outcome.MATCHES


@pytest.mark.parametrize("field", VARIANTS)
def test_any_field_that_differs_is_a_miss_with_its_reason(field: str) -> None:
    assert presented(RING, sealed(), VARIANTS[field], now=NOW) is _REASONS[field.partition(".")[0]]


def test_every_field_of_a_record_is_compared() -> None:
    assert [item.name for item in fields(IdentityRecord) if item.name not in _REASONS] == []


def test_it_expires_at_its_second() -> None:
    assert compared(EXPECTED, RECORD, now=LATER - 0.001) is Outcome.MATCHES
    assert compared(EXPECTED, RECORD, now=LATER) is Outcome.EXPIRED


def test_it_is_sealed_anew_each_time_and_shows_nothing_of_what_it_holds() -> None:
    first, second = sealed(), sealed()
    assert first != second
    assert RECORD.namespace not in first
    assert RECORD.content_digest.removeprefix("sha256:") not in first


def test_a_rotated_key_still_opens_and_one_that_is_gone_does_not() -> None:
    both = KeyRing.of(KEY, NEWER_KEY)
    assert presented(both, sealed(key=KEY), RECORD, now=NOW) is Outcome.MATCHES
    assert presented(KeyRing.of(NEWER_KEY), sealed(key=KEY), RECORD, now=NOW) is Outcome.UNREADABLE


def test_a_handle_of_before_a_new_key_is_of_an_old_generation_and_not_somebody_elses() -> None:
    both, other = KeyRing.of(KEY, NEWER_KEY), VARIANTS["namespace"]
    assert presented(both, sealed(key=KEY), other, now=NOW) is Outcome.OLD_GENERATION
    assert presented(both, sealed(key=NEWER_KEY), other, now=NOW) is Outcome.OTHER_SUBJECT


def test_another_key_of_the_same_name_opens_nothing() -> None:
    assert presented(KeyRing.of(OTHER_KEY), sealed(), RECORD, now=NOW) is Outcome.UNREADABLE


@pytest.mark.parametrize(
    "text", ["", "pc-", "pc-a.b", "pc-%.b", "pk-" + sealed()[3:], sealed() + "A", sealed()[:-2], "pc-" + "a" * 20_000]
)
def test_what_nobody_here_sealed_is_a_miss_and_no_error(text: str) -> None:
    assert presented(RING, text, RECORD, now=NOW) is Outcome.UNREADABLE


@given(st.data())
def test_no_changed_character_opens(data: st.DataObject) -> None:
    text = sealed()
    at = data.draw(st.integers(3, len(text) - 1))
    changed = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
    assert presented(RING, changed, RECORD, now=NOW) is Outcome.UNREADABLE


def test_what_is_written_is_read_again() -> None:
    assert read(written(EXPECTED)) == EXPECTED


@pytest.mark.parametrize("changes", [{}, {**RECORD.fields(), "epochs": [["a" * 64, 2**53]]}, {**RECORD.fields(), "more": 1}])
def test_a_handle_of_another_version_is_unreadable(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="another version"):
        read({**written(EXPECTED), "record": changes})


def test_it_fits_a_header() -> None:
    many = replace(RECORD, sources=tuple((f"{number:0200}", number) for number in range(64)))
    assert len(sealed(replace(EXPECTED, record=many))) < MAX_CHARACTERS


def test_a_nonce_has_96_bits() -> None:
    asked: list[int] = []

    def entropy(length: int) -> bytes:
        asked.append(length)
        return bytes(length)

    handles.seal(KEY, EXPECTED, entropy)
    assert asked == [12]


@pytest.mark.parametrize("value", [1.0, True, "1", None])
@pytest.mark.parametrize("field", ["epochs", "sources"])
def test_an_epoch_is_an_integer_or_the_handle_is_unreadable(field: str, value: object) -> None:
    document: Any = written(EXPECTED)
    assert read(document) == EXPECTED
    name, _ = document["record"][field][0]
    changed = {**document["record"], field: [[name, value]]}
    if (field, value) == ("sources", None):
        assert read({**document, "record": changed}).record.sources[0][1] is None, "a source without an epoch"
        return
    with pytest.raises(ValueError, match="another version"):
        read({**document, "record": changed})
