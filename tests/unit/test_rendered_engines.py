"""What the platform renders for each engine, held against the catalogue: nothing that it refuses, all that it demands."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cachescope.core.front_doors import options
from cachescope.engines.catalogue import facts
from cachescope.engines.evidence import Basis
from cachescope.engines.facts import Facts, Mode, Refusal
from cachescope.engines.settings_of import refused
from cachescope.manifests.engines.known import ENGINES
from cachescope.manifests.engines.launch import Serving, modes_of
from tests.unit.engine_pools import USERS, serving

ADAPTERS = {"sql": "/models/adapter-1/sql"}
PEOPLE_CHOOSE = {"LMDeploy": {"--backend"}}
"""What is rendered for adapters alone, and is everybody's choice without them."""


@dataclass(frozen=True)
class Rendered:
    """What the platform alone gives an engine."""

    facts: Facts
    serving: Serving
    args: tuple[str, ...]
    env: dict[str, str]

    @property
    def modes(self) -> frozenset[Mode]:
        """The modes of such a pool."""
        return modes_of(self.serving)

    def refused(self, known: Facts | None = None) -> list[str]:
        """What the catalogue refuses of it in its modes."""
        found = refused(known or self.facts, self.args, self.env)
        return [problem.sentence for problem in found if self.modes & set(problem.modes)]


def _rendered(engine: str, *, reuse: bool, adapters: bool, gpus: int = 4) -> Rendered:
    known = ENGINES[engine]
    asked = serving(
        engine, args=(), reuse=reuse, adapters=ADAPTERS if adapters else {}, gpus=gpus, guarded_inside=known.takes_guard
    )
    args = (*known.arguments(asked), *known.shutdown(100))
    return Rendered(facts(known.type), asked, args, {**known.variables, **known.fixed(asked)})


POOLS = [
    (engine, reuse, adapters)
    for engine in sorted(ENGINES)
    for reuse in (True, False)
    for adapters in (False, True)
    if ENGINES[engine].adapters.asked_as or not adapters
]
every_pool = pytest.mark.parametrize(("engine", "reuse", "adapters"), POOLS)


@every_pool
def test_nothing_is_rendered_that_the_catalogue_refuses_or_takes_for_the_beginning_of_it(
    engine: str, *, reuse: bool, adapters: bool
) -> None:
    assert _rendered(engine, reuse=reuse, adapters=adapters).refused() == []


def test_what_would_be_refused_is_seen_whole_and_by_its_beginning() -> None:
    made = _rendered("SGLang", reuse=True, adapters=False)
    for option in ("--host", "--hosts-file"):
        rule = Refusal(option=option, why="opens a door; remove it", basis=Basis.DEDUCED, source="nothing but this test")
        assert made.refused(made.facts.model_copy(update={"refused": (rule,)})) == ["--host opens a door; remove it"]
    without = _rendered("SGLang", reuse=False, adapters=False)
    assert refused(made.facts, without.args, without.env)[0].sentence.startswith("--disable-radix-cache "), "in the other modes"


@every_pool
def test_all_that_the_catalogue_demands_is_rendered_and_nothing_that_says_the_opposite(
    engine: str, *, reuse: bool, adapters: bool
) -> None:
    made = _rendered(engine, reuse=reuse, adapters=adapters)
    given = {option.name: option.value for option in options(made.args)} | made.env
    for rule in made.facts.overrides:
        if made.modes & set(rule.modes):
            assert given.get(rule.setting, "missing") == rule.value
            assert not {*rule.opposes} & {*given}
    needed = {proof.needs for proof in made.facts.proofs} - {None}
    assert needed <= {*given}, "without it nothing shows a hit"


@pytest.mark.parametrize("engine", sorted(set(ENGINES) - {"custom"}))
def test_how_reuse_is_switched_off_is_what_is_rendered(engine: str) -> None:
    known = facts(ENGINES[engine].type)
    assert known.off
    words = set(known.off.about.replace("=", " ").split())
    reusing, fresh = (_rendered(engine, reuse=reuse, adapters=False) for reuse in (True, False))
    told = {*fresh.args, *fresh.env} - {*reusing.args, *reusing.env}
    assert told <= words
    assert told or engine in {"LMDeploy", "TensorRT-LLM"}, "these are told by leaving an option out, and by a file"


def test_the_catalogue_demands_something_of_every_engine_that_takes_options_for_it() -> None:
    counts = {engine: len(facts(known.type).overrides) for engine, known in ENGINES.items()}
    assert {engine for engine, count in counts.items() if not count} == {"TensorRT-LLM", "custom"}


@pytest.mark.parametrize("engine", sorted(set(ENGINES) - {"vLLM"}))
def test_what_is_rendered_nobody_else_may_give(engine: str) -> None:
    known = ENGINES[engine]
    for reuse in (True, False):
        made = _rendered(engine, reuse=reuse, adapters=bool(known.adapters.asked_as), gpus=0)
        for option in {option.name for option in options(made.args)} - PEOPLE_CHOOSE.get(engine, set()):
            assert list(known.problems(serving(engine, args=(*USERS[engine], option, "x"), reuse=reuse), {})), option
        for name in made.env:
            assert list(known.problems(serving(engine, reuse=reuse), {name: "x"})), name
