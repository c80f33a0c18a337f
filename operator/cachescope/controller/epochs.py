"""The ledger of a pool in the API: decided by the pure rules, written by compare-and-swap before anybody uses it.

In a steady state the copy in memory is enough to see that nothing is to be done. A change is decided anew on a quorum read, and
that is what is written; when somebody was faster it is read and decided again. Events are posted after a write alone, so that
none is posted twice; what stands, and why, is in the conditions.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cachescope.api.conditions import ConditionType, Reason
from cachescope.api.documents import API_VERSION, parse
from cachescope.api.epochs import CacheEpoch
from cachescope.api.ledgers import EpochLedger
from cachescope.controller.ledger_news import Change, announce, incident_text
from cachescope.controller.store import Store
from cachescope.controller.verdicts import Verdict, report
from cachescope.core.epochs import EpochRollback
from cachescope.core.errors import ClusterError, SpecError
from cachescope.core.labels import MANAGED_BY_LABEL, PART_OF_LABEL
from cachescope.core.ledger_rules import (
    Decision,
    Declaration,
    Ledger,
    compacted,
    decide,
    fell_behind,
    first_ledger,
    merged,
    next_lineage,
    parse_ledger,
    write_ledger,
)
from cachescope.core.types import Epoch, TargetName
from cachescope.kube.ledgers import create_ledger, read_ledger, replace_ledger
from cachescope.kube.rest import ConflictError, Document, Rest

log = logging.getLogger(__name__)

ATTEMPTS = 5


def new_lineage_id() -> str:
    """A random id."""
    return secrets.token_hex(16)


class Ledgers:
    """The ledgers of all pools.

    Args:
        rest: The API.
        store: Ledgers as last seen.
        now: Seconds since 1970; it only has to be above what it was when the last lineage was made.
    """

    def __init__(self, rest: Rest, store: Store, *, now: Callable[[], float] = time.time) -> None:
        self._rest = rest
        self._store = store
        self._now = now
        self._known: dict[tuple[str, str], Ledger] = {}

    async def stand(
        self, pool: Document, target: TargetName, declarations: Sequence[Declaration], *, generation: int = 0
    ) -> Decision:
        """What stands for a pool, written if it was not.

        Args:
            pool: The pool.
            target: Name of its target.
            declarations: All that is declared for it.
            generation: The greatest number of a lineage that any process says it saw.

        Raises:
            SpecError: The ledger cannot be read, or has no room.
            ClusterError: It cannot be written.
        """
        namespace, name = pool["metadata"]["namespace"], pool["metadata"]["name"]
        known = self._known.get((namespace, name))
        if document := self._store.get("EpochLedger", namespace, name):
            found = parse_ledger(document["spec"])
            decision = decide(found, target, declarations)
            if decision.ledger == found and not (known and fell_behind(known, found)):
                return self._remember(namespace, name, decision)
        for _ in range(ATTEMPTS):
            try:
                change = await self._write((namespace, name), target, declarations, generation=generation)
            except ConflictError:
                continue
            decision = self._remember(namespace, name, change.decision)
            epochs = (self._store.get("CacheEpoch", namespace, item.name) for item in declarations)
            await announce(self._rest, pool, [item for item in epochs if item], change)
            return decision
        raise ClusterError(f"the ledger {namespace}/{name} is written by somebody else all the time; find out by whom")

    async def _write(
        self, key: tuple[str, str], target: TargetName, declarations: Sequence[Declaration], *, generation: int
    ) -> Change:
        known, live = self._known.get(key), await read_ledger(self._rest, *key)
        number = max(generation + 1, int(self._now()))
        if live is None:
            return await self._create(key, target, declarations, number=number, seen=bool(known or generation))
        found = parse_ledger(live["spec"])
        start, fault = compacted(found, target, declarations, lineage=new_lineage_id()), ""
        if start is not found:
            fault = "the ledger was full of incidents and floors that nobody declares any more"
        if known and fell_behind(known, found):
            log.warning("ledger fell behind", extra={"namespace": key[0], "pool": key[1], "sequence": found.head.sequence})
            start = next_lineage(merged(known, found), new_lineage_id(), generation=number)
            fault = "somebody put an older ledger back"
        decision = decide(start, target, declarations)
        if decision.ledger != found:
            await replace_ledger(self._rest, {**live, "spec": write_ledger(decision.ledger)})
            log.info("ledger advanced", extra={"namespace": key[0], "pool": key[1], "epoch": decision.epoch})
        return Change(start, decision, target, fault)

    async def _create(
        self, key: tuple[str, str], target: TargetName, declarations: Sequence[Declaration], *, number: int, seen: bool
    ) -> Change:
        known = self._known.get(key)
        start = next_lineage(known, new_lineage_id(), generation=number) if known else first_ledger(new_lineage_id(), number)
        decision = decide(start, target, declarations)
        # A ledger begins with sequence 1, whatever is in it.
        first = replace(decision.ledger, head=replace(decision.ledger.head, sequence=1))
        await create_ledger(self._rest, ledger_object(*key, first))
        log.info("ledger created", extra={"namespace": key[0], "pool": key[1], "generation": first.head.generation})
        return Change(start, replace(decision, ledger=first), target, "somebody deleted the ledger" if seen else "")

    def _remember(self, namespace: str, name: str, decision: Decision) -> Decision:
        self._known[namespace, name] = decision.ledger
        return decision


def ledger_object(namespace: str, name: str, ledger: Ledger) -> Document:
    """The `EpochLedger` of a pool. It has no owner: floors outlive pools."""
    labels = {PART_OF_LABEL: "cachescope", MANAGED_BY_LABEL: "cachescope"}
    return {
        "apiVersion": API_VERSION,
        "kind": EpochLedger.KIND,
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": write_ledger(ledger),
    }


def epochs_of(documents: Iterable[Document], pool: str) -> list[Document]:
    """The CacheEpochs that name a pool."""
    return [item for item in documents if target_of(item) == pool]


def target_of(document: Mapping[str, Any]) -> str:
    """Name of the pool that a CacheEpoch names; empty when it names none."""
    target = (document.get("spec") or {}).get("target")
    return str(target.get("name", "")) if isinstance(target, dict) else ""


def declarations_of(documents: Iterable[Document]) -> tuple[list[Declaration], dict[str, str]]:
    """What CacheEpochs declare, and what is wrong with the others, by name: somebody's typo holds up nobody's incident."""
    declared: list[Declaration] = []
    faults: dict[str, str] = {}
    for document in documents:
        name = document["metadata"]["name"]
        try:
            spec = parse(CacheEpoch, document, f"CacheEpoch {name}").spec
            floor = None if spec.floor is None else Epoch(spec.floor)
            declared.append(Declaration(name, floor, spec.incident.id if spec.incident else None))
        except SpecError as error:
            faults[name] = str(error)
    return declared, faults


async def report_epochs(rest: Rest, documents: Iterable[Document], decision: Decision | None, faults: Mapping[str, str]) -> None:
    """Write the status of CacheEpochs.

    Args:
        rest: The API.
        documents: All that name one pool.
        decision: What stands; `None` when there is no such pool.
        faults: What is wrong with some of them, by name.
    """
    for document in documents:
        name = document["metadata"]["name"]
        fields = {"epoch": decision.epoch if decision else None}
        verdicts = _verdicts(document, decision, faults.get(name, ""))
        await report(rest, document, fields, verdicts)


def _verdicts(document: Document, decision: Decision | None, fault: str) -> list[Verdict]:
    if fault:
        return [Verdict(ConditionType.ACCEPTED, "False", Reason.INVALID_SPEC, fault)]
    if decision is None:
        message = "there is no such ServingPool in this namespace; create it, or correct spec.target.name"
        return [Verdict(ConditionType.ACCEPTED, "False", Reason.REFERENCE_NOT_FOUND, message)]
    name = document["metadata"]["name"]
    given = decision.given.get(name)
    told = "" if given is None else incident_text(document, given)
    accepted, hold = Verdict(ConditionType.ACCEPTED, "True", Reason.ACCEPTED, told), decision.held.get(name)
    if hold is None:
        return [accepted, Verdict(ConditionType.HELD, "False", Reason.NOT_HELD)]
    reason = Reason.SPEC_BEHIND_LEDGER if isinstance(hold, EpochRollback) else Reason.JUMP_TOO_LARGE
    return [accepted, Verdict(ConditionType.HELD, "True", reason, str(hold))]
