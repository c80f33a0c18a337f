"""What an engine must fail is strict in both directions."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from cachescope.probe.conformance.checks import Outcome, Rule
from tests.conformance.engines.failures import Check, Failures, differences

MESSAGES, CHAT = "/v1/messages", "/v1/chat/completions"
LEAKS = Failures(rule=Rule.SEPARATES, routes=(MESSAGES,), found=Outcome.LEAKS)
CASE = Failures(rule=Rule.NEAR, routes=(MESSAGES,), details=("letter case",), found=Outcome.LEAKS)


def failed(rule: Rule, detail: str = "", route: str = MESSAGES, found: Outcome = Outcome.LEAKS) -> Check:
    return Check(rule=rule, detail=detail, route=route, found=found, passed=False)


def passed(rule: Rule, detail: str = "", route: str = MESSAGES) -> Check:
    return Check(rule=rule, detail=detail, route=route, found=Outcome.ISOLATED, passed=True)


AS_EXPECTED = (
    passed(Rule.SEPARATES, route=CHAT),
    failed(Rule.SEPARATES),
    failed(Rule.NEAR, "letter case"),
    passed(Rule.NEAR, "the last character"),
)


def test_failures_that_are_expected_are_no_difference() -> None:
    assert list(differences((LEAKS, CASE), AS_EXPECTED)) == []
    assert list(differences((), (passed(Rule.SEPARATES),))) == []


@pytest.mark.parametrize(
    ("place", "check", "sentence"),
    [
        (0, failed(Rule.SEPARATES, route=CHAT), f"{CHAT}: salts separate must pass, and failed as Leaks"),
        (1, passed(Rule.SEPARATES), f"{MESSAGES}: salts separate must fail as Leaks, and passed as Isolated"),
        (
            1,
            failed(Rule.SEPARATES, found=Outcome.NO_EVIDENCE),
            f"{MESSAGES}: salts separate must fail as Leaks, and failed as NoEvidence",
        ),
        (
            2,
            passed(Rule.NEAR, "letter case"),
            f"{MESSAGES}: near salts separate (letter case) must fail as Leaks, and passed as Isolated",
        ),
        (
            3,
            failed(Rule.NEAR, "the last character"),
            f"{MESSAGES}: near salts separate (the last character) must pass, and failed as Leaks",
        ),
    ],
)
def test_a_check_that_ends_otherwise_is_named(place: int, check: Check, sentence: str) -> None:
    found = (*AS_EXPECTED[:place], check, *AS_EXPECTED[place + 1 :])
    assert list(differences((LEAKS, CASE), found)) == [sentence]


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        (1, f"nothing was checked of {MESSAGES}: salts separate (any)"),
        (2, f"nothing was checked of {MESSAGES}: near salts separate (letter case)"),
    ],
)
def test_an_expected_failure_of_which_nothing_was_checked_is_named(place: int, sentence: str) -> None:
    found = (*AS_EXPECTED[:place], *AS_EXPECTED[place + 1 :])
    assert list(differences((LEAKS, CASE), found)) == [sentence]


def test_each_variant_that_an_expected_failure_names_must_be_checked() -> None:
    two = CASE.model_copy(update={"details": ("letter case", "the first character")})
    assert list(differences((LEAKS, two), AS_EXPECTED)) == [
        f"nothing was checked of {MESSAGES}: near salts separate (the first character)"
    ]


def test_each_route_of_an_expected_failure_must_be_checked() -> None:
    both = Failures(rule=Rule.SEPARATES, routes=(MESSAGES, f"{MESSAGES} streamed"), found=Outcome.LEAKS)
    assert list(differences((both,), (failed(Rule.SEPARATES),))) == [
        f"nothing was checked of {MESSAGES} streamed: salts separate (any)"
    ]


def test_a_check_that_is_expected_to_fail_in_two_ways_cannot() -> None:
    refused = LEAKS.model_copy(update={"found": Outcome.REFUSED})
    assert list(differences((LEAKS, refused), (failed(Rule.SEPARATES),))) == [
        f"{MESSAGES}: salts separate must fail as Leaks and Refused, and failed as Leaks"
    ]


def test_a_rule_or_an_outcome_that_there_is_not_is_refused() -> None:
    for changed in ({"rule": "salts"}, {"found": "Fine"}, {"detail": ["letter case"]}):
        with pytest.raises(ValidationError):
            Failures.model_validate({"rule": "salts separate", "routes": [CHAT], "found": "Leaks", **changed})
