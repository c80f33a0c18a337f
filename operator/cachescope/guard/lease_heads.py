"""The heads that a guard read from the Kubernetes API, under the right that its lease rounds keep.

Rules:

- only a round grants the right; what is learned between two rounds raises floors and nothing else;
- only a round takes a new lineage, and only one of a higher generation that holds all that this process knows; between rounds a
  new lineage asks for a round;
- what does not follow from what was read before is a fork: the right ends, and stays away until a round reads what follows;
- reads are made one after the other, and what a watch brought while one was under way is held against what it returned: nothing
  that a process holds ever goes back, neither a floor nor the sequence.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from cachescope.core.errors import ClusterError, SpecError
from cachescope.core.heads import Heads
from cachescope.core.leases import Right
from cachescope.core.ledger_documents import parse_ledger
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Ledger, LedgerFork, Role, followed
from cachescope.core.lineages import taken

_LOG = logging.getLogger(__name__)
_REFRESH_AFTER_MS = 100


@dataclass(frozen=True)
class Reading:
    """What a round read.

    Attributes:
        since: The heads that were held when the read began.
        pool: Spec of the pool's ledger.
        authorization: Spec of the authorization head.
    """

    since: Heads | None
    pool: object
    authorization: object


class LeaseHeads:
    """Implements `HeadSource` on two ledgers that are read by quorum.

    Args:
        read: Reads the spec of an `EpochLedger` by quorum, by its name.
        clock: Milliseconds since the process started.
        pool: Name of the pool, and of its ledger.

    Attributes:
        right: The right to act on the heads; the rounds grant it.
        applied: The heads that were applied last, also before the first right.
        on_raised: Called when something rose between two rounds.
        on_later_lineage: Called when a lineage was seen that only a round can take.
        hold: Called with name and value of each ledger that a round read; raises `LedgerFork` where it lacks what is known beside.
    """

    def __init__(self, read: Callable[[str], Awaitable[object]], clock: Callable[[], int], *, pool: str) -> None:
        self.right = Right()
        self.applied: Heads | None = None
        self.on_raised: Callable[[], None] = _nobody
        self.on_later_lineage: Callable[[], None] = _nobody
        self.hold: Callable[[str, Ledger], None] = _nothing
        self._read = read
        self._clock = clock
        self._pool = pool
        self._specs: dict[str, Mapping[str, Any]] = {}
        self._lock = asyncio.Lock()
        self._refreshed_at: int | None = None
        self._reported: set[str] = set()

    @property
    def generation(self) -> int:
        """Number of the unbroken chain of rights."""
        return self.right.generation

    @property
    def heads(self) -> Heads | None:
        """What was applied last; nothing is served before the first right."""
        return self.applied if self.right.generation else None

    def right_left_ms(self, now_ms: int) -> int:
        """Milliseconds until the right ends."""
        return self.right.left_ms(now_ms)

    def over_ms(self, now_ms: int) -> int:
        """Milliseconds since the last right ended, or would have ended."""
        return self.right.over_ms(now_ms)

    @property
    def names(self) -> tuple[str, str]:
        """Names of both ledgers."""
        return self._pool, AUTHORIZATION_HEAD

    def sources(self) -> tuple[tuple[str, Ledger, Mapping[str, Any]], ...]:
        """Both applied ledgers: name, value, and the spec that it was read from; nothing before the first read."""
        if self.applied is None:
            return ()
        ledgers = (self.applied.pool, self.applied.authorization)
        return tuple((name, ledger, self._specs[name]) for name, ledger in zip(self.names, ledgers, strict=True))

    async def read(self) -> Reading:
        """Read both ledgers for a round, one read at a time.

        Raises:
            ClusterError: One of them cannot be read.
        """
        async with self._lock:
            return await self._reading()

    def apply(self, reading: Reading) -> None:
        """Take over what a round read.

        Raises:
            LedgerFork: It does not follow from what was held before; the right is over.
            SpecError: It is no ledger.
        """
        pool = _parsed(reading.pool, Role.POOL)
        authorization = _parsed(reading.authorization, Role.AUTHORIZATION)
        since, known = _ledgers(reading.since), _ledgers(self.applied)
        try:
            for name, ledger in zip(self.names, (pool, authorization), strict=True):
                self.hold(name, ledger)
            held = Heads(_later(since[0], known[0], pool), _later(since[1], known[1], authorization))
        except LedgerFork:
            self.right.revoke()
            raise
        self._reported.clear()
        if held.pool is pool:
            self._specs[self._pool] = _document(reading.pool)
        if held.authorization is authorization:
            self._specs[AUTHORIZATION_HEAD] = _document(reading.authorization)
        if _ledgers(held) != known:
            self.applied = held

    def hint(self, name: str, spec: object) -> None:
        """Take over what rose in one ledger, as a watch or a read between two rounds brought it."""
        if self.applied is None:
            return
        try:
            self._hinted(self.applied, name, spec)
        except SpecError as error:  # a fork too: the next round reads by quorum what it is
            if str(error) not in self._reported:
                self._reported.add(str(error))
                _LOG.warning("a ledger that was learned of between two rounds is passed over", extra={"problem": str(error)})

    async def refresh(self) -> None:
        """Read both ledgers once and take over what rose, at most ten times a second; without heads this waits for a round."""
        asked_at = self._clock()
        async with self._lock:
            if self.applied is None or self._was_refreshed(asked_at):
                return
            self._refreshed_at = self._clock()
            try:
                reading = await self._reading()
            except ClusterError as error:
                _LOG.debug("the ledgers cannot be read between two rounds", extra={"problem": str(error)})
                return
        self.hint(self._pool, reading.pool)
        self.hint(AUTHORIZATION_HEAD, reading.authorization)

    async def _reading(self) -> Reading:
        since = self.applied
        pool, authorization = await asyncio.gather(self._read(self._pool), self._read(AUTHORIZATION_HEAD))
        return Reading(since, pool, authorization)

    def _was_refreshed(self, asked_at: int) -> bool:
        """Whether a read began since somebody asked, or just before."""
        began_at = self._refreshed_at
        return began_at is not None and (began_at >= asked_at or self._clock() - began_at < _REFRESH_AFTER_MS)

    def _hinted(self, applied: Heads, name: str, spec: object) -> None:
        of_pool = name == self._pool
        known = applied.pool if of_pool else applied.authorization
        newer = _parsed(spec, known.role)
        if newer.lineage.generation > known.lineage.generation:
            self.on_later_lineage()
        elif newer.lineage == known.lineage and newer.sequence > known.sequence:
            followed(known, newer)
            self._specs[name] = _document(spec)
            self.applied = Heads(newer, applied.authorization) if of_pool else Heads(applied.pool, newer)
            self.on_raised()
        # Anything else is late, or of before a restore: rounds tell one from the other.


def _parsed(spec: object, role: Role) -> Ledger:
    ledger = parse_ledger(spec)
    if ledger.role is not role:
        raise SpecError(
            f"the ledger is {ledger.role.value} and not {role.value}; the operator deals with it: see the pool's events"
        )
    return ledger


def _ledgers(heads: Heads | None) -> tuple[Ledger, Ledger] | tuple[None, None]:
    return (heads.pool, heads.authorization) if heads is not None else (None, None)


def _document(spec: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", spec)  # it was parsed


def _nobody() -> None:
    """Nobody waits."""


def _nothing(_name: str, _ledger: Ledger) -> None:
    """Nothing is known beside."""


def _later(since: Ledger | None, known: Ledger | None, read: Ledger) -> Ledger:
    """What is held after a read.

    Args:
        since: What was held when it began: what was read has to follow from it.
        known: What is held now; a watch may have brought it meanwhile, and then it may be later than what was read.
        read: What was read.

    Raises:
        LedgerFork: It does not follow.
    """
    taken(since, read)
    if known is None:
        return read
    # The same state, or an older one: a watch brought the later one while this was read.
    return known if known.knows(read.mark) or known.forgot(read.mark) else taken(known, read)
