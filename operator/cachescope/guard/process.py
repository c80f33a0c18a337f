"""The guard's state, one for each process, and the decisions that are made on it.

Rules:

- a decision reads clock, right, heads and memory, and registers the request, without giving up the event loop in between;
- what is not known yet (keys, digests, heads) refuses;
- before anything is said of a request in flight, it was compared with the newest heads: no message passes between a new head and
  what it closes;
- nothing is served before the first right, nor before the first one after a lease that was lost, nor when the last one has been
  over for some time (`leases.fresh_for_ms`): then its lease may be removed, and no fence waits for it any more;
- where the engine knows no salts, the first request that passes everything else binds the pod (`binding`);
- a head is acknowledged once nothing in flight is older than it, see `closing`;
- the boot id is drawn when the state is made, in the process that serves, never at import, and again when its lease is gone.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Callable, Sequence

import cachescope
from cachescope.core.admission import GuardState, Refusal, Request, UsedPermits, refusal
from cachescope.core.caches import Caching
from cachescope.core.errors import WireFormatError
from cachescope.core.heads import Heads
from cachescope.core.leases import fresh_for_ms
from cachescope.core.ledgers import Role
from cachescope.core.permits import Permit, read_permit
from cachescope.core.record import Loaded
from cachescope.core.statements import Statement, write_statement
from cachescope.core.types import NO_CACHE, CacheIdentity
from cachescope.guard.binding import Binding
from cachescope.guard.cleanup import Cleanup
from cachescope.guard.closing import Closing
from cachescope.guard.confirmation import EngineConfirmation
from cachescope.guard.heads import HeadSource, RightKeeper
from cachescope.guard.in_flight import Flight, InFlight
from cachescope.guard.key_folder import KeyFolder
from cachescope.guard.settings import VLLM, Settings
from cachescope.leases.waiting import within

_LOG = logging.getLogger(__name__)
_NONCE = re.compile(r"[A-Za-z0-9_-]{16,128}\Z")


class GuardProcess:
    """What a guard process knows.

    Args:
        settings: What it was told.
        source: Where heads and the right come from.
        keys: Its permit keys.
        clock: Milliseconds since the process started; its ticks.
        digests: Computes what the engine loaded; called once, in a thread.
        binding: Whose cache the pod's is, where the engine knows no salts.

    Attributes:
        problem: Why it can never serve, or `None`.
        boot_id: Random id of this process.
        loaded: What the engine loaded, once it is known.
        keeper: What keeps its right, or `None` where the source does that by itself.
        acknowledged: The newest heads below which everything is closed and drained, or `None` before the first.
        on_acknowledged: Called when that changes.
        on_bound: Called when the pod's cache has become somebody's.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        source: HeadSource,
        keys: KeyFolder,
        clock: Callable[[], int],
        digests: Callable[[], Loaded],
        binding: Binding | None = None,
    ) -> None:
        self.settings = settings
        self.source = source
        self.keys = keys
        self.clock = clock
        self.digests = digests
        self.binding = binding
        self.problem: str | None = None
        self.boot_id = secrets.token_hex(16)
        self.loaded: Loaded | None = None
        self.keeper: RightKeeper | None = None
        self.used = UsedPermits(settings.used_permits)
        self.in_flight = InFlight()
        self.closing = Closing(self.in_flight, EngineConfirmation(lambda: len(self.in_flight.open())))
        self.cleanup = Cleanup(settings.pool_target, enabled=settings.resets_cache, clock=clock)
        self.acknowledged: Heads | None = None
        self.on_acknowledged: Callable[[], None] = _nobody
        self.on_bound: Callable[[], None] = _nobody
        self._applied: Heads | None = None
        self._released = False
        self._silent_generation = 0
        self._left_at = 0
        self._woken = asyncio.Event()

    @property
    def cache(self) -> CacheIdentity:
        """Whose cache the pod's is; nobody's where salts keep requests apart, and before the first request."""
        return self.binding.cache if self.binding else NO_CACHE

    def tick(self) -> int:
        """Milliseconds since the process started."""
        return self.clock()

    def used_ms(self) -> int:
        """Its tick when it last had a request under way; 0 for never."""
        return self.clock() if self.in_flight.open() else self._left_at

    def state(self) -> GuardState:
        """What the guard knows of itself now."""
        now = self.clock()
        return GuardState(
            pool_uid=self.settings.pool_uid,
            pool_target=self.settings.pool_target,
            pod_uid=self.settings.pod_uid,
            boot_id=self.boot_id,
            tick=now,
            max_age_ms=self.settings.lease_ms,
            loaded=self.loaded,
            heads=self.source.heads,
            right=self._right(now),
            fresh=self._fresh_ms() > 0,
            caching=self.settings.caching,
            cache=self.cache,
        )

    async def read_permit(self, text: str) -> Permit | Refusal:
        """Verify a permit; an unknown key is looked for in the folder, at most once a second."""
        permit = self._verified(text)
        if permit is None and await self.keys.reload_if_due():
            permit = self._verified(text)
        if permit is not None:
            return permit
        return Refusal.PERMIT_INVALID if self.keys.ring else Refusal.NO_RIGHT

    def look(self, permit: Permit, request: Request) -> Refusal | None:
        """Whether the permit would be refused now; nothing is used up."""
        return refusal(permit, request, self.state())

    def admit(self, permit: Permit, request: Request) -> Flight | Refusal:
        """Decide, use the permit and register the request, in one step of the event loop.

        Args:
            permit: The verified permit.
            request: The request with its body's digest.

        Raises:
            RuntimeError: The body has not been read; read it before admission.
        """
        if request.body_digest is None:
            raise RuntimeError("a request is admitted after its body was read; read it first")
        state = self.state()
        if state.heads is None:
            return Refusal.NO_RIGHT
        refused = refusal(permit, request, state) or self.used.use(permit, tick=state.tick, max_age_ms=state.max_age_ms)
        refused = refused or self._bind(permit)
        if refused is not None:
            return refused
        flight = Flight(permit, state.heads, generation=self.source.generation, now=state.tick)
        self.in_flight.enter(flight)
        return flight

    def verdict(self, flight: Flight) -> Refusal | None:
        """Whether a message of this request may still be handed over; a few attribute reads while nothing changed."""
        if self.source.heads is not self._applied:
            self.apply()
        if flight.reason is not None:
            return flight.reason
        now = self.clock()
        return flight.ended(now, generation=self.source.generation, right=self._right(now), fresh_ms=self._fresh_ms())

    def leave(self, flight: Flight) -> None:
        """A request's application returned."""
        self.in_flight.leave(flight)
        self._left_at = self.clock()
        if self.acknowledged is not self._applied:
            self._woken.set()

    def apply(self) -> None:
        """Close everything in flight that heads, right or time made old, and start the drains that they allow."""
        heads, now = self.source.heads, self.clock()
        right, fresh_ms = self._right(now), self._fresh_ms()
        self._applied = heads
        closed = 0
        for flight in self.in_flight.open():
            reason = flight.follow(heads, now) if heads is not None else Refusal.NO_RIGHT
            reason = reason or flight.ended(now, generation=self.source.generation, right=right, fresh_ms=fresh_ms)
            if reason is not None:
                self.in_flight.abort(flight, reason)
                closed += 1
        if closed:
            _LOG.warning("requests in flight were closed", extra={"closed": closed, "right": right})
        self._woken.set()

    async def closed(self) -> None:
        """Return when everything that was closed is over for the engine too; acknowledge what nothing in flight is older than."""
        await self.closing.over()
        self._acknowledge()

    async def keep_closing(self) -> None:
        """Close and acknowledge what becomes old or over between the calls of others, until cancelled."""
        while True:
            await self._change()
            self._woken.clear()
            if self.in_flight.drain_ends() is not None:
                self.apply()
                self._woken.clear()
            await self.closed()

    def release(self) -> None:
        """Refuse everything from now on, and close what is in flight: the process ends."""
        self._released = True
        self.in_flight.abort_all(Refusal.NO_RIGHT)
        self._woken.set()

    def restart(self) -> None:
        """Be another process from now on: close everything, and let no permit of before pass.

        The used permits stay remembered; they name the old boot id, and do no harm.
        """
        closed = self.in_flight.abort_all()
        self._silent_generation = self.source.generation
        self.boot_id = secrets.token_hex(16)
        _LOG.warning("the guard goes on with a new boot id", extra={"closed": closed})

    async def refresh(self) -> None:
        """Read the heads again, and apply them."""
        await self.source.refresh()
        self.apply()

    def statement(self, nonces: Sequence[str]) -> str | None:
        """The signed answer to a challenge, or `None` if the nonce is bad or something is not known yet."""
        heads, now = self.source.heads, self.clock()
        serves = self._right(now) or self._fresh_ms() > 0
        if heads is None or not serves or self.loaded is None or self.keys.ring is None or self.problem or not _is_nonce(nonces):
            return None
        statement = Statement(
            nonce=nonces[0],
            pool_uid=self.settings.pool_uid,
            pod_uid=self.settings.pod_uid,
            boot_id=self.boot_id,
            tick=now,
            engine=self.loaded.engine,
            lineage=heads.pool.lineage.id,
            sequence=heads.pool.sequence,
            authorization_lineage=heads.authorization.lineage.id,
            authorization_sequence=heads.authorization.sequence,
            right_ms=self.source.right_left_ms(now) if self._right(now) else 0,
            version=cachescope.__version__,
            adapters=self.loaded.adapters,
            engine_type="" if self.settings.engine_type == VLLM else self.settings.engine_type,
            caching="" if self.settings.caching is Caching.SALTED else self.settings.caching.value,
            cache=self.cache,
        )
        return write_statement(self.keys.ring.current, statement)

    def _bind(self, permit: Permit) -> Refusal | None:
        if self.settings.caching is not Caching.ONE_CACHE:
            return None
        if self.binding is None:
            return Refusal.NOT_KEPT
        before = self.cache
        bound = self.binding.bind(permit.cache)
        if self.cache != before:
            self.on_bound()
        if bound:
            return None
        return Refusal.NOT_KEPT if self.cache == NO_CACHE else Refusal.OTHER_CACHE

    def _right(self, now: int) -> bool:
        return not self._released and self.source.right_left_ms(now) > 0

    def _fresh_ms(self) -> int:
        fresh_ms = self.settings.fresh_ms
        over = self.source.over_ms(self.clock()) >= fresh_for_ms(fresh_ms)
        silent = self._released or self.source.generation == self._silent_generation or over
        return 0 if silent else fresh_ms

    def _acknowledge(self) -> None:
        """Acknowledge what was applied, in the step in which the last that was closed is over; a drain withholds its own ledger."""
        closed = self._closed_below()
        if closed is not None and closed != self.acknowledged:
            self.acknowledged = closed
            self.on_acknowledged()
            self.cleanup.acknowledged(closed)

    def _closed_below(self) -> Heads | None:
        """The newest states below which nothing is in flight: of a ledger that is being drained, the one acknowledged before."""
        applied, before, held_up = self._applied, self.acknowledged, self.in_flight.held_up()
        if applied is None or not held_up:
            return applied
        if before is None:
            return None
        return Heads(
            before.pool if Role.POOL in held_up else applied.pool,
            before.authorization if Role.AUTHORIZATION in held_up else applied.authorization,
        )

    async def _change(self) -> None:
        """Wait until something in flight may be over, be it by time."""
        ends = self.in_flight.drain_ends()
        seconds = None if ends is None else max(0, ends - self.clock()) / 1000
        await within(self._woken.wait(), seconds)

    def _verified(self, text: str) -> Permit | None:
        if self.keys.ring is None:
            return None
        try:
            return read_permit(self.keys.ring, text)
        except WireFormatError as error:
            _LOG.debug("a permit cannot be read", extra={"problem": str(error)})
            return None


def _is_nonce(nonces: Sequence[str]) -> bool:
    return len(nonces) == 1 and _NONCE.match(nonces[0]) is not None


def _nobody() -> None:
    """Nobody waits for acknowledgements."""
