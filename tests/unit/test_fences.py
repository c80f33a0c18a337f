"""When a fence is complete: everybody acknowledged, or cannot act any more; and never because nobody was seen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachescope.core.fences import Progress, Wanted, progress
from cachescope.core.leases import GATEWAY, GUARD
from cachescope.core.ledgers import Ledger, Lineage, Mark, Role, advanced
from cachescope.core.rosters import ANYBODY, Member, Roster, after_right_ms, right_ms, silent_ms
from cachescope.core.types import Digest

LEASE, FRESH, STALE = 3000, 120_000, 600_000
FIRST = Ledger(Role.POOL, Lineage(1, "a"), 1)
SECOND = advanced(FIRST)
THIRD = advanced(SECOND)
OF_POOL = Wanted("pool", 2, version=50, written_ms=0, namespace="ns", pool="pool")
OF_PEOPLE = Wanted("authorization/ns", 2, version=50, written_ms=0, namespace="ns")


def member(uid: str = "g", version: int = 60, at: Ledger | None = FIRST, **fields: object) -> Member:
    marks = {key: at.mark for key in ("pool", "authorization/ns")} if at else {}
    made = Member(uid, "ns", uid, version, GUARD, "pool", LEASE, FRESH, acknowledged=marks)
    return replace(made, **fields)  # type: ignore[arg-type]


def gateway(uid: str = "w", version: int = 60, at: Ledger | None = FIRST) -> Member:
    return member(uid, version, at, holder=GATEWAY, pool="", namespace="home", fresh_ms=STALE)


def roster_of(*members: Member, now_ms: int = 0) -> Roster:
    roster = Roster()
    for item in members:
        roster.saw(item, now_ms)
        roster.reached(item.version)
    return roster


def complete(roster: Roster, wanted: Wanted = OF_POOL, now_ms: int = 1, ledger: Ledger = THIRD) -> bool:
    return progress(roster, wanted, ledger, now_ms).complete


def test_a_fence_is_complete_when_everybody_acknowledged_the_state_or_a_later_one() -> None:
    for at in (SECOND, THIRD):
        assert complete(roster_of(member(at=at), member("h", at=SECOND)))
    for behind in (FIRST, None):
        assert not complete(roster_of(member(at=SECOND), member("h", at=behind)))


@pytest.mark.parametrize(
    "mark",
    [
        Mark(Lineage(1, "b"), 2, SECOND.digest),
        Mark(Lineage(2, "a"), 9, SECOND.digest),
        Mark(FIRST.lineage, 2, Digest("sha256:" + "0" * 64)),
        Mark(FIRST.lineage, 9, SECOND.digest),
    ],
)
def test_a_state_of_another_history_acknowledges_nothing(mark: Mark) -> None:
    assert not complete(roster_of(member(acknowledged={"pool": mark})))
    assert complete(roster_of(member(acknowledged={"pool": SECOND.mark})))


def test_a_process_that_is_not_heard_of_counts_once_its_right_and_a_margin_are_over() -> None:
    roster = roster_of(member())
    assert not complete(roster, now_ms=right_ms(LEASE))
    assert complete(roster, now_ms=right_ms(LEASE) + 1)
    roster.saw(member(version=61), right_ms(LEASE))
    assert not complete(roster, now_ms=right_ms(LEASE) + 1)


def test_the_same_version_again_is_no_sign_of_life_and_an_older_one_neither() -> None:
    roster = roster_of(member())
    for version in (60, 59):
        roster.saw(member(version=version), LEASE)
    assert complete(roster, now_ms=right_ms(LEASE) + 1)


def test_the_longest_right_counts_that_was_declared_since_the_last_expiry() -> None:
    roster = roster_of(member(lease_ms=10 * LEASE))
    roster.saw(member(version=61), 1)
    assert not complete(roster, now_ms=1 + right_ms(LEASE) + 1)
    assert complete(roster, now_ms=1 + right_ms(10 * LEASE) + 1)
    roster.saw(member(version=62), 20 * LEASE)
    assert complete(roster, now_ms=20 * LEASE + right_ms(LEASE) + 1)


def test_what_vanished_counts_as_unchanged_since_it_was_noticed() -> None:
    roster = roster_of(member(), member("h", at=SECOND))
    roster.vanished("g", LEASE)
    assert not complete(roster, now_ms=LEASE + right_ms(LEASE))
    roster.forget(LEASE + right_ms(LEASE))
    assert complete(roster, now_ms=LEASE + right_ms(LEASE) + 1)


def test_what_vanished_and_may_do_nothing_any_more_is_forgotten() -> None:
    roster = roster_of(member())
    roster.vanished("g", 0)
    end = right_ms(LEASE) + silent_ms(FRESH)
    roster.forget(end)
    assert list(roster.entries())
    roster.forget(end + 1)
    assert not list(roster.entries())


def test_what_the_operator_deleted_itself_stays_as_it_was() -> None:
    roster = roster_of(member(), member("h", at=SECOND))
    roster.deleted("g")
    assert not complete(roster, now_ms=right_ms(LEASE))
    assert complete(roster, now_ms=right_ms(LEASE) + 1)


def test_a_process_that_said_its_end_counts_no_more() -> None:
    assert complete(roster_of(member(released=True)))


def test_after_a_start_nothing_is_complete_before_every_right_of_before_is_over() -> None:
    roster = roster_of(member(at=SECOND))
    roster.settle(0)
    assert not complete(roster, now_ms=right_ms(LEASE) - 1)
    assert (progress(roster, OF_POOL, THIRD, 1).awaited, progress(roster, OF_POOL, THIRD, 1).heard) == ((), False)
    assert complete(roster, now_ms=right_ms(LEASE))


def test_a_roster_that_was_not_told_of_the_time_of_the_write_waits_a_whole_right() -> None:
    roster = roster_of(member(version=49, at=SECOND))
    assert not complete(roster, now_ms=right_ms(LEASE) - 1)
    assert complete(roster, now_ms=right_ms(LEASE))
    roster.saw(member("h", version=51, at=SECOND), 1)
    assert not complete(roster, now_ms=1), "a list may have shown it"
    roster.reached(51)
    assert complete(roster, now_ms=1)


def test_nobody_at_all_is_no_proof_before_the_longest_right_that_is_declared() -> None:
    roster = Roster()
    roster.allow(("ns", "pool"), LEASE, FRESH)
    assert not complete(roster, now_ms=right_ms(LEASE) - 1)
    assert complete(roster, now_ms=right_ms(LEASE))


def test_the_fence_of_a_cache_waits_for_the_guards_of_its_pool_alone() -> None:
    others = [member("h", pool="other"), gateway()]
    assert complete(roster_of(member(at=SECOND), *others))
    assert not complete(roster_of(member(at=SECOND), *others), OF_PEOPLE)


def test_the_fence_of_people_waits_for_all_guards_of_the_namespace_and_all_gateways() -> None:
    whole = [member(at=SECOND), member("h", pool="other", at=SECOND), gateway(at=SECOND)]
    assert complete(roster_of(*whole), OF_PEOPLE)
    assert complete(roster_of(*whole, member("x", namespace="elsewhere", pool="x")), OF_PEOPLE)
    for index in range(3):
        behind = [*whole[:index], replace(whole[index], acknowledged={}), *whole[index + 1 :]]
        assert not complete(roster_of(*behind), OF_PEOPLE)


def people(roster: Roster, now_ms: int, clear_ms: int | None = None) -> Progress:
    return progress(roster, OF_PEOPLE, THIRD, now_ms, clear_ms=clear_ms)


def test_an_expired_guard_that_may_serve_fresh_is_waited_for_once_nobody_issues_what_is_below() -> None:
    ended, takes = right_ms(LEASE) + 1, after_right_ms(LEASE, FRESH)
    roster = roster_of(member(), gateway(at=SECOND))
    assert not people(roster, ended - 1).clear
    assert (people(roster, ended).clear, people(roster, ended).complete) == (True, False)
    assert not people(roster, ended + takes - 1, clear_ms=ended).complete
    assert people(roster, ended + takes, clear_ms=ended).complete
    assert people(roster_of(member(fresh_ms=0), gateway(at=SECOND)), ended).complete, "under `Deny` it serves nothing"


def test_a_stale_gateway_is_waited_for_as_long_as_it_may_issue() -> None:
    roster = roster_of(member(at=SECOND), gateway())
    assert not complete(roster, OF_PEOPLE, right_ms(LEASE + STALE)), "clocks run apart while it is stale, too"
    assert complete(roster, OF_PEOPLE, right_ms(LEASE + STALE) + 1)


def test_a_guard_that_is_cut_off_with_a_gateway_is_waited_for_after_the_last_permit_of_that() -> None:
    short = replace(gateway(), fresh_ms=FRESH)
    roster = roster_of(member(), short)
    last = right_ms(LEASE + FRESH) + 1
    assert not people(roster, last - 1).clear
    assert not people(roster, last + after_right_ms(LEASE, FRESH) - 1, clear_ms=last).complete
    assert people(roster, last + after_right_ms(LEASE, FRESH), clear_ms=last).complete


@pytest.mark.parametrize("end", ["vanished", "deleted"])
def test_a_guard_without_a_lease_may_serve_fresh_until_it_is_silent(end: str) -> None:
    roster = roster_of(member(), member("h", at=SECOND), gateway(at=SECOND))
    ended = right_ms(LEASE) + 1
    roster.vanished("g", 0) if end == "vanished" else roster.deleted("g")
    roster.forget(ended)
    assert (people(roster, ended).clear, people(roster, ended).complete) == (True, False)
    silent = right_ms(LEASE) + silent_ms(FRESH)
    for now, done in ((silent, False), (silent + 1, True)):
        roster.forget(now)
        assert people(roster, now).complete == done


def test_after_a_start_there_may_be_a_guard_that_a_stale_gateway_of_whom_nobody_knows_serves() -> None:
    """Both vanished while no operator watched; nobody else is left who did not acknowledge."""
    fresh, stale = 5000, 10_000
    roster = roster_of(member(at=SECOND, fresh_ms=fresh), replace(gateway(at=SECOND), fresh_ms=stale))
    roster.settle(0)
    issued = right_ms(LEASE + stale)
    assert (people(roster, right_ms(LEASE)).heard, people(roster, right_ms(LEASE)).clear) == (True, False)
    assert not people(roster, issued - 1).clear
    assert (people(roster, issued).clear, people(roster, issued).complete) == (True, False)
    assert people(roster, issued + after_right_ms(LEASE, fresh), clear_ms=issued).complete
    assert people(roster, right_ms(LEASE) + silent_ms(fresh) + 1).complete, "whoever it was serves nothing any more"
    denies = roster_of(member(at=SECOND, fresh_ms=0), replace(gateway(at=SECOND), fresh_ms=stale))
    denies.settle(0)
    assert people(denies, right_ms(LEASE)).complete, "whatever a gateway issues, nobody takes it"


def test_what_may_have_been_missed_is_waited_for_as_long_as_in_its_place_rights_last() -> None:
    others = [member("h", namespace="team-b", pool="other", lease_ms=600_000), member("i", pool="long", lease_ms=600_000)]
    roster = roster_of(member(at=SECOND), *others, gateway(at=SECOND))
    roster.settle(0)
    assert not complete(roster, now_ms=right_ms(LEASE) - 1)
    assert complete(roster, now_ms=right_ms(LEASE)), "another pool's rights are none of its own"
    assert not complete(roster, OF_PEOPLE, right_ms(LEASE)), "of people all pools of the namespace are concerned"
    elsewhere = Wanted("authorization/elsewhere", 2, version=50, written_ms=0, namespace="elsewhere")
    released = roster_of(*(replace(item, released=True) for item in (*others, gateway())))
    released.settle(0)
    assert not complete(released, elsewhere, 999)
    assert complete(released, elsewhere, 1000), "there are no guards that would take what a gateway issues"
    assert released.knows_all(right_ms(LEASE + STALE) + 1, pool=None)
    assert not released.knows_all(right_ms(LEASE + STALE) + 1, pool=("ns", "long"))


STATES = [FIRST, SECOND, THIRD, advanced(THIRD)]
members = st.builds(
    member,
    st.sampled_from("ghijk"),
    st.integers(60, 63),
    st.sampled_from([None, *STATES]),
    holder=st.sampled_from([GUARD, GATEWAY, ANYBODY]),
    namespace=st.sampled_from(["ns", "other"]),
    pool=st.sampled_from(["pool", "other", ""]),
    pool_uid=st.sampled_from(["", "pool", "uid-of-another"]),
    lease_ms=st.sampled_from([1000, LEASE]),
    fresh_ms=st.sampled_from([0, 2000]),
    released=st.booleans(),
)


rosters = st.lists(st.tuples(members, st.sampled_from([0, 5000])), max_size=6)


@settings(max_examples=150)
@given(rosters, st.integers(1, 4), st.booleans(), st.integers(0, 20_000))
def test_whoever_is_behind_a_state_is_found_as_if_each_was_asked(
    seen: list[tuple[Member, int]], number: int, of_pool: bool, now_ms: int
) -> None:
    """The same by asking everybody for himself, said in another way."""
    roster = Roster()
    for item, at_ms in seen:
        roster.saw(item, at_ms)
    roster.reached(63)
    wanted = replace(OF_POOL if of_pool else OF_PEOPLE, sequence=number)
    found = progress(roster, wanted, STATES[-1], now_ms)
    awaited, heard = set(), True
    for entry in roster.entries():
        item = entry.member
        of_its_pool = item.pool_uid == "pool" or (not item.pool_uid and item.pool in ("", "pool"))
        guards = item.holder != GATEWAY and item.namespace == "ns" and (not of_pool or of_its_pool)
        issues = item.holder != GUARD and not of_pool
        mark = item.acknowledged.get(wanted.key)
        if not (guards or issues) or item.released or (mark is not None and mark.sequence >= number):
            continue
        if now_ms <= entry.expires_ms or (issues and now_ms <= entry.idle_ms):
            awaited.add(item.name)
        heard = heard and now_ms > entry.expires_ms
    assert set(found.awaited) == set(sorted(awaited)[:3])
    assert (found.heard, found.clear) == (heard, not awaited)


def test_progress_counts_who_did_what_and_names_who_did_not() -> None:
    found = progress(roster_of(member(at=SECOND), member("h"), gateway()), OF_POOL, THIRD, 1)
    assert (found.guards.total, found.guards.acknowledged, found.guards.expired) == (2, 1, 0)
    assert found.gateways.total == 1
    assert found.awaited == ("h",)


def test_a_member_that_nobody_knew_has_nothing_to_lose() -> None:
    roster = roster_of(member())
    before = list(roster.entries())
    roster.vanished("stranger", 0)
    roster.deleted("stranger")
    roster.judged(member("stranger"))
    assert list(roster.entries()) == before


def test_keys_that_changed_judge_the_same_version_anew_and_no_later_one() -> None:
    roster = roster_of(member(at=FIRST))
    assert not complete(roster)
    roster.judged(member(at=THIRD, version=member().version + 1))
    assert not complete(roster), "that version was not seen"
    roster.judged(member(at=THIRD))
    assert complete(roster)
