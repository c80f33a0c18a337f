"""Lease rounds: how a process gets and keeps the right to act on the heads that it read.

Rules:

- a round writes the process's own `FenceLease`, then reads the heads by quorum, then applies them, and only then grants the right;
- the right runs from the send of the attempt whose tick the API server shows, never from an answer or a read;
- every attempt carries a higher tick, read before its send, and the expected version; nothing is ever sent twice as it is;
- after a conflict or a lost answer a quorum read of the own lease decides; then there is one new attempt, and no more;
- a lease that is gone or being deleted ends the right and everything that rests on it, and the process goes on under a new name;
- a process that wrote and could not read and apply writes no more until it can: it lapses, instead of keeping a fence waiting;
- a right that had ended, noticed or not, lets everything in flight be closed before the next is granted;
- a round that cannot finish grants nothing; the right that it should have renewed runs out.

What a lease says and what heads are is the holder's; how the API is spoken to is the store's.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cachescope.core.errors import CacheScopeError, ClusterError
from cachescope.core.leases import Right
from cachescope.core.log_lines import fault_of

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 2
_LEAST_SECONDS = 1.0
_DOUBLINGS = 10

DONE = "done"
FAILED = "failed"
GONE = "lease_gone"


class LeaseConflict(ClusterError):  # noqa: N818 - it says what happened
    """Somebody wrote first, or the lease is there already (409)."""


class LeaseGone(ClusterError):  # noqa: N818 - the same
    """A lease that was written is not there any more, or is being deleted."""


class LostAnswer(ClusterError):  # noqa: N818 - the same
    """Nobody knows whether the write was committed: no answer, an error of the server (5xx), or one that cannot be read."""


@dataclass(frozen=True)
class Stored:
    """A lease as the API server shows it.

    Attributes:
        resource_version: Its version.
        tick: The tick in it.
        deleting: Whether it is marked for deletion.
    """

    resource_version: str
    tick: int
    deleting: bool = False


Written = Stored
"""What the answer to a write shows."""


class LeaseStore(Protocol):
    """The port to the API server. It sends every request once: a client's own retries are off."""

    async def create(self, name: str, spec: Mapping[str, Any]) -> Written:
        """Create a lease.

        Raises:
            LeaseConflict: It is there already.
            LostAnswer: It may have been created.
            ClusterError: It was refused.
        """

    async def replace(self, name: str, spec: Mapping[str, Any], resource_version: str) -> Written:
        """Replace a lease that still has that version.

        Raises:
            LeaseConflict: It has another version.
            LeaseGone: It is not there.
            LostAnswer: It may have been replaced.
            ClusterError: It was refused.
        """

    async def get(self, name: str) -> Stored | None:
        """Read a lease by quorum; `None` when it is not there.

        Raises:
            ClusterError: It could not be read.
        """


class Holder(Protocol):
    """The process that holds the lease."""

    def lease_name(self) -> str:
        """Name of its lease; another one after `restarted`."""

    def spec(self, tick: int) -> Mapping[str, Any]:
        """Spec of its lease, with the statement signed for that tick.

        Raises:
            SpecError: It cannot be signed now.
        """

    async def read_heads(self) -> object:
        """Read the heads by quorum.

        Raises:
            ClusterError: They cannot be read.
        """

    def apply(self, heads: object) -> None:
        """Take over what was read, and close what it makes old.

        Raises:
            SpecError: It cannot be applied; there is no right then.
        """

    def restarted(self) -> None:
        """The lease is gone: abort everything, and take a new boot id."""


