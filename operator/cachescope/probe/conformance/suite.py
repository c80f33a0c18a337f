"""Runs the suite on one engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from cachescope.probe.conformance import features
from cachescope.probe.conformance.checks import REFUSED_ONLY, Experiment, Outcome, Refusal, Result, Rule, of_experiment, route
from cachescope.probe.conformance.features import Features, Target
from cachescope.probe.conformance.profiles import Check, Profile
from cachescope.probe.judgement import REFUSALS
from cachescope.probe.questions import Question, body
from cachescope.probe.running import Prober

TRIES = 10


@dataclass(frozen=True, slots=True)
class Declared:
    """What somebody says of an engine.

    Attributes:
        engine: Its name.
        version: Its version.
        profile: How it is to be used.
    """

    engine: str
    version: str
    profile: Profile


@dataclass(frozen=True, slots=True)
class Report:
    """What the suite found.

    Attributes:
        declared: What was said of the engine.
        model: The model that was asked for.
        tries: Trials of a plain experiment.
        features: What the engine offers.
        results: One for each check.
    """

    declared: Declared
    model: str
    tries: int
    features: Features
    results: tuple[Result, ...]

    @property
    def failures(self) -> tuple[Result, ...]:
        """The checks that did not pass."""
        return tuple(result for result in self.results if not result.passed)


Progress = Callable[[int, int], None]


def _quiet(_done: int, _all: int) -> None:
    return


async def run(
    target: Target, declared: Declared, *, seed: str, model: str | None = None, tries: int = TRIES, progress: Progress = _quiet
) -> Report:
    """Run the suite.

    Args:
        target: The engine, which nobody else uses meanwhile.
        declared: What is said of it.
        seed: Prompts and order follow from it: another run on the same process needs another one.
        model: The model to ask for; by default the first that the engine lists.
        tries: Trials of a plain experiment.
        progress: Told how many checks of how many are done.

    Raises:
        ClusterError: The engine does not answer, or serves nothing that can be asked.
    """
    asked = model or await features.first_model(target)
    prober = Prober(target.ask, asked, seed, tries)
    found = await features.look(target, asked)
    bypasses = await features.bypasses(prober, found.askings[0], declared.profile.identity(seed))
    checks = list(declared.profile.checks(found.askings, seed))
    results = [_version(declared, found)]
    for done, check in enumerate(checks):
        progress(done, len(checks))
        results.append(await _result(prober, check))
    return Report(declared, asked, tries, replace(found, bypasses=bypasses), tuple(results))


async def _result(prober: Prober, check: Check) -> Result:
    if isinstance(check, Experiment):
        return of_experiment(check, await prober.experiment(check.case, tries=check.tries))
    return await _refusal(prober, check)


async def _refusal(prober: Prober, check: Refusal) -> Result:
    asking = check.asking
    content = body(asking.dialect, prober.model, "hello", streamed=asking.streamed)
    status = (await prober.ask(Question(asking.path, {}, {**content, **asking.fields}))).outcome
    outcome = Outcome.REFUSED if status in REFUSALS else Outcome.ACCEPTED if status == 200 else Outcome.FAILED
    passed = outcome is Outcome.REFUSED
    return Result(check.rule, check.detail, route(asking), REFUSED_ONLY, outcome, passed, f"answered with {status or 'nothing'}")


def _version(declared: Declared, found: Features) -> Result:
    """An engine that reports no version is believed; `features.reported` says so."""
    expected = frozenset({Outcome.ACCEPTED})
    same = found.reported in (None, declared.version)
    outcome = Outcome.ACCEPTED if same else Outcome.DIFFERS
    why = f"declared {declared.version}, reported {found.reported or 'nothing'}"
    return Result(Rule.VERSION, "", "", expected, outcome, same, why)
