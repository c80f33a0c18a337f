"""The authorization ledgers of a namespace: shards before the head, everything announced, folding in two steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cachescope.core.authorization_rules import (
    FOLDED_ABOVE,
    FOLDED_TO,
    MAX_LISTED,
    Authorization,
    AuthorizationDecision,
    announced,
    awaits_head,
    compacted,
    decide,
    first_head,
    folded,
    writes,
)
from cachescope.core.declarations import DENIED, MAX_AHEAD_SECONDS, READMITTED, Declaration, MomentTooLate, Postponed, incident_key
from cachescope.core.digests import digest
from cachescope.core.heads import behind
from cachescope.core.ledgers import (
    AUTHORIZATION_HEAD,
    Floor,
    Ledger,
    LedgerFork,
    Lineage,
    Role,
    advanced,
    followed,
    reborn,
    shard_name,
)
from cachescope.core.shard_room import MAX_FLOORS, MAX_INCIDENTS, MAX_STEP, SHARE
from cachescope.core.types import Epoch, TargetName

RED, BLUE, GREEN = TargetName("a" * 64), TargetName("b" * 64), TargetName("b" + "0" * 63)
SHARD_A, SHARD_B = shard_name(RED), shard_name(BLUE)
FRESH = Lineage(50, "5" * 32)
EMPTY = Authorization(first_head(Lineage(10, "1" * 32)))
NOW = 1_800_000_000
POLICY = {"tenants": digest("policy")}


def decided(state: Authorization, *asked: Declaration) -> AuthorizationDecision:
    return decide(state, asked, policy=state.head.policy, fresh=FRESH, now=NOW)


def deny(target: TargetName, incident: str = "i", name: str = "") -> Declaration:
    return Declaration(name or incident, target, incident=incident, deny=True)


def many(count: int, floor: Floor, start: int = 0) -> dict[TargetName, Floor]:
    return {TargetName(f"a{number:063x}"): floor for number in range(start, start + count)}


def shard(floors: dict[TargetName, Floor], **fields: object) -> Ledger:
    made = Ledger(Role.SHARD, FRESH, 1, base=Epoch(1), floors=floors, changed=dict.fromkeys(floors, 1))
    return replace(made, **fields)  # type: ignore[arg-type]


def state_of(floors: dict[TargetName, Floor], **fields: object) -> Authorization:
    shards = {SHARD_A: shard(floors, **fields)}
    return Authorization(announced(EMPTY.head, shards, {}), shards)


def test_nothing_declared_changes_nothing_and_a_policy_is_a_step_of_the_head() -> None:
    assert decided(EMPTY).state == EMPTY
    found = decide(EMPTY, [], policy=POLICY, fresh=FRESH, now=NOW).state
    assert (found.head.policy, found.head.sequence, found.shards) == (POLICY, 2, {})
    assert writes(EMPTY, decide(found, [], policy=POLICY, fresh=FRESH, now=NOW).state) == writes(EMPTY, found)


def test_shards_are_written_first_and_the_head_names_them() -> None:
    found = decided(EMPTY, deny(RED), deny(BLUE, name="e"))
    names = [name for name, _ in writes(EMPTY, found.state)]
    assert names == [SHARD_A, SHARD_B, AUTHORIZATION_HEAD]
    assert found.state.head.shards == {name: item.mark for name, item in found.state.shards.items()}
    assert found.state.head.floors == {
        RED: Floor(Epoch(2), Epoch(2), denied=Epoch(2)),
        BLUE: Floor(Epoch(2), Epoch(2), denied=Epoch(2)),
    }
    assert (found.given, found.epochs) == ({"i": 2, "e": 2}, {"i": 2, "e": 2})


def test_what_was_written_to_a_shard_alone_is_announced_by_the_next_decision_and_counts_once() -> None:
    first = decided(EMPTY, deny(RED))
    ended = Authorization(EMPTY.head, first.state.shards)
    again = decided(ended, deny(RED))
    assert (again.given, again.state) == (first.given, first.state)
    assert [name for name, _ in writes(ended, again.state)] == [AUTHORIZATION_HEAD]


def test_what_somebody_else_wrote_to_a_shard_is_announced_too() -> None:
    start = decided(EMPTY, deny(RED)).state
    other = decided(start, deny(BLUE, "x")).state
    found = decided(Authorization(start.head, other.shards), deny(RED)).state
    assert found.head.floors[BLUE].denies
    assert decided(found, deny(RED)).state == found


def test_only_what_changed_is_announced() -> None:
    start = decided(EMPTY, deny(BLUE)).state
    found = decided(start, deny(BLUE), deny(GREEN, "j")).state
    assert found.head.changed == {BLUE: 2, GREEN: 3}


def test_a_denial_stays_until_it_is_taken_back_and_one_declared_later_counts() -> None:
    denied = decided(EMPTY, deny(RED)).state
    assert decided(denied).state.floor(RED).denies
    plain = Declaration("i", RED, incident="i")
    assert decided(denied, plain).state.floor(RED).denies
    back = decided(denied, deny(RED), Declaration("r", RED, incident="r", readmit=True)).state
    assert (back.floor(RED).denies, back.floor(RED).epoch) == (False, 3)
    assert decided(back, deny(RED)).state is not None
    assert not decided(back, deny(RED)).state.floor(RED).denies
    assert decided(back, deny(RED, "j")).state.floor(RED).denies
    later = decided(decided(EMPTY, plain).state, deny(RED))
    assert (later.state.floor(RED).denies, later.given) == (True, {"i": 2})


def test_of_a_denial_and_a_readmission_that_come_together_the_denial_stands() -> None:
    readmit = Declaration("z", RED, incident="z", readmit=True)
    assert decided(EMPTY, deny(RED, "a"), readmit).state.floor(RED).denies
    assert decided(EMPTY, deny(RED, "z", name="y"), readmit).state.floor(RED).denies


def test_credentials_issued_before_never_become_good_again() -> None:
    asked = Declaration("d", RED, incident="i", issued_before=1000)
    found = decided(EMPTY, asked).state
    assert decided(found, replace(asked, issued_before=10)).state == found
    assert decided(found, replace(asked, issued_before=2000)).state.floor(RED).issued_before == 2000


def test_a_moment_that_is_raised_on_a_counted_incident_advances_the_epoch_once_more() -> None:
    """Guards judge by epochs alone: without one of its own, what was issued between the two moments would be used on."""
    asked = Declaration("d", RED, incident="i", issued_before=1000)
    found = decided(EMPTY, asked).state
    assert found.floor(RED) == Floor(Epoch(2), Epoch(2), issued_before=1000), "one that comes with its incident has its epoch"
    later = decided(found, replace(asked, issued_before=2000))
    assert later.state.floor(RED) == Floor(Epoch(3), Epoch(3), issued_before=2000)
    assert (later.given, later.state.head.below(found.head.vector(RED))) == ({"d": 2}, (RED,))
    assert decided(later.state, replace(asked, issued_before=2000)).state == later.state
    other = Declaration("e", RED, incident="j", issued_before=3000)
    assert decided(later.state, other).state.floor(RED).epoch == 4


def test_a_moment_that_is_far_ahead_is_a_typo_and_refuses_nobody() -> None:
    asked = Declaration("d", RED, incident="i", issued_before=NOW + MAX_AHEAD_SECONDS)
    assert decided(EMPTY, asked).state.floor(RED).issued_before == asked.issued_before
    far = replace(asked, issued_before=asked.issued_before + 1)
    held = decided(EMPTY, far)
    assert (held.state.floor(RED), held.given) == (Floor(Epoch(2), Epoch(2)), {"d": 2})
    assert (held.held, "correct it" in str(held.held["d"])) == ({"d": MomentTooLate(far.issued_before)}, True)
    assert decided(held.state, far).state == held.state
    corrected = decided(held.state, asked)
    assert (corrected.state.floor(RED).issued_before, corrected.epochs, corrected.held) == (asked.issued_before, {"d": 3}, {})


def test_a_denial_that_was_taken_back_before_it_was_declared_is_held_and_one_of_a_new_id_denies() -> None:
    rotation, readmit = Declaration("i", RED, incident="i"), Declaration("r", RED, incident="r", readmit=True)
    back = decided(decided(EMPTY, rotation).state, rotation, readmit).state
    for late in (deny(RED), deny(RED, "r", name="i")):
        found = decided(back, late, readmit)
        assert (found.state, found.held) == (back, {"i": READMITTED})
    found = decided(back, rotation, readmit, deny(RED, "new"))
    assert (found.state.floor(RED).denies, found.held) == (True, {"r": DENIED})


def test_a_denial_that_stands_by_another_one_is_not_held() -> None:
    rotation, readmit = Declaration("i", RED, incident="i"), Declaration("r", RED, incident="r", readmit=True)
    back = decided(decided(EMPTY, rotation).state, rotation, readmit).state
    assert decided(back, deny(RED), deny(RED, "j")).held == {}


def test_a_readmission_never_takes_back_the_denial_of_its_own_incident() -> None:
    """Also once the CacheEpoch of the denial is gone: that takes nothing back."""
    readmit = Declaration("z", RED, incident="z", readmit=True)
    both = decided(EMPTY, deny(RED, "z", name="y"), readmit)
    assert (both.state.floor(RED).denies, both.held) == (True, {"z": DENIED})
    alone = decided(both.state, readmit)
    assert (alone.state, alone.held) == (both.state, {"z": DENIED})
    assert not decided(both.state, replace(readmit, incident="new")).state.floor(RED).denies


def test_the_head_lists_the_latest_changes_and_says_how_far_back() -> None:
    state = EMPTY
    for number in range(MAX_LISTED + 2):
        state = decided(state, Declaration("d", TargetName(f"{number:064x}"), Epoch(2))).state
    assert (len(state.head.floors), state.head.reach) == (MAX_LISTED, 3)
    assert min(state.head.changed.values()) == 4


def test_too_many_changes_at_once_are_none_and_everything_of_before_is_behind() -> None:
    """As after a process that wrote shards and ended before the head."""
    found = announced(EMPTY.head, {SHARD_A: shard(many(MAX_LISTED + 1, Floor(Epoch(2))))}, {})
    assert (found.floors, found.changed, found.reach) == ({}, {}, found.sequence)


def bulk(count: int, namespace: str) -> list[Declaration]:
    targets = [TargetName(f"{number % 16:x}" + f"{number:063x}") for number in range(count)]
    return [Declaration(f"{namespace}/{number}", target, Epoch(2)) for number, target in enumerate(targets)]


def test_a_bulk_of_one_namespace_cuts_nobody_who_follows_head_after_head() -> None:
    state, asked = decided(EMPTY, deny(BLUE)).state, [*bulk(MAX_LISTED + 1, "team-b"), deny(BLUE)]
    seen, sequences = state.head, 0
    while (found := decided(state, *asked)).state != state:
        state, sequences = found.state, sequences + 1
        assert not behind(state.head, seen.vector(RED), seen.sequence)
        assert len(state.head.floors.keys() - seen.floors.keys()) <= MAX_STEP
        seen = state.head
    assert (sequences, found.held) == (5, {})
    assert all(state.floor(item.target).epoch == 2 for item in asked)


def test_every_namespace_has_its_turn_with_its_denials_first() -> None:
    many_ones = bulk(4 * MAX_STEP, "team-b")
    mine = [replace(deny(RED), name="team-a/z"), Declaration("team-a/y", GREEN, incident="y")]
    found = decided(EMPTY, *many_ones, *mine)
    assert found.state.floor(RED).denies
    assert (found.given["team-a/z"], found.given["team-a/y"]) == (2, 2)
    assert found.held.keys() < {item.name for item in many_ones}, "what waits does not stand"
    first_of_b = replace(many_ones[-1], incident="d", deny=True)
    assert decided(EMPTY, *many_ones[:-1], first_of_b).state.floor(first_of_b.target).denies


LAST = TargetName("f" * 64)


def a_step_of_denials() -> list[Declaration]:
    return [replace(item, incident=item.name, deny=True) for item in bulk(MAX_STEP, "team-b")]


@pytest.mark.parametrize(
    "says", [{"deny": True}, {"issued_before": 1000}, {"floor": Epoch(5)}, {"incident": None, "floor": Epoch(5)}], ids=str
)
def test_what_its_incident_does_not_count_for_waits_and_says_so(says: dict[str, Any]) -> None:
    """It was added to an incident that had its epoch before, or there is no incident; nobody may take that for done."""
    counted = Declaration("team-b/z", LAST, incident="z")
    state, added = decided(EMPTY, counted).state, replace(counted, **says)
    found = decided(state, *a_step_of_denials(), added)
    assert isinstance(found.held["team-b/z"], Postponed)
    assert (found.state.floor(LAST), len(found.held)) == (state.floor(LAST), 1)
    after = decided(found.state, *a_step_of_denials(), added)
    assert (after.held, after.state.floor(LAST) == state.floor(LAST)) == ({}, False), "control: its turn has come"


def test_what_stands_already_waits_for_nothing_beside_another_of_its_target() -> None:
    first = Declaration("team-b/z", LAST, incident="z", deny=True)
    state = decided(EMPTY, first).state
    found = decided(state, *a_step_of_denials(), first, Declaration("team-b/zz", LAST, floor=Epoch(5)))
    assert found.held.keys() == {"team-b/zz"}


def test_a_shard_that_gets_full_raises_the_base_first_and_drops_entries_only_when_that_is_fenced() -> None:
    floors = many(FOLDED_ABOVE, Floor(Epoch(2))) | {RED: Floor(Epoch(7), denied=Epoch(7))}
    crowded = state_of(floors)
    raised = decided(crowded).state
    assert (raised.head.base, raised.shards[SHARD_A].base, len(raised.shards[SHARD_A].floors)) == (2, 2, len(floors))
    assert decided(raised).state == raised
    assert folded(raised, fenced_base=Epoch(1)) == raised
    done = folded(raised, fenced_base=raised.head.base)
    assert done.shards[SHARD_A].floors == {RED: floors[RED]}
    assert done.head.shards == {SHARD_A: done.shards[SHARD_A].mark}
    assert followed(crowded.shards[SHARD_A], done.shards[SHARD_A]) is done.shards[SHARD_A]
    assert folded(done, fenced_base=Epoch(9)) == done


def test_a_base_that_another_shard_raised_drops_entries_together_with_their_own_base() -> None:
    plain = state_of({RED: Floor(Epoch(2))})
    raised = replace(plain, head=advanced(plain.head, base=Epoch(2)))
    done = folded(raised, fenced_base=Epoch(2)).shards[SHARD_A]
    assert (done.floors, done.base) == ({}, 2)
    assert followed(plain.shards[SHARD_A], done) is done


def test_folding_reaches_its_aim_by_the_lowest_base_that_does() -> None:
    floors = many(400, Floor(Epoch(2))) | many(400, Floor(Epoch(9)), start=400)
    raised = decided(state_of(floors)).state
    assert raised.head.base == 2
    assert len(folded(raised, fenced_base=Epoch(9)).shards[SHARD_A].floors) == 400 <= FOLDED_TO


@pytest.mark.parametrize(
    "kept", [Floor(Epoch(2), denied=Epoch(2)), Floor(Epoch(2), readmitted=Epoch(2)), Floor(Epoch(2), issued_before=9)]
)
def test_what_is_more_than_an_epoch_is_never_dropped(kept: Floor) -> None:
    raised = state_of(many(1, kept) | {RED: Floor(Epoch(2))}, base=Epoch(2))
    assert set(folded(raised, fenced_base=Epoch(2)).shards[SHARD_A].floors) == set(many(1, kept))


@pytest.mark.parametrize(("incidents", "entries"), [(int(MAX_INCIDENTS * SHARE), 0), (0, int(MAX_FLOORS * SHARE))])
def test_one_namespace_fills_no_shard_of_all(incidents: int, entries: int) -> None:
    targets = list(many(max(incidents, entries), Floor(Epoch(2))))
    declared = [Declaration(f"team-b/{target}", target, Epoch(2), "x" if incidents else None) for target in targets]
    counted = {incident_key(target, "x"): Epoch(2) for target in targets if incidents}
    full = state_of(dict.fromkeys(targets, Floor(Epoch(2))), incidents=counted)
    found = decided(full, *declared, replace(deny(RED), name="team-b/more"), replace(deny(BLUE), name="team-b/other-shard"))
    assert set(found.held) == {"team-b/more"}
    assert str(found.held["team-b/more"]).startswith("the CacheEpochs of namespace team-b take")
    assert decided(full, *declared, replace(deny(RED), name="team-a/deny")).state.floor(RED).denies
    assert decided(full, *declared[1:], replace(deny(RED), name="team-b/more")).held == {}


def test_a_shard_full_of_denials_holds_what_does_not_fit_and_nothing_else() -> None:
    full = state_of(many(MAX_FLOORS, Floor(Epoch(2), denied=Epoch(2))))
    found = decided(full, deny(RED), deny(BLUE, name="e"), deny(next(iter(full.shards[SHARD_A].floors)), name="f"))
    assert isinstance(found.held["i"], Postponed)
    assert "suspend the Tenant instead" in str(found.held["i"])
    assert (set(found.held), set(found.given), found.state.head.base) == ({"i"}, {"e", "f"}, 1)


def test_a_shard_full_of_incidents_goes_on_without_those_that_nobody_declares() -> None:
    old = {incident_key(RED, f"old-{number}"): Epoch(2) for number in range(MAX_INCIDENTS)}
    full = state_of({RED: Floor(Epoch(2))}, incidents=old)
    asked = (deny(RED, "new"), deny(RED, "old-3"))
    assert "delete CacheEpochs" in str(decided(full, *asked).held["new"])
    room = compacted(full, asked, fresh=FRESH)
    assert (set(room.shards[SHARD_A].incidents), room.shards[SHARD_A].lineage.generation) == ({incident_key(RED, "old-3")}, 51)
    assert (room.behind, room.lost) == ((SHARD_A,), ())
    assert decided(room, *asked).given == {"new": 3, "old-3": 2}
    assert compacted(full, asked[1:], fresh=FRESH) == full


@pytest.mark.parametrize("together", [False, True])
def test_an_old_readmission_that_comes_back_takes_back_no_later_denial(together: bool) -> None:
    """Somebody reverts the commit that removed it, after a new lineage forgot what nobody declared."""
    readmission, denial = Declaration("r", RED, incident="r", readmit=True), deny(RED, "r" if together else "d", name="d")
    state = decided(decided(EMPTY, readmission).state if not together else EMPTY, readmission, denial).state
    assert state.floor(RED).denies
    others = {
        incident_key(RED, f"late-{number}"): Epoch(9) for number in range(MAX_INCIDENTS - len(state.shards[SHARD_A].incidents))
    }
    crowded = advanced(state.shards[SHARD_A], incidents={**state.shards[SHARD_A].incidents, **others})
    state = replace(state, head=announced(state.head, {SHARD_A: crowded}, {}), shards={SHARD_A: crowded})
    small = compacted(state, [deny(RED, "new")], fresh=FRESH)
    assert len(small.shards[SHARD_A].incidents) <= 2, "no more than readmissions need"
    found = decided(decided(small).state, readmission)
    assert (found.state.floor(RED).denies, found.held) == (True, {"r": DENIED})
    assert not decided(found.state, replace(readmission, incident="new")).state.floor(RED).denies


def test_a_gateway_keeps_its_shard_until_the_head_names_the_new_lineage() -> None:
    old = state_of({RED: Floor(Epoch(2))})
    newer = reborn(old.shards[SHARD_A], Lineage(60, "6" * 32))
    assert awaits_head(old.head, SHARD_A, old.shards[SHARD_A], newer)
    assert not awaits_head(old.head, SHARD_A, old.shards[SHARD_A], advanced(old.shards[SHARD_A])), "control: of its lineage"
    assert Authorization(old.head, {SHARD_A: newer}).behind == (SHARD_A,)
    head = announced(old.head, {SHARD_A: newer}, {})
    assert head.changed == {RED: head.sequence}, "all of it is announced again"
    assert not awaits_head(head, SHARD_A, old.shards[SHARD_A], newer)
    assert Authorization(head, {SHARD_A: newer}).behind == ()
    with pytest.raises(LedgerFork):
        followed(newer, advanced(newer, floors={}))


def test_a_shard_that_vanished_or_was_put_back_is_lost_and_nothing_is_decided_for_it() -> None:
    old = decided(EMPTY, deny(RED)).state
    new = decided(old, deny(RED, "j")).state
    put_back, gone = Authorization(new.head, old.shards), Authorization(new.head)
    for lost in (put_back, gone):
        found = decided(lost, deny(RED, "k"), deny(BLUE, "k", name="e"))
        assert (lost.lost, lost.behind, new.lost) == ((SHARD_A,), (SHARD_A,), ())
        assert "the operator deals with that first" in str(found.held["k"])
        assert found.given == {"e": 2}
        assert found.state.head.shards[SHARD_A] == new.head.shards[SHARD_A]
