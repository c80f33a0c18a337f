"""How facts of the catalogue are known, and what releases do.

Rules:

- every fact says where it comes from, and how well it is known;
- only what was read in the source or documentation of a named release can be `Enforced`;
- what a version does is a list of steps, ascending: the last one at or below the version holds, and before the first one there was
  nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Self

from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field, model_validator

from cachescope.api.documents import Strict
from cachescope.engines.routes import Capability


class Basis(StrEnum):
    """How well a fact is known."""

    READ = "Read"
    """In the source or the documentation of the version that it names."""
    TRIED = "Tried"
    """Seen on a running engine of the version that it names."""
    REPORTED = "Reported"
    """In an issue, a pull request or a paper; nobody here repeated it."""
    DEDUCED = "Deduced"
    """From facts that were read."""


def _final(text: str) -> str:
    """Refuse what is no final release."""
    try:
        parsed = Version(text)
    except InvalidVersion as error:
        raise ValueError(f"{text!r} is no version") from error
    if parsed.is_prerelease or parsed.local or parsed.epoch:
        raise ValueError(f"{text} is no final release")
    return text


Release = Annotated[str, AfterValidator(_final)]
Text = Annotated[str, Field(min_length=1)]


class Evidence(Strict):
    """Where a fact comes from."""

    basis: Basis
    source: Text


class Judgement(Evidence):
    """What something does with a salt. `why` follows the subject of a sentence."""

    capability: Capability
    why: Text

    @model_validator(mode="after")
    def _only_what_was_read_enforces(self) -> Self:
        if self.capability is Capability.ENFORCED and self.basis is not Basis.READ:
            raise ValueError(f"{self.basis.value} facts enforce nothing; read the source, or write Unknown")
        return self


class Step(Judgement):
    """What holds from a release on, until the next step."""

    since: Release


def ascending(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps, in the order that they must have."""
    if any(Version(first.since) >= Version(second.since) for first, second in pairwise(steps)):
        raise ValueError("steps are ascending, one for each release")
    return steps


Steps = Annotated[tuple[Step, ...], Field(min_length=1), AfterValidator(ascending)]


def enforcing(steps: Sequence[Step]) -> bool:
    """Whether there is a release that enforces."""
    return any(step.capability is Capability.ENFORCED for step in steps)
