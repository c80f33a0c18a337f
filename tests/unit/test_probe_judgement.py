"""What the answers of an experiment show, and what they do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachescope.engines.routes import Dialect
from cachescope.probe.cases import Asking, Case, Identity, Role, plan
from cachescope.probe.judgement import CHANCE_TOKENS, Evidence, Observation, Verdict, judge

CASE = Case("plain", Asking("/v1/chat/completions", Dialect.CHAT), (Identity(), Identity()))
PROMPT = 1000
TEMPLATE = 70
FOUND = 990


def observations(
    *, tries: int = 4, cold: int = 0, again: int = FOUND, other: int = 0, usage: bool = True, counter: bool = False
) -> list[Observation]:
    """What an engine shows that finds so much."""
    tokens = {Role.WARM_UP: 0, Role.FIRST: cold, Role.AGAIN: again, Role.OTHER: other}
    return [
        Observation(
            step,
            200,
            prompt_tokens=PROMPT,
            cached_tokens=tokens[step.role] if usage else None,
            counted_tokens=tokens[step.role] if counter else None,
            seconds=0.001 if step.role is Role.OTHER else 1.0,
        )
        for step in plan(CASE, tries, seed="seed")
    ]


def changed(found: list[Observation], role: Role, trial: int, **fields: object) -> list[Observation]:
    return [
        replace(each, **fields) if each.step.role is role and each.step.trial == trial else each  # type: ignore[arg-type]
        for each in found
    ]


SOURCES = [
    {"usage": True, "counter": False},
    {"usage": False, "counter": True},
    {"usage": True, "counter": True},
]


@pytest.mark.parametrize("sources", SOURCES, ids=str)
@pytest.mark.parametrize("template", [0, TEMPLATE])
def test_who_finds_his_own_and_nobody_elses_is_isolated(sources: dict[str, bool], template: int) -> None:
    judged = judge(observations(cold=template, other=template, **sources))
    assert judged.verdict is Verdict.ISOLATED
    assert (judged.evidence.tries, judged.evidence.controls, judged.evidence.hits) == (4, 4, 0)
    assert judged.evidence.sources == tuple(name for name, there in sources.items() if there)


@pytest.mark.parametrize("sources", SOURCES, ids=str)
def test_one_hit_of_many_is_a_leak(sources: dict[str, bool]) -> None:
    field = "cached_tokens" if sources["usage"] else "counted_tokens"
    judged = judge(changed(observations(tries=50, **sources), Role.OTHER, 17, **{field: 16}))
    assert judged.verdict is Verdict.LEAKS
    assert judged.evidence.hits == 1
    assert "1 of 50" in judged.why


def test_the_counter_finds_a_leak_that_usage_does_not_tell() -> None:
    lying = [replace(each, cached_tokens=0) for each in observations(other=FOUND, counter=True)]
    assert judge(lying).verdict is Verdict.LEAKS
    assert judge([replace(each, counted_tokens=None) for each in lying]).verdict is Verdict.NO_EVIDENCE


@pytest.mark.parametrize("field", ["cached_tokens", "counted_tokens"])
def test_sources_that_contradict_each_other_are_no_evidence(field: str) -> None:
    found = [replace(each, **{field: 0}) for each in observations(counter=True)]  # type: ignore[arg-type]
    judged = judge(found)
    assert judged.verdict is Verdict.NO_EVIDENCE
    assert "contradict" in judged.why


def test_a_beginning_that_all_prompts_share_is_nobodys_but_a_block_more_is() -> None:
    assert judge(observations(cold=TEMPLATE, other=TEMPLATE + CHANCE_TOKENS)).verdict is Verdict.ISOLATED
    assert judge(observations(cold=TEMPLATE, other=TEMPLATE + CHANCE_TOKENS + 1)).verdict is Verdict.LEAKS


@pytest.mark.parametrize("again", [0, 16, PROMPT // 2 - 1])
def test_without_its_positive_control_nothing_is_isolated(again: int) -> None:
    assert judge(observations(again=again)).verdict is Verdict.NO_EVIDENCE
    assert judge(changed(observations(), Role.AGAIN, 2, cached_tokens=again)).verdict is Verdict.NO_EVIDENCE


def test_cold_prompts_that_are_found_leave_no_control() -> None:
    assert judge(observations(cold=FOUND, other=FOUND)).verdict is Verdict.NO_EVIDENCE


def test_nobody_finds_anything_is_believed_of_the_counter_alone() -> None:
    assert judge(observations(again=0)).verdict is Verdict.NO_EVIDENCE
    assert judge(observations(again=0, usage=False, counter=True)).verdict is Verdict.NO_REUSE
    assert judge(observations(again=0, counter=True)).verdict is Verdict.NO_REUSE


def test_an_engine_that_tells_nothing_is_no_evidence() -> None:
    judged = judge(observations(usage=False))
    assert (judged.verdict, judged.evidence.sources) == (Verdict.NO_EVIDENCE, ())


def test_an_engine_that_leaves_zero_out_means_zero() -> None:
    silent = [replace(each, cached_tokens=each.cached_tokens or None) for each in observations()]
    assert judge(silent).verdict is Verdict.ISOLATED


def test_a_counter_that_began_anew_says_nothing() -> None:
    found = changed(observations(counter=True), Role.AGAIN, 1, counted_tokens=None)
    assert judge(found).evidence.sources == ("usage",)
    assert judge([replace(each, cached_tokens=None) for each in found]).verdict is Verdict.NO_EVIDENCE


UNANSWERED = [
    ({"status": 500, "complete": False}, "answered with 500"),
    ({"status": 0, "complete": False}, "answered with nothing"),
    ({"complete": False}, "answered with 200, cut short or with an error in it"),
]


@pytest.mark.parametrize(("fields", "why"), UNANSWERED, ids=[why for _, why in UNANSWERED])
@pytest.mark.parametrize("role", list(Role))
def test_a_request_that_was_not_answered_fails_the_experiment(fields: dict[str, object], why: str, role: Role) -> None:
    judged = judge(changed(observations(), role, -1 if role is Role.WARM_UP else 1, **fields))
    assert judged.verdict is Verdict.FAILED
    assert judged.why.endswith(why)


def test_a_leak_is_a_leak_whatever_else_fails() -> None:
    assert judge(changed(observations(other=FOUND), Role.AGAIN, 1, status=500)).verdict is Verdict.LEAKS


def test_what_the_other_finds_is_no_hit_where_no_cold_request_tells_the_template() -> None:
    found = [replace(each, status=500) if each.step.role is Role.FIRST else each for each in observations(other=TEMPLATE)]
    assert judge(found).verdict is Verdict.FAILED


@pytest.mark.parametrize(("status", "refused"), [(400, True), (422, True), (404, False), (429, False), (500, False)])
def test_a_refusal_is_one_that_says_so_of_every_request(status: int, refused: bool) -> None:
    others = [replace(each, status=status) if each.step.role is Role.OTHER else each for each in observations()]
    one = [replace(each, status=status) if each.step.who == 1 else each for each in observations()]
    some = changed(observations(), Role.OTHER, 1, status=status)
    assert [judge(found).evidence.refused for found in (others, one, some)] == [refused, refused, False]
    assert {judge(found).verdict for found in (others, one, some)} == {Verdict.FAILED}


def test_several_answers_are_judged_by_the_counter_alone() -> None:
    """The second answer of a request finds what the first one left: usage says so of every request, cold ones too."""
    among = {Role.WARM_UP: FOUND, Role.FIRST: FOUND, Role.AGAIN: 2 * FOUND, Role.OTHER: FOUND}
    honest = [replace(each, cached_tokens=FOUND, counted_tokens=among[each.step.role]) for each in observations()]
    leaky = [replace(each, counted_tokens=2 * FOUND) if each.step.role is Role.OTHER else each for each in honest]
    assert judge(honest, counted_only=True).verdict is Verdict.ISOLATED
    assert judge(leaky, counted_only=True).verdict is Verdict.LEAKS
    assert judge(honest).verdict is Verdict.NO_EVIDENCE
    assert judge([replace(each, counted_tokens=None) for each in honest], counted_only=True).verdict is Verdict.NO_EVIDENCE


def test_an_experiment_without_requests_is_no_evidence() -> None:
    assert judge([]).verdict is Verdict.NO_EVIDENCE


def without_seconds(evidence: Evidence) -> Evidence:
    return replace(evidence, seconds={})


tokens = st.none() | st.integers(min_value=0, max_value=2 * PROMPT)
statuses = st.sampled_from([200, 200, 200, 200, 0, 400, 500])


@st.composite
def shown(draw: st.DrawFn) -> list[Observation]:
    number = draw(st.integers(min_value=1, max_value=4))
    return [
        Observation(step, draw(statuses), draw(st.booleans()) or draw(st.booleans()), PROMPT, draw(tokens), draw(tokens), 0.0)
        for step in plan(CASE, number, seed="seed")
    ]


@settings(max_examples=60, deadline=None)
@given(shown())
def test_isolated_is_said_only_with_every_control_and_without_a_hit(found: list[Observation]) -> None:
    judged = judge(found)
    if judged.verdict is Verdict.ISOLATED:
        assert judged.evidence.controls == judged.evidence.tries > 0
        assert judged.evidence.hits == 0
        assert all(each.answered for each in found)
        assert judged.evidence.tokens[Role.OTHER] <= judged.evidence.tokens[Role.FIRST] + CHANCE_TOKENS
        assert judged.evidence.tokens[Role.AGAIN] >= PROMPT / 2


@settings(max_examples=60, deadline=None)
@given(shown(), st.floats(min_value=0, max_value=100))
def test_seconds_decide_nothing(found: list[Observation], second: float) -> None:
    timed = [replace(each, seconds=index % 5 * second) for index, each in enumerate(found)]
    assert judge(timed).verdict is judge(found).verdict
    assert without_seconds(judge(timed).evidence) == without_seconds(judge(found).evidence)


@settings(max_examples=60, deadline=None)
@given(shown())
def test_more_that_the_other_found_never_makes_isolated_of_anything(found: list[Observation]) -> None:
    worse = [replace(each, cached_tokens=2 * PROMPT + 100) if each.step.role is Role.OTHER else each for each in found]
    assert judge(worse).verdict is not Verdict.ISOLATED


@settings(max_examples=60, deadline=None)
@given(st.integers(min_value=1, max_value=8), st.integers(min_value=0, max_value=100), st.sampled_from(SOURCES))
def test_every_honest_engine_is_isolated_and_every_engine_without_salts_leaks(
    tries: int, template: int, sources: dict[str, bool]
) -> None:
    honest = observations(tries=tries, cold=template, other=template, **sources)
    leaky = observations(tries=tries, cold=template, other=FOUND, **sources)
    assert (judge(honest).verdict, judge(leaky).verdict) == (Verdict.ISOLATED, Verdict.LEAKS)


COUNTED = {"usage": False, "counter": True}
BOTH = {"usage": True, "counter": True}


def rising(found: list[Observation], role: Role, by: int, *trials: int) -> list[Observation]:
    """The same, while others let the counter rise in some trials."""
    return [
        replace(each, counted_tokens=(each.counted_tokens or 0) + by)
        if each.step.role is role and each.step.trial in trials
        else each
        for each in found
    ]


@pytest.mark.parametrize("sources", SOURCES, ids=str)
def test_among_others_an_engine_that_nobody_else_uses_is_judged_the_same(sources: dict[str, bool]) -> None:
    for other in (0, FOUND):
        found = observations(other=other, **sources)
        assert judge(found, among_others=True).verdict is judge(found).verdict


@pytest.mark.parametrize("trials", [(0,), (0, 1), (0, 1, 2, 3)])
def test_among_others_usage_that_tells_is_asked_alone(trials: tuple[int, ...]) -> None:
    found = rising(observations(**BOTH), Role.OTHER, FOUND, *trials)
    judged = judge(found, among_others=True)
    assert (judged.verdict, judged.evidence.sources) == (Verdict.ISOLATED, ("usage",))
    assert judge(found).verdict is Verdict.LEAKS, "who is alone with an engine believes both"


def test_among_others_one_hit_that_usage_tells_is_a_leak() -> None:
    judged = judge(changed(observations(**BOTH), Role.OTHER, 2, cached_tokens=FOUND), among_others=True)
    assert (judged.verdict, judged.evidence.sources) == (Verdict.LEAKS, ("usage",))


def test_among_others_usage_without_every_control_has_the_counter_beside_it() -> None:
    lost = changed(observations(other=FOUND, **BOTH), Role.AGAIN, 1, cached_tokens=0)
    silent = [replace(each, cached_tokens=0) if each.step.role is Role.OTHER else each for each in lost]
    judged = judge(silent, among_others=True)
    assert (judged.verdict, judged.evidence.sources) == (Verdict.LEAKS, ("usage", "counter"))


@pytest.mark.parametrize("usage", [None, 0])
@pytest.mark.parametrize(
    ("role", "by", "trials", "believed"),
    [
        pytest.param(Role.OTHER, FOUND, (0, 1, 2, 3), True, id="in every try"),
        pytest.param(Role.OTHER, FOUND, (0, 1, 2), False, id="in all but one"),
        pytest.param(Role.OTHER, FOUND, (3,), False, id="in one"),
        pytest.param(Role.OTHER, CHANCE_TOKENS, (3,), True, id="a few tokens in one"),
        pytest.param(Role.FIRST, PROMPT // 4, (1,), True, id="cold, by a quarter"),
        pytest.param(Role.FIRST, PROMPT // 4 + 1, (1,), False, id="cold, by more"),
        pytest.param(Role.FIRST, PROMPT, (0, 1, 2, 3), True, id="cold, alike"),
    ],
)
def test_among_others_a_counter_is_believed_that_rises_alike(
    usage: int | None, role: Role, by: int, trials: tuple[int, ...], believed: bool
) -> None:
    found = [replace(each, cached_tokens=usage) for each in rising(observations(**COUNTED), role, by, *trials)]
    sources = judge(found, among_others=True).evidence.sources
    assert ("counter" in sources) == believed
    assert ("usage" in sources) == (usage is not None)


def test_among_others_what_happened_in_some_tries_is_no_leak_and_proves_nothing() -> None:
    alone = observations(other=FOUND, **COUNTED)
    noisy = rising(observations(**COUNTED), Role.OTHER, FOUND, 0, 1, 2)
    assert (judge(alone, among_others=True).verdict, judge(noisy, among_others=True).verdict) == (
        Verdict.LEAKS,
        Verdict.NO_EVIDENCE,
    )
    assert judge(noisy).verdict is Verdict.LEAKS


def test_among_others_several_answers_are_judged_by_a_counter_that_is_believed() -> None:
    quiet, leaky = observations(**BOTH), observations(other=FOUND, **BOTH)
    noisy = rising(quiet, Role.OTHER, FOUND, 1)
    found = [judge(each, counted_only=True, among_others=True).verdict for each in (quiet, leaky, noisy)]
    assert found == [Verdict.ISOLATED, Verdict.LEAKS, Verdict.NO_EVIDENCE]


@settings(max_examples=100, deadline=None)
@given(shown())
def test_among_others_a_leak_is_told_by_usage_or_counted_in_every_try(found: list[Observation]) -> None:
    judged = judge(found, among_others=True)
    if judged.verdict is Verdict.LEAKS and "counter" in judged.evidence.sources:
        assert judged.evidence.hits == judged.evidence.tries
    if judged.verdict is Verdict.LEAKS:
        assert judge(found).verdict is Verdict.LEAKS, "nothing is a leak among others that would be none alone"
    if judged.verdict is Verdict.ISOLATED:
        assert judged.evidence.controls == judged.evidence.tries > 0
