"""What the answers of an experiment show.

Rules:

- found is what goes beyond the most that a cold request found, and a few tokens more: what a template or a system prompt puts
  before every prompt is everybody's own, and an engine that compares tokens also finds by chance what two prompts begin with;
- one request of the other that found more is a leak, whatever else happened, and whichever source says so;
- the positive control holds if the owner found at least half of his prompt again; without it in every trial nothing is isolated;
- two sources that contradict each other, usage and counter, are no evidence: one of them is wrong;
- a counter counts for everybody: where others may use the engine it is asked only if usage tells nothing, and believed only if it
  rose alike for every cold request, and for all that somebody else sent or for nothing of it;
- that nobody ever finds anything is believed of the engine's counter alone: usage that always says 0 may only be wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median

from cachescope.probe.cases import LAST_TRIAL, Role, Step

REFUSALS = frozenset({400, 403, 409, 413, 415, 422, 431})
"""Statuses by which an engine says that a request is not as it must be."""
USAGE, COUNTER = "usage", "counter"
CHANCE_TOKENS = 8
"""By so many tokens two prompts may begin alike; no engine's block is smaller."""


class Verdict(StrEnum):
    """What an experiment showed."""

    ISOLATED = "Isolated"
    LEAKS = "Leaks"
    NO_REUSE = "NoReuse"
    NO_EVIDENCE = "NoEvidence"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Observation:
    """What one request of an experiment showed.

    Attributes:
        step: The request.
        status: HTTP status; 0 if nothing answered.
        complete: Whether the answer came to its end without an error in it.
        prompt_tokens: Tokens of the prompt, by its usage.
        cached_tokens: Those that were found, by its usage; `None` if it does not say.
        counted_tokens: By how much the engine's counter of found tokens rose; `None` if there is none, or others use the engine.
        seconds: How long the answer took.
    """

    step: Step
    status: int
    complete: bool = True
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    counted_tokens: int | None = None
    seconds: float = 0.0

    @property
    def answered(self) -> bool:
        """Whether there is a whole answer."""
        return self.status == 200 and self.complete


