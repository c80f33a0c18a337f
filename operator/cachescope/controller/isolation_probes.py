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

import aiohttp

from cachescope.api.statuses import IsolationStatus
from cachescope.controller.isolation_metrics import IsolationMetrics
from cachescope.controller.isolation_records import Leak, Processes, after, leaked, proven, read_record, without
from cachescope.controller.isolation_targets import Shared, Target, shared_pool, targets
from cachescope.controller.leak_incidents import declare, has_leaked, incident_of, leak_incident
from cachescope.controller.lease_book import LeaseBook, Process
from cachescope.controller.root_keys import RootKeys
from cachescope.controller.store import Key, Store, key_of
from cachescope.core.errors import ClusterError
from cachescope.core.probes import LONGEST_SECONDS, Pair, Prober, probe_keys, write_credential
from cachescope.kube.rest import Document, Rest
from cachescope.logs import fault_of
from cachescope.probe.cases import Identity
from cachescope.probe.live import Shown, examine
from cachescope.probe.live_http import LiveProcess

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
DECLARE_SECONDS: Final = 0.25
PATIENCE: Final = 3
"""Failures of a process in a row, after which the pool says so: a gateway learns of a new process a moment after the operator."""
_ANSWER_SECONDS: Final = 60.0


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
        keys: Root keys.
        gateway: URL at which gateways listen for the probe.
        metrics: Where runs are counted.
        again: Asks for a pool to be reconciled.
        now: The time of day, in seconds since 1970: credentials end by it, and people read it.
        clock: Seconds of a clock that only rises.
    """

    rest: Rest
    store: Store
    leases: LeaseBook
    keys: RootKeys
    gateway: str
    metrics: IsolationMetrics
    again: Callable[[Key], None]
    now: Callable[[], float]
    clock: Callable[[], float] = time.monotonic
    _records: dict[str, IsolationStatus] = field(default_factory=dict)
    _attempts: dict[str, _Attempts] = field(default_factory=dict)
    _running: dict[str, Target] = field(default_factory=dict)
    _leaking: Counter[str] = field(default_factory=Counter)
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
                for document, record in list(self._undeclared()):
                    group.create_task(self._close(document, record, incident_of(secrets.token_hex(8))))
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
        leaking = sum(bool(record.leak) for record in self._records.values())
        self.metrics.standing(leaking=leaking, unproven=self._unproven(found))
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
            self._records.pop(uid, None)

    def _targets(self, document: Document, guards: Iterable[Process], pods: Mapping[str, Document]) -> Iterator[Target]:
        shared = self._shared(document)
        if shared is None:
            return
        for target in targets(document, shared, guards, pods):
            known = self._attempts.get(target.boot_id)
            if known is not None and target.restarts > known.restarts:
                self._keep(target.pool, target.pool_uid, without(self._record(document), target.boot_id))
                known = None
            if known is None:
                # While no operator looked an engine may have begun anew beside its sidecar, or one have ended between a leak's
                # incident and the status: such are asked at once.
                shown = target.boot_id in proven(self._record(document))
                known_well = shown and not target.restarts and not has_leaked(self.store, target.pool)
                wait = target.verify_seconds if known_well else 0
                self._attempts[target.boot_id] = _Attempts(self.clock() + wait, target.restarts)
            yield target

    def _may_run(self, target: Target) -> bool:
        leaked = self._records.get(target.pool_uid, IsolationStatus()).leaked
        return target.boot_id not in self._running and target.boot_id not in leaked and not self._leaking[target.pool_uid]

    def _unproven(self, found: list[Target]) -> int:
        return sum(item.boot_id not in proven(self._records.get(item.pool_uid, IsolationStatus())) for item in found)

    async def _probe(self, target: Target) -> None:
        try:
            async with asyncio.timeout(RUN_SECONDS):
                shown = await self._examined(target, seed := secrets.token_hex(8))
            await self._take(target, shown, seed)
        except ClusterError as error:
            self._later(target, str(error))
        except Exception as error:  # a fault of ours must not end the probes of all other pools
            self._later(target, str(fault_of(error)))

    async def _examined(self, target: Target, seed: str) -> Shown:
        """Ask the process.

        Raises:
            ClusterError: There are no root keys to sign with.
        """
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
        # A server may close a connection that was kept just when the next request begins.
        connector = aiohttp.TCPConnector(force_close=True)
        # A small compressed answer could be a large one.
        plain = {"accept-encoding": "identity"}
        async with aiohttp.ClientSession(timeout=timeout, connector=connector, headers=plain, auto_decompress=False) as session:
            process = LiveProcess(session, self.gateway, target.metrics)
            return await examine(process.ask, target.routes, self._identities(target), model=target.model, seed=seed)

    def _identities(self, target: Target) -> Callable[[Pair], tuple[Identity, Identity]]:
        key, until = probe_keys(self.keys.ring).current, int(self.now()) + LONGEST_SECONDS

        def identity(pair: Pair, who: int) -> Identity:
            prober = Prober(target.pool_uid, target.boot_id, pair, who)
            return Identity({"authorization": write_credential(key, prober, until=until)})

        return lambda pair: (identity(pair, 0), identity(pair, 1))

    async def _take(self, target: Target, shown: Shown, seed: str) -> None:
        document = self.store.get(*target.pool)
        if document is None or not self._is_there(target.pool, target.pool_uid) or self._shared(document) is None:
            return
        there = self._there(document)
        if shown.leak is not None:
            closed = self._closed(document, target)
            leak = Leak(target.boot_id, target.pod, self._record(document).incident if closed else "")
            before = proven(self._record(document))
            record = leaked(self._record(document), leak, shown.leak, shown, there=there)
            self._ask_again(before.keys() - proven(record).keys())
            self._tell(target, record)
            await self._close(document, record, incident_of(seed))
            return
        if not shown.fault or self._failures(target) >= PATIENCE:
            now = datetime.fromtimestamp(self.now(), UTC)
            record = after(self._record(document), target.boot_id, shown, now=now, there=there)
            self._keep(target.pool, target.pool_uid, record)
        if shown.fault or not shown.proven:
            self._later(target, shown.fault or "nothing was shown")
            return
        self.metrics.probed("Verified")
        self._attempts[target.boot_id] = _Attempts(self.clock() + target.verify_seconds, target.restarts)

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

    def _closed(self, document: Document, target: Target) -> bool:
        """Whether an earlier leak's incident has closed the pool, and nothing of this process is older than that."""
        bypassed = (document.get("status") or {}).get("bypassed")
        return bool(bypassed) and target.boot_id not in proven(self._record(document))

    def _tell(self, target: Target, record: IsolationStatus) -> None:
        self.metrics.probed("Leak")
        where = {"namespace": target.pool.namespace, "pool": target.pool.name, "pod": target.pod, "boot_id": target.boot_id}
        audit.error("isolation leak", extra={**where, "leak": record.leak})

    async def _close(self, pool: Document, record: IsolationStatus, incident: str) -> None:
        """Declare a leak's incident, however often that has to be tried; with the pool goes what leaked.

        The record is kept first, so that what other runs find meanwhile is added to it. It names the incident once that is
        declared, so that an operator that starts anew knows whether it is.
        """
        key, uid = key_of("ServingPool", pool), pool["metadata"]["uid"]
        self._keep(key, uid, record)
        self._leaking[uid] += 1
        try:
            done = bool(record.incident)
            while not done and self._is_there(key, uid):
                done = await self._declared(key, uid, record.leak, incident)
        finally:
            self._leaking[uid] -= 1

    async def _declared(self, key: Key, uid: str, leak: str, incident: str) -> bool:
        """Whether it could be declared now; the record names it, unless another leak was found since, whose own comes."""
        try:
            await declare(self.rest, leak_incident(key, uid, incident, leak))
        except ClusterError as error:
            log.error("incident not declared", extra={"namespace": key.namespace, "pool": key.name, "fault": str(error)})
            await asyncio.sleep(DECLARE_SECONDS)
            return False
        audit.error("incident of a leak", extra={"namespace": key.namespace, "pool": key.name, "incident": incident})
        record = self._records.get(uid)
        if record is not None and record.leak == leak and self._is_there(key, uid):
            self._keep(key, uid, record.model_copy(update={"incident": incident}))
        return True

    def _undeclared(self) -> Iterator[tuple[Document, IsolationStatus]]:
        """Pools whose leak nobody has declared: an operator ended before it did."""
        for document in self.store.all("ServingPool"):
            if self._shared(document) is not None and not self._leaking[document["metadata"]["uid"]]:
                record = self._record(document)
                if record.leak and not record.incident:
                    yield document, record

    def _is_there(self, key: Key, uid: str) -> bool:
        found = self.store.get(*key)
        return found is not None and found["metadata"]["uid"] == uid

    def _keep(self, key: Key, uid: str, record: IsolationStatus) -> None:
        if record != self._records.get(uid):
            self._records[uid] = record
            self.again(key)

    def _later(self, target: Target, fault: str) -> None:
        """Try again: soon, and later each time."""
        self.metrics.probed("Failed")
        attempts = self._attempts.setdefault(target.boot_id, _Attempts(0.0, target.restarts))
        if attempts.failures == 0:
            where = {"namespace": target.pool.namespace, "pool": target.pool.name, "pod": target.pod}
            log.warning("isolation not shown", extra={**where, "fault": fault})
        attempts.failures += 1
        attempts.due = self.clock() + min(LAST_DELAY, FIRST_DELAY * 2 ** min(attempts.failures - 1, 10))


def _by_uid(documents: Iterable[Document]) -> dict[str, Document]:
    return {item["metadata"]["uid"]: item for item in documents}
