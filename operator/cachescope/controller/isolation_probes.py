"""Probes the live pools, through the gateways, and acts on what that shows: the loop of a leading operator.

Rules:

- few processes are probed at a time, each by one run; what failed is tried again, later each time;
- a leak is an incident before it is anything else: the ledger closes what leaked, and the fence says when that is true;
- a run that began before a leak of its pool was found counts for nothing, be it that it found the same or that it found none;
- what was shown is kept in the pool's status, which gateways read: an operator that starts anew knows it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import aiohttp

from cachescope.api.statuses import IsolationStatus
from cachescope.controller.isolation_records import Processes, after, leaked, proven, read_record
from cachescope.controller.isolation_targets import Shared, Target, rests, shared_pool, targets
from cachescope.controller.leak_incidents import declare, incident_of, leak_incident
from cachescope.controller.lease_book import LeaseBook, Process
from cachescope.controller.metrics import Metrics
from cachescope.controller.root_keys import RootKeys
from cachescope.controller.store import Key, Store
from cachescope.core.errors import ClusterError
from cachescope.core.probes import LONGEST_SECONDS, Pair, Prober, probe_keys, write_credential
from cachescope.kube.rest import Document, Rest
from cachescope.logs import fault_of
from cachescope.probe.cases import Identity
from cachescope.probe.live import Finding, Shown, examine
from cachescope.probe.live_http import LiveProcess

log = logging.getLogger(__name__)
audit = logging.getLogger("cachescope.audit")

PERIOD_SECONDS: Final = 0.5
AT_A_TIME: Final = 4
FIRST_DELAY: Final = 1.0
LAST_DELAY: Final = 300.0
DECLARE_SECONDS: Final = 0.25
PATIENCE: Final = 3
"""Failures of a process in a row, after which the pool says so: a gateway learns of a new process a moment after the operator."""
_ANSWER_SECONDS: Final = 60.0


@dataclass
class _Attempts:
    """What is remembered of a process, on the operator's own clock."""

    due: float
    failures: int = 0


