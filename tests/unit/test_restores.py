"""Restores are found out by what witnesses hold, and end in a later lineage that holds the maximum, or refuses everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cachescope.core.authorization_rules import Authorization, decide, first_head
from cachescope.core.declarations import NAMESPACE, Declaration, Restoration, incident_key
from cachescope.core.digests import digest
from cachescope.core.epochs import MAX_EPOCH
from cachescope.core.errors import SpecError
from cachescope.core.ledgers import Flags, Floor, Ledger, Lineage, advanced, followed, shard_name
from cachescope.core.lineages import includes, told
from cachescope.core.pool_rules import decide as decide_pool
from cachescope.core.pool_rules import first_ledger, resumable_incident
from cachescope.core.restores import apart, covers, is_restore, is_restored, merged, merged_authorization, said
from cachescope.core.types import Epoch, TargetName

POOL, RED, BLUE, GREEN = (TargetName(digit * 64) for digit in "abcd")
FRESH = Lineage(5, "5" * 32)
NOW = 1_800_000_000
FIRST = first_ledger(Lineage(10, "1" * 32))
SECOND = advanced(FIRST, floors={POOL: Floor(Epoch(3), Epoch(3))})
THIRD = advanced(SECOND, floors={POOL: Floor(Epoch(4), Epoch(4))}, flags=Flags(Epoch(4), Epoch(0), Epoch(0)))
FORKED = advanced(FIRST, floors={POOL: Floor(Epoch(2), Epoch(2))})


def witness(ledger: Ledger) -> Ledger:
    return replace(ledger, history=())


def deny(target: TargetName, incident: str = "i") -> Declaration:
    return Declaration(f"{target[0]}{incident}", target, incident=incident, deny=True)


def after(state: Authorization, *asked: Declaration, policy: str = "p") -> Authorization:
    return decide(state, asked, policy={"tenants": digest(policy)}, fresh=FRESH, now=NOW).state


EMPTY = Authorization(first_head(Lineage(10, "1" * 32)))
ONE = after(EMPTY, deny(RED))
TWO = after(ONE, deny(BLUE))


def test_what_is_merely_older_is_no_restore() -> None:
    assert not any(is_restore(THIRD, witness(item)) for item in (FIRST, SECOND, THIRD))
    assert not is_restore(merged(THIRD, [], fresh=FRESH), witness(THIRD))


@pytest.mark.parametrize("known", [SECOND, THIRD, merged(FIRST, [], fresh=FRESH), first_ledger(Lineage(10, "2" * 32))])
def test_a_witness_of_what_the_ledger_never_had_proves_a_restore(known: Ledger) -> None:
    assert is_restore(FIRST, witness(known))


def test_a_change_under_the_old_sequence_is_found_by_its_digest() -> None:
    same_fields = advanced(FIRST, floors={POOL: Floor(Epoch(9), Epoch(9))})
    assert is_restore(same_fields, witness(SECOND))
    assert is_restore(FORKED, witness(SECOND))


def test_what_lies_before_the_history_is_compared_by_its_fields() -> None:
    newer = replace(THIRD, history=("0" * 32,))
    assert not is_restore(newer, witness(FIRST))
    assert is_restore(replace(newer, flags=Flags()), witness(replace(FIRST, flags=Flags(Epoch(1), Epoch(0), Epoch(0)))))


def test_the_maximum_of_all_that_is_known_stands_in_a_lineage_above_all() -> None:
    other = advanced(FIRST, floors={RED: Floor(Epoch(7))}, base=Epoch(2))
    foreign = replace(THIRD, lineage=Lineage(70, "7" * 32))
    found = merged(FORKED, map(witness, (SECOND, other, foreign)), fresh=FRESH)
    assert (found.epoch(POOL), found.epoch(RED), found.base) == (4, 7, 2)
    assert (found.lineage, found.sequence, found.previous) == (Lineage(71, FRESH.id), 1, "")
    assert all(followed(known, found) is found for known in (FORKED, SECOND, other, foreign))
    assert merged(FIRST, [], fresh=Lineage(2_000_000_000, "5" * 32)).lineage.generation == 2_000_000_000


def test_a_flag_that_is_on_for_anybody_stays_on() -> None:
    on = replace(FIRST, flags=Flags(Epoch(7), Epoch(3), Epoch(3)))
    resumed = replace(FIRST, flags=Flags(Epoch(7), Epoch(5), Epoch(7)))
    for one, two in ((on, resumed), (resumed, on)):
        found = merged(one, [two], fresh=FRESH).flags
        assert (found.public_stopped, found.bypassed, found.stops_public, found.bypasses) == (7, 5, True, True)
    assert not merged(resumed, [resumed], fresh=FRESH).flags.stops_public


def bypass(incident: str) -> Declaration:
    return Declaration(incident, POOL, incident=incident, bypass=True)


def pool_after(ledger: Ledger, *asked: Declaration, resume_after: str | None = None) -> Ledger:
    return decide_pool(ledger, asked, pool=POOL, resume_after=resume_after).ledger


@pytest.mark.parametrize("later", [(), ("k",)])
def test_a_resume_after_that_stands_does_not_clear_a_flag_that_a_witness_brought_back(later: tuple[str, ...]) -> None:
    """The incident that it names is of another history, and has the number of the flag's own, or a higher one."""
    gone, back = pool_after(FIRST, bypass("i")), pool_after(FIRST, bypass("j"))
    for incident in later:
        back = pool_after(back, bypass(incident))
    latest = ("j", *later)[-1]
    back = pool_after(back, resume_after=latest)
    assert (is_restore(back, witness(gone)), gone.flags.bypasses, back.flags.bypasses) == (True, True, False)
    found = merged(back, [witness(gone)], fresh=FRESH)
    assert pool_after(found, resume_after=latest).flags.bypasses
    assert (found.flags.bypasses, resumable_incident(found, POOL)) == (True, None)
    again = pool_after(found, bypass("new"))
    assert not pool_after(again, resume_after="new").flags.bypasses


