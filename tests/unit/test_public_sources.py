"""Public sources: usable while an approval holds, and not a moment longer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachescope.core.public_sources import Approval, Source, Usability
from tests.unit.core_strategies import digest_of

APPROVED = Source(digest_of("1"), Approval(100, 200))
times = st.integers(0, 300)


@pytest.mark.parametrize(
    ("source", "now", "usability", "changes"),
    [
        (APPROVED, 99, Usability.NOT_APPROVED, 100),
        (APPROVED, 100, Usability.APPROVED, 200),
        (APPROVED, 199.999, Usability.APPROVED, 200),
        (APPROVED, 200, Usability.EXPIRED, None),
        (Source(digest_of("1")), 150, Usability.NOT_APPROVED, None),
        (Source(digest_of("1"), Approval(100, 200), withdrawn=True), 150, Usability.WITHDRAWN, None),
        (Source(digest_of("1"), withdrawn=True), 150, Usability.WITHDRAWN, None),
    ],
)
def test_a_source_is_usable_while_its_approval_holds(
    source: Source, now: float, usability: Usability, changes: float | None
) -> None:
    assert (source.usability(now), source.next_change(now)) == (usability, changes)


@given(st.builds(Source, st.just(digest_of("1")), st.none() | st.builds(Approval, times, times), st.booleans()), times)
def test_nothing_changes_before_the_moment_that_is_named(source: Source, now: int) -> None:
    later = source.next_change(now)
    until = range(now, 301 if later is None else int(later))
    assert {source.usability(moment) for moment in until} == {source.usability(now)}