class Rounds:
    """The rounds of one process, one after the other.

    Args:
        store: The API server.
        holder: The process.
        right: What is granted.
        clock: Milliseconds since the process started; ticks are read from it too.
        lease_ms: Length of a right in milliseconds.
        rng: Random numbers from 0 to 1, which spread the rounds of many processes.
        sleep: Waits, in seconds.
        lapsed: Closes everything in flight; called in the step in which a right is granted after another had ended.

    Attributes:
        outcomes: Rounds by how they ended.
    """

    def __init__(
        self,
        store: LeaseStore,
        holder: Holder,
        *,
        right: Right,
        clock: Callable[[], int],
        lease_ms: int,
        rng: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        lapsed: Callable[[], object] = lambda: None,
    ) -> None:
        self.outcomes: Counter[str] = Counter({DONE: 0, FAILED: 0, GONE: 0})
        self._store = store
        self._holder = holder
        self._right = right
        self._clock = clock
        self._lease_ms = lease_ms
        self._rng = rng
        self._sleep = sleep
        self._lapsed = lapsed
        self._tick = -1
        self._version: str | None = None
        self._unfinished = False
        self._wanted = asyncio.Event()
        self._failures = 0
        self._reported: set[str] = set()

    async def run(self) -> None:
        """Go round until cancelled: every third of the lease, sooner after a failure or when asked to hurry."""
        while True:
            await self.round()
            await self._pause()

    def hurry(self) -> None:
        """Ask for an extra round soon, since there is something new to say; at most one a second is made."""
        self._wanted.set()

    async def round(self) -> None:
        """One round. Whatever goes wrong in it is logged and counted, and grants nothing."""
        self._wanted.clear()
        try:
            await self._steps()
        except Exception as error:
            self._failed(error)
        else:
            self._done()

    async def _steps(self) -> None:
        if self._unfinished:
            self._holder.apply(await self._holder.read_heads())
        self._unfinished = True
        sent_at = await self._write()
        self._holder.apply(await self._holder.read_heads())
        self._unfinished = False
        self._grant(sent_at)

    async def _write(self) -> int:
        """Write the lease; when the attempt was sent whose tick the API server shows."""
        name, sent = self._holder.lease_name(), dict[int, int]()
        try:
            for _ in range(_ATTEMPTS):
                stored = await self._attempt(name, sent)
                self._learn(stored)
                if stored is not None and stored.tick in sent:
                    return sent[stored.tick]
        except LeaseGone:
            self._right.revoke()
            self._version = None
            self._holder.restarted()
            raise
        raise ClusterError("the lease was not written in two attempts; look at the API server, and at who else writes FenceLeases")

    async def _attempt(self, name: str, sent: dict[int, int]) -> Stored | None:
        """One attempt; what the API server shows of the lease then."""
        now = self._clock()
        self._tick = max(now, self._tick + 1)
        spec = self._holder.spec(self._tick)
        sent[self._tick] = now
        try:
            if self._version is None:
                return await self._store.create(name, spec)
            return await self._store.replace(name, spec, self._version)
        except (LeaseConflict, LostAnswer):
            return await self._store.get(name)

    def _learn(self, stored: Stored | None) -> None:
        if stored is None and self._version is None:
            return  # a first write that did not arrive
        if stored is None or stored.deleting:
            raise LeaseGone("the lease of this process was deleted; it goes on under a new one: leave FenceLeases to the operator")
        self._version = stored.resource_version

    def _grant(self, sent_at: int) -> None:
        now = self._clock()
        if now >= sent_at + self._lease_ms:
            raise ClusterError("a round took longer than the lease; look at the API server's latency, or raise fence.leaseSeconds")
        if not self._right.live(now):
            self._lapsed()
        if self._right.grant(sent_at=sent_at, lease_ms=self._lease_ms, now=now):
            _LOG.info("a right begins", extra={"generation": self._right.generation})

    def _done(self) -> None:
        self.outcomes[DONE] += 1
        self._failures = 0
        if self._reported:
            _LOG.info("lease rounds succeed again")
            self._reported.clear()

    def _failed(self, error: Exception) -> None:
        """Count it, and log each fault once until a round succeeds."""
        self.outcomes[GONE if isinstance(error, LeaseGone) else FAILED] += 1
        self._failures += 1
        what = {"problem": str(error)} if isinstance(error, CacheScopeError) else fault_of(error)
        if str(what) not in self._reported:
            self._reported.add(str(what))
            _LOG.warning("a lease round failed; the right runs out if this goes on", extra=what)

    async def _pause(self) -> None:
        seconds = self._seconds()
        least = min(_LEAST_SECONDS, seconds)
        await self._sleep(least)
        ends = [asyncio.ensure_future(self._sleep(seconds - least)), asyncio.ensure_future(self._wanted.wait())]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()

    def _seconds(self) -> float:
        """A third of the lease; after failures a second, doubled with each. A fifth of it is chance."""
        longest = self._lease_ms / 3000
        if self._failures:
            longest = min(longest, _LEAST_SECONDS * 2 ** min(self._failures - 1, _DOUBLINGS))
        return longest * (0.8 + 0.2 * self._rng())
