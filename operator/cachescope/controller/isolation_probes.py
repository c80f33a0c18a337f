"""Probes the live pools, through the gateways, and acts on what that shows: the loop of a leading operator.

Rules:

- few processes are probed at a time, each by one run; what failed is tried again, later each time;
- a leak is an incident before it is anything else: the ledger closes what leaked, and the fence says when that is true;
- of several processes of a pool that leak, all that never served are one incident;
- what was shown is kept in the pool's status, which gateways read: an operator that starts anew knows it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from cachescope.api.statuses import IsolationStatus
from cachescope.controller.isolation_memory import IsolationMemory
from cachescope.controller.isolation_metrics import IsolationMetrics
from cachescope.controller.isolation_records import Leak, Processes, after, leaked, proven, without
from cachescope.controller.isolation_runs import IsolationRuns
from cachescope.controller.isolation_targets import Shared, Target, shared_pool, targets
from cachescope.controller.leak_closing import LeakClosing
from cachescope.controller.leak_incidents import has_leaked, incident_of
from cachescope.controller.lease_book import LeaseBook, Process
from cachescope.controller.store import Key, Store
from cachescope.core.errors import ClusterError
from cachescope.kube.rest import Document, Rest
from cachescope.logs import fault_of
from cachescope.probe.live import Finding, Shown

log = logging.getLogger(__name__)
audit = logging.getLogger("cachescope.audit")

PERIOD_SECONDS: Final = 0.5
AT_A_TIME: Final = 8
OF_A_NAMESPACE: Final = 4
"""Of these; so engines that never answer hold up nobody else's."""
RUN_SECONDS: Final = 600.0
"""For a run, after which it has failed: a request alone may take a minute, and a run has more than a hundred."""
FIRST_DELAY: Final = 1.0
LAST_DELAY: Final = 300.0
PATIENCE: Final = 3
"""Failures of a process in a row, after which the pool says so: a gateway learns of a new process a moment after the operator."""


@dataclass
class _Attempts:
    """What is remembered of a process, on the operator's own clock."""

    due: float
    restarts: int = 0
    failures: int = 0


