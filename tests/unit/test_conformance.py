"""The parts of the conformance suite: what it expects, and what its report says."""

from __future__ import annotations

import json
import unicodedata

import pytest
from typer.testing import CliRunner

from cachescope.cli.main import app
from cachescope.core.errors import ClusterError
from cachescope.engines.routes import Dialect
from cachescope.probe.cases import Asking
from cachescope.probe.conformance import features, salts
from cachescope.probe.conformance.checks import Experiment, Outcome, Refusal, Rule, of_experiment
from cachescope.probe.conformance.profiles import LEAKS, Profile
from cachescope.probe.conformance.suite import Declared, run
from cachescope.probe.judgement import Evidence, Judgement, Verdict
from cachescope.probe.questions import Question
from cachescope.probe.running import Reply

SEED = "seed"
ASKINGS = tuple(
    Asking(path, dialect, streamed=streamed)
    for path, dialect in (("/v1/chat/completions", Dialect.CHAT), ("/v1/messages", Dialect.MESSAGE))
    for streamed in (False, True)
)


def experiments(profile: Profile) -> list[Experiment]:
    return [check for check in profile.checks(ASKINGS, SEED) if isinstance(check, Experiment)]


def test_no_two_pairs_of_salts_are_alike_and_each_pair_differs() -> None:
    pairs = (salts.plain(SEED), *salts.near(SEED))
    assert len({pair.name for pair in pairs}) == len(pairs)
    assert all(pair.salts[0] != pair.salts[1] for pair in pairs)
    assert salts.plain("other").salts != salts.plain(SEED).salts


def test_near_salts_are_near_as_they_say() -> None:
    near = {pair.name: pair.salts for pair in salts.near(SEED)}
    one, two = near["the last character"]
    assert (one[:-1], len(one)) == (two[:-1], 43)
    one, two = near["letter case"]
    assert (one.lower(), one != two) == (two.lower(), True)
    one, two = near["a composed letter"]
    assert unicodedata.normalize("NFC", one) == unicodedata.normalize("NFC", two)
    one, two = near["the last of 128 characters"]
    assert (len(one), len(two), one[:-1]) == (128, 128, two[:-1])
    assert near["none beside one"][0] == ""
    one, two = near["one begins the other"]
    assert two.startswith(one)


def test_no_two_experiments_of_a_run_send_one_prompt() -> None:
    for profile in Profile:
        names = [check.case.name for check in experiments(profile)]
        assert len(set(names)) == len(names)


def test_every_way_to_ask_is_held_to_every_rule_of_its_profile() -> None:
    found = {(check.rule, check.case.asking.path, check.case.asking.streamed) for check in experiments(Profile.SALTED)}
    for asking in ASKINGS:
        assert {(Rule.SEPARATES, asking.path, asking.streamed), (Rule.CHOSEN, asking.path, asking.streamed)} <= found
    limits = [check for check in Profile.SALTED.checks(ASKINGS, SEED) if isinstance(check, Refusal)]
    assert len(limits) == len(ASKINGS) * len(salts.NO_SALTS)
    per_tenant = {(check.rule, check.case.asking.path, check.case.asking.streamed) for check in experiments(Profile.PER_TENANT)}
    assert len(per_tenant) == 2 * len(ASKINGS)


def test_a_plain_salt_may_not_even_be_refused() -> None:
    plain = next(check for check in experiments(Profile.SALTED) if check.rule is Rule.SEPARATES)
    assert plain.expected == {Outcome.ISOLATED}


def judged(verdict: Verdict, *, controls: int = 4, refused: bool = False) -> Judgement:
    return Judgement(verdict, "because", Evidence(4, controls, refused=refused))


@pytest.mark.parametrize("verdict", list(Verdict))
def test_an_expected_leak_is_strict(verdict: Verdict) -> None:
    check = next(check for check in experiments(Profile.PER_TENANT) if check.rule is Rule.UNSALTED)
    assert check.expected == LEAKS
    assert of_experiment(check, judged(verdict)).passed == (verdict is Verdict.LEAKS)
    assert of_experiment(check, judged(verdict, controls=2)).passed == (verdict is Verdict.LEAKS)
    assert not of_experiment(check, judged(verdict, controls=1)).passed


