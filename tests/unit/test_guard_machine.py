"""A guard under any order of events: nothing below what it acknowledged is ever handed over, and what stands passes.

Its engine knows no salts: whoever is admitted first is the only one who ever is, also for a guard that starts anew.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cachescope.core.admission import Refusal, Request
from cachescope.core.caches import Caching
from cachescope.core.digests import sha256
from cachescope.core.heads import Heads, Seen
from cachescope.core.ledgers import Floor, Ledger, Lineage, Role
from cachescope.core.types import NO_CACHE, CacheIdentity, Epoch, Reuse
from cachescope.guard.binding import Binding
from cachescope.guard.in_flight import Flight
from tests.unit.guard_fakes import BODY, PATH, POOL, TENANT, World, vector

FRESH_MS = 120_000
TURNS = 12
REQUEST = Request("POST", PATH, sha256(BODY))
LINEAGE = Lineage(1, "lineage")
MINE, OTHERS = CacheIdentity("m" * 43), CacheIdentity("o" * 43)
CACHES = [MINE, MINE, MINE, OTHERS]
"""More often one and the same, so that most requests are served."""


@dataclass(eq=False)
class Sent:
    """A request as the reference knows it."""

    flight: Flight
    pool: int
    tenant: int
    reuse: Reuse
    generation: int
    admitted_at: int
    drain_until: int | None = None
    fell: bool = False


class GuardMachine(RuleBasedStateMachine):
    """The guard beside a reference that is a few numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.world = World(caching=Caching.ONE_CACHE)
        self.bound = NO_CACHE
        self.process, self.source = self.world.process, self.world.source
        self.sent: list[Sent] = []
        self.pool = self.tenant = 1
        self.abort_below, self.drain_seconds = 0, 0
        self.sequence = 0
        self.returned: list[Sent] = []
        self.binding_is_read()
        self._publish()
        self.keeping = self.loop.create_task(self.process.keep_closing())
        self._turn()

    def teardown(self) -> None:
        self.keeping.cancel()
        self.loop.run_until_complete(asyncio.gather(self.keeping, return_exceptions=True))
        self.loop.close()
        self.folder.cleanup()

    @rule(
        reuse=st.sampled_from([Reuse.SALTED, Reuse.FRESH]),
        pool_lag=st.integers(0, 1),
        tenant_lag=st.integers(0, 1),
        cache=st.sampled_from(CACHES),
    )
    def admit(self, reuse: Reuse, pool_lag: int, tenant_lag: int, cache: CacheIdentity) -> None:
        pool, tenant = self.pool - pool_lag, self.tenant - tenant_lag
        seen = Seen(LINEAGE.id, self.sequence, LINEAGE.id, self.sequence)
        permit = self.world.permit(epochs=vector(pool, tenant), seen=seen, reuse=reuse, cache=cache)
        found = self.process.admit(permit, REQUEST)
        if pool_lag or tenant_lag:
            assert found is Refusal.BEHIND
        elif reuse is Reuse.SALTED and not self.source.left_ms:
            assert found is Refusal.LEASE_LOST
        elif self.bound not in {NO_CACHE, cache}:
            assert found is Refusal.OTHER_CACHE
        else:
            assert isinstance(found, Flight)
            self.bound = cache
            self.sent.append(Sent(found, pool, tenant, reuse, self.source.generation, self.world.clock()))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def message(self, data: st.DataObject) -> None:
        sent = data.draw(st.sampled_from(self.sent))
        passes = self.process.verdict(sent.flight) is None
        assert passes == (self._stands(sent) and not sent.fell)
        acknowledged = self.process.acknowledged
        if passes and acknowledged is not None:
            assert sent.pool >= acknowledged.pool.epoch(POOL)
            assert sent.tenant >= acknowledged.authorization.epoch(TENANT)

    @rule(noticed=st.booleans())
    def revoke(self, noticed: bool) -> None:
        self.tenant += 1
        self._publish()
        if noticed:
            self.process.apply()

    @rule(seconds=st.sampled_from([0, 5, 30]))
    def roll(self, seconds: int) -> None:
        """Abort, or drain for some seconds."""
        self.pool += 1
        self.drain_seconds = seconds
        if not seconds:
            self.abort_below = self.pool
        self._publish()
        self.process.apply()
        until = self.world.clock() + seconds * 1000
        for sent in self.sent:
            if sent.pool < self.pool:
                sent.drain_until = min(until, sent.drain_until or until)

    @rule(milliseconds=st.sampled_from([1, 4_999, 5_000, 30_000, FRESH_MS]))
    def wait(self, milliseconds: int) -> None:
        self.world.clock.now += milliseconds

    @rule()
    def lapse(self) -> None:
        self.source.left_ms = 0

    @rule(noticed=st.booleans())
    def renew(self, noticed: bool) -> None:
        if self.source.left_ms == 0:
            self.source.generation += 1
            if noticed:
                self.process.in_flight.abort_all()
        self.source.left_ms = 1000

    @rule()
    def poll(self) -> None:
        self.process.apply()

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def application_returns(self, data: st.DataObject) -> None:
        sent = data.draw(st.sampled_from(self.sent))
        self.sent.remove(sent)
        if sent.flight.reason is not None:
            self.returned.append(sent)
        self.process.leave(sent.flight)

    @rule(answers=st.booleans())
    def engine(self, answers: bool) -> None:
        (self.world.confirmation.allowed.set if answers else self.world.confirmation.allowed.clear)()

    @rule()
    def binding_is_read(self) -> None:
        """As a guard does that starts anew."""
        self.process.binding = Binding(Path(self.folder.name))

    @invariant()
    def it_is_bound_to_whoever_was_admitted_first(self) -> None:
        assert self.process.cache == self.bound

    @invariant()
    def only_what_fell_is_closed(self) -> None:
        for sent in self.sent:
            sent.fell = sent.fell or not self._stands(sent)
            assert sent.fell or sent.flight.reason is None

    @invariant()
    def acknowledged_means_that_nothing_older_is_left(self) -> None:
        self._turn()
        acknowledged = self.process.acknowledged
        if acknowledged is None:
            return
        assert not [sent for sent in self.sent if self._older(sent, acknowledged)]
        known = [sent for sent in self.returned if sent.flight.permit.id not in self.world.confirmation.done]
        assert not [sent for sent in known if self._older(sent, acknowledged)]

    @invariant()
    def what_is_over_is_acknowledged_once_it_was_applied(self) -> None:
        left = [sent for sent in self.sent if sent.flight.reason is not None or sent.flight.drain_until is not None]
        if not left and self.world.confirmation.allowed.is_set():
            self.process.apply()
            left = [sent for sent in self.sent if sent.flight.reason is not None]
            self._turn()
            assert left or self.process.acknowledged is self.source.heads

    def _stands(self, sent: Sent) -> bool:
        """Whether a message of the request may pass now, by the rules alone."""
        if sent.generation != self.source.generation or sent.tenant < self.tenant:
            return False
        behind = sent.pool < self.pool
        if behind and (sent.pool < self.abort_below or self.world.clock() >= (sent.drain_until or 0)):
            return False
        if self.source.left_ms:
            return True
        return not behind and sent.reuse is Reuse.FRESH and self.world.clock() < sent.admitted_at + FRESH_MS

    def _older(self, sent: Sent, heads: Heads) -> bool:
        return sent.pool < heads.pool.epoch(POOL) or sent.tenant < heads.authorization.epoch(TENANT)

    def _publish(self) -> None:
        self.sequence += 1
        pool = {POOL: Floor(Epoch(self.pool), Epoch(self.abort_below), self.drain_seconds)}
        tenant = {TENANT: Floor(Epoch(self.tenant), Epoch(self.tenant))}
        self.source.heads = Heads(
            Ledger(Role.POOL, LINEAGE, self.sequence, floors=pool),
            Ledger(Role.AUTHORIZATION, LINEAGE, self.sequence, floors=tenant),
        )

    def _turn(self) -> None:
        async def turns() -> None:
            for _ in range(TURNS):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())


TestGuardMachine = GuardMachine.TestCase
TestGuardMachine.settings = settings(max_examples=40, stateful_step_count=40)
