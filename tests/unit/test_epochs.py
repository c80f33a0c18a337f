"""Epochs, vectors of them, and names of targets."""

from __future__ import annotations

import pytest

from cachescope.core.epochs import MAX_EPOCH, EpochRollback, EpochVector, epoch, target_name
from cachescope.core.errors import SpecError
from cachescope.core.types import Epoch, TargetKind, TargetName
from tests.unit.core_strategies import KEY, OTHER_KEY

A, B, C = (TargetName(digit * 64) for digit in "abc")


def test_a_rollback_names_both_numbers() -> None:
    message = str(EpochRollback(floor=Epoch(7), asked=Epoch(3)))
    assert message == "the floor is 7 and 3 was asked; epochs never fall: declare at least 7"


@pytest.mark.parametrize("value", [-1, MAX_EPOCH + 1])
def test_a_number_outside_the_range_is_no_epoch(value: int) -> None:
    with pytest.raises(SpecError, match=str(value)):
        epoch(value)
    assert (epoch(0), epoch(MAX_EPOCH)) == (0, MAX_EPOCH)


def test_a_vector_is_sorted_and_asked_by_target() -> None:
    vector = EpochVector.of({B: Epoch(1), A: Epoch(5)})
    assert vector.entries == ((A, 5), (B, 1))
    assert (vector.get(A), vector.get(C)) == (5, None)


def test_targets_are_named_by_kind_identity_and_key() -> None:
    names = {
        target_name(key, kind, *identity)
        for key in (KEY, OTHER_KEY)
        for kind in TargetKind
        for identity in (("a", "b"), ("ab",), ("a",), ("a", ""))
    }
    assert len(names) == 2 * len(TargetKind) * 4
    assert all(len(name) == 64 for name in names)
