"""Heads of pools: what was seen never falls, and what is unclear routes nothing."""

from __future__ import annotations

from typing import cast

from cachescope.core.epochs import Floors, epoch
from cachescope.core.heads import Head
from cachescope.core.types import TargetName
from cachescope.gateway.ledger_heads import LedgerHeads
from cachescope.gateway.readings import Reading
from cachescope.kube.watched import Name

A, B = Name("models", "a"), Name("models", "b")
TARGET = TargetName("a" * 64)


def head(floor: int, sequence: int = 1, lineage: str = "l", generation: int = 1) -> Head:
    return Head(lineage, sequence, Floors({TARGET: epoch(floor)}), generation)


def floors(heads: LedgerHeads) -> dict[Name, int]:
    return {name: found.floors.floor(TARGET) for name, found in heads.current.items()}


def test_a_ledger_that_rises_is_followed_and_one_that_falls_is_held() -> None:
    heads = LedgerHeads()
    assert heads.take({A: Reading(head(3)), B: Reading(head(1))})
    assert heads.take({A: Reading(head(5, 2)), B: Reading(head(1))})
    heads.take({A: Reading(head(4, 3)), B: Reading(head(1))})
    assert floors(heads) == {A: 5, B: 1}


def test_an_answer_that_was_overtaken_changes_nothing() -> None:
    heads = LedgerHeads()
    heads.take({A: Reading(head(5, 2))})
    assert not heads.take({A: Reading(head(3, 1))})
    assert floors(heads) == {A: 5}
    assert not heads.faults


def test_a_ledger_that_vanished_routes_nothing_and_comes_back_no_lower() -> None:
    heads = LedgerHeads()
    heads.take({A: Reading(head(5)), B: Reading(head(1))})
    assert heads.take({B: Reading(head(1))})
    assert floors(heads) == {B: 1}
    heads.take({A: Reading(head(2)), B: Reading(head(1))})
    assert floors(heads) == {A: 5, B: 1}


def test_a_ledger_that_cannot_be_read_is_its_pools_fault_alone() -> None:
    heads = LedgerHeads()
    heads.take({A: Reading(head(5)), B: Reading(head(1))})
    heads.take({A: Reading(None, "no head"), B: Reading(head(2))})
    assert floors(heads) == {B: 2}
    assert heads.faults == {A: "no head"}
    heads.take({A: Reading(head(6)), B: Reading(head(2))})
    assert (floors(heads), heads.faults) == ({A: 6, B: 2}, {})


def test_what_nobody_thought_of_in_a_ledger_is_its_pools_fault_alone() -> None:
    heads = LedgerHeads()
    heads.take({A: Reading(head(5)), B: Reading(head(1))})
    odd = Head("l", 2, cast("Floors", None))
    heads.take({A: Reading(odd), B: Reading(head(2, 2))})
    assert floors(heads) == {B: 2}
    assert "AttributeError" in heads.faults[A]


def test_a_later_lineage_is_taken_over_and_an_earlier_one_routes_nothing() -> None:
    heads = LedgerHeads()
    heads.take({A: Reading(head(5, 9))})
    heads.take({A: Reading(head(1, 1, "m", 2))})
    assert (heads.current[A].lineage, floors(heads)) == ("m", {A: 1})
    heads.take({A: Reading(head(5, 10))})
    assert not heads.current
    assert "from lineage m (2) to l (1)" in heads.faults[A]
    heads.take({A: Reading(head(1, 1, "m", 2))})
    assert heads.current[A].lineage == "m"


def test_a_fork_of_the_lineages_generation_routes_nothing() -> None:
    heads = LedgerHeads()
    heads.take({A: Reading(head(5))})
    heads.take({A: Reading(head(9, 9, "fork", 1))})
    assert not heads.current
