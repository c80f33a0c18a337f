"""The history checker: it finds each thing that must not be, and nothing in the history beside it that may be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.faults.history import CUT, EVERYONE, LOST, SERVED, History, Kind, Message, Recorder, Revocation, Use
from e2e.faults.linearizability import denied, reused_since, violations
from e2e.stub_engine.fingerprint import Fingerprint

USED, REUSED = "used or admitted after the fence", "found what was cached before the fence, or by another tenant"
ROLLBACK = Revocation(EVERYONE, Kind.ROLLBACK, 100, 200)
DENIAL = Revocation("red", Kind.DENY, 100, 200)


def use(at: int, *made: int, who: str = "red", arrived: int | None = None, found: int = 0, outcome: str = SERVED) -> Use:
    """A request sent at a moment, whose messages were made at these."""
    arrived = at if arrived is None else arrived
    end = max(made, default=at) + 1
    messages = tuple(Message(moment, moment + 1) for moment in made)
    if not made:
        return Use(who, "prefix", at, end, outcome)
    return Use(who, "prefix", at, end, outcome, arrived, arrived, found, messages)


def rules(*uses: Use, revoked: Sequence[Revocation] = (ROLLBACK,)) -> list[str]:
    return [item.rule for item in violations(History(uses, tuple(revoked)))]


def test_what_was_admitted_before_is_not_used_after_the_fence() -> None:
    assert rules(use(50, 150, 201)) == [USED]
    assert rules(use(50, 150, 200)) == []  # made before the fence was seen


def test_what_was_admitted_during_a_rollback_may_be_of_either_side() -> None:
    assert rules(use(150, 201)) == []
    assert rules(use(50, 201, arrived=150)) == []
    assert rules(use(50, 201, arrived=99)) == [USED]


def test_a_rollback_concerns_who_it_is_about() -> None:
    red = Revocation("red", Kind.ROLLBACK, 100, 200)
    assert rules(use(50, 300), revoked=[red]) == [USED]
    assert rules(use(50, 300, who="blue"), revoked=[red]) == []


def test_nobody_is_admitted_after_the_fence_of_a_denial() -> None:
    assert rules(use(201, 202), revoked=[DENIAL]) == [USED]
    assert rules(use(199, 200), revoked=[DENIAL]) == []
    assert rules(use(201, 202)) == []  # the same after a rollback


def test_who_was_denied_and_readmitted_is_served_again() -> None:
    readmission = Revocation("red", Kind.READMIT, 300, 400)
    assert rules(use(350, 450), revoked=[DENIAL, readmission]) == []
    assert rules(use(299, 450, arrived=299), revoked=[DENIAL, readmission]) == [USED]
    again = Revocation("red", Kind.DENY, 500, 600)
    assert rules(use(601, 602), revoked=[DENIAL, readmission, again]) == [USED]


def test_what_was_cached_before_the_fence_is_not_found_after_it() -> None:
    assert rules(use(50, 51), use(201, 202, found=16)) == [REUSED]
    assert rules(use(50, 51), use(201, 202), use(210, 211, found=16)) == []
    assert rules(use(50, 51), use(60, 61, found=16)) == []


def test_a_request_is_of_one_side_only() -> None:
    """The one in the middle may have kept the prefix for either, not for both."""
    middle = use(150, 151)
    assert rules(middle, use(160, 201, arrived=160, found=16)) == []
    assert rules(middle, use(60, 180, arrived=60, found=16)) == [REUSED]  # it was looked up before
    late = replace(use(60, 180, arrived=99, found=16), scheduled_ms=155)
    assert rules(middle, late) == []
    assert rules(middle, late, use(201, 202, found=16)) == [REUSED]


def test_nothing_is_found_that_another_tenant_cached() -> None:
    assert rules(use(10, 11, who="blue"), use(20, 21, found=16)) == [REUSED]
    assert rules(use(10, 11), use(20, 21, found=16)) == []


def test_a_request_that_was_cut_before_its_first_message_may_have_kept_its_prefix() -> None:
    assert rules(use(210, outcome=CUT), use(220, 221, found=16)) == []
    lost = replace(use(50, outcome=LOST), end_ms=None)
    assert rules(lost, use(220, 221, found=16)) == []  # nobody knows when it was admitted
    assert rules(use(50, outcome=CUT), use(220, 221, found=16)) == [REUSED]


def test_nobody_is_refused_for_what_nobody_revoked() -> None:
    assert rules(use(50, outcome="revoked"), revoked=[DENIAL]) == ["refused as revoked although nothing was revoked"]
    assert rules(use(150, outcome="revoked"), revoked=[DENIAL]) == []
    assert rules(use(150, outcome="revoked")) == ["refused as revoked although nothing was revoked"]  # rolled back, not denied
    assert rules(use(50, outcome="permit_behind")) == ["refused as permit_behind although nothing was revoked"]
    assert rules(use(150, outcome="permit_behind")) == []
    assert rules(use(50, outcome="no_endpoint")) == []


def test_a_revocation_without_a_fence_promises_nothing() -> None:
    open_ended = replace(ROLLBACK, fenced_ms=None)
    assert rules(use(50, 900), revoked=[open_ended]) == []
    assert rules(use(50, 900)) == [USED]


def test_positive_controls_count_what_was_sent_since() -> None:
    history = History((use(10, 11), use(20, 21, found=16), use(30, 31, who="blue", found=16), use(40, outcome=CUT)))
    assert [reused_since(history, moment) for moment in (0, 25, 35)] == [2, 1, 0]


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "deep" / "history.jsonl")
    first = recorder.invoked("red", "prefix", 1)
    revocation = recorder.revoking("red", Kind.DENY, 2)
    second = recorder.invoked("blue", "prefix", 3)
    recorder.message(first, Fingerprint(made_ms=5, arrived_ms=2, scheduled_ms=4, cached_tokens=16), 6)
    recorder.message(first, Fingerprint(made_ms=7, arrived_ms=2, scheduled_ms=4, cached_tokens=16), 8)
    recorder.ended(first, CUT, 9)
    recorder.fenced(revocation, 10)
    recorder.ended(second, "no_endpoint", 11)
    found = recorder.history()
    recorder.close()
    assert found.revocations == (Revocation("red", Kind.DENY, 2, 10),)
    messages = (Message(5, 6), Message(7, 8))
    assert found.uses == (Use("red", "prefix", 1, 9, CUT, 2, 4, 16, messages), Use("blue", "prefix", 3, 11, "no_endpoint"))


END = 4
moments = st.integers(0, END)


@st.composite
def small_uses(draw: st.DrawFn) -> Use:
    at = draw(moments)
    arrived = draw(st.integers(at, END))
    scheduled = draw(st.integers(arrived, END))
    made = draw(st.lists(st.integers(scheduled, END), min_size=1, max_size=2))
    found = draw(st.sampled_from([0, 0, 16]))
    return Use("red", "prefix", at, END, SERVED, arrived, scheduled, found, tuple(Message(moment, moment) for moment in made))


@st.composite
def small_revocations(draw: st.DrawFn) -> Revocation:
    at = draw(moments)
    return Revocation(EVERYONE, draw(st.sampled_from(Kind)), at, draw(st.one_of(st.none(), st.integers(at, END))))


def taken_over(history: History, use: Use) -> Iterator[frozenset[int]]:
    """By the definition: every moment of admission, and every moment at which each revocation may have been taken over."""
    spans = [range(item.invoke_ms, (END if item.fenced_ms is None else item.fenced_ms) + 1) for item in history.revocations]
    last = max(message.made_ms for message in use.messages)
    for admitted in range(use.invoke_ms, (use.arrived_ms or 0) + 1):
        for chosen in product(*spans):
            # In one and the same millisecond either may have been first.
            sides = [[side for side, fits in ((False, max(admitted, last) <= at), (True, admitted >= at)) if fits] for at in chosen]
            for saw in product(*sides):
                found = frozenset(place for place, side in enumerate(saw) if side)
                if not denied(history, found):
                    yield found


def explained(history: History) -> bool:
    """By the definition: one choice for every request, so that whatever was found had been kept."""
    options = [sorted(set(taken_over(history, item)), key=sorted) for item in history.uses]
    order = sorted(range(len(options)), key=lambda place: (history.uses[place].scheduled_ms, history.uses[place].cached_tokens))
    for choice in product(*options):
        kept: set[frozenset[int]] = set()
        for place in order:
            if history.uses[place].cached_tokens and choice[place] not in kept:
                break
            kept.add(choice[place])
        else:
            return True
    return False


@settings(max_examples=60)
@given(st.lists(small_uses(), max_size=3), st.lists(small_revocations(), max_size=2))
def test_the_checker_finds_what_the_definition_finds(uses: list[Use], revoked: list[Revocation]) -> None:
    history = History(tuple(uses), tuple(revoked))
    assert (violations(history) == ()) == explained(history)
