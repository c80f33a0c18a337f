"""Is what was revoked or rolled back in force everywhere: authorization heads, open CacheEpochs, and what guards acknowledge.

What a lease acknowledges is read as it stands there: whether its signature is good is left to the operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from cachescope.api.conditions import ConditionType, Reason
from cachescope.api.statuses import CacheEpochStatus, Condition
from cachescope.cli.doctor.findings import Document, Finding, Unseen, failed, passed, unseen
from cachescope.cli.doctor.leases import MARGIN, length, written
from cachescope.cli.doctor.observed import Observed, title
from cachescope.core.errors import WireFormatError
from cachescope.core.leases import claimed_lease
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Role, authorization_key

HEADS = "authorization heads"
FENCES = "fences"
ACKNOWLEDGED = "acknowledgements"
LATE = timedelta(minutes=15)
"""Above the longest wait that docs/incidents.md gives for the default settings."""


def check(observed: Observed) -> Iterator[Finding]:
    """Every check of this file."""
    yield from _heads(observed)
    yield from _fences(observed)
    yield from _acknowledged(observed)


def _heads(observed: Observed) -> Iterator[Finding]:
    ledgers = observed.of("epochledgers")
    if isinstance(ledgers, Unseen):
        yield unseen(HEADS, ledgers)
        return
    heads = [item for item in ledgers if item["spec"].get("role") == Role.AUTHORIZATION.value]
    found = [head for head in heads if head["spec"]["restored"] > head["spec"]["confirmed"]]
    for head in found:
        namespace = head["metadata"]["namespace"]
        yield failed(
            HEADS,
            f"{namespace} was restored from a backup and nobody has confirmed it: every request there is refused",
            f"make revocations since the backup anew, then: kubectl cachescope restored --confirm -n {namespace}",
        )
    if not found:
        yield passed(HEADS, f"no restore waits to be confirmed in {len(heads)} namespaces")


def _fences(observed: Observed) -> Iterator[Finding]:
    epochs = observed.of("cacheepochs")
    if isinstance(epochs, Unseen):
        return  # said by the check of their conditions
    late = [(item, fenced) for item in epochs if (fenced := _open(item)) and observed.now - _since(fenced) > LATE]
    for item, fenced in late:
        minutes = int((observed.now - _since(fenced)).total_seconds() // 60)
        yield failed(
            FENCES,
            f"{title(item)} has not been fenced for {minutes} min ({fenced.reason}) {fenced.message}".rstrip(),
            "see the logs of those that the message names, and the operator's; who is not heard of counts when its right has ended",
        )
    if not late:
        yield passed(FENCES, f"no CacheEpoch has waited for longer than {int(LATE.total_seconds() // 60)} min")


def _open(epoch: Document) -> Condition | None:
    """The condition of a fence that is not complete; what is held, and a restore that is not confirmed, are other findings."""
    status = CacheEpochStatus.model_validate(epoch.get("status") or {})
    found = {item.type: item for item in status.conditions}
    fenced, held = found.get(ConditionType.FENCED), found.get(ConditionType.HELD)
    if fenced is None or fenced.status == "True" or fenced.reason == Reason.RESTORE_UNCONFIRMED:
        return None
    return None if held is not None and held.status == "True" else fenced


def _since(condition: Condition) -> datetime:
    return datetime.fromisoformat(condition.last_transition_time)


def _acknowledged(observed: Observed) -> Iterator[Finding]:
    leases, ledgers = observed.of("fenceleases"), observed.of("epochledgers")
    if isinstance(leases, Unseen) or isinstance(ledgers, Unseen):
        return  # said by the checks of leases and of heads
    named = {(item["metadata"]["namespace"], item["metadata"]["name"]): item for item in ledgers}
    guards = [item for item in leases if item["spec"]["holder"] == "Guard" and _renewed(item, observed.now)]
    behind = [found for lease in guards for found in _behind(lease, named, observed.now)]
    yield from behind
    if not behind:
        yield passed(ACKNOWLEDGED, f"{len(guards)} guards acknowledge what stands, or have as long as their lease for it")


def _behind(lease: Document, ledgers: Mapping[tuple[str, str], Document], now: datetime) -> Iterator[Finding]:
    """Ledgers that a guard has had its lease's length and a drain to acknowledge, and did not."""
    statement, namespace = _statement(lease), lease["metadata"]["namespace"]
    keys = {lease["spec"].get("pool", ""): str(statement.get("pool_uid")), AUTHORIZATION_HEAD: authorization_key(namespace)}
    patience = length(lease) + MARGIN
    for name, key in keys.items():
        ledger, mark = ledgers.get((namespace, name)), (statement.get("acknowledged") or {}).get(key) or {}
        if ledger is None or now - written(ledger) <= patience + _drain(ledger) or _holds(mark, ledger["spec"]):
            continue
        yield failed(
            ACKNOWLEDGED,
            f"the guard in {namespace}/{lease['spec']['pod']} acknowledges {_named(mark) or 'nothing'} of the EpochLedger "
            f"{namespace}/{name}, which stands at {_named(ledger['spec'])}",
            "see its log: what it still has in flight, and whether the engine confirms; then delete its pod",
        )


def _drain(ledger: Document) -> timedelta:
    """For how long a ledger lets answers end."""
    return timedelta(seconds=max((ledger.get("spec") or {}).get("drainSeconds", {}).values(), default=0))


def _named(state: Document) -> str:
    """A state of a ledger; sequences of two lineages say nothing of each other."""
    return f"{state['sequence']} of lineage {state['lineage']['generation']}" if "sequence" in state and "lineage" in state else ""


def _holds(mark: Document, spec: Document) -> bool:
    return bool(mark.get("lineage") == spec["lineage"]) and int(mark.get("sequence", 0)) >= spec["sequence"]


def _renewed(lease: Document, now: datetime) -> bool:
    """Whether it is renewed; what one that is not acknowledges is past mattering, and the check of leases speaks of it."""
    return now - written(lease) <= length(lease) + MARGIN


def _statement(lease: Document) -> Document:
    """What a lease says of its process; nothing where it cannot be read, which the operator says."""
    try:
        return claimed_lease(lease["spec"]["statement"])
    except (KeyError, WireFormatError):
        return {}
