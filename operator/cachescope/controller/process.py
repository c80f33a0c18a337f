"""The work of a leading process: everything wired together, from the first list to the last task."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from cachescope.api.settings import Settings
from cachescope.controller.audit import Audit
from cachescope.controller.authorizations import Authorizations
from cachescope.controller.cache_epochs import CacheEpochs
from cachescope.controller.declared_epochs import has_authorization
from cachescope.controller.dispatch import AUTHORIZATIONS, Dispatch, authorization
from cachescope.controller.fence_metrics import FenceMetrics
from cachescope.controller.fences import Fence, Fences
from cachescope.controller.health import Health
from cachescope.controller.installation import Installation
from cachescope.controller.isolation_probes import IsolationProbes
from cachescope.controller.isolation_runs import IsolationRuns
from cachescope.controller.lease_book import LeaseBook
from cachescope.controller.lease_watch import LeaseWatch
from cachescope.controller.ledger_objects import LedgerObjects
from cachescope.controller.ledger_site import LedgerSite
from cachescope.controller.metrics import Metrics
from cachescope.controller.options import Options
from cachescope.controller.outcomes import Outcomes
from cachescope.controller.policy_inputs import PolicyInputs
from cachescope.controller.pool_ledgers import PoolLedgers
from cachescope.controller.pools import Pools
from cachescope.controller.public_sources import PublicSources
from cachescope.controller.root_keys import RootKeys
from cachescope.controller.scopes import Scopes
from cachescope.controller.store import Key, Store
from cachescope.controller.sweeping import Sweeper
from cachescope.controller.tenants import Tenants
from cachescope.controller.watching import watch
from cachescope.controller.work_queue import WorkQueue
from cachescope.controller.workers import Workers
from cachescope.controller.writing import HeardRest
from cachescope.core.errors import ClusterError
from cachescope.core.ledgers import AUTHORIZATION_HEAD, authorization_key
from cachescope.core.rights import Rights
from cachescope.kube.applying import Applier
from cachescope.kube.election import boot_seconds
from cachescope.kube.rest import Document
from cachescope.logs import fault_of
from cachescope.manifests.platform import Platform

log = logging.getLogger(__name__)

JUDGE_SECONDS: Final = 2.0
KEYS_SECONDS: Final = 5.0
SWEEP_SECONDS: Final = 60.0


class Process:
    """One leading operator.

    Args:
        options: Its options.
        settings: The installation's settings.
        health: Where it says how it is.
        metrics: Where it counts.
        watching: Called once kopf runs, and has taken the process's signals.
    """

    def __init__(
        self, options: Options, settings: Settings, health: Health, metrics: Metrics, *, watching: Callable[[], None]
    ) -> None:
        self._options = options
        self._settings = settings
        self._watching = watching
        self._health = health
        self._metrics = metrics
        self.queue: WorkQueue[Key] = WorkQueue()
        self.store = Store()
        self.rest = HeardRest(self.store, metrics.wrote)
        self._audit = Audit(self.rest, self.store, namespace=options.watched_namespace)
        self._keys = RootKeys(self.rest, options.namespace)
        self._rulers = tuple(dict.fromkeys((options.namespace, *settings.shared_pool_namespaces)))
        self._dispatch = Dispatch(self.store, self._due, self._rulers)
        self._leases = LeaseBook(self.store, self._keys, home=options.namespace, clock=boot_seconds, news=self._dispatch.ledgers)
        self._gateways = Rights(settings.lease_seconds, settings.max_stale_seconds)
        self._leases.roster.allow_gateways(settings.lease_seconds * 1000, settings.max_stale_seconds * 1000)
        self._outcomes = Outcomes(self.queue.add)
        self._fences = Fences(self._leases, self._list_leases, told=self._fence_moved, completed=self._fence_completed)
        self._policy = PolicyInputs(self.rest, self.store, namespace=options.watched_namespace)
        runs = IsolationRuns(self._keys, options.gateway_url, time.time)
        self._probes = IsolationProbes(self.rest, self.store, self._leases, runs, metrics.isolation, self.queue.add)
        self._lease_watch = LeaseWatch(
            self.rest,
            self.store,
            self._leases,
            namespace=options.watched_namespace,
            heard=self._audit.heard,
            changed=self._fences.looked,
        )

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            ClusterError: A part of it ended; the process has to be started anew.
        """
        try:
            await self._run()
        except ExceptionGroup as group:
            first = _leaf(group)
            raise ClusterError(f"a part of the operator ended ({type(first).__name__}: {first}); it is started anew") from first

    async def _run(self) -> None:
        async with self.rest:
            site = self._installation()
            tenants = Tenants(site, self._rulers)
            for listener in (tenants.hear, self._leases.hear, self._dispatch.hear):
                self.store.listen(listener)
            await self._load()
            reconcilers = {
                "ServingPool": Pools(site).reconcile,
                "Tenant": tenants.reconcile,
                "CacheScope": Scopes(site, time.time).reconcile,
                "PublicSource": PublicSources(site, time.time).reconcile,
                "CacheEpoch": CacheEpochs(site, self._rulers).reconcile,
                AUTHORIZATIONS: Authorizations(site.ledgers.site, self._rulers, self._policy, self._gateways).reconcile,
            }
            self.queue.add(authorization(self._rulers[0]))
            await self._work(Workers(self.queue, reconcilers, self._metrics, exists=self._exists))

    def _due(self, key: Key, seconds: float) -> None:
        if seconds:
            self.queue.add_after(key, seconds)
        else:
            self.queue.add(key)

    def _exists(self, key: Key) -> bool:
        if key.kind == AUTHORIZATIONS:
            return key.namespace in self._rulers or has_authorization(self.store, key.namespace)
        return self.store.get(*key) is not None

    async def _list_leases(self) -> None:
        await self._lease_watch.refresh()

    def _fence_completed(self, fence: Fence) -> None:
        self._metrics.fenced("Pool" if fence.wanted.pool else "Authorization", fence.seconds or 0.0)

    def _fence_moved(self, ledger: str) -> None:
        for key in self._outcomes.concerned(ledger):
            self.queue.add(key)
        self._dispatch.ledgers({ledger}, urgent=True)

    async def _load(self) -> None:
        self._health.role = "Loading"
        await self._keys.refresh(datetime.now(UTC))
        await self._audit.load()
        await self._lease_watch.load()
        self._metrics.leads(self._audit.ages, lambda: len(self.queue), FenceMetrics(self._fences, self._leases))
        self._health.ages = self._audit.ages
        self._health.role = "Leading"
        log.info("loaded", extra={"scope": self._options.scope, "pools": len(self.store.all("ServingPool"))})

    async def _work(self, workers: Workers) -> None:
        sweeper = Sweeper(self.rest, self.store, self._leases)
        async with asyncio.TaskGroup() as group:
            # kopf cancels, at its end, every task that began after it: it comes last.
            group.create_task(workers.run())
            group.create_task(self._audit.run())
            group.create_task(self._lease_watch.run())
            group.create_task(self._fences.run())
            group.create_task(self._probes.run())
            group.create_task(repeat(JUDGE_SECONDS, self._judge))
            group.create_task(repeat(KEYS_SECONDS, self._refresh_keys))
            group.create_task(repeat(SWEEP_SECONDS, sweeper.sweep))
            ready = asyncio.Event()
            group.create_task(self._watched(ready))
            group.create_task(self._watch(ready))

    async def _watch(self, ready: asyncio.Event) -> None:
        await watch(self.store, self._audit.heard, namespace=self._options.watched_namespace, ready=ready)
        raise ClusterError("the watcher ended; the process is started anew")

    async def _watched(self, ready: asyncio.Event) -> None:
        await ready.wait()
        self._watching()

    async def _judge(self) -> None:
        self._leases.judge()

    async def _refresh_keys(self) -> None:
        if await self._keys.refresh(datetime.now(UTC)):
            self._leases.verify_again()
            self._dispatch.ledgers(set(self._ledgers()), urgent=True)

    def _ledgers(self) -> Iterator[str]:
        """All ledgers, by the names that leases give them: each carries a seal, and pools hand keys out."""
        yield from (item["metadata"]["uid"] for item in self.store.all("ServingPool"))
        yield from (authorization_key(item["metadata"]["namespace"]) for item in self.store.all("EpochLedger") if _is_head(item))

    def _installation(self) -> Installation:
        options, settings = self._options, self._settings
        platform = Platform(
            options.namespace,
            options.guard_image,
            options.guard_version,
            monitoring_namespace=options.monitoring_namespace,
            api_servers=options.api_servers,
            api_server_ports=options.api_server_ports,
            max_request_bytes=settings.max_request_bytes,
            run_as_user=options.run_as_user,
        )
        return Installation(
            rest=self.rest,
            store=self.store,
            applier=Applier(self.rest),
            keys=self._keys,
            leases=self._leases,
            ledgers=PoolLedgers(self._ledger_site()),
            fences=self._fences,
            outcomes=self._outcomes,
            platform=platform,
            settings=settings,
            again=self.queue.add_after,
            isolation=self._probes.record,
            renewed=self._metrics.renewed,
        )

    def _ledger_site(self) -> LedgerSite:
        return LedgerSite(
            rest=self.rest,
            store=self.store,
            objects=LedgerObjects(self.rest, self.store, self._keys),
            keys=self._keys,
            leases=self._leases,
            fences=self._fences,
            outcomes=self._outcomes,
            now=time.time,
        )


def _is_head(ledger: Document) -> bool:
    return bool(ledger["metadata"]["name"] == AUTHORIZATION_HEAD)


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def repeat(seconds: float, action: Callable[[], Awaitable[None]]) -> None:
    """Do something again and again, until cancelled; a fault ends neither this nor the parts beside it, and is logged once.

    Args:
        seconds: Between the end of one time and the beginning of the next.
        action: What is done.
    """
    told = ""
    while True:
        await asyncio.sleep(seconds)
        fault = await _fault(action)
        if fault and fault != told:
            log.warning("not done", extra={"action": action.__qualname__, "fault": fault})
        elif told and not fault:
            log.info("done again", extra={"action": action.__qualname__})
        told = fault


async def _fault(action: Callable[[], Awaitable[None]]) -> str:
    try:
        await action()
    except ClusterError as error:
        return str(error)
    except Exception as error:  # a fault of ours must not end all other work
        return str(fault_of(error))
    return ""