def test_a_flag_of_one_history_is_resumed_after_as_before() -> None:
    one = pool_after(FIRST, bypass("i"))
    two = pool_after(one, bypass("j"))
    for ledger, copy in ((one, two), (two, one)):
        found = merged(ledger, [witness(copy)], fresh=FRESH)
        assert (found.flags.bypassed, resumable_incident(found, POOL)) == (3, 3)
        assert not pool_after(found, resume_after="j").flags.bypasses
    resumed = pool_after(two, resume_after="j")
    assert not merged(resumed, [witness(two)], fresh=FRESH).flags.bypasses, "its history lists that one"


def test_incidents_stay_counted() -> None:
    counted = replace(FIRST, incidents={"x": Epoch(3)})
    assert merged(counted, [replace(FIRST, incidents={"y": Epoch(4)})], fresh=FRESH).incidents == {"x": 3, "y": 4}


def test_a_generation_at_its_end_is_refused_with_what_to_do() -> None:
    with pytest.raises(SpecError, match="see who wrote it"):
        merged(replace(FIRST, lineage=Lineage(MAX_EPOCH, "1" * 32)), [], fresh=FRESH)


def test_revocations_since_the_backup_come_back_from_a_witness() -> None:
    assert is_restore(ONE.head, witness(TWO.head))
    found = merged_authorization(ONE, [witness(TWO.head)], fresh=FRESH)
    assert (found.floor(RED).denies, found.floor(BLUE).denies, found.head.unconfirmed) == (True, True, False)
    assert (found.head.shards, found.behind, found.lost) == ({name: item.mark for name, item in found.shards.items()}, (), ())
    generations = {item.lineage.generation for item in found.shards.values()}
    assert (found.head.lineage.generation, min(generations)) == (11, 5 + 1)
    assert after(found, deny(RED), deny(BLUE)).floor(BLUE).denies


