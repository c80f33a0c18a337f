"""Segmented salts: one form, one order, and each segment enters a chain once."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachescope.core.encodings import encode
from cachescope.core.errors import WireFormatError
from cachescope.core.salts import salt
from cachescope.core.segments import (
    MAX_CHARACTERS,
    Segment,
    SegmentedSalt,
    approval_set,
    entries,
    read_segmented,
    segment,
    write_segmented,
)
from cachescope.core.types import ScopeClass
from tests.unit.core_strategies import KEY, NEWER_KEY, OTHER_KEY, RECORD, variants

SET = approval_set("scope-uid")
NONCE = b"n" * 16
CLASSES = list(ScopeClass)
ORDERS = [order for size in (2, 3, 4) for order in combinations(CLASSES, size)]
values = st.binary(min_size=16, max_size=16).map(encode)


@st.composite
def salts(draw: st.DrawFn) -> SegmentedSalt:
    order = draw(st.sampled_from(ORDERS))
    return SegmentedSalt(encode(draw(st.binary(min_size=6, max_size=6))), tuple(Segment(scope, draw(values)) for scope in order))


def salt_of(*scopes: ScopeClass) -> SegmentedSalt:
    return SegmentedSalt(SET, tuple(Segment(scope, encode(bytes([scope.width]) * 16)) for scope in scopes))


TEXT = write_segmented(salt_of(ScopeClass.PUBLIC, ScopeClass.TENANT, ScopeClass.PRINCIPAL))


@given(salts())
def test_what_is_written_is_read_and_engines_accept_it(found: SegmentedSalt) -> None:
    text = write_segmented(found)
    assert read_segmented(text) == found
    assert len(text) <= MAX_CHARACTERS < 128
    assert re.fullmatch(r"[A-Za-z0-9_.-]+", text)


def test_the_form_is_the_published_one() -> None:
    zeros, ones, threes = "A" * 22, "AQEBAQEBAQEBAQEBAQEBAQ", "AwMDAwMDAwMDAwMDAwMDAw"
    assert f"cs1.{SET}.0{zeros}.1{ones}.3{threes}" == TEXT
    assert approval_set("scope-uid") == "aZt_DHUa"
    assert segment(KEY, RECORD).value == "cCdmG6QCVaT2RMGnswf6Eg"


@given(st.text(st.sampled_from("cs1.034AQw-_ \n/é"), max_size=110))
def test_any_text_that_is_read_is_what_would_be_written(text: str) -> None:
    try:
        found = read_segmented(text)
    except WireFormatError:
        return
    assert write_segmented(found) == text


@pytest.mark.parametrize("position", range(len(TEXT)))
def test_no_text_beside_it_reads_as_the_same_salt(position: int) -> None:
    for character in "AQgw0123.cs/@\\\0 \né":
        if character != TEXT[position]:
            changed = TEXT[:position] + character + TEXT[position + 1 :]
            try:
                assert read_segmented(changed) != read_segmented(TEXT)
            except WireFormatError:
                continue


MALFORMED = {
    "empty": "",
    "a plain salt": salt(KEY, RECORD),
    "the prefix alone": "cs1.",
    "no segment": f"cs1.{SET}",
    "one segment": f"cs1.{SET}.0{'A' * 22}",
    "another version": TEXT.replace("cs1.", "cs2."),
    "a class twice": f"cs1.{SET}.1{'A' * 22}.1{'A' * 22}",
    "another order": f"cs1.{SET}.1{'A' * 22}.0{'A' * 22}",
    "no such class": f"cs1.{SET}.0{'A' * 22}.5{'A' * 22}",
    "five segments": "cs1." + SET + "".join(f".{digit}{'A' * 22}" for digit in "01234"),
    "a short segment": f"cs1.{SET}.0{'A' * 22}.1{'A' * 21}",
    "an empty segment": f"cs1.{SET}.0{'A' * 22}.1",
    "unused bits": f"cs1.{SET}.0{'A' * 22}.1{'A' * 21}B",
    "no set": f"cs1..0{'A' * 22}.1{'A' * 22}",
    "a line break": TEXT + "\n",
    "a word behind": TEXT + ".x",
    "digits of another script": f"cs1.{SET}.0{'A' * 22}.\u0661{'A' * 22}",
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED)
def test_whatever_is_not_of_the_form_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(WireFormatError, match="no segmented salt") as caught:
        read_segmented(text)
    assert "AAAA" not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.parametrize(
    ("scopes", "problem"),
    [
        ([ScopeClass.TENANT], "2 to 4"),
        (CLASSES, "2 to 4"),
        ([ScopeClass.TENANT, ScopeClass.PUBLIC], "widest"),
        ([ScopeClass.TENANT, ScopeClass.TENANT], "widest"),
    ],
)
def test_what_has_no_place_in_a_chain_cannot_be_made(scopes: list[ScopeClass], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        salt_of(*scopes)


def test_parts_of_another_length_cannot_be_made() -> None:
    segments = salt_of(ScopeClass.PUBLIC, ScopeClass.TENANT).segments
    for approvals in ("", "AAAAAAA", "AAAAAAAAA", "AAAA.AAA"):
        with pytest.raises(ValueError, match="8 characters"):
            SegmentedSalt(approvals, segments)
    for value in ("", "A" * 21, "A" * 23, "A" * 24, "A" * 21 + "B", "A" * 21 + "/"):
        with pytest.raises(ValueError, match="16 bytes"):
            SegmentedSalt(SET, (segments[0], Segment(ScopeClass.TENANT, value)))


def test_no_value_is_shown() -> None:
    found = read_segmented(TEXT)
    assert repr(found) == "SegmentedSalt(Public, Tenant, Principal)"
    assert repr(found.segments[0]) == "Segment(Public)"


@pytest.mark.parametrize("field", VARIANTS := variants(RECORD))
def test_a_segment_changes_with_what_its_salt_changes_with(field: str) -> None:
    changed, same = VARIANTS[field], salt(KEY, VARIANTS[field]) == salt(KEY, RECORD)
    assert (segment(KEY, changed).value == segment(KEY, RECORD).value) is same
    assert segment(KEY, changed).scope is changed.scope


def test_a_segment_is_no_part_of_a_salt() -> None:
    assert salt(KEY, RECORD)[:20] != segment(KEY, RECORD).value[:20]
    assert len({segment(key, RECORD).value for key in (KEY, OTHER_KEY, NEWER_KEY)}) == 3


def test_a_segment_of_class_request_takes_a_fresh_nonce() -> None:
    request = replace(RECORD, scope=ScopeClass.REQUEST)
    with pytest.raises(ValueError, match="fresh nonce"):
        segment(KEY, request)
    assert segment(KEY, request, NONCE) != segment(KEY, request, b"m" * 16)


def test_each_scope_has_its_own_set() -> None:
    assert len({approval_set(uid) for uid in ("a", "b", "ab", "")}) == 4


@given(salts(), st.dictionaries(st.sampled_from(CLASSES), st.integers(0, 9)))
def test_each_segment_enters_once_where_nothing_wider_is_approved(found: SegmentedSalt, approved: dict[ScopeClass, int]) -> None:
    """The rule again, said by block: it is of the widest class for which it is approved, in any class up to that one."""
    scopes = [item.scope for item in found.segments]
    at = entries(found, approved)
    assert (len(at), at[0]) == (len(scopes), 0)
    for block in range(10):
        widest = next((number for number, scope in enumerate(scopes[:-1]) if block < approved.get(scope, 0)), len(scopes) - 1)
        assert sum(entry <= block for entry in at) - 1 == widest
