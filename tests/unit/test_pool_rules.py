"""The ledger of a pool: nothing falls, an incident counts once, a typo burns nothing, flags wait for the latest incident."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachescope.core.declarations import (
    EXHAUSTED,
    MAX_JUMP,
    NAMESPACE,
    Declaration,
    JumpTooLarge,
    incident_key,
    of_target,
)
from cachescope.core.epochs import MAX_EPOCH, EpochRollback
from cachescope.core.errors import SpecError
from cachescope.core.ledgers import Flags, Floor, Ledger, Lineage, followed
from cachescope.core.pool_rules import (
    KEPT,
    MAX_FLOORS,
    MAX_INCIDENTS,
    RESUMED,
    Decision,
    compacted,
    decide,
    first_ledger,
    resumable_incident,
)
from cachescope.core.types import Epoch, TargetName

POOL, SCOPE = TargetName("a" * 64), TargetName("b" * 64)
FIRST = first_ledger(Lineage(1000, "1" * 32))
FRESH = Lineage(1, "2" * 32)

declarations = st.lists(
    st.builds(
        Declaration,
        st.text("abc", min_size=1, max_size=2),
        st.sampled_from([POOL, SCOPE]),
        floor=st.none() | st.integers(1, 3000).map(Epoch),
        incident=st.none() | st.sampled_from(["i", "j", "k"]),
        stop_public=st.booleans(),
        drain_seconds=st.sampled_from([0, 30]),
    ),
    max_size=5,
    unique_by=lambda item: item.name,
)


def asks(floor: int | None = None, incident: str | None = None, name: str = "d", *, of: TargetName = POOL) -> Declaration:
    return Declaration(name, of, None if floor is None else Epoch(floor), incident)


def decided(ledger: Ledger, *asked: Declaration, resume_after: str | None = None) -> Decision:
    return decide(ledger, asked, pool=POOL, resume_after=resume_after)


def test_a_pool_without_declarations_stands_at_the_base_and_changes_nothing() -> None:
    assert decided(FIRST).ledger is FIRST
    assert FIRST.epoch(POOL) == 1


def test_a_floor_raises_the_target_alone() -> None:
    found = decided(FIRST, asks(5))
    assert (found.epochs, found.ledger.epoch(SCOPE), found.held) == ({"d": 5}, 1, {})
    assert (found.ledger.sequence, found.ledger.previous) == (2, FIRST.digest)


def test_an_incident_counts_once_and_another_id_counts_again() -> None:
    once = decided(FIRST, asks(incident="i"))
    assert (once.epochs, once.given) == ({"d": 2}, {"d": 2})
    assert decided(once.ledger, asks(incident="i")).ledger is once.ledger
    assert decided(decided(once.ledger).ledger, asks(incident="i", name="again")).given == {"again": 2}
    assert decided(once.ledger, asks(incident="j")).given == {"d": 3}
    assert decided(FIRST, asks(incident="i"), asks(incident="j", name="e")).ledger.epoch(POOL) == 3
    assert decided(FIRST, asks(incident="i"), asks(incident="i", name="e")).given == {"d": 2, "e": 2}


def test_scopes_are_targets_of_their_own() -> None:
    found = decided(FIRST, asks(incident="i"), asks(7, name="e", of=SCOPE), asks(incident="i", name="f", of=SCOPE))
    assert (found.ledger.epoch(POOL), found.ledger.epoch(SCOPE)) == (2, 7)
    assert found.given == {"d": 2, "f": 2}
    assert found.ledger.sequence == 2


def test_another_pool_of_the_same_name_is_another_target_and_can_be_resumed() -> None:
    stopped = decided(decided(FIRST, asks(6)).ledger, replace(asks(incident="i"), stop_public=True)).ledger
    other = TargetName("e" * 64)
    found = decide(stopped, [asks(incident="i", of=other)], pool=other, resume_after="i")
    assert found.given == {"d": 8}, "above every flag, or it could never be resumed after"
    assert (found.ledger.flags.stops_public, stopped.flags.stops_public) == (False, True)


def test_a_lower_floor_is_held_with_both_numbers_and_changes_nothing() -> None:
    stands = decided(FIRST, asks(7)).ledger
    found = decided(stands, asks(3))
    assert (found.ledger is stands, found.held) == (True, {"d": EpochRollback(Epoch(7), Epoch(3))})
    assert "the floor is 7 and 3 was asked" in str(found.held["d"])


def test_a_floor_that_its_own_incident_went_beyond_is_not_held() -> None:
    found = decided(FIRST, asks(1, "i"))
    assert (found.epochs, found.held) == ({"d": 2}, {})
    later = decided(found.ledger, asks(1, "i"), asks(incident="j", name="e"))
    assert later.held == {"d": EpochRollback(Epoch(3), Epoch(1))}


@pytest.mark.parametrize(("floor", "epoch"), [(1 + MAX_JUMP, 1 + MAX_JUMP), (2 + MAX_JUMP, 1)])
def test_a_jump_is_bounded(floor: int, epoch: int) -> None:
    found = decided(FIRST, asks(floor))
    assert found.epochs == {"d": epoch}
    assert found.held == ({} if epoch == floor else {"d": JumpTooLarge(Epoch(1), Epoch(floor))})
    assert (found.ledger is FIRST) == (epoch == 1)


def test_a_jump_that_is_too_large_does_not_hold_up_its_incident() -> None:
    found = decided(FIRST, asks(9000, "i"))
    assert (found.given, found.held) == ({"d": 2}, {"d": JumpTooLarge(Epoch(2), Epoch(9000))})
    assert f"declare at most {2 + MAX_JUMP}" in str(found.held["d"])


def test_a_counter_at_its_end_is_held_and_not_an_error() -> None:
    ended = replace(FIRST, floors={POOL: Floor(Epoch(MAX_EPOCH))})
    found = decided(ended, asks(incident="i"))
    assert (found.ledger is ended, found.held, found.given) == (True, {"d": EXHAUSTED}, {})


def test_flags_are_cleared_by_the_resumable_incident_alone() -> None:
    stop, bypass = replace(asks(incident="i"), stop_public=True), replace(asks(incident="j", name="e"), bypass=True)
    both = decided(decided(FIRST, stop).ledger, stop, bypass).ledger
    assert both.flags == Flags(Epoch(2), Epoch(3), Epoch(0))
    assert resumable_incident(both, POOL) == 3
    for older in ("i", "unknown", None):
        assert decided(both, stop, bypass, resume_after=older).ledger is both
    after = decided(both, stop, bypass, resume_after="j").ledger
    assert (after.flags.stops_public, after.flags.bypasses, after.flags.resumed) == (False, False, 3)
    third = decided(after, stop, bypass, replace(asks(incident="k", name="f"), bypass=True), resume_after="j").ledger
    assert (third.flags.stops_public, third.flags.bypasses) == (False, True)


def test_flags_survive_that_nobody_declares_them_and_belong_to_the_pool() -> None:
    stop = replace(asks(incident="i"), stop_public=True)
    stopped = decided(FIRST, stop).ledger
    assert decided(stopped).ledger is stopped
    of_scope = decided(stopped, replace(asks(incident="s", name="e", of=SCOPE), stop_public=True), resume_after="s").ledger
    assert (of_scope.flags, resumable_incident(of_scope, POOL)) == (stopped.flags, 2)


def test_a_flag_that_is_added_to_an_incident_later_holds_too() -> None:
    plain = decided(FIRST, asks(incident="i")).ledger
    found = decided(plain, replace(asks(incident="i"), bypass=True))
    assert (found.ledger.flags.bypasses, found.given, found.held) == (True, {"d": 2}, {})


def test_a_flag_that_was_resumed_after_is_held_and_a_new_incident_sets_it() -> None:
    old, later = replace(asks(incident="i"), bypass=True), asks(incident="j", name="e")
    resumed = decided(decided(FIRST, asks(incident="i")).ledger, asks(incident="i"), later, resume_after="j").ledger
    late = decided(resumed, old, later)
    assert (late.ledger.flags.bypasses, late.held, late.epochs["d"]) == (False, {"d": RESUMED}, 3)
    again = decided(late.ledger, old, later, replace(asks(incident="k", name="f"), bypass=True))
    assert (again.ledger.flags.bypasses, again.held) == (True, {})


def test_of_two_incidents_of_one_epoch_nobody_can_resume_after_either() -> None:
    """A restore joined two histories, each with an incident that the other never saw."""
    both = replace(FIRST, flags=Flags(bypassed=Epoch(2)), incidents={incident_key(POOL, name): Epoch(2) for name in "ij"})
    for name in "ij":
        assert decided(both, resume_after=name).ledger is both
    again = decided(both, asks(incident="k")).ledger
    assert (resumable_incident(both, POOL), resumable_incident(again, POOL)) == (None, 3)
    assert not decided(again, resume_after="k").ledger.flags.bypasses


def test_what_drains_is_not_cut_and_a_later_abort_cuts_it() -> None:
    drain = replace(asks(incident="i"), drain_seconds=30)
    drained = decided(FIRST, drain).ledger
    assert drained.floor(POOL) == Floor(Epoch(2), Epoch(1), 30)
    assert decided(drained, drain).ledger is drained
    cut = decided(drained, drain, asks(incident="j", name="e")).ledger
    assert cut.floor(POOL) == Floor(Epoch(3), Epoch(3), 0)
    assert decided(drained, asks(incident="i")).ledger.floor(POOL).abort_below == 2
    again = decided(cut, drain, replace(asks(incident="k", name="f"), drain_seconds=10)).ledger
    assert again.floor(POOL) == Floor(Epoch(4), Epoch(3), 10)


@settings(max_examples=25)
@given(asked=declarations, more=declarations)
def test_deciding_twice_is_deciding_once_and_nothing_falls(asked: list[Declaration], more: list[Declaration]) -> None:
    one = decided(FIRST, *asked, resume_after="i")
    assert decided(one.ledger, *asked, resume_after="i").ledger is one.ledger
    two = decided(one.ledger, *more)
    assert two.ledger.incidents.items() >= one.ledger.incidents.items()
    assert followed(FIRST, followed(one.ledger, two.ledger)) is two.ledger


@settings(max_examples=25)
@given(asked=declarations)
def test_the_order_of_declarations_does_not_matter(asked: list[Declaration]) -> None:
    assert decided(FIRST, *asked) == decided(FIRST, *reversed(asked))


def full(count: int) -> Ledger:
    incidents = {incident_key(POOL, f"old-{number}"): Epoch(2 + number) for number in range(count)}
    return replace(FIRST, floors={POOL: Floor(Epoch(count + 1))}, incidents=incidents)


def compact(ledger: Ledger, *asked: Declaration, resume_after: str | None = None) -> Ledger:
    return compacted(ledger, asked, pool=POOL, resume_after=resume_after, fresh=FRESH)


def test_a_full_ledger_goes_on_in_a_new_lineage_without_what_nobody_declares() -> None:
    room = full(MAX_INCIDENTS - 1)
    assert compact(room, asks(incident="new")) is room
    few = replace(full(2), incidents={**full(2).incidents, incident_key(NAMESPACE, "r"): Epoch(1)})
    crowded = crowded_by_scopes(few)
    found = compact(crowded, asks(incident="new"), asks(incident="s3", name="e", of=SCOPE))
    assert set(found.incidents) == {incident_key(SCOPE, "s3"), *few.incidents}
    assert (found.lineage, found.sequence, found.previous) == (Lineage(1001, FRESH.id), 1, "")
    assert (found.floors, resumable_incident(found, POOL)) == (crowded.floors, resumable_incident(crowded, POOL))


def crowded_by_scopes(ledger: Ledger) -> Ledger:
    scopes = {incident_key(SCOPE, f"s{number}"): Epoch(2) for number in range(MAX_INCIDENTS - len(ledger.incidents))}
    return replace(ledger, incidents={**ledger.incidents, **scopes})


def test_an_old_incident_that_comes_back_is_no_later_one_that_an_old_resume_after_may_name() -> None:
    """Somebody reverts the commit that removed it, and `resumeAfter` names it still."""
    one, two, three = (replace(asks(incident=name, name=name), bypass=True) for name in "ijk")
    resumed = decided(FIRST, one, resume_after="i").ledger
    ledger = crowded_by_scopes(decided(decided(resumed, two).ledger, three).ledger)
    found = compact(ledger, three, asks(incident="new", of=SCOPE), resume_after="i")
    assert (found.lineage.generation, found.flags.bypasses) == (1001, True)
    for name, back in (("i", one), ("j", two)):
        assert decided(found, back, three, resume_after=name).ledger.flags.bypasses
    assert not decided(found, three, resume_after="k").ledger.flags.bypasses


def test_what_was_resumed_after_is_kept_also_where_the_pools_own_incidents_do_not_fit() -> None:
    ledger = full(MAX_INCIDENTS)
    own = {value: key for key, value in ledger.incidents.items()}
    ledger = replace(ledger, flags=Flags(bypassed=Epoch(9), resumed=Epoch(7)))
    found = compact(ledger, asks(incident="new"), resume_after="old-1")
    assert {own[Epoch(3)], own[Epoch(7)], own[Epoch(MAX_INCIDENTS + 1)]} < set(found.incidents)
    assert (own[Epoch(4)] in found.incidents, len(found.incidents)) == (False, int(MAX_INCIDENTS * KEPT) - 1)


def test_a_ledger_that_a_new_lineage_would_not_empty_begins_none() -> None:
    restores = {incident_key(NAMESPACE, f"r{number}"): Epoch(number + 1) for number in range(5)}
    ledger = replace(FIRST, incidents=restores)
    asked = [asks(incident=f"i{number}", name=f"d{number}") for number in range(MAX_INCIDENTS - 4)]
    assert compact(ledger, *asked[1:]) is ledger
    with pytest.raises(SpecError, match="delete old CacheEpochs"):
        compact(ledger, *asked)


def test_a_ledger_full_of_past_targets_keeps_the_floors_of_present_ones() -> None:
    past = {TargetName(f"{number:064x}"): Floor(Epoch(3)) for number in range(MAX_FLOORS)}
    ledger = replace(FIRST, floors=past)
    here = TargetName(f"{5:064x}")
    assert compacted(ledger, [asks(3, of=here)], pool=here, resume_after=None, fresh=FRESH) is ledger
    found = compact(ledger, asks(3, of=here))
    assert (set(found.floors), found.lineage.generation) == ({here}, 1001)


def test_more_incidents_than_fit_are_refused() -> None:
    many = [asks(incident=f"i{number}", name=f"d{number}") for number in range(MAX_INCIDENTS)]
    assert compact(FIRST, *many[1:]) is FIRST
    with pytest.raises(SpecError, match="delete old CacheEpochs"):
        compact(FIRST, *many)


def test_incidents_are_known_by_their_target() -> None:
    found = decided(FIRST, asks(incident="i"), asks(incident="i", name="e", of=SCOPE)).ledger.incidents
    assert (len(found), len(of_target(found, POOL)), len(of_target(found, SCOPE))) == (2, 1, 1)