@dataclass
class IsolationProbes:
    """The probes.

    Attributes:
        rest: The API.
        store: Objects as last seen.
        leases: Guards.
        runs: Asks a process.
        metrics: Where runs are counted.
        again: Asks for a pool to be reconciled.
        clock: Seconds of a clock that only rises.
    """

    rest: Rest
    store: Store
    leases: LeaseBook
    runs: IsolationRuns
    metrics: IsolationMetrics
    again: Callable[[Key], None]
    clock: Callable[[], float] = time.monotonic
    _attempts: dict[str, _Attempts] = field(default_factory=dict)
    _running: dict[str, Target] = field(default_factory=dict)
    _pools: dict[str, tuple[int, Shared | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with what statuses say."""
        self._memory = IsolationMemory(self.store, self.again)
        self._closing = LeakClosing(self.rest, self._memory)

    def record(self, document: Document) -> IsolationStatus | None:
        """What was shown of a pool; `None` where there is nothing to show."""
        if self._shared(document) is None:
            self._memory.forget(document["metadata"]["uid"])
            return None
        return self._memory.of(document)

    async def run(self) -> None:
        """Probe until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                for document in self._undeclared():
                    group.create_task(self._closing.close(document, self._memory.of(document), _new_incident()))
                for target in self._due():
                    self._running[target.boot_id] = target
                    task = group.create_task(self._probe(target))
                    task.add_done_callback(lambda _, boot=target.boot_id: self._running.pop(boot, None))  # type: ignore[misc]
                await asyncio.sleep(PERIOD_SECONDS)

    def _shared(self, document: Document) -> Shared | None:
        """The pool, if its engines share a cache; worked out once for each version of its spec."""
        uid, generation = document["metadata"]["uid"], document["metadata"].get("generation", 0)
        known = self._pools.get(uid)
        if known is None or known[0] != generation:
            known = self._pools[uid] = (generation, shared_pool(document))
        return known[1]

    def _undeclared(self) -> list[Document]:
        found = [item for item in self.store.all("ServingPool") if self._shared(item) is not None]
        return [item for item in self._memory.undeclared(found) if not self._closing.under_way(item["metadata"]["uid"])]

    def _due(self) -> Iterator[Target]:
        """Processes whose time has come, as many as there is room for."""
        documents = self.store.all("ServingPool")
        self._forget({document["metadata"]["uid"] for document in documents})
        # Once for all pools: there may be a thousand.
        guards, pods = self.leases.guards_by_pool(), _by_uid(self.store.all("Pod"))
        found = [
            item for document in documents for item in self._targets(document, guards.get(document["metadata"]["uid"], ()), pods)
        ]
        known = {target.boot_id for target in found}
        self._attempts = {boot: item for boot, item in self._attempts.items() if boot in known}
        self.metrics.standing(leaking=self._memory.leaking(), unproven=self._unproven(found))
        ready = [item for item in found if self._attempts[item.boot_id].due <= self.clock() and self._may_run(item)]
        ready.sort(key=lambda item: self._attempts[item.boot_id].due)
        yield from self._with_room(ready)

    def _with_room(self, ready: Sequence[Target]) -> Iterator[Target]:
        """Those of them that there is room for, in all and in their namespace."""
        busy = Counter(item.pool.namespace for item in self._running.values())
        for item in ready:
            if busy.total() < AT_A_TIME and busy[item.pool.namespace] < OF_A_NAMESPACE:
                busy[item.pool.namespace] += 1
                yield item

    def _forget(self, there: set[str]) -> None:
        """Forget pools that are gone."""
        for uid in self._pools.keys() - there:
            self._pools.pop(uid)
            self._memory.forget(uid)

    def _targets(self, document: Document, guards: Iterable[Process], pods: Mapping[str, Document]) -> Iterator[Target]:
        shared = self._shared(document)
        if shared is None:
            return
        for target in targets(document, shared, guards, pods):
            known = self._attempts.get(target.boot_id)
            if known is not None and target.restarts > known.restarts:
                self._memory.keep(target.pool, target.pool_uid, without(self._memory.of(document), target.boot_id))
                known = None
            if known is None:
                # While no operator looked an engine may have begun anew beside its sidecar, or one have ended between a leak's
                # incident and the status: such are asked at once.
                shown = target.boot_id in proven(self._memory.of(document))
                known_well = shown and not target.restarts and not has_leaked(self.store, target.pool)
                wait = target.verify_seconds if known_well else 0
                self._attempts[target.boot_id] = _Attempts(self.clock() + wait, target.restarts)
            yield target

    def _may_run(self, target: Target) -> bool:
        free = target.boot_id not in self._running and not self._closing.under_way(target.pool_uid)
        return free and target.boot_id not in self._memory.known(target.pool_uid).leaked

    def _unproven(self, found: list[Target]) -> int:
        # Once for each pool, which may have a thousand of them.
        shown = {uid: proven(self._memory.known(uid)) for uid in {item.pool_uid for item in found}}
        return sum(item.boot_id not in shown[item.pool_uid] for item in found)

    async def _probe(self, target: Target) -> None:
        try:
            async with asyncio.timeout(RUN_SECONDS):
                shown = await self.runs.examined(target, secrets.token_hex(8))
            await self._take(target, shown)
        except ClusterError as error:
            self._later(target, str(error))
        except Exception as error:  # a fault of ours must not end the probes of all other pools
            self._later(target, str(fault_of(error)))

    async def _take(self, target: Target, shown: Shown) -> None:
        document = self.store.get(*target.pool)
        if document is None or not self._memory.is_there(target.pool, target.pool_uid) or self._shared(document) is None:
            return
        if shown.leak is not None:
            await self._leaked(document, target, shown.leak, shown)
            return
        if not shown.fault or self._failures(target) >= PATIENCE:
            now = datetime.fromtimestamp(self.runs.now(), UTC)
            record = after(self._memory.of(document), target.boot_id, shown, now=now, there=self._there(document))
            self._memory.keep(target.pool, target.pool_uid, record)
        if shown.fault or not shown.proven:
            self._later(target, shown.fault or "nothing was shown")
            return
        self.metrics.probed("Verified")
        self._attempts[target.boot_id] = _Attempts(self.clock() + target.verify_seconds, target.restarts)

    async def _leaked(self, document: Document, target: Target, found: Finding, shown: Shown) -> None:
        before = self._memory.of(document)
        # An earlier leak's incident has closed the pool, for whoever never served before it.
        closed = bool((document.get("status") or {}).get("bypassed")) and target.boot_id not in proven(before)
        leak = Leak(target.boot_id, target.pod, before.incident if closed else "")
        record = leaked(before, leak, found, shown, there=self._there(document))
        self._ask_again(proven(before).keys() - proven(record).keys())
        self.metrics.probed("Leak")
        audit.error("isolation leak", extra={**_where(target), "leak": record.leak})
        await self._closing.close(document, record, _new_incident())

    def _ask_again(self, boots: Set[str]) -> None:
        """At once: what was shown of them counts for nothing any more."""
        for boot in boots & self._attempts.keys():
            self._attempts[boot].due = self.clock()

    def _failures(self, target: Target) -> int:
        """In a row; none of a process that went away meanwhile."""
        attempts = self._attempts.get(target.boot_id)
        return attempts.failures if attempts else 0

    def _there(self, document: Document) -> Processes:
        guards = self.leases.guards(document["metadata"]["uid"])
        pods = _by_uid(self.store.all("Pod", document["metadata"]["namespace"]))
        known = {item.statement.boot_id for item in guards if item.statement}
        return Processes(known, {item.boot_id for item in self._targets(document, guards, pods)})

    def _later(self, target: Target, fault: str) -> None:
        """Try again: soon, and later each time."""
        self.metrics.probed("Failed")
        attempts = self._attempts.setdefault(target.boot_id, _Attempts(0.0, target.restarts))
        if attempts.failures == 0:
            log.warning("isolation not shown; it is tried again", extra={**_where(target), "fault": fault})
        attempts.failures += 1
        attempts.due = self.clock() + min(LAST_DELAY, FIRST_DELAY * 2 ** min(attempts.failures - 1, 10))


def _by_uid(documents: Iterable[Document]) -> dict[str, Document]:
    return {item["metadata"]["uid"]: item for item in documents}


def _new_incident() -> str:
    return incident_of(secrets.token_hex(8))


def _where(target: Target) -> Mapping[str, str]:
    """What logs say of a process."""
    return {"namespace": target.pool.namespace, "pool": target.pool.name, "pod": target.pod, "boot_id": target.boot_id}
