"""A guard as the holder of its `FenceLease`: what it says of itself, and what it does with what it reads.

Rules:

- what it acknowledges is what its process says is closed; whenever that changes, the lease is written at once;
- both ledgers are watched beside the rounds: a state that rose closes what it makes old at once, also while a round waits for what
  was closed before. A watch extends no right and takes no lineage;
- witnesses are published from the first lease on, those that an earlier process of the pod kept included; a ledger that lacks
  something of one gives no right.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import cachescope
from cachescope.core.errors import SpecError
from cachescope.core.keys import Key
from cachescope.core.leases import GUARD, MAX_CHARACTERS, LeaseStatement, lease_name, write_lease
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Mark, authorization_key
from cachescope.core.log_lines import fault_of
from cachescope.guard.lease_heads import LeaseHeads, Reading
from cachescope.guard.process import GuardProcess
from cachescope.guard.witnesses import Witnesses
from cachescope.leases.clock import renew_time
from cachescope.leases.ports import LeaseStore
from cachescope.leases.rounds import Rounds

_LOG = logging.getLogger(__name__)


class WatchedStore(LeaseStore, Protocol):
    """A store that also watches ledgers, and whose connections can be closed."""

    def watch_ledger(self, name: str) -> AsyncIterator[object]:
        """Specs of a ledger as they change; it never ends and raises nothing."""

    async def close(self) -> None:
        """Close the connections."""


class LeaseHolder:
    """Keeps the right of one guard process; implements `Holder` and `RightKeeper`.

    Args:
        process: The guard.
        heads: Its heads and right.
        store: Where its lease is, and what watches its ledgers.
        sleep: Waits between two writes, in seconds.

    Attributes:
        witnesses: What it publishes of what it read.
    """

    def __init__(
        self,
        process: GuardProcess,
        heads: LeaseHeads,
        *,
        store: WatchedStore,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        settings = process.settings
        self.witnesses = Witnesses(settings.state_folder)
        self._process = process
        self._heads = heads
        self._store = store
        self._keys = {settings.pool: settings.pool_uid, AUTHORIZATION_HEAD: authorization_key(settings.namespace)}
        self._said: dict[str, Mark] = {}
        self._ended = False
        self._too_long = False
        self._raised = asyncio.Event()
        self.rounds = Rounds(
            store,
            self,
            right=heads.right,
            clock=process.tick,
            lease_ms=settings.lease_ms,
            sleep=sleep,
            lapsed=process.in_flight.abort_all,
            granted=process.apply,
        )
        process.on_acknowledged = self._acknowledged
        process.on_bound = self.rounds.hurry
        heads.on_raised = self._rose
        heads.hold = lambda name, ledger: self.witnesses.hold(self._keys[name], ledger)
        heads.on_later_lineage = lambda: self.rounds.hurry(whole=True)

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Rounds and acknowledgements by how they ended."""
        return self.rounds.outcomes

    async def run(self) -> None:
        """Keep the right until cancelled; then say in the lease that the process ended."""
        await self._process.keys.reload_if_due()  # the first lease is signed too
        await asyncio.to_thread(self.witnesses.load)
        works = [*(self._follow(name) for name in self._heads.names), self._keep_witnesses()]
        beside = [asyncio.ensure_future(work) for work in works]
        try:
            await self.rounds.run()
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await self._store.close()

    def hurry(self) -> None:
        """Publish at once what changed."""
        self.rounds.hurry()

    def lease_name(self) -> str:
        """Name of the lease of this process."""
        return lease_name(self._process.settings.pod_uid, self._process.boot_id)

    def spec(self, tick: int) -> Mapping[str, Any]:
        """The lease with its statement, signed with the pool's permit key.

        Raises:
            SpecError: There is no key.
        """
        settings, applied = self._process.settings, self._heads.applied
        self._said = self._marks()
        return {
            "holder": GUARD,
            "pod": settings.pod_name,
            "pool": settings.pool,
            "tick": tick,
            "leaseSeconds": settings.lease_ms // 1000,
            "sequence": applied.pool.sequence if applied else 0,
            "renewTime": renew_time(),
            "version": cachescope.__version__,
            "statement": self._signed(self._statement(tick)),
        }

    async def read_heads(self) -> object:
        """Read both ledgers by quorum."""
        return await self._heads.read()

    async def apply(self, heads: object) -> None:
        """Apply what was read, and wait until what it makes old is closed; an engine that never confirms is waited for for ever.

        Raises:
            SpecError: It cannot be applied.
        """
        if not isinstance(heads, Reading):
            raise TypeError("apply takes what read_heads returned; pass that")
        try:
            self._heads.apply(heads)
        finally:
            self._rose()  # after a fork it closes what lost its right
        await self._process.closed()

    def restarted(self) -> None:
        """Abort everything, and go on under a new boot id."""
        self._process.restart()

    async def released(self) -> None:
        """Refuse everything from now on; once all is closed, the lease says so."""
        self._process.release()
        await self._process.closed()
        self._ended = True

    def _rose(self) -> None:
        """Close what is old now, and publish what was read."""
        self._process.apply()
        for name, ledger, spec in self._heads.sources():
            self.witnesses.take(self._keys[name], ledger, spec)
        self._raised.set()

    def _acknowledged(self) -> None:
        if self._marks() != self._said:
            self.rounds.hurry()

    async def _follow(self, name: str) -> None:
        async for spec in self._store.watch_ledger(name):
            try:
                self._heads.hint(name, spec)
            except Exception as error:
                _LOG.error("a change of a ledger was not taken over; the next round reads it", extra=fault_of(error))

    async def _keep_witnesses(self) -> None:
        while True:
            await self._raised.wait()
            self._raised.clear()
            if self.witnesses.unsaved:
                await asyncio.to_thread(self.witnesses.save)

    def _marks(self) -> dict[str, Mark]:
        closed, settings = self._process.acknowledged, self._process.settings
        if closed is None:
            return {}
        return {settings.pool_uid: closed.pool.mark, authorization_key(settings.namespace): closed.authorization.mark}

    def _signed(self, statement: LeaseStatement) -> str:
        text = write_lease(self._key(), statement)
        if len(text) <= MAX_CHARACTERS:
            self._too_long = False
            return text
        if not self._too_long:
            _LOG.warning("the witnesses are too long for a lease; it says the rest without them", extra={"characters": len(text)})
        self._too_long = True
        return write_lease(self._key(), replace(statement, witnesses={}))

    def _key(self) -> Key:
        ring = self._process.keys.ring
        if ring is None:
            raise SpecError("the pool's permit keys are not there, so the lease cannot be signed; look at the pool's key Secret")
        return ring.current

    def _statement(self, tick: int) -> LeaseStatement:
        settings, loaded = self._process.settings, self._process.loaded
        return LeaseStatement(
            holder=GUARD,
            pod_uid=settings.pod_uid,
            boot_id=self._process.boot_id,
            tick=tick,
            lease_ms=settings.lease_ms,
            version=cachescope.__version__,
            acknowledged=self._said,
            witnesses=self.witnesses.published,
            pool_uid=settings.pool_uid,
            fresh_ms=settings.fresh_ms,
            released=self._ended,
            engine=loaded.engine if loaded else None,
            adapters=loaded.adapters if loaded else {},
            cache=self._process.cache,
            used_ms=self._process.used_ms(),
            engine_version=loaded.version if loaded else "",
        )
