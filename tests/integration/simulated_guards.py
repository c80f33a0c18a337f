"""Guards and gateways without engines: the real lease code against the real API server, many in one process, with switches.

What is real: rounds, heads, watches, acknowledgements, signatures, and the rights of a pool's ServiceAccount. A gateway is thin: it
holds one authorization head and routes nothing.
"""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachescope.core.keys import Key
from cachescope.core.leases import GATEWAY, LeaseStatement, Right, lease_name, write_lease
from cachescope.core.ledger_documents import parse_ledger
from cachescope.core.ledger_seals import witness
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Ledger, authorization_key, followed
from cachescope.core.record import Loaded
from cachescope.core.types import TargetName
from cachescope.guard.closing import Closing
from cachescope.guard.key_folder import KeyFolder
from cachescope.guard.lease_heads import LeaseHeads
from cachescope.guard.lease_holder import LeaseHolder
from cachescope.guard.process import GuardProcess
from cachescope.guard.settings import Settings
from cachescope.leases.api import LeaseApi
from cachescope.leases.clock import process_clock
from cachescope.leases.ports import LostAnswer, Stored
from cachescope.leases.rounds import Rounds

GROUP = 40


@dataclass(frozen=True)
class Home:
    """Where processes live.

    Attributes:
        namespace: Namespace of the pool.
        pool: Its name.
        pool_uid: Its UID.
        keys: Folder of its permit keys.
        lease_key: Signs the leases of gateways.
        api: Requests as the pool's ServiceAccount sends them; shared, since one process has all of them.
        lease_ms: Length of a right.
        fresh_ms: How long a process may go on without one.
    """

    namespace: str
    pool: str
    pool_uid: str
    keys: Path
    lease_key: Key
    api: LeaseApi
    lease_ms: int
    fresh_ms: int


class Switches:
    """What happens to one process; implements `WatchedStore` on a shared one.

    Attributes:
        partitioned: Nothing that it sends arrives, and nothing reaches it.
        losing: So many of its next writes are committed, and their answers lost.
        running: Cleared while the process is stopped.
        closes: Cleared while it cannot close what is old.
    """

    def __init__(self, api: LeaseApi) -> None:
        self._api = api
        self.partitioned = False
        self.losing = 0
        self.running = asyncio.Event()
        self.closes = asyncio.Event()
        self.running.set()
        self.closes.set()

    async def create(self, name: str, spec: Mapping[str, Any]) -> Stored:
        return await self._written(lambda: self._api.create(name, spec))

    async def replace(self, name: str, spec: Mapping[str, Any], resource_version: str) -> Stored:
        return await self._written(lambda: self._api.replace(name, spec, resource_version))

    async def get(self, name: str) -> Stored | None:
        await self._reach()
        found = await self._api.get(name)
        await self._reach()
        return found

    async def ledger(self, name: str) -> object:
        await self._reach()
        found = await self._api.ledger(name)
        await self._reach()
        return found

    async def watch_ledger(self, name: str) -> AsyncIterator[object]:
        async for spec in self._api.watch_ledger(name):
            await self.running.wait()
            if not self.partitioned:
                yield spec

    async def close(self) -> None:
        """The connections are everybody's."""

    async def _written(self, write: Callable[[], Awaitable[Stored]]) -> Stored:
        await self._reach()
        stored = await write()
        await self._reach()
        if self.losing:
            self.losing -= 1
            raise LostAnswer("lost on the way back; it is read")
        return stored

    async def _reach(self) -> None:
        await self.running.wait()
        if self.partitioned:
            raise LostAnswer("no answer; the network is cut")


class SwitchedClosing(Closing):
    """Closing that a test can hold up, as an engine does that never confirms."""

    closes: asyncio.Event

    async def over(self) -> None:
        await self.closes.wait()
        await super().over()


