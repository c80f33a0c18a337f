"""The guard's requests to the API server: what is sent, that it is sent once, and what each answer means."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from cachescope.api.documents import API_VERSION
from cachescope.api.ledgers import EpochLedger, FenceLease
from cachescope.core.errors import ClusterError, SpecError
from cachescope.leases import api as lease_api
from cachescope.leases.api import LeaseApi
from cachescope.leases.clock import process_clock
from cachescope.leases.ports import LeaseConflict, LeaseGone, LostAnswer, ServerBusy, Stored
from cachescope.leases.service_account import ServiceAccount, in_cluster_url
from cachescope.leases.watch import Watch, lines
from tests.unit.lease_fakes import Clock
from tests.unit.tls_server import CLOSE, SILENCE, TlsServer, certify

SECONDS = 5.0
ROOT = "/apis/cachescope.dev/v1alpha1/namespaces/models"
LEASE = {"metadata": {"name": "pod.boot", "resourceVersion": "41"}, "spec": {"tick": 7}}


class Site:
    """A server, and the requests of one process to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self.server = TlsServer(folder)
        self.url = ""
        self.api: LeaseApi

    async def start(self) -> None:
        self.url = await self.server.start()
        self.api = self.client(SECONDS)

    def client(self, seconds: float) -> LeaseApi:
        return LeaseApi(self.url, self.folder, namespace="models", seconds=seconds, clock=self.clock)

    def answer(self, status: int, document: object = LEASE) -> None:
        self.server.answers.append((status, json.dumps(document).encode()))


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path)
    await made.start()
    yield made
    await made.api.close()
    await made.server.stop()


Call = Callable[[LeaseApi], Awaitable[object]]
CALLS: dict[str, Call] = {
    "create": lambda api: api.create("pod.boot", {"tick": 7}),
    "replace": lambda api: api.replace("pod.boot", {"tick": 7}, "40"),
    "get": lambda api: api.get("pod.boot"),
    "ledger": lambda api: api.ledger("tiny"),
}


def test_the_names_are_those_of_the_resources() -> None:
    assert (lease_api.API_VERSION, lease_api.LEASES, lease_api.LEDGERS) == (API_VERSION, FenceLease.PLURAL, EpochLedger.PLURAL)


@pytest.mark.parametrize(
    ("call", "method", "target", "version"),
    [
        ("create", "POST", f"{ROOT}/fenceleases", None),
        ("replace", "PUT", f"{ROOT}/fenceleases/pod.boot", "40"),
        ("get", "GET", f"{ROOT}/fenceleases/pod.boot", None),
        ("ledger", "GET", f"{ROOT}/epochledgers/tiny", None),
    ],
)
async def test_each_call_is_one_request_without_parameters(
    site: Site, call: str, method: str, target: str, version: str | None
) -> None:
    site.answer(200)
    await CALLS[call](site.api)
    (request,) = site.server.requests
    assert (request.method, request.target, request.headers["authorization"]) == (method, target, "Bearer first")
    if method == "GET":
        assert request.body is None
    else:
        assert (request.body["kind"], request.body["apiVersion"], request.body["spec"]) == ("FenceLease", API_VERSION, {"tick": 7})
        assert request.body["metadata"].get("resourceVersion") == version
        # A lease that is made has one that manages its fields; the API server takes no wish for none then.
        assert request.body["metadata"].get("managedFields") == ([{}] if version else None)
        assert (request.body["metadata"]["name"], request.body["metadata"]["namespace"]) == ("pod.boot", "models")


async def test_answers_show_version_tick_and_deletion(site: Site) -> None:
    site.answer(201)
    site.answer(200, {**LEASE, "metadata": {"resourceVersion": "42", "deletionTimestamp": "2026-11-30T00:00:00Z"}})
    site.answer(404)
    site.answer(200, {"spec": {"sequence": 3}})
    assert await site.api.create("pod.boot", {"tick": 7}) == Stored("41", 7, deleting=False)
    assert await site.api.get("pod.boot") == Stored("42", 7, deleting=True)
    assert await site.api.get("pod.boot") is None
    assert await site.api.ledger("tiny") == {"sequence": 3}
    assert site.server.connections == 1


