"""The suite passes the honest stub, and fails each engine that leaks, by the check that is there for it."""

from __future__ import annotations

import pytest

from cachescope.probe.conformance import report as files
from cachescope.probe.conformance.checks import Outcome, Rule
from cachescope.probe.conformance.profiles import Profile
from cachescope.probe.conformance.suite import Report
from e2e.stub_engine.leaks import Leak
from tests.conformance.in_process import report

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
EVERY = {CHAT, COMPLETION, f"{CHAT} streamed", f"{COMPLETION} streamed"}


def failed(found: Report) -> dict[tuple[Rule, str], set[str]]:
    """The routes of the checks that did not pass, by rule and variant."""
    routes: dict[tuple[Rule, str], set[str]] = {}
    for result in found.failures:
        routes.setdefault((result.rule, result.detail), set()).add(result.route)
    return routes


def rules(found: Report) -> set[Rule]:
    return {result.rule for result in found.failures}


def outcomes(found: Report, rule: Rule) -> set[Outcome]:
    return {result.found for result in found.results if result.rule is rule}


async def test_the_honest_stub_passes_whole() -> None:
    found = await report()
    assert failed(found) == {}
    assert {result.route for result in found.results if result.rule is Rule.SEPARATES} == EVERY
    assert outcomes(found, Rule.SEPARATES) == {Outcome.ISOLATED}
    assert outcomes(found, Rule.ANSWERS) == {Outcome.ISOLATED, Outcome.REFUSED}, "several answers are not streamed"
    assert {result.rule for result in found.results} == set(Rule) - {Rule.REUSE, Rule.UNSALTED}


async def test_a_salt_that_one_route_ignores_fails_there_alone() -> None:
    found = failed(await report(Leak.ONE_ROUTE))
    assert found[Rule.SEPARATES, ""] == {COMPLETION, f"{COMPLETION} streamed"}
    assert not [route for routes in found.values() for route in routes if CHAT in route]


async def test_a_salt_that_is_forgotten_by_a_restart_fails_after_it_alone() -> None:
    assert failed(await report(Leak.AFTER_RESTART)) == {}
    assert failed(await report(Leak.AFTER_RESTART, restarted=True))[Rule.SEPARATES, ""] == EVERY


async def test_salts_that_are_mixed_by_their_first_characters_fail_the_near_ones_alone() -> None:
    found = await report(Leak.FIRST_CHARACTERS)
    assert rules(found) == {Rule.NEAR}
    assert {detail for _, detail in failed(found)} == {
        "the last character", "one begins the other", "a space at the end", "a composed letter", "the last of 128 characters",
    }  # fmt: skip


async def test_salts_that_are_compared_without_case_fail_one_near_pair_alone() -> None:
    assert failed(await report(Leak.LETTER_CASE)) == {(Rule.NEAR, "letter case"): {CHAT, COMPLETION}}


async def test_a_salt_that_streams_ignore_fails_streamed_alone() -> None:
    found = failed(await report(Leak.STREAMED))
    assert found[Rule.SEPARATES, ""] == {f"{CHAT} streamed", f"{COMPLETION} streamed"}
    assert not [route for routes in found.values() for route in routes if "streamed" not in route]


@pytest.mark.parametrize(("leak", "place"), [(Leak.HEADER, "header x-cache-salt"), (Leak.EXTRA_KEY, "field extra_key")])
async def test_a_salt_that_something_else_overrides_fails_by_that_place_alone(leak: Leak, place: str) -> None:
    together = "all headers" if "header" in place else "all fields"
    assert failed(await report(leak)) == {
        (Rule.CHOSEN, place): {CHAT, COMPLETION},
        (Rule.CHOSEN, together): {f"{CHAT} streamed", f"{COMPLETION} streamed"},
    }


async def test_a_salt_that_several_answers_ignore_fails_by_them_alone() -> None:
    assert failed(await report(Leak.SEVERAL_ANSWERS)) == {(Rule.ANSWERS, "n=2"): {CHAT, COMPLETION}}


async def test_usage_that_lies_is_found_out_by_the_counter() -> None:
    found = await report(Leak.UNTOLD)
    assert failed(found)[Rule.SEPARATES, ""] == EVERY
    assert outcomes(found, Rule.SEPARATES) == {Outcome.LEAKS}


async def test_usage_that_lies_is_no_evidence_without_a_counter() -> None:
    found = await report(Leak.UNTOLD, counts=False)
    assert failed(found)[Rule.SEPARATES, ""] == EVERY
    assert outcomes(found, Rule.SEPARATES) == {Outcome.NO_EVIDENCE}
    assert Outcome.ISOLATED not in {result.found for result in found.results}


async def test_several_answers_are_no_evidence_without_a_counter() -> None:
    assert failed(await report(counts=False)) == {(Rule.ANSWERS, "n=2"): {CHAT, COMPLETION}}


async def test_an_engine_without_salts_fails_as_salted_everywhere() -> None:
    assert failed(await report(Leak.EVERYWHERE))[Rule.SEPARATES, ""] == EVERY


async def test_an_engine_without_salts_passes_per_tenant() -> None:
    found = await report(Leak.EVERYWHERE, profile=Profile.PER_TENANT)
    assert failed(found) == {}
    assert outcomes(found, Rule.UNSALTED) == outcomes(found, Rule.REUSE) == {Outcome.LEAKS}


async def test_an_expected_leak_that_is_none_is_a_failure() -> None:
    assert failed(await report(profile=Profile.PER_TENANT)) == {(Rule.UNSALTED, ""): EVERY}


async def test_an_expected_leak_that_is_none_on_one_route_is_a_failure_there() -> None:
    found = await report(Leak.ONE_ROUTE, profile=Profile.PER_TENANT)
    assert failed(found) == {(Rule.UNSALTED, ""): {CHAT, f"{CHAT} streamed"}}


async def test_two_runs_give_the_same_report() -> None:
    assert files.text(await report()) == files.text(await report())