def late(head: Ledger) -> Ledger:
    """A witness whose list begins after the restored state."""
    return replace(witness(head), reach=ONE.head.sequence + 1)


@pytest.mark.parametrize(
    ("change", "sure"),
    [
        (witness, True),
        (late, False),
        (lambda head: replace(witness(head), lineage=Lineage(11, "9" * 32)), False),
    ],
)
def test_a_witness_that_does_not_reach_back_makes_everything_refused(change: Callable[[Ledger], Ledger], sure: bool) -> None:
    seen = change(TWO.head)
    assert covers(ONE.head, seen) == sure
    found = merged_authorization(ONE, [seen], fresh=FRESH).head
    assert (found.unconfirmed, found.restored - found.confirmed) == (not sure, 0 if sure else 1)


def test_a_head_and_a_witness_share_what_both_list_and_the_witness_must_reach_beyond_it() -> None:
    newest = witness(after(TWO, deny(GREEN)).head)
    assert covers(TWO.head, replace(newest, reach=TWO.head.sequence - 1))
    assert not covers(TWO.head, replace(newest, reach=TWO.head.sequence))
    again = witness(after(TWO, deny(BLUE, "j")).head)
    assert not covers(TWO.head, replace(again, reach=TWO.head.sequence - 1)), "what it lists of BLUE is a later change"


@pytest.mark.parametrize("asked", [(), (deny(GREEN),)])
def test_what_a_head_did_after_it_was_put_back_is_no_common_past(asked: tuple[Declaration, ...]) -> None:
    forked = after(after(after(ONE, *asked, policy="q"), policy="r"), policy="s").head
    assert forked.sequence > TWO.head.sequence
    assert covers(forked, witness(TWO.head)), "it lists everything since the lineage began"
    assert not covers(forked, replace(witness(TWO.head), reach=ONE.head.sequence))
    replayed = after(after(ONE, policy="q"), deny(BLUE), policy="q").head
    assert replayed.floors[BLUE] == TWO.head.floors[BLUE]
    assert not covers(replayed, replace(witness(TWO.head), reach=ONE.head.sequence))


def readmit(target: TargetName, incident: str) -> Declaration:
    return Declaration(f"{target[0]}{incident}", target, incident=incident, readmit=True)


COMMON = after(after(EMPTY, deny(RED, "d1")), deny(RED, "d1"), readmit(RED, "r1"))
GONE = after(COMMON, deny(RED, "d2"))


@pytest.mark.parametrize(
    "asked",
    [[readmit(RED, "r2")], [deny(RED, "d3"), readmit(RED, "r3")], [deny(RED, "d3"), readmit(RED, "r3"), readmit(RED, "r4")]],
)
def test_a_readmission_takes_back_no_denial_of_another_history(asked: list[Declaration]) -> None:
    """Whatever number it has there: whoever made it never saw the denial."""
    back = COMMON
    for number in range(len(asked)):
        back = after(back, *asked[: number + 1])
    assert (GONE.floor(RED).denies, back.floor(RED).denies) == (True, False)
    found = merged_authorization(back, [witness(GONE.head)], fresh=FRESH)
    floor = found.floor(RED)
    assert (floor.denies, floor.epoch, floor.abort_below) == (True, floor.denied, floor.denied)
    assert floor.epoch > max(GONE.floor(RED).epoch, back.floor(RED).epoch)
    assert after(found, *asked).floor(RED).denies, "the declarations that stand change nothing"
    assert not after(found, *asked, readmit(RED, "new")).floor(RED).denies
    other = merged_authorization(GONE, [witness(back.head)], fresh=FRESH)
    assert other.floor(RED).denies, "whichever of them was put back"


def test_a_state_that_is_merely_older_denies_nobody_anew() -> None:
    late = after(GONE, readmit(RED, "r2"))
    found = merged_authorization(late, [witness(GONE.head)], fresh=FRESH)
    assert not found.floor(RED).denies
    known = merged_authorization(GONE, [], fresh=FRESH, known=late)
    assert not known.floor(RED).denies, "the operator's memory went on from what was put back"


