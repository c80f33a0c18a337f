"""Does an operator work: from the Lease that it renews. Without one every status is what it was when the last one ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from cachescope.controller.options import LEASE_NAME

CLOCK_SKEW = timedelta(seconds=30)
"""How far the clocks of this machine and the operator's may be apart; a Lease holds the time of who wrote it."""
LEASES = ("coordination.k8s.io/v1", "leases")

__all__ = ["CLOCK_SKEW", "LEASES", "LEASE_NAME", "age", "silent", "warning"]


def age(lease: Mapping[str, Any], now: datetime) -> timedelta | None:
    """How long ago a Lease was renewed, or `None` when it never was."""
    renewed = (lease.get("spec") or {}).get("renewTime")
    return now - datetime.fromisoformat(renewed) if renewed else None


def silent(lease: Mapping[str, Any], now: datetime) -> bool:
    """Whether nobody renews a Lease."""
    found = age(lease, now)
    duration = timedelta(seconds=(lease.get("spec") or {}).get("leaseDurationSeconds") or 15)
    return found is None or found > duration + CLOCK_SKEW


def warning(leases: Sequence[Mapping[str, Any]], namespace: str | None, now: datetime) -> str:
    """What to say beside statuses that may be old; empty when an operator works.

    Args:
        leases: The operators' Leases that can be seen.
        namespace: Where the pools are; a Lease of theirs decides before one of an operator that serves all namespaces.
        now: The time.
    """
    own = [lease for lease in leases if lease["metadata"]["namespace"] == namespace]
    looked = own or leases
    if any(not silent(lease, now) for lease in looked):
        return ""
    ages = [found for lease in looked if (found := age(lease, now)) is not None]
    if not ages:
        return "no operator has ever worked here: nothing brings these statuses up to date; see `kubectl cachescope doctor`"
    seconds = int(min(ages).total_seconds())
    return f"no operator works: its Lease was last renewed {seconds} s ago, and this is of then; see `kubectl cachescope doctor`"
