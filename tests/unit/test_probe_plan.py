"""An experiment's plan: what is sent in which order, and under whose name."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachescope.engines.routes import Dialect, Kind, Route
from cachescope.engines.vllm import ROUTES
from cachescope.probe.cases import Asking, Case, Identity, Role, Step, plan
from cachescope.probe.places import FIELDS, HEADERS, PLACES, SALT, Place
from cachescope.probe.prompts import PROMPT_WORDS, prompt, salt
from cachescope.probe.questions import DIALECTS, STREAMED, body, question

ONE = Identity({"authorization": "one"}, {"cache_salt": "salt-one"}, "salt-one")
TWO = Identity({"authorization": "two"}, {"cache_salt": "salt-two"}, "salt-two")
CHAT = Asking("/v1/chat/completions", Dialect.CHAT)
CASE = Case("plain", CHAT, (ONE, TWO))

seeds = st.text(max_size=20)
tries = st.integers(min_value=1, max_value=30)


@settings(max_examples=60, deadline=None)
@given(seeds, tries)
def test_each_trial_has_one_cold_request_before_the_other_two(seed: str, number: int) -> None:
    steps = [step for step in plan(CASE, number, seed=seed) if step.role is not Role.WARM_UP]
    for trial in range(number):
        mine = [step for step in steps if step.trial == trial]
        assert mine[0].role is Role.FIRST
        assert {step.role for step in mine[1:]} == {Role.AGAIN, Role.OTHER}
        assert len(mine) == 3
    assert len(steps) == 3 * number


@settings(max_examples=60, deadline=None)
@given(seeds, tries)
def test_the_owner_sends_twice_and_the_other_once_and_they_take_turns(seed: str, number: int) -> None:
    for step in plan(CASE, number, seed=seed):
        assert step.who == (1 - step.owner if step.role is Role.OTHER else step.owner)
        assert step.role is Role.WARM_UP or step.owner == step.trial % 2


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_both_warm_up_before_everything_else(seed: str) -> None:
    first, second, *later = plan(CASE, 3, seed=seed)
    assert [(step.role, step.who) for step in (first, second)] == [(Role.WARM_UP, 0), (Role.WARM_UP, 1)]
    assert Role.WARM_UP not in {step.role for step in later}


def test_trials_are_interleaved_and_either_may_be_asked_first() -> None:
    steps = [step for step in plan(CASE, 20, seed="seed") if step.role is not Role.WARM_UP]
    assert [step.trial for step in steps] != sorted(step.trial for step in steps)
    later = Counter(next(step.role for step in steps if step.trial == trial and step.role is not Role.FIRST) for trial in range(20))
    assert min(later[Role.AGAIN], later[Role.OTHER]) >= 3


def test_the_seed_decides_the_order() -> None:
    assert plan(CASE, 10, seed="one") == plan(CASE, 10, seed="one")
    assert plan(CASE, 10, seed="one") != plan(CASE, 10, seed="two")


def test_a_plan_without_a_trial_is_refused() -> None:
    with pytest.raises(ValueError, match="ask for at least 1"):
        plan(CASE, 0, seed="seed")


def text(case: Case, step: Step, seed: str = "seed") -> str:
    messages = question(case, step, model="tiny", seed=seed).body["messages"]
    assert isinstance(messages, list)
    return str(messages[0]["content"])


def test_the_three_of_a_trial_send_one_prompt_and_no_two_trials_begin_alike() -> None:
    steps = plan(CASE, 20, seed="seed")
    by_trial = {step.trial: {text(CASE, each) for each in steps if each.trial == step.trial} for step in steps}
    assert {len(texts) for texts in by_trial.values()} == {1}
    assert len({texts.pop()[:12] for texts in by_trial.values()}) == 22


@settings(max_examples=60, deadline=None)
@given(seeds, seeds, st.text(max_size=10))
def test_prompts_of_two_runs_or_two_labels_begin_differently(seed: str, other: str, label: str) -> None:
    assert (prompt(seed, label)[:12] == prompt(other, label)[:12]) == (seed == other)
    assert prompt(seed, label)[:12] != prompt(seed, f"{label}x")[:12]


def test_a_prompt_is_long_enough_for_full_blocks() -> None:
    assert len(prompt("seed", "label").split()) == PROMPT_WORDS >= 4 * 16
    assert len(prompt("seed", "label")) >= 4 * 128, "where a byte is a token, and a block 128 of them"


def test_a_salt_is_as_gateways_make_them() -> None:
    made = salt("seed", "label")
    assert len(made) == 43
    assert not set(made) & set("@/\\=+\0")
    assert made not in (salt("seed", "other"), salt("other", "label"))


@pytest.mark.parametrize("who", [0, 1])
def test_who_sends_is_in_headers_and_body(who: int) -> None:
    asked = question(CASE, Step(0, Role.FIRST, who, who), model="tiny", seed="seed")
    assert (asked.path, asked.headers, asked.body["model"]) == (CHAT.path, (ONE, TWO)[who].headers, "tiny")
    assert asked.body["cache_salt"] == (ONE, TWO)[who].secret


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_the_other_chooses_the_owners_secret_alone_or_together(place: Place) -> None:
    case = Case("chosen", CHAT, (ONE, TWO), chosen=(place,))
    steps = plan(case, 4, seed="seed")
    chooses = {(step.trial, step.role) for step in steps if _chosen(case, step, place)}
    alone = {(trial, Role.OTHER) for trial in (0, 3)}
    agreed = {(trial, role) for trial in (1, 2) for role in (Role.FIRST, Role.AGAIN, Role.OTHER)}
    assert chooses == alone | agreed


def _chosen(case: Case, step: Step, place: Place) -> bool:
    asked = question(case, step, model="tiny", seed="seed")
    owner = case.identities[step.owner]
    assert asked.body["cache_salt"] == case.identities[step.who].secret, "each salts as himself"
    if place.header:
        return asked.headers.get(place.name) == owner.secret
    head = place.name.split(".", maxsplit=1)[0]
    return asked.body.get(head) == place.fields(owner.secret)[head]


def test_the_salts_own_field_is_the_clients_where_the_prober_does_not_salt() -> None:
    case = Case("chosen", CHAT, (Identity({"authorization": "one"}), Identity({"authorization": "two"})), chosen=(SALT,))
    other = next(step for step in plan(case, 1, seed="seed") if step.role is Role.OTHER)
    assert question(case, other, model="tiny", seed="seed").body["cache_salt"] == "agreed"


def test_a_place_is_a_header_or_a_field() -> None:
    assert {str(place) for place in HEADERS} >= {"header x-cache-salt", "header x-tenant-id"}
    assert Place("a.b.c").fields("value") == {"a": {"b": {"c": "value"}}}
    assert all(not place.headers("value") for place in FIELDS)
    assert all(not place.fields("value") for place in HEADERS)


def test_what_the_other_alone_sends_is_in_his_body_alone() -> None:
    asking = Asking(CHAT.path, CHAT.dialect, fields={"n": 2}, of_other={"cache_prompt": False})
    case = Case("bypass", asking, (ONE, ONE))
    bodies = {step.role: question(case, step, model="tiny", seed="seed").body for step in plan(case, 1, seed="seed")}
    assert [role for role, sent in bodies.items() if "cache_prompt" in sent] == [Role.OTHER]
    assert all(sent["n"] == 2 for sent in bodies.values())


@pytest.mark.parametrize("route", [route for route in ROUTES.values() if route.dialect in DIALECTS], ids=lambda route: route.path)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_what_is_asked_is_what_the_catalogue_lets_pass(route: Route, streamed: bool) -> None:
    sent = body(route.dialect, "tiny", "hello", streamed=streamed and route.dialect in STREAMED)
    assert set(sent) <= set(route.body.keep)
    assert [names for names in route.asks if names <= set(sent)], "it asks something"
    assert all(route.body.keep[name] is not Kind.BOOLEAN or isinstance(value, bool) for name, value in sent.items())


def test_every_route_with_a_salt_can_be_asked() -> None:
    assert {route.dialect for route in ROUTES.values() if route.salt is not None} == DIALECTS
