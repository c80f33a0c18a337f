"""The watch of leases: it knows what it missed, goes on where it broke, and ends the process when versions go back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cachescope.controller import lease_watch as module
from cachescope.controller.lease_book import LeaseBook
from cachescope.controller.lease_watch import LeaseWatch, VersionsWentBack
from cachescope.controller.root_keys import RootKeys
from cachescope.controller.store import Store
from cachescope.core.fences import Wanted, progress
from cachescope.core.ledgers import Ledger, Lineage, Role
from cachescope.kube.kinds import collection_of
from cachescope.kube.rest import ApiError, Document, ExpiredError
from tests.unit.fake_api import FakeApi

FIRST = Ledger(Role.POOL, Lineage(1, "a"), 1)
EXPIRED = ExpiredError(410, "the version is gone; list again")
BROKEN = ApiError(0, "the watch broke; it starts again")


class WatchedApi(FakeApi):
    """An API whose watches a test scripts: each is a list of events, and of errors that end it."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[list[Document | Exception]] = []
        self.began_at: list[str] = []

    async def watch(self, path: str, *, resource_version: str, seconds: int, **_: str) -> AsyncIterator[Document]:
        assert path.endswith("/fenceleases")
        assert seconds > 0
        self.began_at.append(resource_version)
        if not self.scripts:
            await asyncio.Event().wait()  # nothing more happens
        for step in self.scripts.pop(0):
            if isinstance(step, Exception):
                raise step
            yield step


class World:
    """A watch with its roster."""

    def __init__(self) -> None:
        self.api, self.store, self.now = WatchedApi(), Store(), 1000.0
        self.book = LeaseBook(self.store, RootKeys(self.api, "x"), clock=lambda: self.now, news=lambda *_: None)
        self.store.listen(self.book.hear)
        self.changes: list[int] = []
        self.watch = LeaseWatch(
            self.api,
            self.store,
            self.book,
            namespace="ns",
            heard=lambda _: None,
            changed=lambda: self.changes.append(self.book.roster.position),
        )

    def put(self, name: str) -> Document:
        """Somebody writes a lease."""
        document = {"kind": "FenceLease", "metadata": {"name": name, "namespace": "ns"}, "spec": {"leaseSeconds": 3, "tick": 1}}
        written = self.api._store(f"{collection_of('FenceLease', 'ns')}/{name}", document)
        return {"type": "MODIFIED", "object": written}

    async def follow(self, *scripts: list[Document | Exception]) -> None:
        """Run until all of it happened."""
        self.api.scripts = list(scripts)
        began = len(self.api.began_at)
        task = asyncio.create_task(self.watch.run())
        try:
            async with asyncio.timeout(10):
                while len(self.api.began_at) - began <= len(scripts) and not task.done():  # noqa: ASYNC110 - a script has no event at its end
                    await asyncio.sleep(0.001)
        finally:
            task.cancel()
            results = await asyncio.gather(task, return_exceptions=True)
        if isinstance(results[0], Exception):
            raise results[0]

    @property
    def settling(self) -> bool:
        wanted = Wanted("pool", 1, self.book.roster.position, self.book.now_ms(), namespace="ns", pool="pool")
        found = progress(self.book.roster, wanted, FIRST, self.book.now_ms())
        return not found.awaited and not found.complete

    def members(self) -> dict[str, bool]:
        """Whether each lease is gone."""
        return {entry.member.name: entry.gone for entry in self.book.roster.entries()}

    def settle(self) -> None:
        """Wait until what was missed does not matter."""
        self.now += 10


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0)
    made = World()
    made.put("g")
    await made.watch.load()
    return made


async def test_after_the_first_list_nothing_is_complete_before_what_was_missed_does_not_matter(world: World) -> None:
    assert (world.members(), world.settling) == ({"g": False}, True)
    world.settle()
    assert not world.settling


async def test_a_watch_that_broke_goes_on_from_its_last_event_and_missed_nothing(world: World) -> None:
    world.settle()
    event = world.put("h")
    bookmark: Any = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "500"}}}
    world.api._version = 500
    await world.follow([event, BROKEN], [bookmark, BROKEN], [])
    assert world.api.began_at[1:] == [event["object"]["metadata"]["resourceVersion"], "500", "500"]
    assert (world.settling, world.book.roster.position, len(world.changes)) == (False, 500, 2)
    assert world.members() == {"g": False, "h": False}


async def test_a_gap_lists_everything_anew_and_settles(world: World) -> None:
    world.settle()
    assert not world.settling
    world.put("h")
    await world.follow([EXPIRED])
    assert (world.settling, world.members()) == (True, {"g": False, "h": False})


async def test_a_lease_that_vanished_in_a_gap_counts_from_when_that_was_noticed(world: World) -> None:
    await world.api.delete(f"{collection_of('FenceLease', 'ns')}/g")
    world.api._version += 1
    await world.follow([EXPIRED])
    assert world.members() == {"g": True}


async def test_a_deletion_that_the_watch_brings_is_no_gap(world: World) -> None:
    world.settle()
    gone = world.put("g")["object"]
    await world.follow([{"type": "DELETED", "object": gone}, BROKEN])
    assert (world.members(), world.settling) == ({"g": True}, False)


async def test_a_list_between_two_events_takes_over_what_the_watch_has_not_brought(world: World) -> None:
    position = world.book.roster.position
    world.put("h")
    version = await world.watch.refresh()
    assert (world.members(), version > position) == ({"g": False, "h": False}, True)
    assert world.book.roster.position == position, "it proves nothing of what came and went before it"


async def test_an_event_that_overtakes_a_list_is_no_restore(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    get = world.api.get

    async def overtaken(path: str, **query: str) -> Document:
        listed = await get(path, **query)
        event = world.put("h")
        world.watch._take(event["type"], event["object"])
        return listed

    monkeypatch.setattr(world.api, "get", overtaken)
    version = await world.watch.refresh()
    assert (world.book.roster.position > version, world.members()) == (True, {"g": False, "h": False})
    monkeypatch.undo()
    world.api._version = version
    with pytest.raises(VersionsWentBack, match="was restored"):
        await world.watch.refresh()


async def test_a_list_of_an_earlier_version_ends_the_process(world: World) -> None:
    await world.watch.refresh()
    world.api._version -= 1
    with pytest.raises(VersionsWentBack, match="was restored"):
        await world.watch.refresh()
    with pytest.raises(VersionsWentBack):
        await world.follow([EXPIRED])


async def test_a_watch_that_breaks_begins_at_no_version_that_a_restored_api_server_has_not_reached(world: World) -> None:
    """Nobody has a fence open, so that no list would find it."""
    event = world.put("h")
    world.api._version -= 1
    with pytest.raises(VersionsWentBack, match="was restored"):
        await world.follow([event, BROKEN])
    assert len(world.api.began_at) == 1
