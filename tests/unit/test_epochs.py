"""Epochs only rise, target by target."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachescope.core.epochs import (
    MAX_EPOCH,
    Accepted,
    EpochRollback,
    EpochVector,
    Floors,
    Unchanged,
    advance,
    epoch,
    target_name,
    vector_at,
)
from cachescope.core.errors import SpecError
from cachescope.core.types import Epoch, TargetKind, TargetName
from tests.unit.core_strategies import KEY, OTHER_KEY, epochs, floors_by_target

A, B, C = (TargetName(digit * 64) for digit in "abc")
some_floors = st.builds(Floors, floors_by_target, epochs)


def test_a_floor_rises_stays_or_refuses() -> None:
    assert advance(Epoch(3), Epoch(4)) == Accepted(Epoch(3), Epoch(4))
    assert advance(Epoch(3), Epoch(3)) == Unchanged(Epoch(3))
    assert advance(Epoch(3), Epoch(2)) == EpochRollback(floor=Epoch(3), asked=Epoch(2))


def test_a_rollback_names_both_numbers() -> None:
    message = str(EpochRollback(floor=Epoch(7), asked=Epoch(3)))
    assert message == "the floor is 7 and 3 was asked; epochs never fall: declare at least 7"


@pytest.mark.parametrize("value", [-1, MAX_EPOCH + 1])
def test_a_number_outside_the_range_is_no_epoch(value: int) -> None:
    with pytest.raises(SpecError, match=str(value)):
        epoch(value)
    assert (epoch(0), epoch(MAX_EPOCH)) == (0, MAX_EPOCH)


@given(some_floors, some_floors)
def test_no_floor_ever_falls(before: Floors, newer: Floors) -> None:
    after, rollbacks = before.raised_by(newer)
    for target in {*before.by_target, *newer.by_target, A}:
        assert after.floor(target) == max(before.floor(target), newer.floor(target))
    fell = newer.base < before.base or any(newer.floor(t) < before.floor(t) for t in {*before.by_target, *newer.by_target})
    assert bool(rollbacks) == fell


@given(some_floors, some_floors)
def test_raising_is_the_same_in_any_order_and_twice(left: Floors, right: Floors) -> None:
    once, _ = left.raised_by(right)
    other, _ = right.raised_by(left)
    twice, rollbacks = once.raised_by(once)
    assert rollbacks == ()
    for target in (A, B, C):
        assert once.floor(target) == other.floor(target) == twice.floor(target)


@given(some_floors, floors_by_target)
def test_a_vector_is_compared_target_by_target(floors: Floors, values: dict[TargetName, Epoch]) -> None:
    vector = EpochVector.of(values)
    assert set(floors.below(vector)) == {target for target, value in values.items() if value < floors.floor(target)}
    assert set(floors.ahead(vector)) == {target for target, value in values.items() if value > floors.floor(target)}


def test_one_high_target_does_not_lift_a_low_one() -> None:
    floors = Floors({A: Epoch(2), B: Epoch(2)})
    assert floors.below(EpochVector.of({A: Epoch(9), B: Epoch(1)})) == (B,)


def test_a_target_without_a_floor_stands_at_the_base() -> None:
    floors = Floors({A: Epoch(1)}, base=Epoch(3))
    assert (floors.floor(A), floors.floor(B)) == (3, 3)
    assert floors.below(EpochVector.of({C: Epoch(2)})) == (C,)


def test_a_new_request_stands_at_every_floor() -> None:
    floors = Floors({A: Epoch(5)}, base=Epoch(1))
    vector = vector_at(floors, [B, A])
    assert vector.entries == ((A, 5), (B, 1))
    assert (vector.get(A), vector.get(C)) == (5, None)
    assert floors.below(vector) == floors.ahead(vector) == ()


def test_targets_are_named_by_kind_identity_and_key() -> None:
    names = {
        target_name(key, kind, *identity)
        for key in (KEY, OTHER_KEY)
        for kind in TargetKind
        for identity in (("a", "b"), ("ab",), ("a",), ("a", ""))
    }
    assert len(names) == 2 * len(TargetKind) * 4
    assert all(len(name) == 64 for name in names)
