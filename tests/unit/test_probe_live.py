"""A run of the probe on a live process: every leak is found in it, noise is none, and who tells nothing proves nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from cachescope.core.probes import Pair, several
from cachescope.engines.vllm import ROUTES
from cachescope.probe.cases import Role
from cachescope.probe.conformance.checks import Outcome
from cachescope.probe.judgement import Evidence, Judgement, Verdict
from cachescope.probe.live import TRIES, TRIES_OF_COUNTER, Finding, Shown, examine
from cachescope.probe.questions import Question
from cachescope.probe.running import Reply
from e2e.stub_engine.asking import CHAT, COMPLETION
from e2e.stub_engine.leaks import Leak, Leaks
from tests.unit.probed_engine import MODEL, SERVED, WHO, ProbedEngine, identities

SEEDS = 200
WAYS = frozenset(SERVED) | {several(path) for path in SERVED}
CHOICES = {Leak.HEADER: "x-cache-salt", Leak.EXTRA_KEY: "extra_key"}
OPEN = [leak for leak in Leak if leak not in CHOICES]


def leaky(*names: Leak) -> Leaks:
    return Leaks(frozenset(names), restarted=True)


def nothing(_found: int) -> None:
    return None


def zero(_found: int) -> int:
    return 0


def outcomes(shown: Shown) -> set[str]:
    return {finding.outcome.value for finding in shown.findings}


async def test_an_honest_engine_is_proven_on_every_route_that_it_serves() -> None:
    shown = await ProbedEngine().run()
    assert (shown.proven, shown.fault, shown.leak, shown.unproven) == (WAYS, "", None, [])
    assert outcomes(shown) == {"Isolated"}


async def test_every_route_is_asked_whole_and_streamed_by_both() -> None:
    engine = ProbedEngine()
    shown = await engine.run()
    variants = {(finding.path, finding.variant) for finding in shown.findings}
    assert {(path, variant) for path in SERVED for variant in ("", "streamed", "several answers")} <= variants
    assert {variant for path, variant in variants if path == CHAT} >= {pair.value for pair in Pair if pair is not Pair.TENANTS}
    senders = {question.headers[WHO] for question in engine.asked}
    assert senders == {f"{pair.name} {who}" for pair in Pair for who in range(2)}


async def test_another_run_asks_other_prompts() -> None:
    def prompts(engine: ProbedEngine) -> set[str]:
        return {json.dumps(question.body) for question in engine.asked if "hello" not in json.dumps(question.body)}

    one, same, other = ProbedEngine(), ProbedEngine(), ProbedEngine()
    for engine, seed in ((one, "a"), (same, "a"), (other, "b")):
        await engine.run(seed)
    assert prompts(one) == prompts(same)
    assert not prompts(one) & prompts(other)


@pytest.mark.parametrize("leak", OPEN)
@pytest.mark.parametrize("seed", ["a", "b", "c"])
async def test_every_leak_is_found_in_one_run(leak: Leak, seed: str) -> None:
    shown = await ProbedEngine(leaky(leak)).run(seed)
    assert shown.leak is not None
    assert (shown.leak, shown.proven, shown.fault) == (shown.findings[-1], frozenset(), ""), "it ends the run"


@pytest.mark.parametrize(
    ("leak", "path", "variant", "source"),
    [
        (Leak.EVERYWHERE, CHAT, "", "usage"),
        (Leak.ONE_ROUTE, COMPLETION, "", "usage"),
        (Leak.STREAMED, CHAT, "streamed", "usage"),
        (Leak.FIRST_CHARACTERS, CHAT, Pair.LAST.value, "usage"),
        (Leak.LETTER_CASE, CHAT, Pair.CASE.value, "usage"),
        (Leak.UNTOLD, CHAT, "", "counter"),
        (Leak.SEVERAL_ANSWERS, CHAT, "several answers", "counter"),
    ],
)
async def test_a_leak_is_found_where_it_is(leak: Leak, path: str, variant: str, source: str) -> None:
    found = (await ProbedEngine(leaky(leak)).run()).leak
    assert found is not None
    assert (found.path, found.variant) == (path, variant)
    assert f"({source})" in found.judgement.why


async def test_an_engine_that_forgets_how_a_salt_begins_is_found() -> None:
    found = (await ProbedEngine(salted=lambda salt: salt[1:]).run()).leak
    assert found is not None
    assert found.variant == Pair.FIRST.value


@pytest.mark.parametrize("leak", list(CHOICES))
async def test_an_engine_that_lets_clients_choose_is_found_where_the_gateway_does_too(leak: Leak) -> None:
    found = (await ProbedEngine(leaky(leak), trusted=frozenset({CHOICES[leak]})).run()).leak
    assert found is not None
    assert found.variant == {Leak.HEADER: "chosen headers", Leak.EXTRA_KEY: "chosen fields"}[leak]
    closed = await ProbedEngine(leaky(leak)).run()
    assert (closed.leak, closed.proven) == (None, WAYS), "the gateway closes it"


async def test_a_gateway_that_lets_clients_choose_their_salt_is_found() -> None:
    found = (await ProbedEngine(trusted=frozenset({"cache_salt"})).run()).leak
    assert found is not None
    assert found.variant == "chosen salt"


async def test_an_engine_that_tells_nothing_proves_nothing() -> None:
    shown = await ProbedEngine(says=nothing, counted=False).run()
    assert (shown.proven, shown.fault, shown.leak, outcomes(shown)) == (frozenset(), "", None, {"NoEvidence"})


async def test_an_engine_whose_usage_always_says_nothing_was_found_proves_nothing() -> None:
    for engine in (ProbedEngine(says=zero), ProbedEngine(says=zero, counted=False)):
        shown = await engine.run()
        assert (shown.proven, shown.leak) == (frozenset(), None)


async def test_the_counter_alone_proves_an_engine_that_says_nothing_in_its_answers() -> None:
    shown = await ProbedEngine(says=nothing).run()
    assert (shown.proven, outcomes(shown)) == (WAYS, {"Isolated"})


async def test_of_several_answers_usage_shows_nothing() -> None:
    shown = await ProbedEngine(counted=False).run()
    assert {finding.variant for finding in shown.unproven} == {"several answers"}
    assert shown.proven == set(SERVED), "what asks for one answer is shown apart from it"


@pytest.mark.parametrize("status", [0, 401, 403, 409, 429, 500, 503])
async def test_a_request_that_is_not_answered_ends_the_run_and_shows_nothing(status: int) -> None:
    engine = ProbedEngine(statuses={COMPLETION: status})
    shown = await engine.run()
    assert (shown.proven, shown.findings) == (frozenset(), [])
    assert shown.fault == f"{COMPLETION}: a request was answered with {status or 'nothing'}"
    assert len(engine.asked) < 2 * len(ROUTES), "nothing else is asked"


@pytest.mark.parametrize("status", [400, 404, 405, 422, 501])
async def test_a_route_that_is_not_served_is_passed_over(status: int) -> None:
    shown = await ProbedEngine(statuses={COMPLETION: status}).run()
    assert (shown.proven, shown.fault) == (frozenset({CHAT, several(CHAT)}), "")


async def test_an_engine_that_serves_no_route_is_at_fault() -> None:
    shown = await ProbedEngine(statuses=dict.fromkeys(SERVED, 404)).run()
    assert (shown.proven, shown.fault) == (frozenset(), "no route that reaches the cache is served")


async def test_routes_that_clients_may_not_reach_are_not_asked() -> None:
    engine = ProbedEngine()
    routes = [ROUTES["POST", path] for path in (COMPLETION, "/tokenize")]
    shown = await examine(engine.ask, routes, identities, model=MODEL, seed="seed")
    assert (shown.proven, {question.path for question in engine.asked}) == (
        frozenset({COMPLETION, several(COMPLETION)}),
        {COMPLETION},
    )


class Failing(ProbedEngine):
    """Answers so many requests, and then none."""

    async def ask(self, question: Question) -> Reply:
        return Reply(503) if len(self.asked) >= 60 else await super().ask(question)


async def test_an_engine_that_goes_away_during_a_run_proves_nothing() -> None:
    shown = await Failing().run()
    assert shown.proven == set()
    assert shown.fault.endswith("a request was answered with 503")
    assert [finding.outcome for finding in shown.findings][-1] is Outcome.FAILED
    assert Outcome.ISOLATED in {finding.outcome for finding in shown.findings}


class Refusing(ProbedEngine):
    """Its gateway refuses who says what he may not, be it a field or more answers than one."""

    refused = "extra_key"

    async def ask(self, question: Question) -> Reply:
        answered = await super().ask(question)
        return Reply(400, b"{}") if self.refused in question.body else answered


async def test_a_choice_that_is_refused_chooses_nothing() -> None:
    shown = await Refusing().run()
    assert (shown.proven, shown.fault) == (WAYS, "")
    assert {finding.variant for finding in shown.findings if finding.outcome is Outcome.REFUSED} == {"chosen fields"}


def finding(verdict: Verdict, variant: str = "", *, refused: bool = False, path: str = CHAT) -> Finding:
    return Finding(path, variant, Judgement(verdict, "because", Evidence(2, refused=refused)))


@pytest.mark.parametrize("verdict", list(Verdict))
@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("variant", ["", "streamed"])
def test_a_route_is_proven_by_what_was_shown_of_it_alone(verdict: Verdict, refused: bool, variant: str) -> None:
    good, other = finding(Verdict.ISOLATED), finding(Verdict.ISOLATED, path=COMPLETION)
    found = finding(verdict, variant, refused=refused)
    holds = verdict is Verdict.ISOLATED or (verdict is Verdict.FAILED and refused and bool(variant))
    assert found.holds == holds
    if verdict is not Verdict.LEAKS:
        assert Shown([good, found, other]).proven == ({CHAT, COMPLETION} if holds else {COMPLETION})
    else:
        assert Shown([good, found, other]).proven == set()
    assert Shown([good, other], "a fault").proven == set()


def noises(seed: int) -> dict[str, Callable[[], int]]:
    """How others let a counter rise, in many forms."""
    chance = random.Random(seed)  # noqa: S311 - nothing is secret here
    counts = iter(range(10**6))
    return {
        "often": lambda: 96 * (chance.random() < 0.5),
        "seldom": lambda: 96 * (chance.random() < 0.1),
        "mostly": lambda: 96 * (chance.random() < 0.9),
        "always": lambda: 96,
        "by turns": lambda: 96 * (next(counts) % 2),
        "a block": lambda: 16 * (chance.random() < 0.5),
        "a few": lambda: chance.randrange(17),
        "any": lambda: chance.randrange(5000),
        "much, seldom": lambda: 5000 * (chance.random() < 0.2),
        "bursts": lambda: 96 * (next(counts) // 7 % 2),
        "rising": lambda: next(counts),
    }


FORMS = tuple(noises(0))
forms = pytest.mark.parametrize("form", FORMS)


def seeds(form: str, number: int = SEEDS) -> range:
    """Its share of all seeds: a run takes its time, and each has a chance of its own to go wrong."""
    return range(FORMS.index(form), number, len(FORMS))


async def run_of_one_route(engine: ProbedEngine, seed: int) -> Shown:
    return await examine(engine.ask, [ROUTES["POST", CHAT]], identities, model=MODEL, seed=str(seed))


@forms
async def test_what_others_find_meanwhile_is_never_a_leak(form: str) -> None:
    for seed in seeds(form):
        says = (nothing, zero, lambda found: found)[seed % 3]
        shown = await run_of_one_route(ProbedEngine(says=says, noise=noises(seed)[form]), seed)
        assert shown.leak is None, seed


@forms
async def test_what_others_find_meanwhile_proves_no_engine_that_leaks(form: str) -> None:
    for seed in seeds(form):
        shown = await run_of_one_route(ProbedEngine(leaky(Leak.UNTOLD), noise=noises(seed)[form]), seed)
        assert shown.proven == set(), seed


@forms
async def test_a_leak_that_usage_tells_is_found_whatever_others_find(form: str) -> None:
    for seed in seeds(form, SEEDS // 10):
        shown = await run_of_one_route(ProbedEngine(leaky(Leak.EVERYWHERE), noise=noises(seed)[form]), seed)
        assert shown.leak is not None
        assert shown.leak.judgement.evidence.sources == ("usage",)


def noise_where_the_other_asks(times: int) -> ProbedEngine:
    """An honest engine, beside which somebody else finds something in just the first requests that would show a leak."""
    engine = ProbedEngine(says=zero)
    owners: dict[str, str] = {}
    left = times

    def noise() -> int:
        nonlocal left
        question = engine.asked[-1]
        asked = json.dumps({**question.body, "stream": False})
        stranger = owners.setdefault(asked, question.headers[WHO]) != question.headers[WHO]
        left -= stranger
        return 96 if stranger and left >= 0 else 0

    engine.noise = noise
    return engine


async def test_a_leak_that_the_counter_alone_shows_is_shown_again_before_it_is_one() -> None:
    """Usage that says 0 is beside it: a repetition that would only be asked for without any usage would not be enough."""
    for times in range(TRIES, TRIES + TRIES_OF_COUNTER):
        assert (await noise_where_the_other_asks(times).run()).leak is None, times
    found = (await noise_where_the_other_asks(TRIES + TRIES_OF_COUNTER).run()).leak
    assert found is not None
    assert found.judgement.evidence.hits == TRIES_OF_COUNTER
    assert found.judgement.evidence.tokens[Role.OTHER] == 96


@pytest.mark.parametrize("step", [3, 9, 12])
async def test_what_others_find_more_and_more_is_no_leak(step: int) -> None:
    for seed in range(SEEDS):
        asked = iter(range(0, 10**9, step))
        engine = ProbedEngine(says=nothing, noise=lambda asked=asked: next(asked))  # type: ignore[misc]
        assert (await run_of_one_route(engine, seed)).leak is None, seed