@pytest.mark.parametrize("listed", [True, False])
def test_a_doubt_of_one_history_is_confirmed_by_none_of_another(listed: bool) -> None:
    doubted = said(ONE.head, [Restoration("r1", "r1")], fresh=FRESH)
    done = said(doubted, [confirmed("r1", doubted)], fresh=FRESH)
    head = done if listed else replace(done, history=())
    found = merged_authorization(Authorization(head, ONE.shards), [witness(doubted)], fresh=FRESH).head
    assert (found.unconfirmed, done.unconfirmed) == (not listed, False)


def test_what_a_witness_of_the_same_lineage_lists_is_compared_with_shards_however_old_it_is() -> None:
    """Nobody noticed a restore, and the history of the head has gone on beyond what the witness holds."""
    back = Authorization(replace(advanced(ONE.head, policy={}), sequence=1000), ONE.shards)
    assert back.head.forgot(TWO.head.mark)
    assert is_restored(back, witness(TWO.head))
    assert not is_restored(back, witness(ONE.head))


def test_what_cannot_be_verified_is_a_doubt_and_what_the_operator_remembers_is_none() -> None:
    assert merged_authorization(ONE, [witness(TWO.head)], fresh=FRESH, doubt=True).head.unconfirmed
    newer = replace(TWO, head=late(TWO.head))
    assert merged_authorization(ONE, [witness(newer.head)], fresh=FRESH).head.unconfirmed
    found = merged_authorization(ONE, [witness(newer.head)], fresh=FRESH, known=after(newer, policy="x"))
    assert (found.head.unconfirmed, found.floor(BLUE).denies) == (False, True)


def test_a_shard_that_is_gone_is_lost_unless_the_operator_remembers_it() -> None:
    gone = Authorization(TWO.head, {shard_name(RED): TWO.shards[shard_name(RED)]})
    assert merged_authorization(gone, [], fresh=FRESH).head.unconfirmed
    found = merged_authorization(gone, [], fresh=FRESH, known=TWO)
    assert (found.head.unconfirmed, found.floor(BLUE).denies, found.lost) == (False, True, ())


def test_who_says_that_the_cluster_was_restored_gets_a_new_lineage_once_for_each_incident() -> None:
    asked = [Restoration("a", "r1")]
    for ledger in (FIRST, ONE.shards[shard_name(RED)], ONE.head):
        found = said(ledger, asked, fresh=FRESH)
        assert found.lineage.generation == ledger.lineage.generation + 1
        assert said(found, asked, fresh=FRESH) is found
        assert said(found, [], fresh=FRESH) is found
        assert (
            followed(found, said(found, [*asked, Restoration("b", "r2")], fresh=FRESH)).lineage.generation
            > found.lineage.generation
        )
    assert said(FIRST, asked, fresh=FRESH).incidents == {incident_key(NAMESPACE, "r1"): 1}


def confirmed(name: str, head: Ledger) -> Restoration:
    return Restoration(name, name, confirmed=True, lineage=head.lineage.generation)


def test_everything_is_refused_until_every_declared_restore_is_confirmed() -> None:
    one = said(ONE.head, [Restoration("r1", "r1")], fresh=FRESH)
    two = said(one, [Restoration("r1", "r1"), Restoration("r2", "r2")], fresh=FRESH)
    assert (one.restored, one.unconfirmed, two.restored, two.unconfirmed) == (1, True, 2, True)
    assert said(two, [Restoration("r1", "r1"), confirmed("r2", two)], fresh=FRESH).unconfirmed
    done = said(two, [confirmed("r1", two), confirmed("r2", two)], fresh=FRESH)
    assert (done.unconfirmed, done.lineage, done.sequence) == (False, two.lineage, two.sequence + 1)
    assert not said(two, [confirmed("r2", two)], fresh=FRESH).unconfirmed
    assert not said(done, [Restoration("r2", "r2")], fresh=FRESH).unconfirmed, "what was confirmed stays so"


