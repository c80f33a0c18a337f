"""The guard's state, one for each process, and the decisions that are made on it.

Rules:

- a decision reads clock, right, head and memory, and registers the request, without giving up the event loop in between;
- what is not known yet (keys, digests, head) refuses;
- the boot id is drawn when the state is made, in the process that serves, never at import, and again when its lease is gone.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Sequence

import cachescope
from cachescope.core.admission import GuardState, Refusal, Request, UsedPermits, refusal
from cachescope.core.errors import WireFormatError
from cachescope.core.permits import Permit, read_permit
from cachescope.core.record import EngineDigests
from cachescope.core.statements import Statement, write_statement
from cachescope.guard.heads import HeadSource, RightKeeper
from cachescope.guard.in_flight import Flight, InFlight
from cachescope.guard.key_folder import KeyFolder
from cachescope.guard.settings import Settings

_LOG = logging.getLogger(__name__)
_NONCE = re.compile(r"[A-Za-z0-9_-]{16,128}\Z")


class GuardProcess:
    """What a guard process knows.

    Args:
        settings: What it was told.
        source: Where heads and rights come from.
        keys: Its permit keys.
        clock: Milliseconds since the process started; its ticks.
        digests: Computes what the engine loaded; called once, in a thread.

    Attributes:
        problem: Why it can never serve, or `None`.
        boot_id: Random id of this process.
        engine: What the engine loaded, once it is known.
        keeper: What keeps its right, or `None` where the source does that by itself.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        source: HeadSource,
        keys: KeyFolder,
        clock: Callable[[], int],
        digests: Callable[[], EngineDigests],
    ) -> None:
        self.settings = settings
        self.source = source
        self.keys = keys
        self.clock = clock
        self.digests = digests
        self.problem: str | None = None
        self.boot_id = secrets.token_hex(16)
        self.engine: EngineDigests | None = None
        self.keeper: RightKeeper | None = None
        self.used = UsedPermits(settings.used_permits)
        self.in_flight = InFlight()

    def tick(self) -> int:
        """Milliseconds since the process started."""
        return self.clock()

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
            runtime_digest=self.engine.runtime if self.engine else None,
            head=self.source.current(now),
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
        if state.head is None:
            return Refusal.NO_RIGHT
        refused = refusal(permit, request, state) or self.used.use(permit, tick=state.tick, max_age_ms=state.max_age_ms)
        if refused is not None:
            return refused
        flight = Flight(permit.epochs, self.source.generation, state.head)
        self.in_flight.enter(flight)
        return flight

    def verdict(self, flight: Flight) -> Refusal | None:
        """Whether a message of this request may still be handed over; a few attribute reads while nothing changed."""
        if flight.reason is not None:
            return flight.reason
        head = self.source.current(self.clock())
        if head is None or flight.generation != self.source.generation:
            return Refusal.NO_RIGHT
        if head is not flight.head:
            if head.lineage != flight.head.lineage or head.floors.below(flight.epochs):
                return Refusal.BEHIND
            flight.head = head
        return None

    def apply(self) -> None:
        """Close everything in flight that the head or the loss of a right made old."""
        head = self.source.current(self.clock())
        if head is None:
            closed = self.in_flight.abort_all()
        else:
            closed = self.in_flight.abort_generation(self.source.generation)
            closed += self.in_flight.abort_lineage(head.lineage) + self.in_flight.abort_below(head.floors)
        if closed:
            _LOG.warning("requests in flight were closed", extra={"closed": closed, "right": head is not None})

    def restart(self) -> None:
        """Be another process from now on: close everything, and let no permit of before pass.

        The used permits stay remembered; they name the old boot id, and do no harm.
        """
        closed = self.in_flight.abort_all()
        self.boot_id = secrets.token_hex(16)
        _LOG.warning("the guard goes on with a new boot id", extra={"closed": closed})

    async def refresh(self) -> None:
        """Read the head again, and apply it."""
        await self.source.refresh()
        self.apply()

    def statement(self, nonces: Sequence[str]) -> str | None:
        """The signed answer to a challenge, or `None` if the nonce is bad or something is not known yet."""
        head = self.source.current(self.clock())
        if head is None or self.engine is None or self.keys.ring is None or self.problem or not _is_nonce(nonces):
            return None
        statement = Statement(
            nonce=nonces[0],
            pool_uid=self.settings.pool_uid,
            pod_uid=self.settings.pod_uid,
            boot_id=self.boot_id,
            tick=self.tick(),
            engine=self.engine,
            lineage=head.lineage,
            sequence=head.sequence,
            version=cachescope.__version__,
        )
        return write_statement(self.keys.ring.current, statement)

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
