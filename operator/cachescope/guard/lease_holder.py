"""A guard as the holder of its `FenceLease`: what it says of itself, and what it does when the lease is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import cachescope
from cachescope.core.errors import SpecError
from cachescope.core.keys import Key
from cachescope.core.leases import GUARD, LeaseStatement, Seen, lease_name, write_lease
from cachescope.guard.lease_heads import LeaseHeads
from cachescope.guard.process import GuardProcess
from cachescope.leases.rounds import LeaseStore, Rounds


class ClosableStore(LeaseStore, Protocol):
    """A store whose connections can be closed."""

    async def close(self) -> None:
        """Close the connections."""


class LeaseHolder:
    """Keeps the right of one guard process; implements `Holder` and `RightKeeper`.

    Args:
        process: The guard.
        heads: Its head and right.
        store: Where its lease is.
        sleep: Waits between two rounds, in seconds.
    """

    def __init__(
        self,
        process: GuardProcess,
        heads: LeaseHeads,
        *,
        store: ClosableStore,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._process = process
        self._heads = heads
        self._store = store
        self.rounds = Rounds(
            store,
            self,
            right=heads.right,
            clock=process.tick,
            lease_ms=process.settings.lease_ms,
            sleep=sleep,
            lapsed=process.in_flight.abort_all,
        )

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Rounds by how they ended."""
        return self.rounds.outcomes

    async def run(self) -> None:
        """Keep the right until cancelled."""
        await self._process.keys.reload_if_due()  # the first lease is signed too
        try:
            await self.rounds.run()
        finally:
            await self._store.close()

    def hurry(self) -> None:
        """Publish soon what changed."""
        self.rounds.hurry()

    def lease_name(self) -> str:
        """Name of the lease of this process."""
        return lease_name(self._process.settings.pod_uid, self._process.boot_id)

    def spec(self, tick: int) -> Mapping[str, Any]:
        """The lease with its statement, signed with the pool's permit key.

        Raises:
            SpecError: There is no key.
        """
        settings, statement = self._process.settings, self._statement(tick)
        return {
            "holder": GUARD,
            "pod": settings.pod_name,
            "pool": settings.pool,
            "tick": tick,
            "leaseSeconds": settings.lease_ms // 1000,
            "sequence": self._heads.applied.sequence if self._heads.applied else 0,
            "version": statement.version,
            "statement": write_lease(self._key(), statement),
        }

    async def read_heads(self) -> object:
        """Read the ledger by quorum."""
        return await self._heads.read()

    def apply(self, heads: object) -> None:
        """Apply it, and close what it makes old."""
        self._heads.apply(heads)
        self._process.apply()

    def restarted(self) -> None:
        """Abort everything, and go on under a new boot id."""
        self._process.restart()

    def _key(self) -> Key:
        ring = self._process.keys.ring
        if ring is None:
            raise SpecError("the pool's permit keys are not there, so the lease cannot be signed; look at the pool's key Secret")
        return ring.current

    def _statement(self, tick: int) -> LeaseStatement:
        settings, head = self._process.settings, self._heads.applied
        return LeaseStatement(
            holder=GUARD,
            pod_uid=settings.pod_uid,
            boot_id=self._process.boot_id,
            tick=tick,
            lease_ms=settings.lease_ms,
            version=cachescope.__version__,
            heads={settings.pool_uid: Seen(head.lineage, head.generation, head.sequence)} if head else {},
            pool_uid=settings.pool_uid,
            engine=self._process.engine,
        )
