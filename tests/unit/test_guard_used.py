"""A guard knows when it was asked last: while a request is under way that is now."""

from __future__ import annotations

from cachescope.core.admission import Request
from cachescope.guard.in_flight import Flight
from tests.unit.guard_fakes import World


async def test_what_was_never_asked_was_never_used() -> None:
    world = World()
    world.clock.now += 1000
    assert world.process.used_ms() == 0
    assert (await world.ask()).status != 200, "what is refused is no use"
    assert world.process.used_ms() == 0


async def test_the_last_request_counts_from_its_end() -> None:
    world = World()
    assert (await world.ask(world.permit())).status == 200
    ended = world.process.tick()
    world.clock.now += 90_000
    assert world.process.used_ms() == ended


async def test_while_a_request_is_under_way_it_is_used_now() -> None:
    world = World()
    permit = world.permit()
    flight = world.process.admit(permit, Request("POST", permit.path, permit.body_digest))
    assert isinstance(flight, Flight)
    world.clock.now += 90_000
    assert world.process.used_ms() == world.process.tick()
    world.process.leave(flight)
    ended = world.process.tick()
    world.clock.now += 90_000
    assert world.process.used_ms() == ended
