"""Wires the gateway's processor together and runs it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from cachescope.core.errors import SpecError
from cachescope.core.leases import Right
from cachescope.gateway.audit import Audit
from cachescope.gateway.challenges import PoolTrust
from cachescope.gateway.configuration import Configuration
from cachescope.gateway.decision import Decision
from cachescope.gateway.fleet import Challenger, Fleet
from cachescope.gateway.guard_leases import GuardLeases
from cachescope.gateway.health import Health, serve_health
from cachescope.gateway.http_challenger import HttpChallenger
from cachescope.gateway.identity.jwks_sources import key_session
from cachescope.gateway.key_sets import ProviderKeySets
from cachescope.gateway.lease import GatewayLease, Pod, Tells, Times, ledgers_path
from cachescope.gateway.lease_store import RestLeases
from cachescope.gateway.processor import serve
from cachescope.gateway.standing import Standing
from cachescope.gateway.steady import Steady
from cachescope.gateway.stores import CLUSTER, Followed, follow
from cachescope.gateway.wanted import Wanted
from cachescope.gateway.would_be_hits import WouldBeHits
from cachescope.kube.rest import Rest
from cachescope.leases.clock import process_clock
from cachescope.leases.rounds import Rounds

REFRESH_SECONDS = 1.0
DRAIN_SECONDS = 30.0
LEAST_PAUSE_SECONDS = 0.05
ROUTABLE_SECONDS = 0.5
STALE_SECONDS = 1.0
"""How long a watch may take to show what an authorization head wants, before its kind is listed."""
LIST_SECONDS = 30.0
SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter: compiling ten thousand tenants must not hold up a request by Python's usual 5 ms."""
GARBAGE_THRESHOLDS = (20_000, 5, 400)
"""When garbage is looked for. By Python's own numbers each compiling of ten thousand tenants walks all objects, for 0.2 s in which
nothing is answered. What lives long here hangs together without cycles, and goes by its reference counts."""


def _variable(name: str, default: str) -> Callable[[], str]:
    return lambda: os.environ.get(name, default)


@dataclass(frozen=True)
class Options:
    """How the processor is started.

    Attributes:
        root: Folder of what is mounted.
        socket: Unix socket for Envoy.
        port: Port of health and metrics.
        namespace: Namespace of the installation.
        scope: `Namespaced` for the resources of that namespace alone, `Cluster` for those of all; `CACHESCOPE_SCOPE`.
        pod_name: Name of this pod; `CACHESCOPE_POD_NAME`.
        pod_uid: UID of this pod; `CACHESCOPE_POD_UID`.
    """

    root: Path
    socket: str
    port: int
    namespace: str
    scope: str = field(default_factory=_variable("CACHESCOPE_SCOPE", "Namespaced"))
    pod_name: str = field(default_factory=_variable("CACHESCOPE_POD_NAME", ""))
    pod_uid: str = field(default_factory=_variable("CACHESCOPE_POD_UID", ""))


