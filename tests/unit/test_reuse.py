"""When nothing is reused: whoever lost a right, an incident, or a pool that only observes; each beside its positive control."""

from __future__ import annotations

from cachescope.core.ledgers import Flags
from cachescope.core.permits import PERMIT_HEADER, read_permit
from cachescope.core.types import Epoch, Reuse
from tests.unit.whole_path import POOL, POOL_UID, WholePath, path, prompt

__all__ = ["path"]

TRIES = 10


async def reused(path: WholePath) -> tuple[Reuse, int]:
    """What permits say, and how often a prompt that was just sent was found in the cache."""
    hits, said = 0, set()
    for _ in range(TRIES):
        text = prompt()
        for expected in (0, 1):
            found = await path.cached(path.credentials.api_keys["blue-carol"], text)
            assert expected or found == 0
            hits += found > 0
            assert path.last is not None
            said.add(read_permit(path.snapshot().permits[POOL_UID], path.last.set_headers[PERMIT_HEADER]).reuse)
    (reuse,) = said
    return reuse, hits


ON, OFF = (Reuse.SALTED, TRIES), (Reuse.FRESH, 0)


async def test_an_incident_that_bypasses_reuse_ends_it_until_people_resume(path: WholePath) -> None:
    assert await reused(path) == ON
    path.advance_pool(flags=Flags(bypassed=Epoch(2)))
    assert await reused(path) == OFF
    path.advance_pool(flags=Flags(bypassed=Epoch(2), resumed=Epoch(2)))
    assert await reused(path) == ON


async def test_a_pool_that_observes_reuses_nothing(path: WholePath) -> None:
    path.edit("ServingPool", POOL, lambda pool: pool["spec"].update(sharing={"stage": "Observe"}))
    assert await reused(path) == OFF
    path.edit("ServingPool", POOL, lambda pool: pool["spec"].update(sharing={"stage": "Tenant"}))
    assert await reused(path) == ON


async def test_a_gateway_whose_right_ran_out_allows_no_reuse(path: WholePath) -> None:
    path.fresh_only = True
    assert await reused(path) == OFF
    path.fresh_only = False
    assert await reused(path) == ON


async def test_a_guard_without_a_right_is_sent_what_reuses_nothing(path: WholePath) -> None:
    path.heads.left_ms = 0
    await path.prove()
    path.clock_ms += 60_000
    await path.prove()
    assert await reused(path) == OFF
    path.heads.left_ms = 1000
    path.clock_ms += 60_000
    await path.prove()
    assert await reused(path) == ON


async def test_an_answer_that_began_with_reuse_is_no_excuse_once_it_was_bypassed(path: WholePath) -> None:
    forward = await path.decide(
        path.credentials.api_keys["blue-carol"], b'{"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}'
    )
    path.advance_pool(flags=Flags(bypassed=Epoch(2)))
    server = await path.send(forward)  # type: ignore[arg-type]
    assert (server.status, server.code) == (409, "reuse_bypassed")
