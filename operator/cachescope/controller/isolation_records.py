"""What the probe has shown of a pool, as its status keeps it: values in, values out.

Rules:

- a proof is of one process, by its guard's boot id; a process that is gone takes its proof along;
- a process that leaked is never proven; where it was before, all proofs of the pool go with it, since what was shown of the others
  was shown in the same way;
- a run that showed nothing takes nothing: what was shown of that very process holds;
- a run that showed less than the one before takes the rest, but for what it could not tell: a counter counts for others too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from cachescope.api.statuses import IsolationProof, IsolationStatus, ProbedRoute
from cachescope.probe.live import Finding, Shown

MOST_SHOWN = 64


def read_record(status: Mapping[str, Any] | None) -> IsolationStatus:
    """The record in a ServingPool's status; an empty one where there is none that can be read."""
    try:
        return IsolationStatus.model_validate((status or {}).get("isolation") or {})
    except ValidationError:
        return IsolationStatus()


def proven(record: IsolationStatus) -> dict[str, frozenset[str]]:
    """Proven paths by boot id."""
    return {boot: frozenset(proof.routes) for proof in record.proofs for boot in proof.boots}


def without(record: IsolationStatus, boot_id: str) -> IsolationStatus:
    """The record where nothing is known of a process any more."""
    return record.model_copy(update={"proofs": _proofs({boot: paths for boot, paths in proven(record).items() if boot != boot_id})})


@dataclass(frozen=True, slots=True)
class Processes:
    """Boot ids of a pool's guards.

    Attributes:
        known: Of those that are known by their leases.
        serving: Of those that are to be proven.
    """

    known: Collection[str]
    serving: Collection[str]


def after(record: IsolationStatus, boot_id: str, shown: Shown, *, now: datetime, there: Processes) -> IsolationStatus:
    """The record after a run that ended without a leak.

    Args:
        record: Before it.
        boot_id: Of the process that was asked.
        shown: What it showed.
        now: The time of day.
        there: The pool's processes.
    """
    kept = {boot: paths for boot, paths in proven(record).items() if boot in there.known}
    if shown.fault:
        return record.model_copy(update={"proofs": _proofs(kept), "fault": shown.fault, "last": _last(shown)})
    kept[boot_id] = shown.proven | (shown.undecided & kept.get(boot_id, frozenset()))
    kept = {boot: paths for boot, paths in kept.items() if paths and boot not in record.leaked}
    changes: dict[str, Any] = {"proofs": _proofs(kept), "last": _last(shown), "fault": ""}
    if shown.proven:
        changes["verified_at"] = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    # One process that keeps tenants apart says nothing of a leak of another one: that is over once all that serve do.
    # And never before its incident is declared.
    if shown.proven and record.incident and set(there.serving) <= kept.keys():
        changes |= {"leak": "", "incident": ""}
    return record.model_copy(update={**changes, "leaked": _known(record.leaked, there)})


@dataclass(frozen=True, slots=True)
class Leak:
    """A leak that a run found.

    Attributes:
        boot_id: Of the process.
        pod: Name of its pod.
        incident: Id of the incident that it became; empty while nobody declared it.
    """

    boot_id: str
    pod: str
    incident: str


def leaked(record: IsolationStatus, leak: Leak, found: Finding, shown: Shown, *, there: Processes) -> IsolationStatus:
    """The record after a run that found a leak.

    Args:
        record: Before it.
        leak: Whose.
        found: What it showed.
        shown: What else it showed.
        there: The pool's processes.
    """
    what = f"{found.path}{f' ({found.variant})' if found.variant else ''} of {leak.pod}: {found.judgement.why}"
    changes = {
        "proofs": () if leak.boot_id in proven(record) else record.proofs,
        "leaked": _known((*record.leaked, leak.boot_id), there),
        "last": _last(shown),
        "fault": "",
        "leak": what,
        "incident": leak.incident,
    }
    return record.model_copy(update=changes)


def _known(boots: Sequence[str], there: Processes) -> tuple[str, ...]:
    return tuple(sorted(set(boots) & set(there.known)))


def _last(shown: Shown) -> tuple[ProbedRoute, ...]:
    return tuple(_route(item) for item in shown.findings[:MOST_SHOWN])


def _route(item: Finding) -> ProbedRoute:
    evidence = item.judgement.evidence
    return ProbedRoute(route=item.path, variant=item.variant, found=item.outcome.value, tries=evidence.tries, hits=evidence.hits)


def _proofs(kept: Mapping[str, frozenset[str]]) -> tuple[IsolationProof, ...]:
    """By what was shown: of a thousand processes that is mostly the same."""
    boots: defaultdict[Sequence[str], list[str]] = defaultdict(list)
    for boot, paths in sorted(kept.items()):
        boots[tuple(sorted(paths))].append(boot)
    return tuple(IsolationProof(routes=tuple(paths), boots=tuple(found)) for paths, found in sorted(boots.items()))
