"""Heads: what a process has seen never falls, and a document that is none is refused."""

from __future__ import annotations

from typing import Any

import pytest

from cachescope.core.epochs import Floors
from cachescope.core.errors import SpecError
from cachescope.core.heads import Head, parse_head
from cachescope.core.types import Epoch, TargetName

A = TargetName("a" * 64)
DOCUMENT: dict[str, Any] = {"lineage": "l", "sequence": 3, "base": 1, "floors": {A: 5}}
WRONG: list[Any] = [
    None,
    [],
    {},
    {**DOCUMENT, "lineage": ""},
    {**DOCUMENT, "lineage": 1},
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
    assert parse_head(DOCUMENT) == Head("l", 3, Floors({A: Epoch(5)}, Epoch(1)))


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


def test_another_lineage_is_refused_with_both_names() -> None:
    with pytest.raises(SpecError, match="from one to two"):
        Head("one", 3, Floors()).followed_by(Head("two", 9, Floors()))