BAD: list[tuple[str, int, type[ClusterError]]] = [
    ("create", 409, LeaseConflict),
    ("replace", 409, LeaseConflict),
    ("replace", 404, LeaseGone),
    ("create", 404, ClusterError),
    ("create", 403, ClusterError),
    ("replace", 422, ClusterError),
    ("replace", 429, ServerBusy),
    ("create", 302, ClusterError),
    ("ledger", 404, ClusterError),
    ("ledger", 401, ClusterError),
    ("create", 500, LostAnswer),
    ("replace", 504, LostAnswer),
    ("get", 503, LostAnswer),
]


@pytest.mark.parametrize(("call", "status", "error"), BAD)
async def test_each_bad_answer_means_one_thing(site: Site, call: str, status: int, error: type[ClusterError]) -> None:
    site.answer(status, {"kind": "Status", "reason": "Because"})
    with pytest.raises(ClusterError) as caught:
        await CALLS[call](site.api)
    assert type(caught.value) is error
    assert len(site.server.requests) == 1


@pytest.mark.parametrize(
    ("header", "seconds"), [("3", 3.0), ("0", 0.0), ("", 1.0), ("-1", 1.0), ("1e9", 1.0), ("86400", 10.0), ("²", 1.0),
    ("Mon, 30 Nov 2026 00:00:00 GMT", 1.0)],
)  # fmt: skip
def test_a_busy_server_says_in_seconds_when_to_ask_again(header: str, seconds: float) -> None:
    with pytest.raises(ServerBusy) as caught:
        lease_api._judged(lease_api._Answer(429, b"", header), "replacing it")
    assert caught.value.seconds == seconds


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"metadata":{},"spec":{"tick":7}}', b"[" * 100_000,
    b'{"metadata":{"resourceVersion":"1"},"spec":{"tick":"7"}}', b'{"metadata":{"resourceVersion":"1"}}'])  # fmt: skip
@pytest.mark.parametrize("call", ["create", "replace", "get"])
async def test_a_good_answer_that_cannot_be_read_is_a_lost_one(site: Site, call: str, content: bytes) -> None:
    site.server.answers.append((200, content))
    with pytest.raises(LostAnswer):
        await CALLS[call](site.api)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("used_before", [False, True])
async def test_a_broken_connection_is_a_lost_answer_and_nothing_is_sent_again(site: Site, call: str, used_before: bool) -> None:
    if used_before:
        site.answer(200)
        await site.api.get("pod.boot")
        site.server.requests.clear()
    site.server.answers += [CLOSE, (200, json.dumps(LEASE).encode())]
    with pytest.raises(LostAnswer):
        await CALLS[call](site.api)
    assert len(site.server.requests) == 1
    assert await site.api.get("pod.boot") == Stored("41", 7)  # the next one has a connection of its own


async def test_an_answer_that_does_not_come_in_time_is_lost(site: Site) -> None:
    site.server.answers.append(SILENCE)
    hasty = site.client(0.2)
    with pytest.raises(LostAnswer, match="TimeoutError"):
        await hasty.create("pod.boot", {"tick": 7})
    assert len(site.server.requests) == 1
    await hasty.close()


async def test_a_server_of_another_authority_is_told_nothing(site: Site) -> None:
    (site.folder / "ca.crt").write_bytes(certify()[0])
    with pytest.raises(LostAnswer):
        await site.api.get("pod.boot")
    assert site.server.requests == []


async def test_the_token_is_read_again_after_a_minute(site: Site) -> None:
    seen = []
    for later in (0, 59_999, 1):
        site.clock.now += later
        site.answer(200)
        await site.api.get("pod.boot")
        seen.append(site.server.requests[-1].headers["authorization"])
        (site.folder / "token").write_text("second")
    assert seen == ["Bearer first", "Bearer first", "Bearer second"]
    assert site.server.connections == 1  # its authority stayed, and so does the connection


async def test_connections_open_again_after_they_were_closed(site: Site) -> None:
    for _ in range(2):
        site.answer(200)
        await site.api.get("pod.boot")
        await site.api.close()
    assert site.server.connections == 2


