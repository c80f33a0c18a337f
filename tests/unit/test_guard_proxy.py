"""The parts of a sidecar guard: where its engine is, what passes on, what an engine says of its load, how an answer is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cachescope.core.errors import SpecError
from cachescope.guard.delivery import STATE, Connection, Delivery
from cachescope.guard.engine_load import read_load
from cachescope.guard.proxy import Upstream, _passed_on, _returned, read_upstream
from cachescope.guard.sidecar import Engine, declared_digests, make_app, read_engine
from cachescope.guard.wire import Message, Receive, Scope, Send
from tests.unit.guard_fakes import Server, scope

ENVIRON = {"CACHESCOPE_UPSTREAM": "unix:/run/engine.sock", "CACHESCOPE_ENGINE": "llama.cpp b9000", "CACHESCOPE_ENGINE_ARGS": "[]"}
START: Message = {"type": "http.response.start", "status": 200, "headers": []}
PART: Message = {"type": "http.response.body", "body": b"part", "more_body": True}
LAST: Message = {"type": "http.response.body", "body": b"", "more_body": False}


class Transport(asyncio.Transport):
    """A transport that records whether it was dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.high: int | None = None
        self.dropped = asyncio.Event()
        self.connection: Connection | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = 0 if (high, low) == (0, None) else None

    def abort(self) -> None:
        self.dropped.set()
        if self.connection:
            self.connection.lost.set()
            self.connection.empty.set()


class Client:
    """A connection, and what an app under `Delivery` does with it; a slow one takes bytes only when a test says so."""

    def __init__(self, *, slow: bool = False) -> None:
        self.transport = Transport()
        self.transport.connection = self.connection = Connection(self.transport)
        self.server = Server([])
        self._slow = slow
        self.scope = {**scope(), "state": {STATE: self.connection}}

    async def ask(self, *messages: Message) -> None:
        async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
            for message in messages:
                await send(message)

        await Delivery(app)(self.scope, self.server.receive, self._send)

    async def _send(self, message: Message) -> None:
        if self._slow:
            self.connection.empty.clear()
        await self.server.send(message)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("http://127.0.0.1:8001", Upstream(port=8001)),
        ("http://127.0.0.1:8001/", Upstream(port=8001)),
        ("unix:/run/engine.sock", Upstream(path="/run/engine.sock")),
    ],
)
def test_an_upstream_on_this_machine_is_read(text: str, found: Upstream) -> None:
    assert read_upstream(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://127.0.0.1",
        "http://127.0.0.1:0",
        "http://127.0.0.1:65536",
        "http://10.0.0.1:8001",
        "http://localhost:8001",
        "http://127.0.0.1:8001/v1",
        "https://127.0.0.1:8001",
        "http://127.0.0.1:8001\n",
        "unix:run/engine.sock",
    ],
)
def test_an_upstream_elsewhere_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"CACHESCOPE_UPSTREAM is .*; set http"):
        read_upstream(text)


@pytest.mark.parametrize("target", ["/v1/completions", "/a/../b%2Fc//d", "/%7Euser/ä%C3%A4?x=%zz&y=+", "/a#b", "//a?b?c"])
def test_the_target_reaches_the_engine_as_the_permit_names_it(target: str) -> None:
    path, _, query = target.partition("?")
    assert Upstream().url(path, query).raw_path_qs == target


