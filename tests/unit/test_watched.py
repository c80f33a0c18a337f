"""Watching without a cluster: gaps, bookmarks, pages; what a real API server does is in the integration tests."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from cachescope.kube import watched as watched_module
from cachescope.kube.rest import ApiError, Document, ExpiredError
from cachescope.kube.watched import Name, Watched


def item(name: str, version: int, value: str = "") -> Document:
    return {"metadata": {"name": name, "namespace": "n", "resourceVersion": str(version)}, "value": value}


def listed(version: int, *items: Document, more: str = "") -> Document:
    return {"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(items)}


class Script:
    """Answers as a test wrote them; when they are used up, `done` is set and nothing answers any more."""

    def __init__(self, *answers: Document | list[Document] | Exception) -> None:
        self.answers = deque(answers)
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.done = asyncio.Event()

    async def get(self, path: str, **query: str) -> Document:
        answer = await self._next("list", {"path": path, **query})
        assert isinstance(answer, dict)
        return answer

    async def watch(self, path: str, *, resource_version: str, seconds: int, **query: str) -> AsyncIterator[Document]:
        answer = await self._next("watch", {"path": path, "from": resource_version, "seconds": str(seconds), **query})
        assert isinstance(answer, list)
        for event in answer:
            yield event

    async def _next(self, what: str, query: dict[str, str]) -> Document | list[Document]:
        self.asked.append((what, query))
        if not self.answers:
            self.done.set()
            await asyncio.Event().wait()
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer


def event(kind: str, document: Document) -> Document:
    return {"type": kind, "object": document}


async def followed(script: Script, parse: Callable[[Document], Any] = lambda document: document["value"]) -> Watched[Any]:
    watched = Watched(script, "/things", parse=parse, label_selector="a=b")
    task = asyncio.create_task(watched.run())
    await asyncio.wait_for(script.done.wait(), 10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return watched


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_module, "RETRY_SECONDS", 0.0)


def asked(script: Script) -> list[str]:
    return [f"{what} {query.get('from', '')}".strip() for what, query in script.asked]


async def test_events_are_applied_from_the_lists_version_on() -> None:
    script = Script(
        listed(5, item("a", 1, "1"), item("b", 2, "2")),
        [event("MODIFIED", item("a", 6, "3")), event("ADDED", item("c", 7, "4")), event("DELETED", item("b", 8))],
    )
    watched = await followed(script)
    assert watched.items() == {Name("n", "a"): "3", Name("n", "c"): "4"}
    assert watched.get("n", "c") == "4"
    assert watched.get("n", "b") is None
    assert script.asked[1][1] == {"path": "/things", "from": "5", "seconds": "20", "labelSelector": "a=b"}
    assert watched.age() is not None


async def test_a_watch_that_ended_goes_on_from_the_last_version_also_that_of_a_bookmark() -> None:
    bookmark = event("BOOKMARK", {"metadata": {"resourceVersion": "12"}})
    script = Script(listed(5), [event("ADDED", item("a", 7))], [bookmark], [])
    watched = await followed(script)
    assert asked(script) == ["list", "watch 5", "watch 7", "watch 12", "watch 12"]
    assert list(watched.items()) == [Name("n", "a")]


@pytest.mark.parametrize("gap", [ExpiredError(410, "too old"), ApiError(0, "lost"), ApiError(500, "x"), ApiError(403, "x")])
async def test_what_was_deleted_across_a_gap_is_gone(gap: Exception) -> None:
    script = Script(listed(5, item("a", 1), item("b", 2)), gap, listed(9, item("b", 2)), [])
    watched = await followed(script)
    assert asked(script) == ["list", "watch 5", "list", "watch 9", "watch 9"]
    assert list(watched.items()) == [Name("n", "b")]


async def test_a_list_that_fails_leaves_what_is_known_and_its_age_grows() -> None:
    script = Script(listed(5, item("a", 1)), ApiError(0, "lost"), ApiError(0, "refused"), ApiError(0, "refused"))
    watched = await followed(script)
    assert list(watched.items()) == [Name("n", "a")]
    assert watched.fault == "refused"


async def test_nothing_is_known_of_the_age_before_the_first_list() -> None:
    watched = await followed(Script(ApiError(0, "refused")))
    assert watched.age() is None
    assert watched.version == 0


async def test_a_new_list_of_what_is_known_is_no_change_and_parses_nothing_again() -> None:
    parsed: list[str] = []
    script = Script(
        listed(5, item("a", 1), item("b", 2)), ApiError(0, "x"), listed(6, item("a", 1), item("b", 2)), [], ExpiredError(410, "x")
    )
    script.answers.append(listed(7, item("a", 1), item("b", 3)))
    watched = await followed(script, lambda document: parsed.append(document["metadata"]["name"]))
    assert parsed == ["a", "b", "b"]
    assert watched.version == 2


async def test_an_empty_list_is_a_first_answer() -> None:
    told: list[int] = []
    watched: Watched[Any] = Watched(Script(listed(5)), "/things", parse=str, changed=lambda: told.append(1))
    task = asyncio.create_task(watched.run())
    async with asyncio.timeout(10):
        while not told:  # noqa: ASYNC110 - the callback is what is tested
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert watched.age() is not None


async def test_a_long_list_comes_in_pages() -> None:
    script = Script(listed(5, item("a", 1), more="next"), listed(5, item("b", 2)), [])
    watched = await followed(script)
    assert len(watched.items()) == 2
    assert [query.get("continue") for what, query in script.asked if what == "list"] == [None, "next"]
    assert asked(script)[2] == "watch 5"


async def test_a_page_that_expired_starts_the_list_anew() -> None:
    script = Script(listed(5, item("a", 1), more="next"), ExpiredError(410, "x"), listed(6, item("b", 2)))
    watched = await followed(script)
    assert list(watched.items()) == [Name("n", "b")]


async def test_everything_is_listed_again_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_module, "RELIST_SECONDS", -1.0)
    script = Script(listed(5, item("a", 1)), [], listed(6), [])
    watched = await followed(script)
    assert not watched.items()


async def test_a_fault_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await followed(Script(ApiError(0, "refused"), ApiError(0, "refused"), listed(5), ApiError(0, "refused"), listed(5), []))
    assert [record.__dict__["fault"] for record in caplog.records] == ["refused"]


async def test_a_watch_that_stalled_is_left_for_a_new_list_when_somebody_knows_better() -> None:
    script = Script(listed(5, item("a", 1, "1")))
    watched: Watched[Any] = Watched(script, "/things", parse=lambda document: document["value"])
    task = asyncio.create_task(watched.run())
    await asyncio.wait_for(script.done.wait(), 10)
    renewed = [asyncio.create_task(watched.renew()) for _ in range(2)]
    script.done.clear()
    script.answers.append(listed(9, item("a", 9, "2")))
    await asyncio.wait_for(asyncio.gather(*renewed), 10)
    assert watched.items() == {Name("n", "a"): "2"}
    await asyncio.wait_for(script.done.wait(), 10)
    assert asked(script) == ["list", "watch 5", "list", "watch 9"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_list_that_began_before_it_was_asked_for_does_not_count() -> None:
    began, answer = asyncio.Event(), asyncio.Event()

    class Slow(Script):
        async def get(self, path: str, **query: str) -> Document:
            found = await super().get(path, **query)
            began.set()
            await answer.wait()
            return found

    script = Slow(listed(5), listed(9, item("a", 9, "2")))
    watched: Watched[Any] = Watched(script, "/things", parse=lambda document: document["value"])
    task = asyncio.create_task(watched.run())
    await asyncio.wait_for(began.wait(), 10)
    renewed = asyncio.create_task(watched.renew())
    await asyncio.sleep(0)
    answer.set()
    await asyncio.wait_for(renewed, 10)
    assert watched.items() == {Name("n", "a"): "2"}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_who_keeps_account_is_told_of_every_object_that_came_changed_or_went() -> None:
    script = Script(
        listed(5, item("a", 1, "1"), item("b", 2, "2")),
        [event("MODIFIED", item("a", 6, "3")), event("ADDED", item("c", 7, "4")), event("DELETED", item("b", 8))],
        ExpiredError(410, "gone"),
        listed(20, item("a", 6, "3"), item("d", 19, "5")),
    )
    told: list[tuple[Any, Any] | str] = []
    watched: Watched[Any] = Watched(
        script,
        "/things",
        parse=lambda document: document["value"],
        changed=lambda: told.append("changed"),
        replaced=lambda before, after: told.append((before, after)),
    )
    task = asyncio.create_task(watched.run())
    await asyncio.wait_for(script.done.wait(), 10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    first, rest, last = told[:3], told[3:9], told[9:]
    assert (set(first[:2]), first[2]) == ({(None, "1"), (None, "2")}, "changed")
    assert rest == [("1", "3"), "changed", (None, "4"), "changed", ("2", None), "changed"]
    assert (set(last[:2]), last[2:]) == ({("4", None), (None, "5")}, ["changed"])
