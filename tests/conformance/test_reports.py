"""The committed reports of real engines: they are there, whole, and say what the catalogue says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cachescope.engines.routes import Capability
from cachescope.engines.vllm import capability
from cachescope.probe.conformance.checks import Outcome, Rule
from cachescope.probe.conformance.profiles import Profile
from cachescope.probe.conformance.report import FORMAT
from tests.conformance.engines.catalogue import ENGINES, ROOT, Engine

REPORTED = [(engine, profile) for engine in ENGINES for profile in engine.passes]
each_report = pytest.mark.parametrize(
    ("engine", "profile"), REPORTED, ids=[f"{each.label} {profile}" for each, profile in REPORTED]
)


def read(engine: Engine, profile: Profile) -> Any:
    return json.loads(engine.report(profile).read_text())


@each_report
def test_a_report_is_of_its_engine_and_passed_if_it_must(engine: Engine, profile: Profile) -> None:
    found = read(engine, profile)
    assert (found["format"], found["engine"], found["version"], found["profile"]) == (
        FORMAT,
        engine.name,
        engine.version,
        profile.value,
    )
    assert found["passed"] is engine.passes[profile]
    assert found["passed"] is all(check["passed"] for check in found["checks"])


@each_report
def test_a_report_has_a_plain_check_for_each_route_that_is_served(engine: Engine, profile: Profile) -> None:
    found = read(engine, profile)
    served = {path for path, status in found["features"]["routes"].items() if status == 200}
    rule = Rule.SEPARATES if profile is Profile.SALTED else Rule.REUSE
    checked = {check["route"] for check in found["checks"] if check["rule"] == rule.value}
    assert checked == served | {f"{path} streamed" for path in found["features"]["streams"]}
    assert {"/v1/chat/completions", "/v1/completions"} <= served


@pytest.mark.parametrize(
    "engine", [engine for engine in ENGINES if Profile.SALTED in engine.passes], ids=lambda engine: engine.label
)
def test_an_engine_that_must_not_pass_as_salted_was_seen_to_leak(engine: Engine) -> None:
    verdicts = {check["found"] for check in read(engine, Profile.SALTED)["checks"] if check["rule"] == Rule.SEPARATES.value}
    assert (Outcome.LEAKS.value in verdicts) is not engine.passes[Profile.SALTED]
    assert (verdicts == {Outcome.ISOLATED.value}) is engine.passes[Profile.SALTED]


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine.name == "vLLM"], ids=lambda engine: engine.label)
def test_the_catalogue_says_of_a_version_what_its_report_shows(engine: Engine) -> None:
    assert (capability(engine.version) is Capability.ENFORCED) is engine.passes[Profile.SALTED]


def test_no_report_is_of_nobody() -> None:
    expected = {engine.report(profile) for engine, profile in REPORTED}
    assert set((ROOT / "docs" / "conformance").glob("*.json")) == expected


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.label)
def test_what_is_installed_is_the_version_that_the_report_names(engine: Engine) -> None:
    lines = (ROOT / "requirements" / engine.requirements).read_text().splitlines()
    assert [line for line in lines if line.split(" ")[0].endswith(f"=={engine.version}")]
    assert engine.writes_model.is_file()
