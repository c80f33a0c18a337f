"""The stub engine keeps vLLM's order of things: what a test of a fence learns from it would be worth nothing otherwise."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cachescope.guard.confirmation import EngineConfirmation
from e2e.stub_engine import server
from e2e.stub_engine.application import App, Application, Message, Receive, Scope, Send
from e2e.stub_engine.asking import CHAT, COMPLETION
from e2e.stub_engine.core import Abort, EngineCore, Request
from e2e.stub_engine.engine_client import EngineClient
from e2e.stub_engine.faults import from_environment
from e2e.stub_engine.fingerprint import boot_ms, read
from e2e.stub_engine.prefix_cache import BLOCK_TOKENS

PROMPT = " ".join(f"p{index}" for index in range(40))
FULL_BLOCKS = 2 * BLOCK_TOKENS
FOREVER = 10**6
SECONDS = 5


@dataclass
class Engine:
    """A stub in this process.

    Attributes:
        core: Its engine.
        app: Its application.
        faults: The folder of its faults.
    """

    core: EngineCore
    app: Application
    faults: Path

    async def confirmed(self) -> None:
        await asyncio.wait_for(self.app.state.engine_client.is_sleeping(), SECONDS)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not holds():  # noqa: ASYNC110 - what it waits for has no event, and the wait has a deadline
                await asyncio.sleep(0.001)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    async for made in _engine(tmp_path, max_num_seqs=4):
        yield made


@pytest.fixture
async def narrow(tmp_path: Path) -> AsyncIterator[Engine]:
    """An engine that runs one request at a time."""
    async for made in _engine(tmp_path, max_num_seqs=1):
        yield made


async def _engine(folder: Path, max_num_seqs: int) -> AsyncIterator[Engine]:
    core = EngineCore(max_num_seqs=max_num_seqs, faults=from_environment({"STUB_FAULTS": str(folder)}))
    loop = asyncio.ensure_future(core.run())
    yield Engine(core, Application(core, models=("tiny",)), folder)
    assert not loop.done(), "the engine's loop ended"
    loop.cancel()


@dataclass
class Sent:
    """One HTTP request to an ASGI application."""

    body: bytes
    messages: list[Message] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    reads: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Future[None] = field(init=False)

    def __post_init__(self) -> None:
        self._unread: list[Message] = [{"type": "http.request", "body": self.body, "more_body": False}]
        self.reads.set()

    async def receive(self) -> Message:
        if self._unread:
            return self._unread.pop()
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self.reads.wait()
        self.messages.append(message)

    async def done(self) -> Sent:
        await asyncio.wait_for(self.task, SECONDS)
        return self

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.messages).decode()

    @property
    def document(self) -> Any:
        return json.loads(self.text)

    @property
    def events(self) -> list[Any]:
        lines = [line.removeprefix("data: ") for line in self.text.split("\n\n") if line]
        assert lines.pop() == "[DONE]"
        return [json.loads(line) for line in lines]


def _send(app: App, path: str, body: bytes = b"", *, method: str = "POST", request_id: str = "") -> Sent:
    sent = Sent(body)
    headers = [(b"x-request-id", request_id.encode())] if request_id else []
    scope: Scope = {"type": "http", "method": method, "path": path, "headers": headers}
    sent.task = asyncio.ensure_future(app(scope, sent.receive, sent.send))
    return sent


def _ask(engine: Engine, salt: str | None, prompt: str = PROMPT, *, request_id: str = "", **fields: Any) -> Sent:
    body = {"model": "tiny", "prompt": prompt, "cache_salt": salt, "max_tokens": 2, **fields}
    return _send(engine.app, COMPLETION, json.dumps(body).encode(), request_id=request_id)


async def _cached(sent: Sent) -> int:
    document = (await sent.done()).document
    cached: int = document["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert read(document["system_fingerprint"]).cached_tokens == cached
    return cached


@pytest.mark.parametrize(
    ("salt", "found"), [("a", FULL_BLOCKS), ("b", 0), (None, 0)], ids=["the same salt", "another salt", "no salt"]
)
async def test_a_prefix_is_found_under_its_salt_alone(engine: Engine, salt: str | None, found: int) -> None:
    assert await _cached(_ask(engine, "a")) == 0
    assert await _cached(_ask(engine, salt)) == found


async def test_a_chat_finds_what_a_chat_left(engine: Engine) -> None:
    messages = [{"role": "system", "content": [{"type": "text", "text": PROMPT}]}, {"role": "user", "content": "hi"}]
    body = json.dumps({"model": "tiny", "messages": messages, "cache_salt": "a", "max_completion_tokens": 3}).encode()
    assert await _cached(_send(engine.app, CHAT, body)) == 0
    again = _send(engine.app, CHAT, body)
    assert await _cached(again) == FULL_BLOCKS
    assert again.document["choices"][0]["message"]["content"].split() == ["word-0", "word-1", "word-2"]
    assert again.document["usage"]["total_tokens"] == 44 + 3


async def test_only_the_common_blocks_are_found(engine: Engine) -> None:
    await _cached(_ask(engine, "a"))
    half = " ".join([*PROMPT.split()[: BLOCK_TOKENS + 3], *["other"] * 40])
    assert await _cached(_ask(engine, "a", half)) == BLOCK_TOKENS


async def test_a_prefix_is_looked_up_when_its_request_is_scheduled(narrow: Engine) -> None:
    first = _ask(narrow, "other", max_tokens=FOREVER)
    waiting = [_ask(narrow, "a"), _ask(narrow, "a")]
    await narrow.until(lambda: len(narrow.core.waiting) == 2)
    arrived = boot_ms()
    first.gone.set()
    # Both were there before the prompt was in the cache; the second is scheduled after the first.
    assert [await _cached(sent) for sent in waiting] == [0, FULL_BLOCKS]
    made = read(waiting[1].document["system_fingerprint"])
    assert made.arrived_ms <= arrived <= made.scheduled_ms <= made.made_ms <= boot_ms()


async def test_no_more_requests_run_than_may(engine: Engine) -> None:
    sent = [_ask(engine, "a", max_tokens=FOREVER) for _ in range(6)]
    await engine.until(lambda: (len(engine.core.running), len(engine.core.waiting)) == (4, 2))
    text = (await _send(engine.app, "/metrics", method="GET").done()).text
    assert 'vllm:num_requests_running{engine="0",model_name="tiny"} 4.0' in text
    assert 'vllm:num_requests_waiting{engine="0",model_name="tiny"} 2.0' in text
    assert f'vllm:prefix_cache_queries_total{{engine="0",model_name="tiny"}} {4.0 * 40}' in text
    assert f'vllm:prefix_cache_hits_total{{engine="0",model_name="tiny"}} {3.0 * FULL_BLOCKS}' in text
    for each in sent:
        each.gone.set()
    await engine.until(lambda: not engine.core.running and not engine.core.waiting)
    await asyncio.gather(*(each.done() for each in sent))


async def test_a_stream_has_a_fingerprint_at_each_token(engine: Engine) -> None:
    sent = await _ask(engine, "a", max_tokens=3, stream=True, stream_options={"include_usage": True}).done()
    *tokens, usage = sent.events
    assert [event["choices"][0]["text"] for event in tokens] == ["word-0 ", "word-1 ", "word-2 "]
    assert [event["choices"][0]["finish_reason"] for event in tokens] == [None, None, "length"]
    made = [read(event["system_fingerprint"]).made_ms for event in tokens]
    assert made == sorted(made)
    assert made[0] < made[2], "tokens take time"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3


async def test_a_chat_stream_starts_with_its_role(engine: Engine) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "stream": True}
    events = (await _send(engine.app, CHAT, json.dumps(body).encode()).done()).events
    assert [event["choices"][0]["delta"] for event in events] == [
        {"role": "assistant", "content": "word-0 "},
        {"content": "word-1 "},
    ]
    assert {event["object"] for event in events} == {"chat.completion.chunk"}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_ends_its_request(engine: Engine, stream: bool) -> None:
    sent = _ask(engine, "a", max_tokens=FOREVER, stream=stream)
    await engine.until(lambda: bool(engine.core.running))
    sent.gone.set()
    await sent.done()
    await engine.until(lambda: not engine.core.running)
    assert "[DONE]" not in sent.text
    if not stream:
        assert sent.text == "null"
    assert await _cached(_ask(engine, "a")) == FULL_BLOCKS, "its blocks stay"


async def test_a_stream_that_waits_for_its_reader_is_aborted_too(engine: Engine) -> None:
    sent = _ask(engine, "a", max_tokens=FOREVER, stream=True)
    await engine.until(lambda: bool(sent.messages))
    sent.reads.clear()
    sent.gone.set()
    await sent.done()
    await engine.until(lambda: not engine.core.running)


async def test_a_call_is_answered_in_its_turn_after_the_aborts_before_it() -> None:
    core = EngineCore(max_num_seqs=1)
    client = EngineClient(core)
    tokens = [asyncio.ensure_future(_all(client, Request(name, ("t",), "", FOREVER))) for name in ("running", "waiting", "other")]
    loop = asyncio.ensure_future(core.run())
    await asyncio.wait_for(client.is_sleeping(), SECONDS)
    assert _ids(core) == ["running", "waiting", "other"]
    loop.cancel()
    await client.abort(["running", "waiting"])
    call = asyncio.ensure_future(client.is_sleeping())
    await asyncio.sleep(0.01)
    assert _ids(core) == ["running", "waiting", "other"], "nobody serves the queue"
    assert not call.done()
    loop = asyncio.ensure_future(core.run())
    await asyncio.wait_for(call, SECONDS)
    assert _ids(core) == ["other"]
    for task in (loop, *tokens):
        task.cancel()


def _ids(core: EngineCore) -> list[str]:
    return [request.external_req_id for request in (*core.running.values(), *core.waiting)]


async def _all(client: EngineClient, request: Request) -> list[int]:
    return [token.index async for token in client.generate(request)]


async def test_a_request_is_listed_under_the_id_that_its_client_gave_until_it_ends(narrow: Engine) -> None:
    states = narrow.app.state.engine_client.output_processor.request_states
    short = _ask(narrow, "a", request_id="one")
    long = _ask(narrow, "a", request_id="two", max_tokens=FOREVER)
    await narrow.until(lambda: len(states) == 2)
    assert [state.external_req_id for state in states.values()] == ["cmpl-one-0", "cmpl-two-0"]
    assert (await short.done()).document["id"] == "cmpl-one-0"
    assert [state.external_req_id for state in states.values()] == ["cmpl-two-0"]
    await narrow.app.state.engine_client.abort("cmpl-two-0")
    assert not states
    assert (await long.done()).text == "null"
    await narrow.confirmed()
    assert not narrow.core.running


async def test_a_guard_learns_when_the_engine_forgot_a_stream_that_waited_for_its_reader(engine: Engine) -> None:
    sent = _ask(engine, "a", max_tokens=FOREVER, stream=True, request_id="permit-1")
    await engine.until(lambda: bool(sent.messages))
    sent.reads.clear()
    confirmation = EngineConfirmation(lambda: 0)
    confirmation.saw(engine.app, {"app": engine.app})
    sent.gone.set()
    await sent.done()
    await asyncio.wait_for(confirmation.confirmed(["permit-1"]), SECONDS)
    assert not engine.core.running


async def test_a_call_without_a_method_fails_alone(engine: Engine) -> None:
    with pytest.raises(RuntimeError, match=r"fly.*see e2e/stub_engine/core\.py"):
        await engine.app.state.engine_client.engine_core.call_utility_async("fly")
    await engine.confirmed()


async def test_an_engine_that_never_confirms_goes_on_otherwise(engine: Engine) -> None:
    await engine.confirmed()
    (engine.faults / "never-confirm").touch()
    call = asyncio.ensure_future(engine.app.state.engine_client.is_sleeping())
    assert await _cached(_ask(engine, "a")) == 0
    assert not call.done()
    (engine.faults / "never-confirm").unlink()
    await engine.confirmed()
    assert not call.done(), "what was lost stays lost"
    call.cancel()


async def test_an_engine_that_ignores_aborts_finishes_the_request(engine: Engine) -> None:
    (engine.faults / "ignore-abort").touch()
    request = Request("one", ("t",), "", max_tokens=3)
    await engine.app.state.engine_client.engine_core.add_request_async(request)
    engine.core.messages.put_nowait(Abort((request.request_id,)))
    async with asyncio.timeout(SECONDS):
        made = [await request.outputs.get() for _ in range(3)]
    assert [token and token.index for token in made] == [0, 1, 2]
    await engine.until(lambda: not engine.core.running)


async def test_a_slow_prefill_delays_the_first_token(engine: Engine) -> None:
    (engine.faults / "slow-prefill=0.05").touch()
    made = read((await _ask(engine, "a", max_tokens=1).done()).document["system_fingerprint"])
    assert made.made_ms - made.scheduled_ms >= 50


async def test_blocks_that_are_held_are_not_reset(engine: Engine) -> None:
    client = engine.app.state.engine_client
    running = _ask(engine, "a", max_tokens=FOREVER)
    await engine.until(lambda: bool(engine.core.running))
    assert not await client.reset_prefix_cache()
    assert await _cached(_ask(engine, "a")) == FULL_BLOCKS
    running.gone.set()
    await engine.until(lambda: not engine.core.running)
    assert await client.reset_prefix_cache()
    assert await _cached(_ask(engine, "a")) == 0


async def test_a_busy_engine_resets_nothing_until_it_is_not(engine: Engine) -> None:
    client = engine.app.state.engine_client
    (engine.faults / "busy").touch()
    assert not await client.reset_prefix_cache()
    (engine.faults / "busy").unlink()
    assert await client.reset_prefix_cache()


async def test_the_route_of_a_reset_is_there_in_development_alone(engine: Engine) -> None:
    options = server.arguments(["--model", "/models/tiny"])
    statuses = []
    for environ in ({}, {server.DEV_MODE: "1"}):
        app = server.application(options, engine.core, environ)
        statuses.append((await _send(app, "/reset_prefix_cache").done()).status)
    assert statuses == [404, 200]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"model": "other"}, 404),
        ({"prompt": 7}, 400),
        ({"prompt": ["two", "prompts"]}, 400),
        ({"max_tokens": -1}, 400),
        ({"n": 17}, 400),
        ({"n": 2, "stream": True}, 400),
        ({"cache_salt": ""}, 400),
        ({"cache_salt": 7}, 400),
        ({"cache_salt": "s" * 129}, 400),
        ({"cache_salt": "s" * 128}, 200),
        ({"cache_salt": "a/b"}, 400),
        ({"cache_salt": "a\0b"}, 400),
        ({"cache_salt": "a\n"}, 200),
        ({"prompt": [1, 2, 3]}, 200),
    ],
)
async def test_what_the_stub_cannot_answer_is_refused(engine: Engine, fields: dict[str, Any], status: int) -> None:
    sent = await _send(engine.app, COMPLETION, json.dumps({"model": "tiny", "prompt": "a", **fields}).encode()).done()
    assert sent.status == status
    assert sent.document.get("error", {}).get("code", 200) == status


async def test_several_answers_have_one_prompt_each_and_share_it(engine: Engine) -> None:
    document = (await _ask(engine, "a", n=2).done()).document
    assert [(choice["index"], choice["text"]) for choice in document["choices"]] == [(0, "word-0 word-1 "), (1, "word-0 word-1 ")]
    assert document["usage"]["completion_tokens"] == 4
    assert document["usage"]["prompt_tokens_details"]["cached_tokens"] == FULL_BLOCKS, "of the last answer's prompt, as in vLLM"
    assert engine.core.cache.hits == FULL_BLOCKS


async def test_health_and_models_are_served(engine: Engine) -> None:
    assert (await _send(engine.app, "/health", method="GET").done()).status == 200
    assert (await _send(engine.app, "/v1/models", method="GET").done()).document["data"][0]["id"] == "tiny"
    assert (await _send(engine.app, "/other", method="GET").done()).status == 404


class Outer:
    """Middleware that answers with what it finds."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        sleeping = await scope["app"].state.engine_client.is_sleeping()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": f"{self.app.__class__.__name__} {sleeping}".encode()})


class Inner(Outer):
    """The same, as another class."""


async def test_the_last_middleware_is_the_outermost_and_finds_the_engine(engine: Engine) -> None:
    names = [name for each in (Inner, Outer) for name in ("--middleware", f"{each.__module__}.{each.__name__}")]
    app = server.application(server.arguments(["--model", "tiny", *names]), engine.core, {})
    assert (await _send(app, "/health", method="GET").done()).text == "Inner False"
