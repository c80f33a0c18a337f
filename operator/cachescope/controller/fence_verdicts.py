"""What a fence is called in conditions."""

from __future__ import annotations

from collections.abc import Sequence

from cachescope.api.conditions import ConditionType, Reason
from cachescope.controller.fences import Fence
from cachescope.controller.verdicts import Verdict
from cachescope.core.fences import Counts


def fence_verdict(fences: Sequence[Fence | None]) -> Verdict:
    """Whether nothing older can be used any more, by the fences of all ledgers concerned."""
    known = [item for item in fences if item is not None]
    if len(known) < len(fences) or not known:
        return Verdict(ConditionType.FENCED, "False", Reason.NOT_WRITTEN, "the ledger has not announced it yet")
    open_ones = [item for item in known if item.fenced_ms is None]
    if not open_ones:
        return _complete(known)
    awaited = sorted({name for item in open_ones for name in item.progress.awaited})
    if not awaited:
        message = "all processes acknowledged; waiting until what may have been missed does not matter any more"
        if any(item.progress.clear for item in open_ones):
            message = "nobody issues what is older any more; waiting until what guards without a right may have let in is over"
        return Verdict(ConditionType.FENCED, "False", Reason.SETTLING, message)
    message = f"waiting for FenceLeases, {named(awaited)}. Who is silent counts as expired once its right has ended"
    return Verdict(ConditionType.FENCED, "False", Reason.WAITING_FOR_PROCESSES, message)


def _complete(fences: Sequence[Fence]) -> Verdict:
    expired = sum(item.progress.guards.expired + counted_gateways(item).expired for item in fences)
    if not expired:
        return Verdict(ConditionType.FENCED, "True", Reason.ACKNOWLEDGED, "every process that may act acknowledged it")
    who = "one process was not heard of for longer than its right lasts"
    if expired > 1:
        who = f"{expired} processes were not heard of for longer than their rights last"
    message = f"{who}; all others acknowledged it"
    return Verdict(ConditionType.FENCED, "True", Reason.EXPIRED, message)


def named(awaited: Sequence[str]) -> str:
    """Some of the leases that are waited for, and how all are found: their names say little to people."""
    return f"among them: {', '.join(awaited)}; `kubectl get fenceleases -A` shows their pods"


def counted_gateways(fence: Fence) -> Counts:
    """Gateways, where a fence waits for them."""
    return Counts() if fence.wanted.pool else fence.progress.gateways
