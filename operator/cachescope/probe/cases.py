"""One experiment: two identities, one route, and the order in which they send prompts that nobody sent before.

A trial has three requests for one prompt. Its owner sends it, which is cold, and sends it again, which must be found: that is the
positive control. The other one sends it too, which must not be found. Who is the owner takes turns, so that both directions are
tried, and the trials of an experiment are interleaved in an order that the seed decides. Before them each of the two sends a prompt
of his own, so that what a template puts before every prompt is in the cache of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from cachescope.engines.routes import Dialect
from cachescope.probe.places import Place
from cachescope.probe.prompts import rank

LAST_TRIAL: Final = -3
"""From here down are the trials of the requests that close an experiment: cold ones, as warm-ups are."""
NOTHING: Mapping[str, object] = MappingProxyType({})


class Role(StrEnum):
    """What a request is for."""

    WARM_UP = "warm-up"
    FIRST = "first"
    AGAIN = "again"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody who sends.

    Attributes:
        headers: Headers that say who he is, such as a credential; engines without a gateway need none.
        fields: Fields of the body that do, such as a salt.
        secret: What somebody else would choose in order to be taken for him.
    """

    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    fields: Mapping[str, object] = field(default_factory=lambda: NOTHING, repr=False)
    secret: str = field(default="agreed", repr=False)


@dataclass(frozen=True, slots=True)
class Asking:
    """How a question is asked.

    Attributes:
        path: The route.
        dialect: Its request shape.
        streamed: Whether the answer is streamed.
        fields: What everybody's body holds besides.
        of_other: What the other's body alone holds besides.
    """

    path: str
    dialect: Dialect
    streamed: bool = False
    fields: Mapping[str, object] = field(default_factory=lambda: NOTHING)
    of_other: Mapping[str, object] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True)
class Case:
    """One experiment.

    Attributes:
        name: Names it among the experiments of a run; its prompts follow from it.
        asking: How each question is asked.
        identities: The two.
        chosen: Where the other puts the owner's secret, to be taken for him; nowhere if everybody is honest.
        counted_only: Whether usage says nothing here, as where one request makes several answers that share among themselves.
    """

    name: str
    asking: Asking
    identities: tuple[Identity, Identity]
    chosen: tuple[Place, ...] = ()
    counted_only: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One request of an experiment.

    Attributes:
        trial: Its trial, from 0; a warm-up has a negative number of its own.
        role: What it is for.
        who: Which of the two identities sends it.
        owner: Which of them is the trial's owner.
    """

    trial: int
    role: Role
    who: int
    owner: int

    @property
    def agreed(self) -> bool:
        """Whether the owner chooses too, as two clients can agree to: in every second trial, and in four in both directions."""
        return (self.trial + self.trial // 2) % 2 == 1


def plan(case: Case, tries: int, *, seed: str, closing: bool = False) -> tuple[Step, ...]:
    """The requests of an experiment, in order.

    Args:
        case: The experiment.
        tries: How many trials; from two on, both directions are tried.
        seed: Decides the order.
        closing: Whether each of the two ends with a prompt of his own, so that what rises all the time is seen to.

    Raises:
        ValueError: There is no trial.
    """
    if tries < 1:
        raise ValueError(f"{tries} tries show nothing; ask for at least 1")
    ranked = [pair for trial in range(tries) for pair in _trial(case, trial, seed)]
    warm_ups = (Step(-1 - who, Role.WARM_UP, who, who) for who in range(2))
    last = (Step(LAST_TRIAL - who, Role.WARM_UP, who, who) for who in range(2) if closing)
    return (*warm_ups, *(step for _, step in sorted(ranked, key=lambda pair: pair[0])), *last)


def _trial(case: Case, trial: int, seed: str) -> list[tuple[bytes, Step]]:
    """The three steps with their ranks: the owner's first one is before the others, whose own order is open."""
    owner = trial % 2
    steps = (Step(trial, Role.AGAIN, owner, owner), Step(trial, Role.OTHER, 1 - owner, owner))
    first, *later = sorted(rank(seed, f"{case.name} {trial} {place}") for place in range(3))
    if rank(seed, f"{case.name} {trial} order")[0] % 2:
        later.reverse()
    return [(first, Step(trial, Role.FIRST, owner, owner)), *zip(later, steps, strict=True)]