def event(kind: str, version: str, spec: object = None) -> bytes:
    return json.dumps({"type": kind, "object": {"metadata": {"resourceVersion": version}, "spec": spec}}).encode() + b"\n"


GONE_EVENT = json.dumps({"type": "ERROR", "object": {"metadata": {}, "code": 410, "reason": "Expired"}}).encode() + b"\n"
LISTED = {"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {}, "spec": 0}]}


class WatchedServer:
    """The API server of a watch, as a script: what lists and watches bring, one after the other.

    Attributes:
        lists: What lists bring; the last one again and again.
        watches: What watches bring, in parts; after the last one nothing more comes.
        asked: The queries of lists and watches.
    """

    def __init__(self, *watches: list[bytes | Exception], lists: list[Any] | None = None) -> None:
        self.lists = lists or [LISTED]
        self.watches = list(watches)
        self.asked: list[dict[str, str]] = []
        self.clock = Clock()
        self.lasts_ms = 60_000
        self.pauses: list[float] = []

    async def listed(self, query: str) -> Any:
        self.asked.append(dict(parse_qsl(query)))
        found = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        if isinstance(found, Exception):
            raise found
        return found

    async def streamed(self, query: str, seconds: float) -> AsyncGenerator[bytes, None]:
        self.asked.append(dict(parse_qsl(query)))
        assert 150 < seconds <= 240
        if not self.watches:
            await asyncio.Event().wait()
        for part in self.watches.pop(0):
            if isinstance(part, Exception):
                raise part
            yield part
        self.clock.now += self.lasts_ms

    async def specs(self, count: int) -> list[object]:
        """The first specs of the watch; nothing comes after them."""
        found: list[object] = []

        async def collect() -> None:
            async for spec in Watch(self, "tiny", clock=self.clock, sleep=self._sleep).specs():
                found.append(spec)  # noqa: PERF401 - what was found has to outlive the cancellation

        collecting = asyncio.ensure_future(collect())
        async with asyncio.timeout(SECONDS):
            while len(found) < count or self.watches:  # noqa: ASYNC110 - it has no event, and the wait has a deadline
                await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        collecting.cancel()
        await asyncio.gather(collecting, return_exceptions=True)
        return found

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    @property
    def versions(self) -> list[str | None]:
        """From which version each watch began; `None` for a list."""
        return [query.get("resourceVersion") for query in self.asked]


async def test_a_watch_begins_with_what_is_there_and_brings_what_changes() -> None:
    server = WatchedServer([event("ADDED", "8", 1), event("BOOKMARK", "9"), event("MODIFIED", "10", 2), event("DELETED", "11", 3)])
    assert await server.specs(3) == [0, 1, 2]
    assert server.asked[0] == {"fieldSelector": "metadata.name=tiny"}
    assert server.asked[1].items() >= {"watch": "true", "resourceVersion": "7", "allowWatchBookmarks": "true"}.items()
    assert server.versions == [None, "7", "11"], "and goes on where it ended, bookmarks included"
    assert server.pauses == []


async def test_a_ledger_that_is_not_there_yet_is_waited_for() -> None:
    server = WatchedServer([event("ADDED", "8", 1)], lists=[{"metadata": {"resourceVersion": "7"}, "items": []}])
    assert await server.specs(1) == [1]


@pytest.mark.parametrize(
    "trouble",
    [
        [GONE_EVENT],
        [LostAnswer("it broke; wait")],
        [b"no JSON\n"],
        [b"[]\n"],
        [b'{"type": "ADDED"}\n'],
        [b"x" * (4 * 2**20 + 1)],
    ],
    ids=["expired", "broken", "no JSON", "no event", "no object", "too long"],
)
async def test_after_any_trouble_a_watch_starts_again_from_a_list_after_a_pause(trouble: list[Any]) -> None:
    server = WatchedServer([event("MODIFIED", "8", 1), *trouble], [event("MODIFIED", "12", 2)])
    assert await server.specs(4) == [0, 1, 0, 2]
    assert server.versions == [None, "7", None, "7", "12"]
    assert len(server.pauses) == 1
    assert 0.5 <= server.pauses[0] <= 1.5


async def test_a_list_that_fails_is_made_again() -> None:
    server = WatchedServer(lists=[LostAnswer("down; wait"), {"metadata": {}}, LISTED])
    assert await server.specs(1) == [0]
    assert (server.versions, len(server.pauses)) == ([None, None, None, "7"], 2)


async def test_watches_that_end_at_once_are_not_made_in_a_hurry() -> None:
    server = WatchedServer([], [], [event("MODIFIED", "8", 1)])
    server.lasts_ms = 999
    await server.specs(4)
    assert (server.versions, len(server.pauses)) == ([None, "7"] * 4, 3)
    calm = WatchedServer([], [event("MODIFIED", "8", 1)])
    calm.lasts_ms = 1000
    await calm.specs(2)
    assert (calm.versions, calm.pauses) == ([None, "7", "7", "8"], [])


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
async def test_lines_do_not_depend_on_how_they_come(size: int) -> None:
    stream = b"one\n\ntwo\nthree"

    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(stream), size):
            yield stream[start : start + size]

    assert [line async for line in lines(parts(), longest=5)] == [b"one", b"", b"two"]


