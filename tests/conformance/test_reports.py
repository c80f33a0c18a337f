"""The committed reports of real engines: they are there, whole, and say what the catalogue says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cachescope.engines.catalogue import facts
from cachescope.engines.facts import EngineType
from cachescope.engines.releases import release, step_at
from cachescope.engines.routes import Capability
from cachescope.engines.vllm import capability
from cachescope.probe.conformance.checks import Outcome, Rule
from cachescope.probe.conformance.profiles import Profile
from cachescope.probe.conformance.report import FORMAT
from tests.conformance.engines.catalogue import ENGINES, ROOT, Engine
from tests.conformance.engines.failures import Check, Report, differences, expected

REPORTED = [(engine, profile) for engine in ENGINES for profile in engine.must_fail]
SALTED = [engine for engine in ENGINES if Profile.SALTED in engine.must_fail]
each_report = pytest.mark.parametrize(
    ("engine", "profile"), REPORTED, ids=[f"{each.label} {profile}" for each, profile in REPORTED]
)


def read(engine: Engine, profile: Profile) -> Any:
    return json.loads(engine.report(profile).read_text())


def checks(engine: Engine, profile: Profile) -> tuple[Check, ...]:
    return Report.model_validate_json(engine.report(profile).read_bytes()).checks


@each_report
def test_a_report_shows_the_expected_failures_and_no_other(engine: Engine, profile: Profile) -> None:
    assert list(differences(engine.must_fail[profile], checks(engine, profile))) == []


def test_expected_failures_are_of_engines_that_are_run() -> None:
    assert set(expected()) == {engine.label for engine in ENGINES}


@each_report
def test_a_report_is_of_its_engine_and_passed_if_it_must(engine: Engine, profile: Profile) -> None:
    found = read(engine, profile)
    assert (found["format"], found["engine"], found["version"], found["profile"]) == (
        FORMAT,
        engine.name,
        engine.version,
        profile.value,
    )
    assert found["passed"] is (not engine.must_fail[profile])
    assert found["passed"] is all(check["passed"] for check in found["checks"])


@each_report
def test_a_report_has_a_plain_check_for_each_route_that_is_served(engine: Engine, profile: Profile) -> None:
    found = read(engine, profile)
    served = {path for path, status in found["features"]["routes"].items() if status == 200}
    rule = Rule.SEPARATES if profile is Profile.SALTED else Rule.REUSE
    checked = {check["route"] for check in found["checks"] if check["rule"] == rule.value}
    assert checked == served | {f"{path} streamed" for path in found["features"]["streams"]}
    assert {"/v1/chat/completions", "/v1/completions"} <= served


@pytest.mark.parametrize("engine", SALTED, ids=lambda engine: engine.label)
def test_an_engine_that_must_not_pass_as_salted_was_seen_to_leak(engine: Engine) -> None:
    verdicts = {check.found for check in checks(engine, Profile.SALTED) if check.rule is Rule.SEPARATES}
    assert (Outcome.LEAKS in verdicts) is bool(engine.must_fail[Profile.SALTED])
    assert (verdicts == {Outcome.ISOLATED}) is (not engine.must_fail[Profile.SALTED])


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine.name == "vLLM"], ids=lambda engine: engine.label)
def test_the_catalogue_says_of_a_version_what_its_report_shows(engine: Engine) -> None:
    assert (capability(engine.version) is Capability.ENFORCED) is (not engine.must_fail[Profile.SALTED])


@pytest.mark.parametrize("engine", SALTED, ids=lambda engine: engine.label)
def test_the_catalogue_says_of_each_route_what_its_report_shows(engine: Engine) -> None:
    """A route alone: an engine that as a whole does not enforce may still keep plain salts apart on some."""
    known = {path: route for route in facts(EngineType(engine.name)).routes for path in route.paths}
    for check in checks(engine, Profile.SALTED):
        if check.rule is Rule.SEPARATES:
            step = step_at(known[check.route.removesuffix(" streamed")].steps, release(engine.version))
            assert step, check.route
            assert (check.found is Outcome.ISOLATED) is (step.capability is Capability.ENFORCED), check.route


def test_no_report_is_of_nobody() -> None:
    expected = {engine.report(profile) for engine, profile in REPORTED}
    assert set((ROOT / "docs" / "conformance").glob("*.json")) == expected


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.label)
def test_what_is_installed_is_the_version_that_the_report_names(engine: Engine) -> None:
    lines = (ROOT / "requirements" / engine.requirements).read_text().splitlines()
    assert [line for line in lines if line.split(" ")[0].endswith(f"=={engine.version}")]
    assert engine.writes_model.is_file()
