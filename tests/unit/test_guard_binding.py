"""One cache a pod: where the engine knows no salts, a pod serves the identity of its first request, and no other one ever."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from cachescope.core.caches import Caching
from cachescope.core.errors import SpecError
from cachescope.core.keys import KeyRing
from cachescope.core.statements import read_statement
from cachescope.core.types import NO_CACHE, CacheIdentity, Reuse
from cachescope.guard.binding import Binding
from cachescope.guard.metrics import exposition
from cachescope.guard.settings import read_settings
from tests.unit.guard_fakes import KEY, World
from tests.unit.test_guard_settings import COMPLETE

TRIES = 50
RING = KeyRing.of(KEY)
WITHOUT_FOLDER = {name: value for name, value in COMPLETE.items() if name != "CACHESCOPE_STATE_DIR"}
MINE, OTHERS = CacheIdentity("m" * 43), CacheIdentity("o" * 43)


class OneCache(World):
    """A guard whose engine knows no salts."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        super().__init__(caching=Caching.ONE_CACHE, state_folder=folder, engine_type="llama.cpp", **changes)
        self.process.binding = Binding(folder)

    async def status(self, cache: CacheIdentity, **changes: Any) -> int | str:
        server = await self.ask(self.permit(cache=cache, **changes))
        return server.status if server.status == 200 else server.code


async def test_the_first_identity_is_served_and_no_other_ever(tmp_path: Path) -> None:
    world = OneCache(tmp_path)
    assert await world.status(MINE) == 200
    assert [await world.status(OTHERS) for _ in range(TRIES)] == ["permit_for_another_cache"] * TRIES
    assert [await world.status(NO_CACHE) for _ in range(TRIES)] == ["permit_for_another_cache"] * TRIES
    assert await world.status(MINE) == 200
    assert await world.status(MINE, reuse=Reuse.FRESH) == 200, "what it leaves behind is found by its own identity alone"


async def test_a_fresh_request_binds_too_for_it_leaves_something_behind(tmp_path: Path) -> None:
    world = OneCache(tmp_path)
    assert await world.status(MINE, reuse=Reuse.FRESH) == 200
    assert await world.status(OTHERS) == "permit_for_another_cache"


async def test_a_guard_that_starts_anew_beside_its_engine_knows_whose_cache_it_is(tmp_path: Path) -> None:
    assert await OneCache(tmp_path).status(MINE) == 200
    again = OneCache(tmp_path)
    assert [await again.status(OTHERS) for _ in range(TRIES)] == ["permit_for_another_cache"] * TRIES
    assert await again.status(MINE) == 200


async def test_a_lost_lease_gives_a_new_process_and_no_new_cache(tmp_path: Path) -> None:
    world = OneCache(tmp_path)
    assert await world.status(MINE) == 200
    world.process.restart()
    world.source.generation += 1
    assert await world.status(OTHERS) == "permit_for_another_cache"
    assert await world.status(MINE) == 200


async def test_a_request_that_is_refused_binds_nothing(tmp_path: Path) -> None:
    world = OneCache(tmp_path)
    assert await world.status(OTHERS, pod_uid="another") == "permit_for_another_process"
    used = world.permit(cache=MINE, id="1" * 32)
    assert await world.status(MINE) == 200
    assert (await world.ask(used)).status == 200
    assert (await world.ask(used)).code == "permit_used"


async def test_what_cannot_be_kept_binds_nothing_and_reaches_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = OneCache(tmp_path)

    def full(_descriptor: int) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("cachescope.guard.binding.os.fsync", full)
        assert [await world.status(MINE) for _ in range(TRIES)] == ["cache_identity_not_kept"] * TRIES
        assert world.engine.scopes == []
        assert world.process.cache == NO_CACHE
    assert await world.status(OTHERS) == 200
    assert await world.status(MINE) == "permit_for_another_cache"


