"""What a guard lets through as its right, incidents and revocations come and go, each beside what still passes."""

from __future__ import annotations

import json
from typing import Any

from cachescope.core.admission import Refusal
from cachescope.core.heads import Seen
from cachescope.core.leases import fresh_for_ms
from cachescope.core.ledgers import Floor
from cachescope.core.types import Epoch, Reuse, ScopeClass
from tests.unit.guard_fakes import TENANT, Server, World, bypassing, denying, public_stopped, vector, with_authorization

SEEN = Seen("lineage", 1, "lineage", 2)
READMITTED = with_authorization(sequence=2, floors={TENANT: Floor(Epoch(2), Epoch(2), denied=Epoch(1), readmitted=Epoch(2))})


async def _is_answered(world: World) -> bool:
    challenged = await world.ask(headers=[(b"x-cachescope-challenge", b"n" * 22)])
    assert challenged.status == 401
    return "x-cachescope-statement" in challenged.headers


async def _codes(world: World, **changes: Any) -> tuple[str, str]:
    """How a permit that reuses is answered, and one that is fresh; empty when it is served."""
    servers = [await world.ask(world.permit(reuse=reuse, **changes)) for reuse in (Reuse.SALTED, Reuse.FRESH)]
    reused, fresh = ("" if server.status == 200 else server.code for server in servers)
    return reused, fresh


async def test_without_a_right_only_fresh_permits_are_served() -> None:
    world = World()
    assert await _codes(world) == ("", "")
    world.source.left_ms = 0
    assert await _codes(world) == (Refusal.LEASE_LOST.code, "")
    assert await _is_answered(world)


async def test_when_its_right_has_been_over_for_some_time_it_serves_nothing_at_all() -> None:
    """Then its lease may be gone, and no fence waits for it."""
    world = World()
    world.source.left_ms, world.source.over = 0, fresh_for_ms(world.process.settings.fresh_ms) - 1
    assert await _codes(world) == (Refusal.LEASE_LOST.code, "")
    world.source.over += 1
    assert await _codes(world) == (Refusal.NO_RIGHT.code, Refusal.NO_RIGHT.code)
    assert not await _is_answered(world)
    world.source.left_ms, world.source.over = 1000, 0
    assert await _codes(world) == ("", "")


async def test_with_deny_nothing_is_served_without_a_right() -> None:
    world = World(fresh_ms=0)
    assert await _codes(world) == ("", "")
    world.source.left_ms = 0
    assert await _codes(world) == (Refusal.NO_RIGHT.code, Refusal.NO_RIGHT.code)
    assert not await _is_answered(world)


async def test_a_lease_that_was_lost_ends_fresh_until_the_next_right() -> None:
    world = World()
    world.source.left_ms = 0
    world.process.restart()
    assert await _codes(world) == (Refusal.NO_RIGHT.code, Refusal.NO_RIGHT.code)
    assert not await _is_answered(world)
    world.source.left_ms, world.source.generation = 1000, 2
    assert await _codes(world) == ("", "")
    world.source.left_ms = 0
    assert await _codes(world) == (Refusal.LEASE_LOST.code, "")


async def test_a_process_that_ends_serves_nothing_under_whatever_right() -> None:
    world = World()
    assert await _codes(world) == ("", "")
    world.process.release()
    assert await _codes(world) == (Refusal.NO_RIGHT.code, Refusal.NO_RIGHT.code)
    assert not await _is_answered(world)


async def test_who_was_revoked_is_refused_whatever_the_reuse() -> None:
    world = World()
    world.source.heads = denying(2)
    assert await _codes(world, epochs=vector(1, 2), seen=SEEN) == (Refusal.REVOKED.code, Refusal.REVOKED.code)
    assert await _codes(world) == (Refusal.REVOKED.code, Refusal.REVOKED.code)  # also with the epoch of before
    world.source.heads = READMITTED
    assert await _codes(world, epochs=vector(1, 2), seen=SEEN) == ("", "")


async def test_a_bypass_lets_fresh_permits_alone_through() -> None:
    world = World()
    world.source.heads = bypassing()
    assert await _codes(world) == (Refusal.BYPASSED.code, "")


async def test_stopped_public_sharing_refuses_public_permits_alone() -> None:
    world = World()
    assert await _codes(world, scope=ScopeClass.PUBLIC) == ("", "")
    world.source.heads = public_stopped()
    assert await _codes(world, scope=ScopeClass.PUBLIC) == (Refusal.PUBLIC_STOPPED.code,) * 2
    assert await _codes(world) == ("", "")


async def test_a_permit_older_than_the_list_of_changes_is_behind() -> None:
    world = World()
    world.source.heads = with_authorization(sequence=9, reach=2)
    assert (await world.ask(world.permit())).code == Refusal.BEHIND.code
    assert (await world.ask(world.permit(seen=Seen("lineage", 1, "lineage", 2)))).status == 200


async def test_after_a_restore_that_nobody_confirmed_all_wait() -> None:
    world = World()
    world.source.heads = with_authorization(sequence=2, restored=1)
    server = await world.ask(world.permit())
    assert (server.code, server.headers["retry-after"]) == (Refusal.UNCONFIRMED.code, "30")
    world.source.heads = with_authorization(sequence=3, restored=1, confirmed=1)
    assert (await world.ask(world.permit())).status == 200


def _error(server: Server) -> tuple[str, str]:
    error = json.loads(server.body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] is None
    return error["type"], error["code"]


async def test_errors_have_the_shape_of_openai() -> None:
    world = World()
    assert _error(await world.ask()) == ("authentication_error", "permit_required")
    world.source.left_ms = 0
    assert _error(await world.ask(world.permit())) == ("conflict_error", "guard_lease_lost")
    world.source.heads = denying(2)
    assert _error(await world.ask(world.permit(reuse=Reuse.FRESH))) == ("permission_error", "revoked")
    world.source.heads = with_authorization(restored=1)
    assert _error(await world.ask(world.permit())) == ("server_error", "restore_unconfirmed")