class Gateway:
    """The parts of one processor.

    Args:
        options: How it is started.
        rest: The API server.
        key_sets: Key sets of identity providers.
        challenger: Sends challenges.
    """

    def __init__(self, options: Options, rest: Rest, *, key_sets: ProviderKeySets, challenger: Challenger) -> None:
        self._options = options
        self._rest = rest
        self._key_sets = key_sets
        self._changed = asyncio.Event()
        self._times = Times(0)
        self._lease: tuple[GatewayLease, Rounds] | None = None
        self.clock = process_clock()
        self.right = Right()
        self.followed: Followed = follow(
            rest, options.namespace, options.scope, changed=self._changed.set, ledgers_changed=self._ledgers_changed
        )
        self.configuration = Configuration(options.root, self.followed.stores, key_sets, now=time.time)
        self.fleet = Fleet(self.followed.slices, challenger, GuardLeases(self.followed.leases.get), clock=self.clock)
        self.wanted = Wanted(self.clock)
        self.standing = Standing(
            self.configuration,
            self.right,
            self.clock,
            self.followed.ages,
            fresh_ms=lambda: self._times.fresh_ms,
            lease_ms=lambda: self._times.lease_ms,
        )

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """What runs beside requests; none of it ends."""
        return [
            self.followed.run(),
            self._keep_fresh(),
            self._keep_policy(),
            self.fleet.watch(self.trusts),
            self._keep_right(),
        ]

    def trusts(self) -> Mapping[str, PoolTrust]:
        """What guards are held against now."""
        snapshot = self.configuration.current()
        return snapshot.trusts if snapshot else {}

    def _ledgers_changed(self) -> None:
        ask = self.configuration.take_hints()
        if ask and self._lease is not None:
            self._lease[1].hurry(whole=True)
        self._tell()

    def _tell(self) -> None:
        """Have written at once what is acknowledged since the last statement, and that a new key is here."""
        if self._lease is not None and (self._lease[0].acknowledges_more() or self._lease[0].signs_otherwise()):
            self._lease[1].hurry()

    async def _keep_fresh(self) -> None:
        steady = Steady("configuration")
        while True:
            self._changed.clear()
            started = time.monotonic()
            with steady:
                await self.configuration.refresh()
                self._tell()
                if snapshot := self.configuration.current():
                    self._key_sets.tend(snapshot.settings)
            # A pause as long as the work: changes that come in one after the other are taken over together.
            await asyncio.sleep(max(LEAST_PAUSE_SECONDS, time.monotonic() - started))
            # Not `wait_for`: before Python 3.12 it loses a cancellation that comes together with what it waits for.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REFRESH_SECONDS):
                    await self._changed.wait()

    async def _keep_policy(self) -> None:
        """List what an authorization head wants and no watch shows: a watch that stalled says nothing of itself."""
        steady, loading = Steady("policy"), self.configuration.loading
        while True:
            await loading.lacking()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STALE_SECONDS):
                    await loading.complete()
            with steady:
                for kind in self.configuration.stale:
                    wanted = [item for item in loading.unmet if item.kind == kind]
                    async with asyncio.timeout(LIST_SECONDS):
                        version = await self.followed.renew(kind)
                    loading.listed(wanted, version)
            self._changed.set()

    async def _keep_right(self) -> None:
        """Rounds from the first configuration on: before it there is nothing to have a right to."""
        while (snapshot := self.configuration.current()) is None:  # noqa: ASYNC110 - once, at the start
            await asyncio.sleep(LEAST_PAUSE_SECONDS)
        options, settings = self._options, snapshot.settings
        self._times = Times(settings.lease_seconds * 1000, settings.max_stale_seconds * 1000)
        holder = GatewayLease(
            Pod(options.namespace, options.pod_name, options.pod_uid),
            api=self._rest,
            ledgers=ledgers_path(None if options.scope == CLUSTER else options.namespace),
            configuration=self.configuration,
            tells=Tells(lambda: self.fleet.routable(self.trusts()), self.wanted.now),
            times=self._times,
        )
        store = RestLeases(self._rest, options.namespace)
        rounds = Rounds(store, holder, right=self.right, clock=self.clock, lease_ms=self._times.lease_ms)
        self._lease = holder, rounds
        async with asyncio.TaskGroup() as group:
            group.create_task(rounds.run())
            group.create_task(self._publish(holder, rounds))

    async def _publish(self, holder: GatewayLease, rounds: Rounds) -> None:
        """Have written soon whenever other pods are routed to than the lease says: a pool is Ready by that."""
        steady = Steady("routable pods")
        while True:
            with steady:
                if holder.routes_elsewhere():
                    rounds.hurry()
            await asyncio.sleep(ROUTABLE_SECONDS)


async def run(options: Options) -> None:
    """Run the processor until SIGTERM or SIGINT.

    Raises:
        SpecError: The pod is not named.
    """
    if not (options.pod_name and options.pod_uid):
        raise SpecError(
            "CACHESCOPE_POD_NAME and CACHESCOPE_POD_UID name the gateway's FenceLease; set both from the pod's own fields"
        )
    tune_interpreter()
    stop = _stop_signal()
    challenger = HttpChallenger()
    async with Rest() as rest, key_session() as session:
        key_sets, registry = ProviderKeySets(session, rest), CollectorRegistry()
        gateway = Gateway(options, rest, key_sets=key_sets, challenger=challenger)
        health = Health(gateway.standing, gateway.fleet, key_sets.problems)
        registry.register(health)
        runner = await serve_health(health, registry, options.port)
        standing = gateway.standing
        audit = Audit(registry)
        decision = Decision(
            standing.in_force,
            gateway.fleet,
            audit,
            time.time,
            wanted=gateway.wanted.note,
            observed=WouldBeHits(registry).count,
            settled=standing.settled,
        )
        background = [asyncio.create_task(task) for task in gateway.tasks()]
        try:
            await _serve(decision, options.socket, stop, background)
        finally:
            # Also when a part failed: a lease that is not released keeps fences waiting for it.
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await runner.cleanup()
            await challenger.close()


def tune_interpreter() -> None:
    """Set what Python decides otherwise by default: how long threads keep it, and when it looks for garbage."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*GARBAGE_THRESHOLDS)


async def _serve(decision: Decision, socket: str, stop: asyncio.Event, background: list[asyncio.Task[None]]) -> None:
    """Serve until the signal, or until a background task ends; then what is under way to its end."""
    server = await serve(decision, socket)
    try:
        await _first(stop.wait(), background)
    finally:
        await server.stop(DRAIN_SECONDS)


async def _first(stopped: Coroutine[Any, Any, bool], background: list[asyncio.Task[None]]) -> None:
    """Wait for the signal; a background task that ends takes the process down, and Kubernetes starts a whole one."""
    waiting = asyncio.create_task(stopped)
    await asyncio.wait([waiting, *background], return_when=asyncio.FIRST_COMPLETED)
    for task in background:
        if task.done():
            task.result()


def _stop_signal() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    return stop
