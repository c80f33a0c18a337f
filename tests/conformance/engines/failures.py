"""Which checks each engine must fail, from `failures.json`: by engine and profile, and strict in both directions.

An engine must fail each check that is named there, with the outcome that is named, and must pass every other one. An empty list
says that it passes as a whole; profiles that are not there are not run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from cachescope.api.documents import Strict
from cachescope.probe.conformance.checks import Outcome, Rule
from cachescope.probe.conformance.profiles import Profile

FILE = Path(__file__).with_name("failures.json")


class Check(BaseModel):
    """A line of a report, as far as it matters here.

    Attributes:
        rule: What it holds.
        detail: Which variant; empty for the plain one.
        route: Path, and ` streamed` behind it.
        found: The outcome.
        passed: Whether it is as the profile expects.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    rule: Rule
    detail: str
    route: str
    found: Outcome
    passed: bool


class Report(BaseModel):
    """A report's checks."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    checks: tuple[Check, ...]


class Failures(Strict):
    """Checks that must fail alike.

    Attributes:
        rule: What they hold.
        routes: Where, as reports name routes.
        details: Which variants; `None` for all.
        found: The outcome.
    """

    rule: Rule
    routes: tuple[str, ...]
    details: tuple[str, ...] | None = None
    found: Outcome

    def have(self, check: Check) -> bool:
        """Whether a check is one of these, whatever it found."""
        return check.rule is self.rule and check.route in self.routes and (self.details is None or check.detail in self.details)


Expected = Mapping[Profile, tuple[Failures, ...]]
_ALL = TypeAdapter(dict[str, dict[Profile, tuple[Failures, ...]]])


@cache
def expected() -> Mapping[str, Expected]:
    """What the file says, by the engines' labels.

    Raises:
        pydantic.ValidationError: It holds something else.
    """
    return _ALL.validate_json(FILE.read_bytes())


def differences(failures: tuple[Failures, ...], checks: tuple[Check, ...]) -> Iterator[str]:
    """One sentence for each check that did not end as expected, and for each expectation of which nothing was checked."""
    for check in checks:
        musts = {failure.found for failure in failures if failure.have(check)}
        if musts != (set() if check.passed else {check.found}):
            must = f"must fail as {' and '.join(sorted(musts))}" if musts else "must pass"
            yield f"{_name(check)} {must}, and {'passed' if check.passed else 'failed'} as {check.found}"
    for failure in failures:
        yield from (f"nothing was checked of {line}" for line in _unchecked(failure, checks))


def _unchecked(failure: Failures, checks: tuple[Check, ...]) -> Iterator[str]:
    checked = {(check.route, check.detail) for check in checks if failure.have(check)}
    for route in failure.routes:
        missing = [detail for detail in failure.details or () if (route, detail) not in checked]
        if missing or route not in {where for where, _ in checked}:
            yield f"{route}: {failure.rule} ({', '.join(missing) or 'any'})"


def _name(check: Check) -> str:
    return f"{check.route or 'the engine'}: {check.rule}{f' ({check.detail})' if check.detail else ''}"