@dataclass
class IsolationProbes:
    """The probes.

    Attributes:
        rest: The API.
        store: Objects as last seen.
        leases: Guards.
        keys: Root keys.
        gateway: URL at which gateways listen for the probe.
        metrics: Where runs are counted.
        again: Asks for a pool to be reconciled.
        clock: Seconds of a clock that only rises.
    """

    rest: Rest
    store: Store
    leases: LeaseBook
    keys: RootKeys
    gateway: str
    metrics: Metrics
    again: Callable[[Key], None]
    clock: Callable[[], float] = time.monotonic
    _records: dict[str, IsolationStatus] = field(default_factory=dict)
    _attempts: dict[str, _Attempts] = field(default_factory=dict)
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _leaking: set[str] = field(default_factory=set)
    _pools: dict[str, tuple[int, Shared | None]] = field(default_factory=dict)

    def record(self, document: Document) -> IsolationStatus | None:
        """What was shown of a pool; `None` where there is nothing to show."""
        if self._shared(document) is None:
            self._records.pop(document["metadata"]["uid"], None)
            return None
        return self._record(document)

    async def run(self) -> None:
        """Probe until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                for target in self._due():
                    task = self._running[target.boot_id] = group.create_task(self._probe(target))
                    task.add_done_callback(lambda _, boot=target.boot_id: self._running.pop(boot, None))  # type: ignore[misc]
                await asyncio.sleep(PERIOD_SECONDS)

    def _shared(self, document: Document) -> Shared | None:
        """The pool, if its engines share a cache; worked out once for each version of its spec."""
        uid, generation = document["metadata"]["uid"], document["metadata"].get("generation", 0)
        known = self._pools.get(uid)
        if known is None or known[0] != generation:
            known = self._pools[uid] = (generation, shared_pool(document))
        return known[1]

    def _record(self, document: Document) -> IsolationStatus:
        uid = document["metadata"]["uid"]
        if uid not in self._records:
            self._records[uid] = read_record(document.get("status"))
        return self._records[uid]

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
        self.metrics.isolation(sum(bool(record.leak) for record in self._records.values()), self._unproven(found))
        ready = [item for item in found if self._attempts[item.boot_id].due <= self.clock() and item.boot_id not in self._running]
        ready.sort(key=lambda item: self._attempts[item.boot_id].due)
        yield from ready[: AT_A_TIME - len(self._running)]

    def _forget(self, there: set[str]) -> None:
        """Forget pools that are gone."""
        for uid in self._pools.keys() - there:
            self._pools.pop(uid)
            self._records.pop(uid, None)

    def _targets(self, document: Document, guards: Iterable[Process], pods: Mapping[str, Document]) -> Iterator[Target]:
        shared = self._shared(document)
        if shared is None or shared.pool.uid in self._leaking or rests(self.store, document, self._record(document)):
            return
        shown = proven(self._record(document))
        for target in targets(document, shared, guards, pods):
            wait = target.verify_seconds if target.boot_id in shown else 0
            self._attempts.setdefault(target.boot_id, _Attempts(self.clock() + wait))
            yield target

    def _unproven(self, found: list[Target]) -> int:
        return sum(item.boot_id not in proven(self._records.get(item.pool_uid, IsolationStatus())) for item in found)

    async def _probe(self, target: Target) -> None:
        before = self._incident(target)
        try:
            shown = await self._examined(target, seed := secrets.token_hex(8))
            if self._incident(target) == before:
                await self._take(target, shown, seed)
        except ClusterError as error:
            self._later(target, str(error))
        except Exception as error:  # a fault of ours must not end the probes of all other pools
            self._later(target, str(fault_of(error)))

    def _incident(self, target: Target) -> str:
        return self._records.get(target.pool_uid, IsolationStatus()).incident

    async def _examined(self, target: Target, seed: str) -> Shown:
        """Ask the process.

        Raises:
            ClusterError: There are no root keys to sign with.
        """
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
        # A server may close a connection that was kept just when the next request begins.
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            process = LiveProcess(session, self.gateway, target.metrics)
            return await examine(process.ask, target.routes, self._identities(target), model=target.model, seed=seed)

    def _identities(self, target: Target) -> Callable[[Pair], tuple[Identity, Identity]]:
        key, until = probe_keys(self.keys.ring).current, int(time.time()) + LONGEST_SECONDS

        def identity(pair: Pair, who: int) -> Identity:
            prober = Prober(target.pool_uid, target.boot_id, pair, who)
            return Identity({"authorization": write_credential(key, prober, until=until)})

        return lambda pair: (identity(pair, 0), identity(pair, 1))

    async def _take(self, target: Target, shown: Shown, seed: str) -> None:
        document = self._document(target)
        if document is None or self._shared(document) is None:
            return
        if shown.leak is not None:
            await self._leaked(target, shown.leak, shown, incident_of(seed))
            return
        if not shown.fault or self._failures(target) >= PATIENCE:
            self._keep(
                target, after(self._record(document), target.boot_id, shown, now=datetime.now(UTC), there=self._there(document))
            )
        if shown.fault or not shown.proven:
            self._later(target, shown.fault or "nothing was shown")
            return
        self.metrics.probed("Verified")
        self._attempts[target.boot_id] = _Attempts(self.clock() + target.verify_seconds)

    def _failures(self, target: Target) -> int:
        """In a row; none of a process that went away meanwhile."""
        attempts = self._attempts.get(target.boot_id)
        return attempts.failures if attempts else 0

    def _document(self, target: Target) -> Document | None:
        """The pool, if it is there and is the one that was asked."""
        document = self.store.get(*target.pool)
        return document if document is not None and document["metadata"]["uid"] == target.pool_uid else None

    def _there(self, document: Document) -> Processes:
        guards = self.leases.guards(document["metadata"]["uid"])
        pods = _by_uid(self.store.all("Pod", document["metadata"]["namespace"]))
        known = {item.statement.boot_id for item in guards if item.statement}
        return Processes(known, {item.boot_id for item in self._targets(document, guards, pods)})

    async def _leaked(self, target: Target, leak: Finding, shown: Shown, incident: str) -> None:
        """First what gateways read, then the incident, tried until it is declared: no leak is left to a later run."""
        record = leaked(self._records.get(target.pool_uid, IsolationStatus()), leak, shown, pod=target.pod, incident=incident)
        self.metrics.probed("Leak")
        where = {"namespace": target.pool.namespace, "pool": target.pool.name, "pod": target.pod, "boot_id": target.boot_id}
        audit.error("isolation leak", extra={**where, "leak": record.leak, "incident": incident})
        self._leaking.add(target.pool_uid)
        try:
            self._keep(target, record)
            await self._declared(target, leak_incident(target.pool, incident, record.leak))
        finally:
            self._leaking.discard(target.pool_uid)
        self._attempts[target.boot_id] = _Attempts(self.clock())

    async def _declared(self, target: Target, incident: Document) -> None:
        """Declare it, however often that has to be tried; with the pool goes what leaked."""
        while self._document(target) is not None:
            try:
                await declare(self.rest, incident)
            except ClusterError as error:
                log.error("incident not declared", extra={"incident": incident["metadata"]["name"], "fault": str(error)})
            else:
                return
            await asyncio.sleep(DECLARE_SECONDS)

    def _keep(self, target: Target, record: IsolationStatus) -> None:
        if record != self._records.get(target.pool_uid):
            self._records[target.pool_uid] = record
            self.again(target.pool)

    def _later(self, target: Target, fault: str) -> None:
        """Try again: soon, and later each time."""
        self.metrics.probed("Failed")
        attempts = self._attempts.setdefault(target.boot_id, _Attempts(0.0))
        if attempts.failures == 0:
            where = {"namespace": target.pool.namespace, "pool": target.pool.name, "pod": target.pod}
            log.warning("isolation not shown", extra={**where, "fault": fault})
        attempts.failures += 1
        attempts.due = self.clock() + min(LAST_DELAY, FIRST_DELAY * 2 ** min(attempts.failures - 1, 10))


def _by_uid(documents: Iterable[Document]) -> dict[str, Document]:
    return {item["metadata"]["uid"]: item for item in documents}
