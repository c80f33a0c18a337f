"""A check of the suite: what is done, what is expected, and what was found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cachescope.probe.cases import Asking, Case
from cachescope.probe.judgement import Evidence, Judgement, Verdict


class Outcome(StrEnum):
    """What a check found: a verdict, or how the engine took a single request."""

    ISOLATED = "Isolated"
    LEAKS = "Leaks"
    NO_REUSE = "NoReuse"
    NO_EVIDENCE = "NoEvidence"
    FAILED = "Failed"
    REFUSED = "Refused"
    ACCEPTED = "Accepted"
    DIFFERS = "Differs"


class Rule(StrEnum):
    """What a check holds; reports and failures name it."""

    SEPARATES = "salts separate"
    NEAR = "near salts separate"
    CHOSEN = "nothing else chooses a cache"
    ANSWERS = "salts separate with several answers"
    LOGPROBS = "salts separate with logprobs"
    LIMITS = "what is no salt is refused"
    REUSE = "a prefix is found again"
    UNSALTED = "a salt does not separate"
    VERSION = "the version is the declared one"


@dataclass(frozen=True, slots=True)
class Experiment:
    """A check by an experiment.

    Attributes:
        rule: What it holds.
        detail: Which variant; empty for the plain one.
        case: The experiment.
        expected: Outcomes that pass. Where this is a leak, anything else fails: the expectation is then wrong.
        tries: Trials; `None` for the run's own number.
        controlled: Whether it passes only if the owner found his prompt again in half of the trials at least. An engine may lose
            a prompt now and then; that it isolates needs every trial, and that is the judgement's own rule.
    """

    rule: Rule
    detail: str
    case: Case
    expected: frozenset[Outcome]
    tries: int | None = None
    controlled: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """A check by one request, that must be refused.

    Attributes:
        rule: What it holds.
        detail: Which variant.
        asking: The route, and what the body holds besides.
    """

    rule: Rule
    detail: str
    asking: Asking


@dataclass(frozen=True, slots=True)
class Result:
    """What a check found.

    Attributes:
        rule: What it holds.
        detail: Which variant.
        route: Path, and ` streamed` behind it.
        expected: Outcomes that pass.
        found: The outcome.
        passed: Whether it is as expected.
        why: One sentence.
        evidence: The figures of an experiment.
    """

    rule: Rule
    detail: str
    route: str
    expected: frozenset[Outcome]
    found: Outcome
    passed: bool
    why: str
    evidence: Evidence | None = None


REFUSED_ONLY = frozenset({Outcome.REFUSED})


def route(asking: Asking) -> str:
    """How reports name a route."""
    return f"{asking.path} streamed" if asking.streamed else asking.path


def outcome_of(judged: Judgement) -> Outcome:
    """The verdict of an experiment, or that the engine refused what was asked in it."""
    refused = judged.verdict is Verdict.FAILED and judged.evidence.refused
    return Outcome.REFUSED if refused else Outcome(judged.verdict.value)


def of_experiment(check: Experiment, judged: Judgement) -> Result:
    """What an experiment means for its check."""
    evidence, found = judged.evidence, outcome_of(judged)
    passed = found in check.expected and (2 * evidence.controls >= evidence.tries or not check.controlled)
    return Result(check.rule, check.detail, route(check.case.asking), check.expected, found, passed, judged.why, evidence)