def test_hop_by_hop_headers_end_here_both_ways() -> None:
    hops = [
        (b"Connection", b"close, X-Hop"),
        (b"X-Hop", b"1"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Upgrade", b"h2c"),
        (b"TE", b"trailers"),
    ]
    kept = [(b"accept-encoding", b"gzip"), (b"set-cookie", b"a"), (b"set-cookie", b"b")]
    assert _passed_on([*hops, *kept, (b"Expect", b"100-continue"), (b"Content-Length", b"3")]) == kept
    assert _returned([*hops, *kept, (b"Content-Length", b"3")]) == kept
    assert _returned([*kept, (b"Content-Length", b"3")]) == [*kept, (b"content-length", b"3")]


VLLM = '# HELP x\nvllm:num_requests_running{{engine="0",model_name="a }} b"}} {}\nvllm:num_requests_waiting{{engine="0"}} {}\n'


@pytest.mark.parametrize(
    ("text", "load"),
    [
        (VLLM.format("2.0", "3.0"), 5),
        (VLLM.format("0.0", "0.0"), 0),
        (VLLM.format("1", "0") + VLLM.format("2", "4 1700000000"), 7),
        ("llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n", 3),
        (VLLM.format("0", "0") + 'vllm:num_requests_waiting_by_reason{reason="x"} 9\n', 0),
        ("vllm:num_requests_running 0\n", None),
        ("vllm:num_requests_running 0\nllamacpp:requests_deferred 0\n", None),
        ("", None),
    ],
)
def test_the_load_is_running_and_waiting_of_all_cores(text: str, load: int | None) -> None:
    assert read_load(text) == load


@pytest.mark.parametrize("value", ["", "NaN", "+Inf", "-1", "x"])
def test_a_load_that_is_no_count_is_not_taken_for_zero(value: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_load(VLLM.format(value, "0"))


@pytest.mark.parametrize("name", sorted(ENVIRON))
def test_what_a_sidecar_is_not_told_is_named(name: str) -> None:
    assert read_engine(ENVIRON) == Engine(Upstream(path="/run/engine.sock"), "llama.cpp b9000", ())
    with pytest.raises(SpecError, match=f"^{name} is "):
        read_engine({**ENVIRON, name: ""})


def test_anything_else_that_the_engine_loads_has_other_digests(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"weights")
    engine = Engine(Upstream(), "llama.cpp b9000", ("--ctx-size", "4096"))
    first = declared_digests(tmp_path, engine)
    assert declared_digests(tmp_path, Engine(Upstream(port=1), engine.name, (*engine.args, "--port", "1"))) == first
    assert declared_digests(tmp_path, Engine(Upstream(), "llama.cpp b9001", engine.args)).engine.runtime != first.engine.runtime
    assert (
        declared_digests(tmp_path, Engine(Upstream(), engine.name, ("--ctx-size", "8192"))).engine.runtime != first.engine.runtime
    )
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "weights").write_bytes(b"adapter")
    told = declared_digests(tmp_path, Engine(Upstream(), engine.name, ("--lora-modules", f"x={tmp_path / 'adapter'}")))
    assert (set(first.adapters), set(told.adapters)) == (set(), {"x"})
    (tmp_path / "model.gguf").write_bytes(b"others")
    assert declared_digests(tmp_path, engine).engine.model != first.engine.model


@pytest.mark.parametrize("option", ["--chat-template", "--tokenizer", "--hf-config-path", "--generation-config"])
def test_a_sidecar_digests_what_the_arguments_name_beside_the_model(tmp_path: Path, option: str) -> None:
    model, beside = tmp_path / "model", tmp_path / "beside"
    model.mkdir()
    (model / "model.gguf").write_bytes(b"weights")
    beside.write_text("one")
    engine = Engine(Upstream(), "vLLM 0.32.0", (option, str(beside)))
    first = declared_digests(model, engine)
    assert declared_digests(model, engine) == first, "control"
    beside.write_text("two")
    assert declared_digests(model, engine).engine != first.engine


async def test_a_sidecar_that_was_set_up_wrongly_refuses_and_says_why() -> None:
    client = Client()
    await make_app({**ENVIRON, "CACHESCOPE_UPSTREAM": "http://10.0.0.1:1"})(client.scope, client.server.receive, client.server.send)
    assert (client.server.status, client.server.code) == (503, "guard_misconfigured")
    assert b"http://10.0.0.1:1" in client.server.body


@pytest.mark.parametrize(
    ("messages", "dropped"), [([START, PART, LAST], False), ([START, PART], True), ([START], True), ([], True)], ids=str
)
async def test_only_an_answer_that_is_whole_leaves_its_connection_open(messages: Sequence[Message], *, dropped: bool) -> None:
    client = Client()
    await client.ask(*messages)
    assert client.transport.high == 0
    assert client.transport.dropped.is_set() is dropped


async def test_an_answer_of_which_a_byte_waits_is_not_delivered_and_can_be_dropped() -> None:
    client = Client(slow=True)
    asking = asyncio.ensure_future(client.ask(START, LAST))
    await client.server.until_messages(1)
    assert client.server.messages == [START]  # the next one waits for its turn
    client.connection.empty.set()
    await client.server.until_messages(2)
    assert not asking.done()
    asking.cancel()
    await asyncio.wait_for(client.transport.dropped.wait(), 5)


async def test_a_request_waits_until_the_answer_before_it_is_delivered() -> None:
    client = Client()
    client.connection.empty.clear()
    asking = asyncio.ensure_future(client.ask(START, LAST))
    await asyncio.sleep(0)
    assert client.server.messages == []
    client.connection.empty.set()
    await asyncio.wait_for(asking, 5)
    assert client.server.messages == [START, LAST]


async def test_a_server_that_has_the_whole_answer_does_not_mean_that_the_client_is_gone() -> None:
    client = Client()
    client.server.gone.set()
    seen: list[Any] = []

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        client.connection.empty.clear()
        sending = asyncio.ensure_future(send(LAST))
        receiving = asyncio.ensure_future(receive())
        await client.server.until_messages(2)
        seen.append(receiving.done())
        client.connection.empty.set()
        await sending
        client.connection.lost.set()
        seen.append((await receiving)["type"])

    await Delivery(app)(client.scope, client.server.receive, client.server.send)
    assert seen == [False, "http.disconnect"]


async def test_a_server_that_cannot_drop_a_connection_serves_nothing() -> None:
    served: list[Scope] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        served.append(scope)

    server = Server([])
    await Delivery(app)(scope(), server.receive, server.send)
    assert (server.status, server.code, served) == (503, "guard_misconfigured", [])
