"""The models of `docs/model`: as they are every property holds, and without any one of their rules one does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.checker import Outcome, Variant, check
from tests.model.variants import BREAK, DEEPER, HOLD


def show(variant: Variant, outcome: Outcome) -> None:
    found = f"breaks: {outcome.broken}" if outcome.broken else "holds" if outcome.complete else "nothing found"
    print(f"\n{variant}: {outcome.states:,} states, {outcome.seconds:.1f} s, {found}")  # noqa: T201 - the figures of the run
    for number, event in enumerate(outcome.events, start=1):
        print(f"  {number:2} {event}")  # noqa: T201 - the counterexample


@pytest.mark.parametrize("variant", HOLD, ids=str)
def test_in_every_state_every_property_holds(variant: Variant, tmp_path: Path) -> None:
    outcome = check(variant, tmp_path)
    show(variant, outcome)
    assert outcome.broken == "", outcome.report
    assert "errors: 0" in outcome.report
    assert outcome.complete, outcome.report


@pytest.mark.parametrize("variant", BREAK, ids=str)
def test_without_the_rule_the_property_is_broken(variant: Variant, tmp_path: Path) -> None:
    outcome = check(variant, tmp_path)
    show(variant, outcome)
    assert outcome.broken == variant.breaks, outcome.report


def test_with_twice_the_rounds_a_minute_finds_no_counterexample(tmp_path: Path) -> None:
    outcome = check(DEEPER, tmp_path)
    show(DEEPER, outcome)
    assert outcome.broken == "", outcome.events
    assert "errors: 0" in outcome.report
