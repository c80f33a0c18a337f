"""One cache a pod: where the engine knows no salts, a pod serves the identity of its first request, and no other one ever."""

from __future__ import annotations

import asyncio
import os
import re
import stat
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
from cachescope.guard.process import GuardProcess
from cachescope.guard.settings import read_settings
from cachescope.guard.start import Misconfigured, make_process
from tests.unit.guard_fakes import KEY, World
from tests.unit.leased_guards import LeasedGuard, eventually, running, turns
from tests.unit.test_guard_settings import COMPLETE

TRIES = 50
RING = KeyRing.of(KEY)
ONE_CACHE = {**COMPLETE, "CACHESCOPE_CACHING": "OneCache", "CACHESCOPE_ENGINE_TYPE": "llama.cpp"}
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


@pytest.mark.parametrize(("first", "second"), [(MINE, OTHERS), (OTHERS, MINE)])
async def test_of_two_identities_at_once_one_is_served(tmp_path: Path, first: CacheIdentity, second: CacheIdentity) -> None:
    world, answers = OneCache(tmp_path), asyncio.Event()
    reached: list[int] = []

    async def engine(_scope: Any, receive: Any, send: Any) -> None:
        reached.append(1)
        await receive()
        await answers.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    world.serve(engine)
    asking = [asyncio.ensure_future(world.status(cache)) for cache in (first, second) * TRIES]
    await turns()
    answers.set()
    assert await asyncio.gather(*asking) == [200, "permit_for_another_cache"] * TRIES
    assert len(reached) == TRIES


async def test_another_process_of_the_pod_replaces_no_binding(tmp_path: Path) -> None:
    first, second = OneCache(tmp_path), OneCache(tmp_path)
    said: list[CacheIdentity] = []
    second.process.on_bound = lambda: said.append(second.process.cache)
    assert await first.status(MINE) == 200
    assert [await second.status(OTHERS) for _ in range(TRIES)] == ["permit_for_another_cache"] * TRIES
    assert await second.status(MINE) == 200
    assert (Binding(tmp_path).cache, said) == (MINE, [MINE])


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


async def test_what_may_be_lost_with_the_folder_reaches_no_engine_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, fsync = OneCache(tmp_path), os.fsync

    def of_files_alone(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError("the folder is not on the disk")
        fsync(descriptor)

    with monkeypatch.context() as broken:
        broken.setattr("cachescope.guard.binding.os.fsync", of_files_alone)
        assert [await world.status(MINE) for _ in range(TRIES)] == ["cache_identity_not_kept"] * TRIES
        assert world.engine.scopes == []
    assert await world.status(OTHERS) == "permit_for_another_cache", "what is written is not replaced"
    assert await world.status(MINE) == 200


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
    with pytest.raises(SpecError, match="delete the pod") as raised:
        Binding(tmp_path)
    assert "mm" not in str(raised.value)
    assert isinstance(make_process({**ONE_CACHE, "CACHESCOPE_STATE_DIR": str(tmp_path)}, []), Misconfigured)


def test_a_write_that_was_cut_short_leaves_no_binding(tmp_path: Path) -> None:
    (tmp_path / "cache-identity.k1m2n3").write_bytes(b"m")
    assert Binding(tmp_path).cache == NO_CACHE
    assert Binding(tmp_path).bind(MINE)
    assert Binding(tmp_path).cache == MINE


def test_a_guard_begins_with_what_its_pod_is_bound_to(tmp_path: Path) -> None:
    environ = {**ONE_CACHE, "CACHESCOPE_STATE_DIR": str(tmp_path)}
    fresh = make_process(environ, [])
    assert isinstance(fresh, GuardProcess)
    assert fresh.state().cache == NO_CACHE
    assert Binding(tmp_path).bind(MINE)
    again = make_process(environ, [])
    assert isinstance(again, GuardProcess)
    assert (again.state().caching, again.state().cache) == (Caching.ONE_CACHE, MINE)


def test_a_folder_that_is_not_there_keeps_nothing(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is no folder"):
        Binding(tmp_path / "missing")
    assert isinstance(make_process({**ONE_CACHE, "CACHESCOPE_STATE_DIR": str(tmp_path / "missing")}, []), Misconfigured)


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


async def test_the_lease_says_at_once_whose_cache_it_is(tmp_path: Path) -> None:
    guard = LeasedGuard(caching=Caching.ONE_CACHE, state_folder=tmp_path)
    guard.process.binding = Binding(tmp_path)
    async with running(guard):
        await eventually(lambda: guard.published().acknowledged)  # nothing else is left to say until the next round
        assert guard.published().cache == NO_CACHE
        assert (await guard.ask(guard.permit(cache=MINE))).status == 200
        await eventually(lambda: guard.published().cache == MINE)


async def test_no_line_of_the_log_shows_an_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    world = OneCache(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr("cachescope.guard.binding.os.link", _no_links)
        assert await world.status(MINE) == "cache_identity_not_kept"
    assert await world.status(MINE) == 200
    assert await world.status(OTHERS) == "permit_for_another_cache"
    assert "cannot be kept" in caplog.text
    assert "belongs to one identity" in caplog.text
    assert not re.search("mm|oo", " ".join(str(vars(record)) for record in caplog.records))


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


def _no_links(source: str, _target: Path) -> None:
    raise OSError(28, "no space left on device", f"{source} for {MINE}")