class SimulatedGuard:
    """One guard process."""

    def __init__(self, home: Home) -> None:
        self.switches = Switches(home.api)
        clock = process_clock()
        settings = Settings(
            namespace=home.namespace,
            pool=home.pool,
            pool_uid=home.pool_uid,
            pool_target=TargetName("0" * 64),
            pod_name="simulated",
            pod_uid=str(uuid.uuid4()),
            keys_folder=home.keys,
            model_path=home.keys,
            api_url="",
            lease_ms=home.lease_ms,
            fresh_ms=home.fresh_ms,
        )
        self.heads = LeaseHeads(self.switches.ledger, clock, pool=home.pool)
        self.process = GuardProcess(settings, source=self.heads, keys=KeyFolder(home.keys, clock), clock=clock, digests=_no_engine)
        closing = SwitchedClosing(self.process.in_flight, self.process.closing.confirmation)
        closing.closes = self.switches.closes
        self.process.closing = closing
        self.holder = LeaseHolder(self.process, self.heads, store=self.switches)

    @property
    def lease(self) -> str:
        return self.holder.lease_name()

    @property
    def left_ms(self) -> int:
        """Of its right."""
        return self.heads.right.left_ms(self.process.clock())

    def holds(self, sequence: int) -> bool:
        """Whether it acknowledged a state of the pool's ledger, or a later one."""
        closed = self.process.acknowledged
        return closed is not None and closed.pool.sequence >= sequence

    def holds_people(self, sequence: int) -> bool:
        """The same of the authorization head."""
        closed = self.process.acknowledged
        return closed is not None and closed.authorization.sequence >= sequence

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.holder.run())
            group.create_task(self.process.keep_closing())


class SimulatedGateway:
    """One gateway process; implements `Holder`."""

    def __init__(self, home: Home) -> None:
        self.switches = Switches(home.api)
        self._home = home
        self._name = lease_name(str(uuid.uuid4()), secrets.token_hex(16))
        self._clock = process_clock()
        self._spec: Mapping[str, Any] = {}
        self._said: Ledger | None = None
        self._ended = False
        self.right = Right()
        self.head: Ledger | None = None
        self.rounds = Rounds(self.switches, self, right=self.right, clock=self._clock, lease_ms=home.lease_ms)

    @property
    def left_ms(self) -> int:
        return self.right.left_ms(self._clock())

    def holds_people(self, sequence: int) -> bool:
        return self.head is not None and self.head.sequence >= sequence

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self.rounds.run())

    def lease_name(self) -> str:
        return self._name

    def spec(self, tick: int) -> Mapping[str, Any]:
        key, head = authorization_key(self._home.namespace), self.head
        pod_uid, _, boot_id = self._name.partition(".")
        statement = LeaseStatement(
            GATEWAY,
            pod_uid,
            boot_id,
            tick,
            self._home.lease_ms,
            "0.1.0",
            {key: head.mark} if head else {},
            {key: witness(self._spec)} if head else {},
            fresh_ms=self._home.fresh_ms,
            released=self._ended,
        )
        self._said = head
        text = write_lease(self._home.lease_key, statement)
        seconds = self._home.lease_ms // 1000
        return {"holder": GATEWAY, "pod": "simulated", "tick": tick, "leaseSeconds": seconds, "version": "0.1.0", "statement": text}

    async def read_heads(self) -> object:
        return await self.switches.ledger(AUTHORIZATION_HEAD)

    async def apply(self, heads: object) -> None:
        await self.switches.closes.wait()
        self._take(heads)

    def restarted(self) -> None:
        self._name = lease_name(str(uuid.uuid4()), secrets.token_hex(16))

    async def released(self) -> None:
        self._ended = True

    def _take(self, spec: object) -> None:
        newer = parse_ledger(spec)
        self.head = followed(self.head, newer)
        if isinstance(spec, Mapping):
            self._spec = spec
        if self.head != self._said:
            self.rounds.hurry()

    async def _follow(self) -> None:
        async for spec in self.switches.watch_ledger(AUTHORIZATION_HEAD):
            newer = parse_ledger(spec)
            if (
                self.switches.closes.is_set()
                and self.head
                and newer.lineage == self.head.lineage
                and newer.sequence > self.head.sequence
            ):
                self._take(spec)


Simulated = SimulatedGuard | SimulatedGateway


@asynccontextmanager
async def alive(*processes: Simulated, seconds: float = 30) -> AsyncIterator[None]:
    """Processes with rights; at the end they say that they ended, if they can.

    Args:
        *processes: They begin in small groups, as pods of a rollout do.
        seconds: For all to begin, and for all to end.
    """
    tasks: list[asyncio.Task[None]] = []
    try:
        async with asyncio.timeout(seconds):
            for first in range(0, len(processes), GROUP):
                group = processes[first : first + GROUP]
                tasks += [asyncio.create_task(item.run()) for item in group]
                while not all(item.left_ms for item in group):  # noqa: ASYNC110 - a right has no event for tests
                    await asyncio.sleep(0.05)
        yield
    finally:
        for item in processes:
            item.switches.partitioned = False
            item.switches.running.set()
            item.switches.closes.set()
        for task in tasks:
            task.cancel()
        async with asyncio.timeout(seconds):
            await asyncio.gather(*tasks, return_exceptions=True)


def _no_engine() -> Loaded:
    raise RuntimeError("a simulated guard has no engine; ask a real one")