async def test_it_is_on_the_disk_before_the_engine_sees_the_request(tmp_path: Path) -> None:
    world = OneCache(tmp_path)
    found: list[CacheIdentity] = []

    async def engine(_scope: Any, _receive: Any, send: Any) -> None:
        found.append(Binding(tmp_path).cache)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    world.serve(engine)
    assert await world.status(MINE) == 200
    assert found == [MINE]


@pytest.mark.parametrize("content", [b"", b"x", b"m" * 42, b"m" * 44, b"m" * 42 + b"\n", b"\xff" * 43])
def test_a_file_that_says_nothing_is_nobodys_leave(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cache-identity").write_bytes(content)
    with pytest.raises(SpecError, match="delete the pod"):
        Binding(tmp_path)


def test_a_write_that_was_cut_short_leaves_no_binding(tmp_path: Path) -> None:
    (tmp_path / "cache-identity.new").write_bytes(b"m")
    assert Binding(tmp_path).cache == NO_CACHE
    assert Binding(tmp_path).bind(MINE)
    assert Binding(tmp_path).cache == MINE


def test_a_file_that_may_not_be_read_is_nobodys_leave(tmp_path: Path) -> None:
    (tmp_path / "cache-identity").mkdir()
    with pytest.raises(SpecError, match=r"cannot be read \(IsADirectoryError\)"):
        Binding(tmp_path)


async def test_a_guard_without_a_binding_serves_nothing(tmp_path: Path) -> None:
    world = OneCache(tmp_path)
    world.process.binding = None
    assert await world.status(MINE) == "cache_identity_not_kept"


def test_a_pod_without_a_folder_of_its_own_cannot_have_one_cache() -> None:
    with pytest.raises(SpecError, match="CACHESCOPE_STATE_DIR is not set"):
        read_settings({**WITHOUT_FOLDER, "CACHESCOPE_CACHING": "OneCache"})
    settings = read_settings({**WITHOUT_FOLDER, "CACHESCOPE_CACHING": "OneCache", "CACHESCOPE_STATE_DIR": os.sep + "state"})
    assert settings.caching is Caching.ONE_CACHE


async def test_a_guard_says_whose_cache_it_is_once_it_is_somebodys(tmp_path: Path) -> None:
    world, said = OneCache(tmp_path), []
    world.process.on_bound = lambda: said.append(world.process.cache)
    nonce = "n" * 22
    statement = read_statement(RING, world.process.statement([nonce]) or "", nonce=nonce)
    assert (statement.engine_type, statement.caching, statement.cache) == ("llama.cpp", "OneCache", NO_CACHE)
    assert await world.status(MINE) == 200
    assert await world.status(MINE) == 200
    assert said == [MINE]
    statement = read_statement(RING, world.process.statement([nonce]) or "", nonce=nonce)
    assert statement.cache == MINE
    text = exposition(world.process, world.running.requests)
    assert "cachescope_guard_bound 1\n" in text
    assert MINE not in text


async def test_a_guard_of_salts_takes_no_permit_for_a_cache_and_says_nothing_new() -> None:
    world = World()
    assert (await world.ask(world.permit(cache=MINE))).code == "permit_for_another_cache"
    assert (await world.ask(world.permit())).status == 200
    nonce = "n" * 22
    statement = read_statement(RING, world.process.statement([nonce]) or "", nonce=nonce)
    assert (statement.engine_type, statement.caching, statement.cache) == ("", "", NO_CACHE)


async def test_where_nothing_is_reused_no_permit_reuses() -> None:
    world = World(caching=Caching.OFF)
    answers = [await world.ask(world.permit(reuse=Reuse.SALTED)) for _ in range(TRIES)]
    assert {answer.code for answer in answers} == {"reuse_switched_off"}
    assert (await world.ask(world.permit(reuse=Reuse.FRESH))).status == 200
    assert (await world.ask(world.permit(reuse=Reuse.NONE))).status == 200
