"""Heads: what a process has seen never falls, and a document that is none is refused."""

from __future__ import annotations

from typing import Any

import pytest

from cachescope.core.epochs import Floors
from cachescope.core.errors import SpecError
from cachescope.core.heads import Head, parse_head, write_head
from cachescope.core.types import Epoch, TargetName

A = TargetName("a" * 64)
DOCUMENT: dict[str, Any] = {"lineage": {"generation": 7, "id": "l"}, "sequence": 3, "base": 1, "floors": {A: 5}}
WRONG: list[Any] = [
    None,
    [],
    {},
    {**DOCUMENT, "lineage": "l"},
    {**DOCUMENT, "lineage": {"generation": 7, "id": ""}},
    {**DOCUMENT, "lineage": {"generation": 7, "id": 1}},
    {**DOCUMENT, "lineage": {"generation": 0, "id": "l"}},
    {**DOCUMENT, "lineage": {"generation": "7", "id": "l"}},
    {**DOCUMENT, "lineage": {"id": "l"}},
    {**DOCUMENT, "sequence": "3"},
    {**DOCUMENT, "sequence": True},
    {**DOCUMENT, "sequence": 3.0},
    {**DOCUMENT, "base": None},
    {**DOCUMENT, "base": -1},
    {**DOCUMENT, "base": 2**53},
    {**DOCUMENT, "floors": []},
    {**DOCUMENT, "floors": {A: "5"}},
    {**DOCUMENT, "floors": {A: -1}},
    *({key: value for key, value in DOCUMENT.items() if key != missing} for missing in DOCUMENT),
]


def test_a_document_is_read_whole() -> None:
    assert parse_head({**DOCUMENT, "incidents": {}}) == Head("l", 3, Floors({A: Epoch(5)}, Epoch(1)), 7)


def test_what_was_written_is_read() -> None:
    assert write_head(parse_head(DOCUMENT)) == DOCUMENT


@pytest.mark.parametrize("document", WRONG)
def test_what_is_no_head_is_refused(document: Any) -> None:
    with pytest.raises(SpecError):
        parse_head(document)


def test_a_newer_head_raises_and_an_older_one_changes_nothing() -> None:
    old = Head("l", 3, Floors({A: Epoch(5)}))
    new = Head("l", 4, Floors({A: Epoch(6)}))
    assert old.followed_by(new) == (new, ())
    kept, rollbacks = new.followed_by(old)
    assert (kept, len(rollbacks)) == (new, 1)


@pytest.mark.parametrize("generation", [6, 7])
def test_another_lineage_that_is_not_later_is_refused_with_both_names(generation: int) -> None:
    with pytest.raises(SpecError, match=rf"from lineage one \(7\) to two \({generation}\)"):
        Head("one", 3, Floors(), 7).followed_by(Head("two", 9, Floors(), generation))


def test_a_later_lineage_is_taken_over_whole() -> None:
    later = Head("two", 1, Floors({A: Epoch(1)}), 8)
    assert Head("one", 3, Floors({A: Epoch(5)}), 7).followed_by(later) == (later, ())