@dataclass(frozen=True, slots=True)
class Evidence:
    """The figures of an experiment.

    Attributes:
        tries: Trials.
        controls: Those in which the owner found his prompt again.
        hits: Those in which the other found it.
        prompt_tokens: Tokens of the longest prompt.
        tokens: The most tokens that were found, by role.
        sources: What told them: `usage`, `counter`.
        statuses: HTTP statuses that came, by role; 0 where nothing answered.
        refused: Whether the engine refused all requests of one of the two, or all that the other sent of the owner's prompts.
        seconds: The median time of an answer, by role. It decides nothing.
    """

    tries: int
    controls: int = 0
    hits: int = 0
    prompt_tokens: int = 0
    tokens: Mapping[Role, int] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    statuses: Mapping[Role, tuple[int, ...]] = field(default_factory=dict)
    refused: bool = False
    seconds: Mapping[Role, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict.

    Attributes:
        verdict: What was shown.
        why: One sentence.
        evidence: Its figures.
    """

    verdict: Verdict
    why: str
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class _Source:
    """What one source says of an experiment, by trial."""

    name: str
    tokens: Mapping[Role, Mapping[int, int]]
    cold: int
    prompt_tokens: int
    controls: frozenset[int]
    hits: frozenset[int]

    def most(self, role: Role) -> int:
        return max(self.tokens[role].values(), default=0)

    def quiet(self, tries: int) -> bool:
        """Whether nobody else seems to have been counted: what happened in some trials alone was somebody else's."""
        rises = _cold(self.tokens)
        alike = 4 * (max(rises, default=0) - min(rises, default=0)) <= self.prompt_tokens
        return alike and len(self.hits) in {0, tries}


def judge(observations: Sequence[Observation], *, counted_only: bool = False, among_others: bool = False) -> Judgement:
    """Judge an experiment.

    Args:
        observations: One for each of its steps.
        counted_only: Whether usage says nothing here.
        among_others: Whether others may have used the engine meanwhile.
    """
    tries = len({each.step.trial for each in observations if each.step.role is not Role.WARM_UP})
    sources = _sources([observation for observation in observations if observation.answered], counted_only=counted_only)
    if among_others:
        sources = _believed(sources, tries)
    verdict, why = _verdict(observations, sources, tries)
    return Judgement(verdict, why, _evidence(observations, sources, tries))


def _verdict(observations: Sequence[Observation], sources: Sequence[_Source], tries: int) -> tuple[Verdict, str]:
    for source in sources:
        if source.hits:
            return Verdict.LEAKS, f"in {len(source.hits)} of {tries} tries somebody else's prompt was found ({source.name})"
    failed = next((observation for observation in observations if not observation.answered), None)
    if failed is not None:
        cut = ", cut short or with an error in it" if failed.status == 200 else ""
        return Verdict.FAILED, f"a request was answered with {failed.status or 'nothing'}{cut}"
    if not sources:
        return Verdict.NO_EVIDENCE, "neither usage nor a counter tells what was found"
    return _without_a_leak(sources, tries)


def _without_a_leak(sources: Sequence[_Source], tries: int) -> tuple[Verdict, str]:
    counts = {source.name: len(source.controls) for source in sources}
    if min(counts.values()) == tries and tries:
        return Verdict.ISOLATED, f"in {tries} of {tries} tries the owner found his prompt again, and nobody else did"
    if len(set(counts.values())) > 1:
        return Verdict.NO_EVIDENCE, "usage and counter contradict each other"
    if any(source.controls for source in sources) or any(source.most(Role.AGAIN) > source.cold for source in sources):
        return Verdict.NO_EVIDENCE, f"the owner found his prompt again in {min(counts.values())} of {tries} tries only"
    if COUNTER in counts and not any(source.most(role) for source in sources for role in Role):
        return Verdict.NO_REUSE, f"in {tries} tries nobody found anything, not even his own prompt"
    return Verdict.NO_EVIDENCE, "not even the owner was seen to find his prompt again"


def _sources(answered: Sequence[Observation], *, counted_only: bool) -> list[_Source]:
    readings = {
        USAGE: [] if counted_only else [(each.step, each.cached_tokens) for each in answered],
        COUNTER: [(each.step, each.counted_tokens) for each in answered],
    }
    if any(each.counted_tokens is None for each in answered):
        # It began anew meanwhile: what it says of the others is of no use.
        readings[COUNTER] = []
    prompt = max((each.prompt_tokens or 0 for each in answered), default=0)
    # Some engines leave the name out where the number is 0: one that ever says a number means 0 where it says none.
    return [_source(name, read, prompt) for name, read in readings.items() if any(number is not None for _, number in read)]


def _source(name: str, readings: Sequence[tuple[Step, int | None]], prompt_tokens: int) -> _Source:
    tokens: dict[Role, dict[int, int]] = {role: {} for role in Role}
    for step, number in readings:
        tokens[step.role][step.trial] = number or 0
    cold = max(_cold(tokens), default=prompt_tokens)
    enough = cold + max(CHANCE_TOKENS + 1, prompt_tokens / 2)
    controls = frozenset(trial for trial, number in tokens[Role.AGAIN].items() if number >= enough)
    hits = frozenset(trial for trial, number in tokens[Role.OTHER].items() if number > cold + CHANCE_TOKENS)
    return _Source(name, tokens, cold, prompt_tokens, controls, hits)


def _cold(tokens: Mapping[Role, Mapping[int, int]]) -> list[int]:
    """What was found of prompts that nobody sent before: the owners' own, and those that close an experiment."""
    closing = [number for trial, number in tokens[Role.WARM_UP].items() if trial <= LAST_TRIAL]
    return [*tokens[Role.FIRST].values(), *closing]


def _believed(sources: Sequence[_Source], tries: int) -> list[_Source]:
    """What is believed where others may have used the engine."""
    told = [source for source in sources if source.name == USAGE and (source.hits or len(source.controls) == tries)]
    return told or [source for source in sources if source.name == USAGE or source.quiet(tries)]


def _evidence(observations: Sequence[Observation], sources: Sequence[_Source], tries: int) -> Evidence:
    by_role = {role: [each for each in observations if each.step.role is role] for role in Role}
    return Evidence(
        tries,
        min((len(source.controls) for source in sources), default=0),
        max((len(source.hits) for source in sources), default=0),
        max((each.prompt_tokens or 0 for each in observations), default=0),
        {role: max((source.most(role) for source in sources), default=0) for role in Role},
        tuple(source.name for source in sources),
        {role: tuple(sorted({each.status for each in found})) for role, found in by_role.items()},
        _refused(observations, by_role[Role.OTHER]),
        {role: median(each.seconds for each in found) for role, found in by_role.items() if found},
    )


def _refused(observations: Sequence[Observation], others: Sequence[Observation]) -> bool:
    groups = (others, *([each for each in observations if each.step.who == who] for who in range(2)))
    return any(group and all(each.status in REFUSALS for each in group) for group in groups)
