"""What the probe has shown of a pool, as its status keeps it: values in, values out.

Rules:

- a proof is of one process, by its guard's boot id; a process that is gone takes its proof along;
- a leak takes all proofs of the pool, whichever process leaked: they are of one engine;
- a run that showed nothing takes nothing: what was shown of that very process holds;
- a run that showed less than the one before takes the rest.
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
    kept = {boot: paths for boot, paths in {**kept, boot_id: shown.proven}.items() if paths}
    changes: dict[str, Any] = {"proofs": _proofs(kept), "last": _last(shown), "fault": ""}
    if shown.proven:
        changes["verified_at"] = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    # One process that keeps tenants apart says nothing of a leak of another one: that is over once all do.
    if shown.proven and set(there.serving) <= kept.keys():
        changes |= {"leak": "", "incident": ""}
    return record.model_copy(update=changes)


def leaked(record: IsolationStatus, leak: Finding, shown: Shown, *, pod: str, incident: str) -> IsolationStatus:
    """The record after a run that found a leak.

    Args:
        record: Before it.
        leak: The leak.
        shown: What else it showed.
        pod: Name of the pod that was asked.
        incident: Id of the incident that it became.
    """
    what = f"{leak.path}{f' ({leak.variant})' if leak.variant else ''} of {pod}: {leak.judgement.why}"
    return record.model_copy(update={"proofs": (), "last": _last(shown), "fault": "", "leak": what, "incident": incident})


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
