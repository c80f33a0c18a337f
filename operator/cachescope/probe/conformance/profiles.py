"""Profiles: what an engine must do to be used in one way.

| profile | what it says |
| --- | --- |
| `Salted` | one process may serve many tenants: on every route that it serves, each salt has a cache of its own |
| `PerTenant` | one process may serve one tenant: a prefix is found again, and a salt keeps nothing apart |

`PerTenant` is an expectation of a leak, and strict: an engine that keeps salts apart after all does not pass, for the catalogue is
then wrong about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType

from cachescope.engines.routes import Dialect
from cachescope.probe.cases import Asking, Case, Identity
from cachescope.probe.conformance import salts
from cachescope.probe.conformance.checks import Experiment, Outcome, Refusal, Rule, route
from cachescope.probe.conformance.salts import Pair
from cachescope.probe.places import FIELDS, HEADERS, PLACES, SALT, Place

Check = Experiment | Refusal

ISOLATED = frozenset({Outcome.ISOLATED})
ISOLATED_OR_REFUSED = frozenset({Outcome.ISOLATED, Outcome.REFUSED})
LEAKS = frozenset({Outcome.LEAKS})
FEW = 2
"""Trials of a variant: both directions, and a choice both alone and agreed."""

# Several answers are sampled: an engine may refuse to make the same one twice.
TWO_ANSWERS: Mapping[str, object] = MappingProxyType({"n": 2, "temperature": 1})
_ONE_BY_ONE: Mapping[str, tuple[Place, ...]] = MappingProxyType({str(place): (place,) for place in PLACES})
_AT_ONCE: Mapping[str, tuple[Place, ...]] = MappingProxyType({"all headers": HEADERS, "all fields": FIELDS})
_LOGPROBS: Mapping[Dialect, Mapping[str, object]] = MappingProxyType(
    {Dialect.CHAT: {"logprobs": True, "top_logprobs": 1}, Dialect.COMPLETION: {"logprobs": 1}}
)


class Profile(StrEnum):
    """A way to use an engine."""

    SALTED = "Salted"
    PER_TENANT = "PerTenant"

    def identity(self, seed: str) -> Identity:
        """Somebody, as this profile has them."""
        return salts.plain(seed).identities[0] if self is Profile.SALTED else salts.NOBODY[0]

    def checks(self, askings: tuple[Asking, ...], seed: str) -> Iterator[Check]:
        """The checks for an engine that serves these."""
        for asking in askings:
            yield from _salted(asking, seed) if self is Profile.SALTED else _per_tenant(asking, seed)


def _salted(asking: Asking, seed: str) -> Iterator[Check]:
    plain = salts.plain(seed)
    yield _experiment(Rule.SEPARATES, "", asking, plain)
    if not asking.streamed:
        # How salts are compared is not a matter of how the answer travels.
        yield from (_experiment(Rule.NEAR, pair.name, asking, pair, tries=FEW) for pair in salts.near(seed))
    for name, places in (_AT_ONCE if asking.streamed else _ONE_BY_ONE).items():
        yield _experiment(Rule.CHOSEN, name, asking, plain, chosen=places, tries=FEW)
    if asking.dialect in _LOGPROBS:
        yield _experiment(Rule.ANSWERS, "n=2", replace(asking, fields=TWO_ANSWERS), plain, tries=FEW)
        yield _experiment(Rule.LOGPROBS, "", replace(asking, fields=_LOGPROBS[asking.dialect]), plain, tries=FEW)
    for name, value in salts.NO_SALTS.items():
        yield Refusal(Rule.LIMITS, name, replace(asking, fields={SALT.name: value}))


def _per_tenant(asking: Asking, seed: str) -> Iterator[Check]:
    yield Experiment(Rule.REUSE, "", _case(Rule.REUSE, "", asking, salts.NOBODY), LEAKS, controlled=True)
    pair = salts.plain(seed)
    yield Experiment(Rule.UNSALTED, "", _case(Rule.UNSALTED, "", asking, pair.identities), LEAKS, controlled=True)


def _experiment(
    rule: Rule, detail: str, asking: Asking, pair: Pair, *, chosen: tuple[Place, ...] = (), tries: int | None = None
) -> Experiment:
    case = replace(_case(rule, detail, asking, pair.identities), chosen=chosen, counted_only=rule is Rule.ANSWERS)
    return Experiment(rule, detail, case, ISOLATED if rule is Rule.SEPARATES else ISOLATED_OR_REFUSED, tries)


def _case(rule: Rule, detail: str, asking: Asking, identities: tuple[Identity, Identity]) -> Case:
    return Case(f"{route(asking)}: {rule} {detail}", asking, identities)
