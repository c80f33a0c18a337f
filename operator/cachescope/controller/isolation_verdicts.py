"""Whether it was shown that a pool keeps its tenants apart: what was observed in, one verdict out."""

from __future__ import annotations

from cachescope.api.conditions import ConditionType, Reason, State
from cachescope.controller.isolation_records import proven
from cachescope.controller.observed_pools import Observed
from cachescope.controller.verdicts import Verdict
from cachescope.core.probes import SEVERAL, several
from cachescope.engines.facts import Mode
from cachescope.engines.pool_modes import choice_of

_RESUME = "replace the engine, then set spec.sharing.resumeAfter to it"


def isolation_verdicts(seen: Observed) -> list[Verdict]:
    """The verdict; nothing of a pool without a mode."""
    if seen.pool.spec.dedicated_to is not None:
        return [one_cache_per_pod()]
    mode = choice_of(seen.pool).mode if seen.readable else None
    if mode is Mode.DISABLED:
        return [_said("True", Reason.REUSE_OFF, "nothing is reused, in any request")]
    return [_of_shared(seen)] if mode is Mode.SHARED else []


def one_cache_per_pod() -> Verdict:
    """Of engines that one tenant has for himself."""
    message = "each engine pod has one cache, of one identity of one tenant, and its guard takes no other requests"
    return _said("True", Reason.ONE_CACHE_PER_POD, message)


def leak_of(seen: Observed) -> str:
    """What leaked, and what to do; empty for nothing."""
    record = seen.isolation
    if record is None or not record.leak:
        return ""
    found = f"the probe found a leak at {record.leak}. That process serves nothing"
    if not record.incident:
        return f"{found}; its incident could not be declared yet: see the operator's log"
    return f"{found}, and all reuse of the pool is off by the incident {record.incident}; {_RESUME}"


def _of_shared(seen: Observed) -> Verdict:
    if leak := leak_of(seen):
        return _said("False", Reason.LEAK, leak)
    boots = {item.statement.boot_id for item in seen.ready_guards if item.statement}
    if not boots:
        return _said("Unknown", Reason.NO_READY_POD, "there is no engine process to probe")
    return _of_processes(seen, boots)


def _of_processes(seen: Observed, boots: set[str]) -> Verdict:
    record = seen.isolation
    shown = proven(record) if record else {}
    verified = boots & shown.keys()
    if record is None or not verified:
        return _of_none(seen)
    paths = sorted(frozenset.intersection(*(shown[boot] for boot in verified)))
    where, when = ", ".join(path for path in paths if not path.endswith(SEVERAL)), record.verified_at
    what = f"{len(verified)} of {len(boots)} engine processes keep tenants apart on {where}, last shown {when}"
    if len(verified) < len(boots):
        why = f": {record.fault}" if record.fault else ""
        return _said("False", Reason.PARTLY_VERIFIED, f"{what}; the others reuse nothing before they were{why}")
    return _said("True", Reason.VERIFIED, f"{what}{_left(seen, paths)}")


def _of_none(seen: Observed) -> Verdict:
    record = seen.isolation
    if seen.other_version:
        return _said("False", Reason.OTHER_VERSION, f"nothing is reused: {seen.other_version}")
    if record is not None and record.fault:
        message = f"nothing is reused; the probe is repeated, the last one ended at {record.fault}"
        return _said("False", Reason.PROBE_FAILED, message)
    if record is not None and record.last:
        message = (
            "nothing is reused: the engine does not tell what it finds in its cache, on any route; does it report cached tokens "
            "in usage, or count them in its metrics?"
        )
        return _said("False", Reason.NO_EVIDENCE, message)
    return _said("False", Reason.NOT_VERIFIED_YET, "nothing is reused before the probe has shown that tenants are kept apart")


def _left(seen: Observed, paths: list[str]) -> str:
    """The routes on which nothing was shown."""
    last = seen.isolation.last if seen.isolation else ()
    tried = {several(item.route) if item.variant == SEVERAL else item.route for item in last}
    left = sorted(tried - set(paths))
    return f"; nothing is reused on {', '.join(left)}, where the engine does not show it" if left else ""


def _said(status: State, reason: Reason, message: str) -> Verdict:
    return Verdict(ConditionType.ISOLATION_VERIFIED, status, reason, message)
