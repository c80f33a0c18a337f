"""A guard with a lease in a fake store, ledgers that a test writes, and requests in flight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from cachescope.core.keys import KeyRing
from cachescope.core.leases import LeaseStatement, read_lease
from cachescope.core.ledger_seals import verified
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Ledger, Mark
from cachescope.guard.lease_heads import LeaseHeads
from cachescope.guard.lease_holder import LeaseHolder
from tests.unit.guard_fakes import BODY, KEY, POOL, TENANT, Server, World, until
from tests.unit.lease_fakes import HOP_MS, Clock, FakeStore, Fault
from tests.unit.ledger_book import SEALS, LedgerBook

NAMES = ("tiny", AUTHORIZATION_HEAD)
AUTHORIZATION = "authorization/models"


class LeasedGuard(World):
    """A guard process with a lease in a store, and ledgers that a test writes.

    Attributes:
        faults: What reading a ledger brings instead of its spec, by name.
    """

    def __init__(self, *, slow: bool = False, **changes: Any) -> None:
        super().__init__(**changes)
        self.store = FakeStore(self.clock if slow else Clock())
        self.book = LedgerBook("tiny", "pool-uid", namespace="models")
        self.book.roll(POOL, 1)
        self.book.revoke(TENANT, 1)
        self.faults: dict[str, Any] = {}
        self.reads = 0
        self.read_ms = HOP_MS
        self.answering = asyncio.Event()
        self.answering.set()
        self.heads = LeaseHeads(self._read, self.clock, pool="tiny")
        self.process.source = self.heads
        self.holder = LeaseHolder(self.process, self.heads, store=self.store)
        self.process.keeper = self.holder

    async def round(self, *faults: Fault, later: int = 20_000) -> None:
        self.clock.now += later
        self.store.faults = list(faults)
        await self.holder.rounds.round()
        if not self.process.in_flight.unconfirmed():
            await self.process.closed()  # as it does beside its requests

    def hint(self, name: str = "tiny") -> None:
        """A watch brings what the ledger is now."""
        self.heads.hint(name, self.book.spec(name))

    @property
    def epochs(self) -> tuple[int, int] | None:
        heads = self.heads.heads
        return (heads.pool.epoch(POOL), heads.authorization.epoch(TENANT)) if heads else None

    @property
    def lease(self) -> dict[str, Any]:
        return dict(self.store.specs[self.holder.lease_name()])

    def published(self) -> LeaseStatement:
        return read_lease(KeyRing.of(KEY), self.lease["statement"], name=self.holder.lease_name())

    def witnessed(self) -> tuple[Ledger, Ledger]:
        """The witnesses of the lease, as an operator verifies them."""
        copies = self.published().witnesses
        return verified(SEALS, "pool-uid", copies["pool-uid"]), verified(SEALS, AUTHORIZATION, copies[AUTHORIZATION])

    @property
    def left(self) -> int:
        return self.heads.right_left_ms(self.clock())

    async def _read(self, name: str) -> Any:
        self.reads += 1
        answer = self.faults.get(name) or self.book.spec(name)
        await asyncio.sleep(0)  # others may ask before any time has passed
        await self.store.hop(self.read_ms)
        await self.answering.wait()
        if isinstance(answer, Exception):
            raise answer
        return answer


@asynccontextmanager
async def streaming(guard: LeasedGuard, **changes: Any) -> AsyncIterator[Server]:
    """A request whose answer has begun; it ends after the test's steps."""
    guard.engine.chunks = asyncio.Queue()
    server = Server([BODY])
    answering = asyncio.ensure_future(guard.app(guard.scope(guard.permit(**changes)), server.receive, server.send))
    await server.until_messages(1)
    yield server
    for chunk in (b"one", None):
        guard.engine.chunks.put_nowait(chunk)
    await asyncio.wait_for(answering, 5)


@asynccontextmanager
async def running(guard: LeasedGuard) -> AsyncIterator[None]:
    """The guard keeps its right and closes by itself, as in its background; its pauses are real, and its clock is the test's."""
    works = [asyncio.ensure_future(guard.holder.run()), asyncio.ensure_future(guard.process.keep_closing())]
    try:
        await until(lambda: bool(guard.store.commits) and guard.left > 0)
        yield
    finally:
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)


def acknowledged_marks(guard: LeasedGuard) -> tuple[Mark, ...]:
    heads = guard.process.acknowledged
    return (heads.pool.mark, heads.authorization.mark) if heads else ()


async def eventually(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - it waits for real pauses of 50 ms, and has a deadline
            await asyncio.sleep(0.005)


async def turns() -> None:
    """Everything that needs no time has happened."""
    for _ in range(100):
        await asyncio.sleep(0)
