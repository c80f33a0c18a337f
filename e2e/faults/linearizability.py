"""Whether a history is one of a system in which exactly one of revoke and use wins.

The system that is meant: a request is admitted at one moment between its sending and its arrival in an engine. Whoever admits it
takes every revocation over at one moment between its being asked for and its fence. Then:

- what was admitted before a revocation was taken over hands no message over afterwards (a message is handed over between its making
  and its coming);
- after a denial was taken over nobody is admitted, until a readmission is;
- what is found of a prefix was kept by a request of the same tenant that was scheduled no later and saw the same revocations, since
  each one makes a new generation of salts;
- nobody is refused for a revocation that nobody asked for yet.

A history is good if all these moments can be chosen. What a request *saw* is the set of revocations that were taken over before it
was admitted; requests are independent of each other but for the prefixes that they share, so the search is a short one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, product

from e2e.faults.history import EVERYONE, History, Kind, Revocation, Use

Seen = frozenset[int]
"""Places, in the history, of the revocations that a request saw."""

REVOKED = "revoked"
FOR_EVER = 1 << 53
OF_REVOCATIONS = frozenset({REVOKED, "permit_behind", "permit_of_another_lineage", "reuse_bypassed", "public_sharing_stopped"})
"""Codes of refusals that say that something was revoked."""


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that the system that is meant never does.

    Attributes:
        rule: Which rule was broken.
        use: By what.
    """

    rule: str
    use: Use


def violations(history: History) -> tuple[Violation, ...]:
    """What cannot be explained; empty for a good history."""
    found = [Violation(rule, use) for use in history.uses if (rule := _alone(history, use))]
    return (*found, *_reuse(history))


def reused_since(history: History, ms: int) -> int:
    """How many requests that were sent since then found something in the cache: the positive control."""
    return sum(use.invoke_ms >= ms and use.cached_tokens > 0 for use in history.uses)


def explanations(history: History, use: Use) -> frozenset[Seen]:
    """What a request may have seen if it was admitted; empty when nothing explains its messages."""
    concerned = list(_concerned(history, use))
    last = max((message.made_ms for message in use.messages), default=use.invoke_ms)
    return frozenset(
        seen
        for moment in _moments(concerned, use.invoke_ms, _admitted_by(use))
        for seen in _choices(concerned, moment, last)
        if not denied(history, seen)
    )


def denied(history: History, seen: Iterable[int]) -> bool:
    """Whether who saw this is refused."""
    kinds = [history.revocations[place].kind for place in sorted(seen)]
    return any(kind is Kind.DENY and Kind.READMIT not in kinds[place:] for place, kind in enumerate(kinds))


def _alone(history: History, use: Use) -> str:
    """The rule that a request breaks by itself."""
    if use.messages and not explanations(history, use):
        return "used or admitted after the fence"
    if use.outcome in OF_REVOCATIONS and not _refusal_explained(history, use):
        return f"refused as {use.outcome} although nothing was revoked"
    return ""


def _refusal_explained(history: History, use: Use) -> bool:
    concerned = list(_concerned(history, use))
    end = use.end_ms if use.end_ms is not None else use.invoke_ms
    if use.outcome != REVOKED:
        return any(revocation.invoke_ms <= end for _, revocation in concerned)
    moments = _moments(concerned, use.invoke_ms, end)
    return any(denied(history, seen) for moment in moments for seen in _choices(concerned, moment, use.invoke_ms))


def _admitted_by(use: Use) -> int:
    """Until when a request was admitted, if it was; of one that vanished nobody knows."""
    known = [moment for moment in (use.arrived_ms, use.end_ms) if moment is not None]
    return known[0] if known else FOR_EVER


def _concerned(history: History, use: Use) -> Iterator[tuple[int, Revocation]]:
    for place, revocation in enumerate(history.revocations):
        if revocation.subject in {EVERYONE, use.who}:
            yield place, revocation


def _moments(concerned: Sequence[tuple[int, Revocation]], first: int, last: int) -> set[int]:
    """Moments of admission that are enough to try: what is possible only changes at these."""
    ends = {moment for _, item in concerned for moment in (item.invoke_ms, item.fenced_ms) if moment is not None}
    return {first, last} | {moment for moment in ends if first <= moment <= last}


def _choices(concerned: Sequence[tuple[int, Revocation]], moment: int, last_made: int) -> Iterator[Seen]:
    """What somebody admitted at a moment may have seen, if the last message was made then."""
    options: list[list[tuple[int, ...]]] = []
    for place, revocation in concerned:
        unseen = revocation.fenced_ms is None or max(moment, last_made) <= revocation.fenced_ms
        seen = moment >= revocation.invoke_ms
        options.append([*([()] if unseen else []), *([(place,)] if seen else [])])
    for choice in product(*options):
        yield frozenset(place for part in choice for place in part)


def _reuse(history: History) -> Iterator[Violation]:
    """Reuse that no earlier request of the same tenant and generation explains."""
    for _, group in groupby(sorted(history.uses, key=_by_prefix), key=lambda use: (use.who, use.prefix)):
        yield from _reuse_of(history, list(group))


def _by_prefix(use: Use) -> tuple[str, str, int, bool]:
    """Of those that were scheduled in the same millisecond, whoever found nothing came first."""
    return use.who, use.prefix, use.invoke_ms if use.scheduled_ms is None else use.scheduled_ms, use.cached_tokens > 0


def _reuse_of(history: History, uses: Sequence[Use]) -> Iterator[Violation]:
    kept: set[frozenset[Seen]] = {frozenset()}  # sets of generations in which the prefix may be there by now
    for use in uses:
        options = explanations(history, use)
        after = {before | {seen} for before in kept for seen in options if not use.cached_tokens or seen in before}
        if not use.messages:
            kept |= after  # it may have been cut after its prefix was kept, or never have been admitted
        elif after:
            kept = after
        elif options:
            yield Violation("found what was cached before the fence, or by another tenant", use)
