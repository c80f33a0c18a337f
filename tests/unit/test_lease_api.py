"""The guard's requests to the API server: what is sent, that it is sent once, and what each answer means."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from cachescope.api.documents import API_VERSION
from cachescope.api.ledgers import EpochLedger, FenceLease
from cachescope.core.errors import ClusterError, SpecError
from cachescope.leases import api as lease_api
from cachescope.leases.api import LeaseApi
from cachescope.leases.clock import process_clock
from cachescope.leases.rounds import LeaseConflict, LeaseGone, LostAnswer, Stored
from cachescope.leases.service_account import ServiceAccount, in_cluster_url
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
    ("replace", 429, ClusterError),
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