async def test_a_line_has_a_bound() -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(6):
            yield b"x"

    assert [line async for line in lines(parts(), longest=6)] == []
    with pytest.raises(ClusterError, match="too long"):
        assert [line async for line in lines(parts(), longest=5)] == []


async def test_a_watch_sends_a_list_and_then_a_watch_of_that_one_name(site: Site) -> None:
    site.answer(200, LISTED)
    site.server.answers.append((200, event("MODIFIED", "8", 1)))
    site.server.answers.append(SILENCE)
    watching = site.api.watch_ledger("tiny")
    assert [await asyncio.wait_for(anext(watching), SECONDS) for _ in range(2)] == [0, 1]
    assert isinstance(watching, AsyncGenerator)
    await watching.aclose()
    first, second = site.server.requests
    assert (first.method, second.method) == ("GET", "GET")
    assert first.target == f"{ROOT}/epochledgers?fieldSelector=metadata.name%3Dtiny"
    assert second.target.startswith(f"{ROOT}/epochledgers?fieldSelector=metadata.name%3Dtiny&watch=true&resourceVersion=7&")


@pytest.mark.parametrize(("status", "error"), [(410, ClusterError), (403, ClusterError), (500, LostAnswer), (0, LostAnswer)])
async def test_a_watch_that_is_refused_or_breaks_says_so_to_who_starts_it_again(
    site: Site, status: int, error: type[ClusterError]
) -> None:
    site.server.answers.append((status, b'{"reason": "Because"}'))
    with pytest.raises(ClusterError) as caught:
        assert [part async for part in site.api.streamed("watch=true", 200)] == []
    assert type(caught.value) is error


@pytest.mark.parametrize(("name", "content"), [("token", None), ("ca.crt", None), ("ca.crt", "none"), ("token", "\u00e9")])
async def test_an_account_that_cannot_be_read_is_said_without_its_content(tmp_path: Path, name: str, content: str | None) -> None:
    (tmp_path / "token").write_text("secret")
    (tmp_path / "ca.crt").write_bytes(certify()[0])
    assert (await ServiceAccount(tmp_path, Clock()).credentials()).token == "secret"
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ClusterError, match=r"mount its token and ca\.crt") as caught:
        await ServiceAccount(tmp_path, Clock()).credentials()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("environ", [{}, {"KUBERNETES_SERVICE_HOST": "x"}, {"KUBERNETES_SERVICE_PORT": "1"}])
def test_outside_a_cluster_there_is_no_address(environ: dict[str, str]) -> None:
    with pytest.raises(SpecError, match="KUBERNETES_SERVICE_HOST"):
        in_cluster_url(environ)


async def test_a_clock_starts_with_its_process_and_only_rises() -> None:
    clock = process_clock()
    first = clock()
    assert 0 <= first < 1000
    async with asyncio.timeout(5):
        while clock() == first:  # noqa: ASYNC110 - time passes by itself
            await asyncio.sleep(0)
    assert clock() > first
