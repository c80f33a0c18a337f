"""The ledger of a pool: nothing falls, an incident counts once, a typo burns nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachescope.core.epochs import EpochRollback, Floors
from cachescope.core.errors import SpecError
from cachescope.core.ledger_rules import (
    MAX_FLOORS,
    MAX_INCIDENTS,
    MAX_JUMP,
    Declaration,
    JumpTooLarge,
    Ledger,
    compacted,
    decide,
    fell_behind,
    first_ledger,
    incident_key,
    merged,
    next_lineage,
    parse_ledger,
    write_ledger,
)
from cachescope.core.types import Epoch, TargetName

A, B = TargetName("a" * 64), TargetName("b" * 64)
FIRST = first_ledger("1" * 32, 1000)

floors = st.none() | st.integers(1, 3000).map(Epoch)
declarations = st.lists(
    st.builds(Declaration, st.text("abc", min_size=1, max_size=2), floors, st.none() | st.sampled_from(["i", "j", "k"])),
    max_size=5,
    unique_by=lambda item: item.name,
)


def asks(floor: int | None = None, incident: str | None = None, name: str = "d") -> Declaration:
    return Declaration(name, None if floor is None else Epoch(floor), incident)


def test_a_pool_without_declarations_stands_at_the_base_and_changes_nothing() -> None:
    assert decide(FIRST, A, []) == decide(decide(FIRST, A, []).ledger, A, [])
    assert decide(FIRST, A, []).ledger is FIRST
    assert decide(FIRST, A, []).epoch == 1


def test_a_floor_raises_the_target_alone() -> None:
    found = decide(FIRST, A, [asks(5)])
    assert (found.epoch, found.ledger.head.floors.floor(B), found.held) == (5, 1, {})
    assert found.ledger.head.sequence == FIRST.head.sequence + 1


def test_an_incident_counts_once_and_another_id_counts_again() -> None:
    once = decide(FIRST, A, [asks(incident="i")])
    assert once.epoch == 2
    assert decide(once.ledger, A, [asks(incident="i")]).ledger is once.ledger
    gone = decide(once.ledger, A, [])
    assert decide(gone.ledger, A, [asks(incident="i", name="again")]).ledger is once.ledger
    assert decide(once.ledger, A, [asks(incident="j")]).epoch == 3
    assert decide(FIRST, A, [asks(incident="i"), asks(incident="j", name="e")]).epoch == 3


def test_one_id_declared_twice_counts_once() -> None:
    assert decide(FIRST, A, [asks(incident="i"), asks(incident="i", name="e")]).epoch == 2


def test_another_pool_is_another_target() -> None:
    once = decide(FIRST, A, [asks(incident="i")]).ledger
    other = decide(once, B, [asks(incident="i")])
    assert other.epoch == 2
    assert other.ledger.head.floors.floor(A) == 2


def test_a_lower_floor_is_held_with_both_numbers_and_changes_nothing() -> None:
    stands = decide(FIRST, A, [asks(7)]).ledger
    found = decide(stands, A, [asks(3)])
    assert found.ledger is stands
    assert found.held == {"d": EpochRollback(Epoch(7), Epoch(3))}
    assert "the floor is 7 and 3 was asked" in str(found.held["d"])


def test_a_floor_that_its_own_incident_went_beyond_is_not_held() -> None:
    found = decide(FIRST, A, [asks(1, "i")])
    assert (found.epoch, found.held) == (2, {})
    later = decide(found.ledger, A, [asks(1, "i"), asks(incident="j", name="e")])
    assert later.held == {"d": EpochRollback(Epoch(3), Epoch(1))}


@pytest.mark.parametrize(("floor", "epoch"), [(1 + MAX_JUMP, 1 + MAX_JUMP), (2 + MAX_JUMP, 1)])
def test_a_jump_is_bounded(floor: int, epoch: int) -> None:
    found = decide(FIRST, A, [asks(floor)])
    assert found.epoch == epoch
    assert found.held == ({} if epoch == floor else {"d": JumpTooLarge(Epoch(1), Epoch(floor))})
    assert (found.ledger is FIRST) == (epoch == 1)


def test_a_jump_that_is_too_large_does_not_hold_up_its_incident() -> None:
    found = decide(FIRST, A, [asks(9000, "i")])
    assert found.epoch == 2
    assert found.held == {"d": JumpTooLarge(Epoch(2), Epoch(9000))}
    assert f"declare at most {2 + MAX_JUMP}" in str(found.held["d"])


@settings(max_examples=25, deadline=None)
@given(asked=declarations, more=declarations)
def test_deciding_twice_is_deciding_once_and_nothing_falls(asked: list[Declaration], more: list[Declaration]) -> None:
    one = decide(FIRST, A, asked)
    assert decide(one.ledger, A, asked).ledger is one.ledger
    two = decide(one.ledger, A, more)
    assert two.epoch >= one.epoch
    assert two.ledger.incidents.items() >= one.ledger.incidents.items()
    assert not fell_behind(one.ledger, two.ledger)
    assert fell_behind(two.ledger, one.ledger) == (two.ledger != one.ledger)


@settings(max_examples=25, deadline=None)
@given(asked=declarations)
def test_the_order_of_declarations_does_not_matter(asked: list[Declaration]) -> None:
    assert decide(FIRST, A, asked) == decide(FIRST, A, reversed(asked))


@settings(max_examples=25, deadline=None)
@given(asked=declarations)
def test_a_written_ledger_is_read_back(asked: list[Declaration]) -> None:
    ledger = decide(FIRST, A, asked).ledger
    assert parse_ledger(write_ledger(ledger)) == ledger


@pytest.mark.parametrize("incidents", [None, [], {"x": "1"}, {"x": True}, {"x": -1}])
def test_a_ledger_without_readable_incidents_is_refused(incidents: object) -> None:
    good = write_ledger(FIRST)
    assert parse_ledger(good) == FIRST
    with pytest.raises(SpecError):
        parse_ledger({**good, "incidents": incidents})


def test_a_new_lineage_keeps_all_that_is_known_and_has_a_higher_number() -> None:
    known = decide(FIRST, A, [asks(9, "i")]).ledger
    for asked, number in ((5, 1001), (2000, 2000)):
        found = next_lineage(known, "2" * 32, generation=asked)
        assert (found.head.generation, found.head.sequence, found.head.lineage) == (number, 1, "2" * 32)
        assert (found.head.floors, found.incidents) == (known.head.floors, known.incidents)
        assert not fell_behind(known, found)
        assert fell_behind(found, known)


def test_an_old_ledger_that_was_put_back_is_merged_by_maximum() -> None:
    old = decide(FIRST, A, [asks(4, "i")]).ledger
    new = decide(old, A, [asks(9, "j")]).ledger
    foreign = decide(old, B, [asks(7)]).ledger
    assert fell_behind(new, foreign)
    both = merged(new, foreign)
    assert (both.head.floors.floor(A), both.head.floors.floor(B)) == (9, 7)
    assert both.incidents == new.incidents
    assert not fell_behind(new, both)


def test_a_lineage_of_the_same_number_is_a_fork() -> None:
    assert fell_behind(FIRST, first_ledger("2" * 32, 1000))
    assert not fell_behind(FIRST, first_ledger("2" * 32, 1001))


def full(count: int) -> Ledger:
    return Ledger(FIRST.head, {incident_key(A, f"old-{number}"): Epoch(1) for number in range(count)})


def test_a_full_ledger_goes_on_in_a_new_lineage_without_what_nobody_declares() -> None:
    assert compacted(full(MAX_INCIDENTS - 1), A, [asks(incident="new")], lineage="2" * 32) == full(MAX_INCIDENTS - 1)
    found = compacted(full(MAX_INCIDENTS), A, [asks(incident="new"), asks(incident="old-3", name="e")], lineage="2" * 32)
    assert found.head.generation == FIRST.head.generation + 1
    assert set(found.incidents) == {incident_key(A, "old-3")}


def test_a_ledger_full_of_past_pools_keeps_the_floor_of_the_present_one() -> None:
    past = {TargetName(f"{number:064x}"): Epoch(3) for number in range(MAX_FLOORS)}
    ledger = replace(FIRST, head=replace(FIRST.head, floors=Floors({**past}, Epoch(2))))
    assert compacted(ledger, TargetName(f"{5:064x}"), [], lineage="2" * 32) is ledger
    found = compacted(ledger, A, [], lineage="2" * 32)
    assert found.head.floors.by_target == {A: 2}
    assert found.head.generation > ledger.head.generation


def test_more_incidents_than_fit_are_refused() -> None:
    many = [asks(incident=f"i{number}", name=f"d{number}") for number in range(MAX_INCIDENTS + 1)]
    assert compacted(FIRST, A, many[1:], lineage="2" * 32) is FIRST
    with pytest.raises(SpecError, match="delete old CacheEpochs"):
        compacted(FIRST, A, many, lineage="2" * 32)
