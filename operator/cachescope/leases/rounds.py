"""Lease rounds: how a process gets and keeps the right to act on the heads that it read.

Rules:

- a round writes the process's own `FenceLease`, then reads the heads by quorum, then applies them, and only then grants the right;
- the right runs from the send of the attempt whose tick the API server shows, never from an answer or a read;
- every attempt carries a higher tick, read before its send, and the expected version; nothing is ever sent twice as it is;
- after a conflict or a lost answer a quorum read of the own lease decides; then there is one new attempt, and no more;
- an API server that is busy (429) is asked again within the round, when it says and not all at once, for a sixth of the lease: a
  thousand processes acknowledge in the same moment, and one that was sent away once has not failed. Each time is an attempt of its
  own, so that even a write that was committed all the same is found by its version;
- a lease that is gone or being deleted ends the right and everything that rests on it, and the process goes on under a new name;
- between two rounds there are *acknowledgements*: the lease alone is written, at once, when there is something new to say; they
  extend no right, and only a process whose right lasts and whose last round succeeded makes them;
- a process that wrote and could not read and apply writes no more until it can: it lapses, instead of keeping a fence waiting. One
  that read a fork of its ledger writes once more, so that the operator finds its witness;
- a right that had ended, noticed or not, lets everything in flight be closed before the next is granted;
- a round that cannot finish grants nothing; the right that it should have renewed runs out;
- a process that ends closes everything, without a right, and says so in a last write.

What a lease says and what heads are is the holder's; how the API is spoken to is the store's; when it is written is in `pace`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cachescope.core.errors import CacheScopeError, ClusterError
from cachescope.core.leases import Right
from cachescope.core.ledgers import LedgerFork
from cachescope.core.log_lines import fault_of
from cachescope.leases.pace import LEAST_SECONDS, Pace
from cachescope.leases.ports import Holder, LeaseConflict, LeaseGone, LeaseStore, LostAnswer, ServerBusy, Stored
from cachescope.leases.waiting import within

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_ATTEMPTS = 2
_DOUBLINGS = 10
_RELEASE_SECONDS = 2.0

DONE = "done"
ACKNOWLEDGED = "acknowledged"
FAILED = "failed"
GONE = "lease_gone"


class Rounds:
    """The rounds of one process, one after the other.

    Args:
        store: The API server.
        holder: The process.
        right: What is granted.
        clock: Milliseconds since the process started; ticks are read from it too.
        lease_ms: Length of a right in milliseconds.
        sleep: Waits, in seconds.
        lapsed: Closes everything in flight; called in the step in which a right is granted after another had ended.
        granted: Called in the same step, once that right holds.

    Attributes:
        outcomes: Rounds and acknowledgements by how they ended.
    """

    def __init__(
        self,
        store: LeaseStore,
        holder: Holder,
        *,
        right: Right,
        clock: Callable[[], int],
        lease_ms: int,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        lapsed: Callable[[], object] = lambda: None,
        granted: Callable[[], object] = lambda: None,
    ) -> None:
        self.outcomes: Counter[str] = Counter({DONE: 0, ACKNOWLEDGED: 0, FAILED: 0, GONE: 0})
        self._store = store
        self._holder = holder
        self._right = right
        self._clock = clock
        self._lease_ms = lease_ms
        self._sleep = sleep
        self._patient_until = 0
        self._pace = Pace(sleep)
        self._chance: Callable[[], float] = random.random
        self._lapsed = lapsed
        self._granted = granted
        self._tick = -1
        self._version: str | None = None
        self._unfinished = False
        self._fork_shown = False
        self._ended = False
        self._failures = 0
        self._reported: set[str] = set()

    async def run(self) -> None:
        """Go round until cancelled, then release the lease: a process ends once, and never has a right again."""
        if self._ended:
            return
        try:
            while True:
                await self.round()
                self._pace.arm(self._seconds())
                while await self._pace.acknowledges(self._may_acknowledge):
                    if not await self.acknowledge():
                        self._pace.arm(self._seconds())
        except asyncio.CancelledError:
            await self._release()
            raise
        finally:
            self._pace.stop()

    def hurry(self, *, whole: bool = False) -> None:
        """Ask for an acknowledgement at once, since there is something new to say.

        Args:
            whole: Ask for a whole round, which reads; at most one a second is made.
        """
        self._pace.hurry(whole=whole)

    async def round(self) -> bool:
        """One round, and whether it succeeded. Whatever goes wrong in it is logged and counted, and grants nothing."""
        self._pace.begin(whole=True)
        return await self._counted(self._steps(), DONE)

    async def acknowledge(self) -> bool:
        """Write what is new, and nothing else; whether that succeeded."""
        self._pace.begin(whole=False)
        return await self._counted(self._write(), ACKNOWLEDGED)

    def _may_acknowledge(self) -> bool:
        return not self._unfinished and not self._failures and self._right.live(self._clock())

    async def _counted(self, steps: Awaitable[object], outcome: str) -> bool:
        self._patient_until = self._clock() + self._lease_ms // 6
        try:
            await steps
        except Exception as error:
            self._failed(error)
            return False
        self._succeeded(outcome)
        return True

    async def _steps(self) -> None:
        if self._unfinished:
            await self._take()
        sent_at = await self._write()
        self._unfinished = True
        await self._take()
        self._unfinished = False
        self._grant(sent_at)

    async def _take(self) -> None:
        try:
            await self._holder.apply(await self._patiently(self._holder.read_heads))
        except LedgerFork:
            if not self._fork_shown:
                await self._write()
                self._fork_shown = True
            raise
        self._fork_shown = False

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
        """One attempt, or as many as a busy API server lets pass by; what it shows of the lease then."""
        try:
            return await self._patiently(lambda: self._send(name, sent))
        except (LeaseConflict, LostAnswer):
            return await self._patiently(lambda: self._store.get(name))

    async def _send(self, name: str, sent: dict[int, int]) -> Stored:
        now = self._clock()
        self._tick = max(now, self._tick + 1)
        spec = self._holder.spec(self._tick)
        sent[self._tick] = now
        if self._version is None:
            return await self._store.create(name, spec)
        return await self._store.replace(name, spec, self._version)

    async def _patiently(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Ask again for as long as the API server is busy and there is time."""
        while True:
            try:
                return await ask()
            except ServerBusy as busy:  # noqa: PERF203 - each time fails by itself
                left = (self._patient_until - self._clock()) / 1000
                if left <= 0:
                    raise
                await self._sleep(min(busy.seconds * (0.5 + 0.5 * self._chance()), left))

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
            self._granted()
            self.hurry()  # what was written before the read could not say what was read

    async def _release(self) -> None:
        """The last write. What cannot be closed or written soon is left to the end of the lease."""
        self._ended = True
        self._right.revoke()
        try:
            said = await within(self._say_released(), _RELEASE_SECONDS)
            if not said.done():
                raise ClusterError(f"it took more than {_RELEASE_SECONDS} s")
            said.result()
        except Exception as error:
            _LOG.warning("the lease was not released; its end is waited for", extra=_said(error))

    async def _say_released(self) -> None:
        await self._holder.released()
        if self._version is not None:
            await self._write()

    def _succeeded(self, outcome: str) -> None:
        self.outcomes[outcome] += 1
        self._failures = 0
        if self._reported:
            _LOG.info("lease rounds succeed again")
            self._reported.clear()

    def _failed(self, error: Exception) -> None:
        """Count it, and log each fault once until a round succeeds."""
        self.outcomes[GONE if isinstance(error, LeaseGone) else FAILED] += 1
        self._failures += 1
        what = _said(error)
        if str(what) not in self._reported:
            self._reported.add(str(what))
            _LOG.warning("a lease round failed; the right runs out if this goes on", extra=what)

    def _seconds(self) -> float:
        """A third of the lease; after failures a second, doubled with each. A fifth of it is chance."""
        longest = self._lease_ms / 3000
        if self._failures:
            longest = min(longest, LEAST_SECONDS * 2 ** min(self._failures - 1, _DOUBLINGS))
        return longest * (0.8 + 0.2 * self._chance())


def _said(error: Exception) -> dict[str, str]:
    return {"problem": str(error)} if isinstance(error, CacheScopeError) else fault_of(error)
