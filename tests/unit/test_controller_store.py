"""Objects in memory, and the queue of work: nothing old replaces anything new, and no key is worked on twice at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cachescope.controller.store import Key, Store, key_of, reduced
from cachescope.controller.watched_kinds import API_KEYS
from cachescope.controller.work_queue import WorkQueue
from cachescope.kube.rest import Document

KIND = "Tenant"
KEY = Key(KIND, "ns", "a")


def item(version: int, name: str = "a", uid: str = "u", **content: Any) -> Document:
    return {"metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(version)}, **content}


@pytest.fixture
def heard() -> list[tuple[Key, int, int]]:
    return []


@pytest.fixture
def store(heard: list[tuple[Key, int, int]]) -> Store:
    made = Store()

    def version(document: Document | None) -> int:
        return int(document["metadata"]["resourceVersion"]) if document else 0

    made.listen(lambda key, old, new: heard.append((key, version(old), version(new))))
    return made


def test_a_version_never_replaces_a_later_one(store: Store, heard: list[tuple[Key, int, int]]) -> None:
    assert store.put(KIND, item(5))
    assert not store.put(KIND, item(5))
    assert not store.put(KIND, item(4))
    assert store.put(KIND, item(10))
    assert heard == [(KEY, 0, 5), (KEY, 5, 10)]


def test_what_was_deleted_does_not_come_back_by_a_late_answer(store: Store) -> None:
    store.put(KIND, item(5))
    assert store.remove(KIND, item(7))
    assert not store.put(KIND, item(6))
    assert store.get(*KEY) is None
    assert store.put(KIND, item(8, uid="another"))


def test_a_deletion_that_is_older_than_what_is_there_is_passed_over(store: Store) -> None:
    store.put(KIND, item(9, uid="another"))
    assert not store.remove(KIND, item(7))
    assert store.get(*KEY) is not None


def test_a_list_decides_what_is_gone_unless_it_is_newer_than_the_list(store: Store) -> None:
    store.put(KIND, item(5, "gone"))
    store.put(KIND, item(20, "new"))
    store.put(KIND, item(6, "kept"))
    assert store.settle(KIND, [item(6, "kept"), item(8, "found")], 10) == 2
    assert sorted(key_of(KIND, each).name for each in store.all(KIND)) == ["found", "kept", "new"]


def test_a_list_of_what_is_known_is_no_news(store: Store, heard: list[tuple[Key, int, int]]) -> None:
    store.put(KIND, item(5))
    heard.clear()
    assert store.settle(KIND, [item(5)], 30) == 0
    assert heard == []


def test_objects_are_found_by_namespace(store: Store) -> None:
    store.put(KIND, item(5))
    assert store.all(KIND, "ns") == store.all(KIND)
    assert store.all(KIND, "other") == []


def test_the_content_of_foreign_secrets_is_not_kept() -> None:
    secret = item(5, data={"k": "aGFzaA=="}, type="Opaque")
    assert "data" not in reduced(API_KEYS, secret)
    assert reduced("Secret", secret)["data"] == {"k": "aGFzaA=="}


async def test_a_key_is_queued_once_and_again_when_it_changes_while_it_is_worked_on() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add("a")
    assert await queue.take() == "a"
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert len(queue) == 1
    assert await queue.take() == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_of_several_delays_the_earliest_counts() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 1000)
    queue.add_after("a", 0.01)
    queue.add_after("a", 2000)
    async with asyncio.timeout(5):
        assert await queue.take() == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_waiting_workers_each_get_one() -> None:
    queue: WorkQueue[str] = WorkQueue()
    workers = [asyncio.create_task(queue.take()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add("a")
    queue.add("b")
    async with asyncio.timeout(5):
        assert sorted(await asyncio.gather(*workers)) == ["a", "b"]
