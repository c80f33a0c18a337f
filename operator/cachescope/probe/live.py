"""What is asked of one process of a live pool, through its gateway, and what that shows.

Rules:

- each route that clients may reach is asked, whole and streamed, by two tenants that are nobody's, in both directions;
- the two also have salts that an engine could take for one and the same, choose a cache as far as anybody lets them, and ask for
  several answers: what clients may do is done;
- a route that the engine does not serve is passed over: nobody reuses anything there;
- the first leak ends the run, as there is nothing left to show; so does a request that is not answered, as it shows nothing;
- a route is proven when every experiment on it has shown that nobody but the owner found a prompt; requests for several answers,
  whose usage counts what they share among themselves, are shown apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from cachescope.core.probes import SEVERAL, Pair, several
from cachescope.engines.routes import Dialect, Route
from cachescope.probe.cases import Asking, Case, Identity
from cachescope.probe.conformance.checks import Outcome, outcome_of, route
from cachescope.probe.conformance.profiles import TWO_ANSWERS
from cachescope.probe.judgement import COUNTER, Judgement, Verdict
from cachescope.probe.places import FIELDS, HEADERS, SALT, Place
from cachescope.probe.questions import DIALECTS, STREAMED, Question, body
from cachescope.probe.running import Ask, Prober

TRIES: Final = 2
"""Of each experiment: both directions."""
TRIES_OF_COUNTER: Final = 8
"""Of one that the engine's counter alone shows to leak: others, who are counted too, would have to be so in each."""
_SEVERAL_OF: Final = frozenset({Dialect.CHAT, Dialect.COMPLETION})
_NOT_SERVED: Final = frozenset({400, 404, 405, 422, 501})
_CHOSEN: Final[Mapping[str, tuple[Place, ...]]] = MappingProxyType({
    "chosen salt": (SALT,), "chosen fields": FIELDS, "chosen headers": HEADERS,
})  # fmt: skip
_SIMILAR: Final = (Pair.FIRST, Pair.LAST, Pair.CASE)

Identities = Callable[[Pair], tuple[Identity, Identity]]
"""Gives the two probers of a pair, with the headers that say who they are."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one experiment showed.

    Attributes:
        path: The route.
        variant: What was special; empty for a plain request.
        judgement: What it showed.
    """

    path: str
    variant: str
    judgement: Judgement

    @property
    def way(self) -> str:
        """What it is an experiment on, as proofs name it."""
        return several(self.path) if self.variant == SEVERAL else self.path

    @property
    def outcome(self) -> Outcome:
        """Its verdict; a request that is refused for what it says chooses nothing."""
        return outcome_of(self.judgement)

    @property
    def holds(self) -> bool:
        """Whether the route may be proven with it."""
        return self.outcome is Outcome.ISOLATED or (self.outcome is Outcome.REFUSED and self.variant != "")


@dataclass(frozen=True, slots=True)
class Shown:
    """What a run showed.

    Attributes:
        findings: Of each experiment, in order.
        fault: Why it ended before all were made; empty where it did not, or where it ended with a leak.
    """

    findings: Sequence[Finding] = ()
    fault: str = ""

    @property
    def leak(self) -> Finding | None:
        """The leak, if there is one."""
        return next((item for item in self.findings if item.outcome is Outcome.LEAKS), None)

    @property
    def proven(self) -> frozenset[str]:
        """What is proven: paths, and those of `several`; nothing where a run did not come to its end."""
        if self.fault or self.leak:
            return frozenset()
        ways = {item.way for item in self.findings} - {item.way for item in self.unproven}
        # Whoever asks for several answers asks for one, too.
        return frozenset(item.way for item in self.findings if item.way in ways and item.path in ways)

    @property
    def undecided(self) -> frozenset[str]:
        """What was neither proven nor shown otherwise: the engine did not tell, or others were counted too."""
        left = self.unproven
        shown = {item.way for item in left if item.outcome is not Outcome.NO_EVIDENCE}
        return frozenset(item.way for item in left) - shown

    @property
    def unproven(self) -> Sequence[Finding]:
        """What kept routes from being proven."""
        return [item for item in self.findings if not item.holds]


@dataclass(frozen=True, slots=True)
class _Check:
    """An experiment, and what is special in it."""

    variant: str
    case: Case


async def examine(ask: Ask, routes: Iterable[Route], identities: Identities, *, model: str, seed: str) -> Shown:
    """Ask a process, and say what it showed.

    Args:
        ask: Sends one question to it, through a gateway.
        routes: Routes that clients may reach.
        identities: Who asks.
        model: The model that is asked for.
        seed: Prompts and order follow from it; another run needs another one.
    """
    prober = Prober(ask, model, seed, TRIES, among_others=True)
    served, fault = await _served(prober, [item for item in routes if item.salt and item.dialect in DIALECTS], identities)
    findings: list[Finding] = []
    for check in () if fault else _checks(served, identities):
        found = Finding(check.case.asking.path, check.variant, await _shown(prober, check.case))
        findings.append(found)
        if found.outcome in (Outcome.LEAKS, Outcome.FAILED):
            fault = f"{route(check.case.asking)}: {found.judgement.why}" if found.outcome is Outcome.FAILED else ""
            break
    return Shown(findings, fault)


async def _served(prober: Prober, routes: Sequence[Route], identities: Identities) -> tuple[list[Asking], str]:
    """Ways to ask that are answered; and why a run cannot begin, or nothing."""
    who, found = identities(Pair.TENANTS)[0], []
    for item in routes:
        whole = Asking(item.path, item.dialect)
        for asking in (whole, replace(whole, streamed=True)) if item.dialect in STREAMED else (whole,):
            status = await _status(prober, asking, who)
            if status == 200:
                found.append(asking)
            elif status not in _NOT_SERVED:
                return [], f"{route(asking)}: a request was answered with {status or 'nothing'}"
    return found, "" if found else "no route that reaches the cache is served"


async def _status(prober: Prober, asking: Asking, who: Identity) -> int:
    asked = body(asking.dialect, prober.model, "hello", streamed=asking.streamed)
    return (await prober.ask(Question(asking.path, who.headers, asked))).outcome


async def _shown(prober: Prober, case: Case) -> Judgement:
    """What an experiment shows; a leak that the engine's counter alone shows has to be shown again, more often than by chance."""
    judged = await prober.experiment(case)
    # Usage that shows a leak is asked alone: beside it the counter is only where usage shows none.
    if judged.verdict is not Verdict.LEAKS or COUNTER not in judged.evidence.sources:
        return judged
    return await prober.experiment(replace(case, name=f"{case.name} again"), tries=TRIES_OF_COUNTER, closing=True)


def _checks(askings: Sequence[Asking], identities: Identities) -> Iterator[_Check]:
    for asking in askings:
        yield _check(asking, "streamed" if asking.streamed else "", identities(Pair.TENANTS))
    # How salts are compared, and what a client can choose, is not a matter of the route.
    first = askings[0]
    for pair in _SIMILAR:
        yield _check(first, pair.value, identities(pair))
    for name, places in _CHOSEN.items():
        yield _check(first, name, identities(Pair.TENANTS), chosen=places)
    for asking in askings:
        if asking.dialect in _SEVERAL_OF and not asking.streamed:
            yield _check(replace(asking, fields=TWO_ANSWERS), SEVERAL, identities(Pair.TENANTS), counted_only=True)


def _check(
    asking: Asking, variant: str, who: tuple[Identity, Identity], *, chosen: tuple[Place, ...] = (), counted_only: bool = False
) -> _Check:
    return _Check(variant, Case(f"{asking.path} {variant}", asking, who, chosen, counted_only))