@pytest.mark.parametrize("lineage", [None, ONE.head.lineage.generation - 1])
def test_a_confirmation_that_was_left_over_confirms_no_later_restore(lineage: int | None) -> None:
    """It stands in Git: the ledger that was put back has never heard of it, or has heard of it unconfirmed."""
    left = Restoration("r1", "r1", confirmed=True, lineage=lineage)
    found = said(ONE.head, [left], fresh=FRESH)
    assert (found.restored, found.unconfirmed, found.lineage > ONE.head.lineage) == (1, True, True)
    assert said(found, [left], fresh=FRESH) is found
    assert not said(found, [confirmed("r1", found)], fresh=FRESH).unconfirmed


def test_a_confirmation_of_what_the_operator_found_out_starts_no_lineage_and_counts_once() -> None:
    found = merged_authorization(ONE, [witness(TWO.head)], fresh=FRESH, doubt=True).head
    done = said(found, [confirmed("r1", found)], fresh=FRESH)
    assert (done.unconfirmed, done.lineage) == (False, found.lineage)
    later = merged_authorization(Authorization(done), [], fresh=FRESH, doubt=True).head
    assert said(later, [confirmed("r1", found)], fresh=FRESH) is later, "it is known, and of another lineage"


def test_nothing_is_confirmed_before_all_who_live_were_heard_of() -> None:
    one = said(ONE.head, [Restoration("r1", "r1")], fresh=FRESH)
    assert said(one, [confirmed("r1", one)], fresh=FRESH, heard=False) is one
    assert not said(one, [confirmed("r1", one)], fresh=FRESH).unconfirmed


def test_a_witness_of_an_earlier_lineage_that_came_late_is_merged_or_told_to_be_in_it() -> None:
    """Somebody who knew less began the lineage."""
    began = merged_authorization(ONE, [], fresh=FRESH)
    late_one = witness(TWO.head)
    assert (is_restored(began, late_one), includes(began.head, late_one)) == (True, False)
    found = merged_authorization(began, [late_one], fresh=FRESH)
    assert (found.floor(BLUE).denies, found.head.unconfirmed) == (True, False)
    assert (is_restored(found, late_one), apart(found.head, [late_one])) == (False, [])
    same = witness(advanced(ONE.head, policy={}))
    assert (is_restored(began, same), apart(began.head, [same])) == (False, [same.mark])
    head = told(began.head, [same.mark])
    assert (head.sequence, apart(head, [same]), told(head, [same.mark])) == (began.head.sequence + 1, [], head)


def test_a_late_witness_that_does_not_list_all_of_its_lineage_denies_until_somebody_confirms() -> None:
    began = merged_authorization(ONE, [], fresh=FRESH)
    assert merged_authorization(began, [replace(witness(TWO.head), reach=2)], fresh=FRESH).head.unconfirmed


def test_a_late_witness_of_a_pool_is_merged_and_one_that_knows_no_more_is_not() -> None:
    began = merged(FIRST, [], fresh=FRESH)
    assert is_restore(began, witness(THIRD))
    assert not is_restore(merged(began, [witness(THIRD)], fresh=FRESH), witness(THIRD))
    assert not is_restore(began, witness(FIRST))
    assert not is_restore(merged(THIRD, [], fresh=FRESH), witness(FORKED)), "its floors are no higher"


def test_of_one_restore_that_is_declared_twice_both_must_confirm() -> None:
    twice = [Restoration("a", "r1", confirmed=True), Restoration("b", "r1")]
    assert said(ONE.head, twice, fresh=FRESH).unconfirmed


@pytest.mark.parametrize("change", [{"base": Epoch(9)}, {"restored": 9}, {"floors": {RED: Floor(Epoch(9))}}, {}])
def test_a_witness_that_knows_more_of_anything_proves_a_restore(change: dict[str, Any]) -> None:
    began = merged_authorization(ONE, [], fresh=FRESH)
    assert is_restored(began, replace(witness(ONE.head), **change)) == bool(change)