@pytest.mark.parametrize("verdict", list(Verdict))
@pytest.mark.parametrize("refused", [False, True])
def test_a_refusal_counts_where_the_experiment_failed_by_it(verdict: Verdict, refused: bool) -> None:
    check = next(check for check in experiments(Profile.SALTED) if check.rule is Rule.NEAR)
    result = of_experiment(check, judged(verdict, refused=refused))
    assert result.passed == (verdict is Verdict.ISOLATED or (verdict is Verdict.FAILED and refused))
    assert (result.found is Outcome.REFUSED) == (verdict is Verdict.FAILED and refused)


class Nothing:
    """An engine that knows no route."""

    async def ask(self, _question: Question) -> Reply:
        return Reply(404, b"{}")

    async def document(self, _path: str) -> dict[str, object] | None:
        return None

    async def counter(self) -> int | None:
        return None


async def test_an_engine_that_serves_nothing_is_said_to() -> None:
    with pytest.raises(ClusterError, match="answers none of"):
        await features.look(Nothing(), "tiny")
    with pytest.raises(ClusterError, match="lists no model"):
        await features.first_model(Nothing())


class Versioned(Nothing):
    """An engine that serves one route, and reports a version somewhere."""

    def __init__(self, path: str, document: dict[str, object]) -> None:
        self._known = {path: document}

    async def ask(self, question: Question) -> Reply:
        return Reply(200 if question.path == "/v1/completions" else 404, json.dumps({"id": "1"}).encode())

    async def document(self, path: str) -> dict[str, object] | None:
        return self._known.get(path)


@pytest.mark.parametrize(
    ("path", "document", "reported"),
    [("/version", {"version": "0.32.0"}, "0.32.0"), ("/version", {"version": 7}, None)],
)
async def test_a_version_is_read_where_engines_report_it(path: str, document: dict[str, object], reported: str | None) -> None:
    found = await features.look(Versioned(path, document), "tiny")
    assert found.reported == reported
    assert found.askings == (Asking("/v1/completions", Dialect.COMPLETION),), "it answers a stream with a whole answer"


class Mistaken(Nothing):
    """An engine that has one route, and answers 200 on another that it only says it cannot serve."""

    async def ask(self, question: Question) -> Reply:
        answers = {"/v1/completions": {"id": "1"}, "/score": {"error": {"message": "not with this model", "code": 400}}}
        return Reply(200, json.dumps(answers[question.path]).encode()) if question.path in answers else Reply(404)


async def test_a_route_that_answers_200_with_an_error_is_not_served() -> None:
    found = await features.look(Mistaken(), "tiny")
    assert {path: status for path, status in found.routes.items() if status != 404} == {"/v1/completions": 200, "/score": 400}
    assert found.askings == (Asking("/v1/completions", Dialect.COMPLETION),)


class Half(Nothing):
    """An engine that says 200 to each salt, and in the answer what it thinks of it."""

    async def ask(self, question: Question) -> Reply:
        if question.path != "/v1/completions":
            return Reply(404)
        salt = question.body.get("cache_salt")
        document = {"error": {"code": 400}} if salt == 7 else {"error": "no"} if isinstance(salt, list) else {"id": "1"}
        return Reply(200, json.dumps(document).encode())

    async def document(self, path: str) -> dict[str, object] | None:
        return {"data": [{"id": "tiny"}]} if path == "/v1/models" else None


async def test_what_is_no_salt_is_not_refused_by_half_an_answer() -> None:
    report = await run(Half(), Declared("half", "1", Profile.SALTED), seed=SEED, tries=2)
    limits = {result.detail: (result.found, result.passed) for result in report.results if result.rule is Rule.LIMITS}
    assert limits["a number"] == (Outcome.REFUSED, True)
    assert limits["a list"] == (Outcome.FAILED, False)
    assert limits["empty"] == (Outcome.ACCEPTED, False)


ARGUMENTS = ["conformance", "--engine-url", "http://127.0.0.1:1", "--engine", "none", "--version", "1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--profile", "Shared"], "'Shared' is no profile; write Salted or PerTenant"),
        (["--profile", "Salted"], "lists no model"),
        (["--profile", "Salted", "--model", "tiny"], "answers none of"),
    ],
)
def test_what_cannot_be_tested_is_said(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, [*ARGUMENTS, *arguments])
    assert result.exit_code != 0
    assert message in str(result.exception)
