"""Heads are acknowledged once nothing older is left: closed, returned, confirmed by the engine, and drained."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from cachescope.core.admission import Refusal, Request
from cachescope.core.digests import sha256
from cachescope.core.epochs import FIRST_EPOCH
from cachescope.core.heads import Heads
from cachescope.core.ledgers import Floor
from cachescope.core.types import Epoch, Reuse, TargetName
from cachescope.guard.in_flight import Flight
from tests.unit.guard_fakes import (
    BODY,
    PATH,
    TENANT,
    World,
    at_once,
    draining,
    head_at,
    until,
    with_authorization,
    with_pool,
)

OTHER = TargetName("c" * 64)
LATER = head_at(tenant=2, sequence=2)
TURNS = 50


class Acknowledged:
    """Counts what the holder of the lease is told."""

    def __init__(self, world: World) -> None:
        self.calls = 0
        world.process.on_acknowledged = self

    def __call__(self) -> None:
        self.calls += 1


def admitted(world: World, reuse: Reuse = Reuse.SALTED) -> Flight:
    flight = world.process.admit(world.permit(reuse=reuse), Request("POST", PATH, sha256(BODY)))
    assert isinstance(flight, Flight)
    return flight


def applied(world: World, heads: Heads = LATER) -> None:
    world.source.heads = heads
    world.process.apply()


async def finished(work: Awaitable[None]) -> None:
    await asyncio.wait_for(work, 5)


@asynccontextmanager
async def unfinished(work: Awaitable[None]) -> AsyncIterator[asyncio.Future[None]]:
    """It does not finish in many turns of the loop; it is cancelled in the end."""
    task = asyncio.ensure_future(work)
    for _ in range(TURNS):
        await asyncio.sleep(0)
    assert not task.done()
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def keeping(world: World) -> AsyncIterator[None]:
    task = asyncio.ensure_future(world.process.keep_closing())
    yield
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_idle_guard_acknowledges_at_once_and_asks_nobody() -> None:
    world = World()
    told = Acknowledged(world)
    applied(world)
    await finished(world.process.closed())
    assert (world.process.acknowledged, told.calls, world.confirmation.asked) == (LATER, 1, [])
    await finished(world.process.closed())
    assert told.calls == 1


async def test_nothing_is_acknowledged_before_it_was_applied() -> None:
    world = World()
    await finished(world.process.closed())
    assert world.process.acknowledged is None
    first = world.source.heads
    world.process.apply()
    world.source.heads = LATER
    await finished(world.process.closed())
    assert world.process.acknowledged is first


async def test_what_heads_do_not_concern_goes_on_and_is_not_waited_for() -> None:
    world = World()
    flight = admitted(world)
    heads = head_at(sequence=2)
    applied(world, heads)
    await finished(world.process.closed())
    assert (world.process.acknowledged, flight.reason, world.confirmation.asked) == (heads, None, [])


async def test_an_application_that_never_returns_is_never_acknowledged() -> None:
    world = World()
    told = Acknowledged(world)
    flight = admitted(world)
    applied(world)
    async with unfinished(world.process.closed()) as closing:
        assert (flight.reason, world.process.acknowledged, world.confirmation.asked) == (Refusal.BEHIND, None, [])
        world.process.leave(flight)
        await finished(closing)
    assert (world.process.acknowledged, told.calls) == (LATER, 1)
    assert world.confirmation.asked == [[flight.permit.id]]


async def test_an_engine_that_never_confirms_is_never_acknowledged() -> None:
    world = World()
    world.confirmation.allowed.clear()
    flight = admitted(world)
    applied(world)
    world.process.leave(flight)
    async with unfinished(world.process.closed()) as closing:
        assert world.process.acknowledged is None
        assert world.process.in_flight.counts() == {"open": 0, "draining": 0, "closing": 1}
        world.confirmation.allowed.set()
        await finished(closing)
    assert world.process.acknowledged == LATER
    assert world.process.in_flight.counts() == {"open": 0, "draining": 0, "closing": 0}


async def test_an_engine_that_cannot_say_is_asked_again() -> None:
    world = World()
    world.confirmation.failures = 3
    flight = admitted(world)
    applied(world)
    world.process.leave(flight)
    await finished(world.process.closed())
    assert (world.process.acknowledged, len(world.confirmation.asked)) == (LATER, 4)
    assert world.process.closing.outcomes == {"failed": 3, "confirmed": 1}


async def test_what_is_closed_while_the_engine_is_asked_is_waited_for_too() -> None:
    world = World()
    world.confirmation.allowed.clear()
    first, second = admitted(world), admitted(world)
    world.process.in_flight.abort(first, Refusal.BEHIND)
    world.process.leave(first)
    async with unfinished(world.process.closed()):
        applied(world)
        world.confirmation.allowed.set()
        async with unfinished(world.process.closed()) as closing:
            assert (second.reason, world.process.acknowledged) == (Refusal.BEHIND, None)
            world.process.leave(second)
            await finished(closing)
    assert world.process.acknowledged == LATER


async def test_a_drain_refuses_new_requests_and_withholds_the_acknowledgement() -> None:
    world = World()
    told = Acknowledged(world)
    flight = admitted(world)
    heads = draining(2, 30)
    applied(world, heads)
    await finished(world.process.closed())
    assert world.process.admit(world.permit(), Request("POST", PATH, sha256(BODY))) is Refusal.BEHIND
    assert (world.process.verdict(flight), flight.reason, world.process.acknowledged) == (None, None, None)
    assert world.process.in_flight.counts() == {"open": 0, "draining": 1, "closing": 0}
    async with keeping(world):
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert told.calls == 0
        world.process.leave(flight)
        await until(lambda: told.calls == 1)
    assert (world.process.acknowledged, world.confirmation.asked) == (heads, [])


async def test_a_drain_withholds_the_ledger_that_it_is_of_and_no_other() -> None:
    world = World()
    world.process.apply()
    await finished(world.process.closed())
    before = world.process.acknowledged
    assert before is not None
    pool = admitted(world)
    drains = draining(2, 600)
    applied(world, drains)
    await finished(world.process.closed())
    assert world.process.acknowledged == Heads(before.pool, drains.authorization), "the pool's state is withheld"

    revoked = Heads(drains.pool, replace(drains.authorization, sequence=2, floors={OTHER: at_once(2)}))
    applied(world, revoked)
    await finished(world.process.closed())
    assert world.process.acknowledged == Heads(before.pool, revoked.authorization), "somebody else's revocation is not"

    world.process.leave(pool)
    await finished(world.process.closed())
    assert world.process.acknowledged == revoked


async def test_a_drain_of_a_tenant_withholds_the_authorization_head_alone() -> None:
    world = World()
    world.process.apply()
    await finished(world.process.closed())
    before = world.process.acknowledged
    assert before is not None
    tenant = admitted(world)
    drains = with_authorization(sequence=2, floors={TENANT: Floor(Epoch(2), FIRST_EPOCH, 600)})
    applied(world, Heads(with_pool(sequence=2).pool, drains.authorization))
    await finished(world.process.closed())
    assert (world.process.acknowledged, tenant.reason) == (Heads(with_pool(sequence=2).pool, before.authorization), None)

    world.process.leave(tenant)
    await finished(world.process.closed())
    assert world.process.acknowledged == Heads(with_pool(sequence=2).pool, drains.authorization)


async def test_a_drain_ends_with_its_time_which_later_looks_do_not_prolong() -> None:
    world = World()
    flight = admitted(world)
    heads = draining(2, 30)
    applied(world, heads)
    world.clock.now += 29_999
    world.process.apply()
    applied(world, draining(3, 60, sequence=3))
    assert world.process.verdict(flight) is None
    world.clock.now += 1
    assert world.process.verdict(flight) is Refusal.BEHIND
    world.process.apply()
    assert flight.reason is Refusal.BEHIND
    async with unfinished(world.process.closed()) as closing:
        world.process.leave(flight)
        await finished(closing)
    assert world.process.acknowledged is world.source.heads


async def test_the_end_of_a_drain_is_noticed_without_a_message() -> None:
    world = World()
    told = Acknowledged(world)
    flight = admitted(world)
    applied(world, draining(2, 30))
    world.clock.now += 29_999  # the rest passes on the event loop's clock
    async with keeping(world):
        await asyncio.sleep(0)
        world.clock.now += 1
        await finished(_true(flight.aborted.wait()))
        world.process.leave(flight)
        await until(lambda: told.calls == 1)


async def _true(work: Awaitable[bool]) -> None:
    assert await work


async def test_a_later_abort_ends_a_drain() -> None:
    world = World()
    flight = admitted(world)
    applied(world, draining(2, 30))
    assert world.process.verdict(flight) is None
    applied(world, draining(3, 30, abort_below=3, sequence=3))
    assert flight.reason is Refusal.BEHIND


async def test_a_drain_lets_those_alone_live_that_it_names() -> None:
    world = World()
    flight = admitted(world)
    applied(world, draining(3, 30, abort_below=2))
    assert flight.reason is Refusal.BEHIND


@pytest.mark.parametrize("reuse", [Reuse.SALTED, Reuse.FRESH])
async def test_a_drain_does_not_outlive_its_right(reuse: Reuse) -> None:
    world = World()
    flight = admitted(world, reuse)
    applied(world, draining(2, 30))
    assert world.process.verdict(flight) is None
    world.source.left_ms = 0
    assert world.process.verdict(flight) is Refusal.LEASE_LOST
    world.source.left_ms, world.source.generation = 1000, 2  # the gap itself was noticed by nobody
    assert world.process.verdict(flight) is Refusal.LEASE_LOST
    world.process.apply()
    assert flight.reason is Refusal.LEASE_LOST


async def test_heads_of_another_lineage_drain_nothing() -> None:
    world = World()
    flight = admitted(world)
    applied(world, draining(2, 30))
    applied(world, head_at(lineage="restored", generation=2))
    assert flight.reason is Refusal.OTHER_LINEAGE


async def test_a_revocation_ends_a_drain() -> None:
    world = World()
    flight = admitted(world)
    applied(world, draining(2, 30))
    applied(world, replace(draining(2, 30), authorization=head_at(tenant=2, sequence=3).authorization))
    assert flight.reason is Refusal.BEHIND


async def test_a_drain_that_the_list_of_changes_forgot_ends() -> None:
    world = World()
    flight = admitted(world)
    applied(world, draining(2, 30))
    applied(world, replace(draining(2, 30), authorization=with_authorization(sequence=9, reach=8).authorization))
    assert flight.reason is Refusal.BEHIND


async def test_two_waiters_ask_the_engine_once() -> None:
    world = World()
    flight = admitted(world)
    applied(world)
    world.process.leave(flight)
    await asyncio.gather(world.process.closed(), world.process.closed())
    assert len(world.confirmation.asked) == 1


@pytest.mark.parametrize("turns", range(4))
async def test_a_cancellation_that_comes_together_with_a_change_is_not_lost(turns: int) -> None:
    """`asyncio.wait_for` loses it before Python 3.12, and the guard runs in the interpreter of its engine."""
    world = World()
    admitted(world)
    applied(world, draining(2, 30))
    task = asyncio.ensure_future(world.process.keep_closing())
    for _ in range(TURNS):
        await asyncio.sleep(0)
    assert world.process.in_flight.drain_ends() is not None, "it waits for a time"
    world.process.apply()
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=0.5)
    assert done == {task}
    assert task.cancelled()
