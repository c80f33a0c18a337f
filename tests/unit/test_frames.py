"""Frames: no two field lists have the same bytes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachescope.core.frames import frame
from tests.unit.core_strategies import frame_fields

NEIGHBOURS: list[tuple[Any, ...]] = [
    (),
    ("",),
    ("", ""),
    (b"",),
    (None,),
    (0,),
    ("0",),
    (b"0",),
    ([],),
    ([[]],),
    ("a", "b"),
    ("ab",),
    ("ab", ""),
    ("", "ab"),
    (["a", "b"],),
    (["a"], "b"),
    (["a"], ["b"]),
    ("a", ["b"]),
    (1, 2),
    (12,),
    (-1,),
    ("-1",),
    ("L" + "\0" * 7 + "\x01",),
    ("é",),
    ("e\u0301",),
]


@given(st.lists(frame_fields, max_size=4), st.lists(frame_fields, max_size=4))
def test_different_field_lists_have_different_frames(left: list[Any], right: list[Any]) -> None:
    assert (frame(*left) == frame(*right)) == (left == right)


@given(st.lists(frame_fields, max_size=4), frame_fields)
def test_no_frame_is_the_start_of_a_longer_one(fields: list[Any], more: Any) -> None:
    assert not frame(*fields, more).startswith(frame(*fields))


def test_neighbours_that_a_naive_join_confuses_stay_apart() -> None:
    for left, right in itertools.combinations(NEIGHBOURS, 2):
        assert frame(*left) != frame(*right), (left, right)


def test_lists_and_tuples_are_the_same() -> None:
    assert frame(["a", ("b",)]) == frame(("a", ["b"]))


@pytest.mark.parametrize("field", [True, 1.5, {"a": 1}, {1}, object()])
def test_what_has_no_encoding_is_refused(field: Any) -> None:
    for fields in ([field], ["a", [field]]):
        with pytest.raises(TypeError, match="convert it first"):
            frame(*fields)
