"""What answers and counters tell of found tokens."""

from __future__ import annotations

import json

import pytest
from aiohttp import web

from cachescope.core.errors import SpecError
from cachescope.probe.cases import Role, Step
from cachescope.probe.counters import found_tokens
from cachescope.probe.engine_http import Engine, engine
from cachescope.probe.questions import Question
from cachescope.probe.running import Reply, observation
from cachescope.probe.usage import Usage, read
from tests.unit.http_server import http_server

ASKED = Question("/v1/completions", {"x-asked": "yes"}, {"prompt": "hello"})
OPENAI = {"usage": {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 96}}}
RESPONSE = {"usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 96}}}
ANTHROPIC = {"usage": {"input_tokens": 4, "cache_read_input_tokens": 96, "output_tokens": 2}}
COUNTS_BOTH = {"usage": {"input_tokens": 100, "cache_read_input_tokens": 96}}


def events(*documents: object) -> bytes:
    return b"".join(b"event: some\ndata: " + json.dumps(each).encode() + b"\n\n" for each in documents) + b"data: [DONE]\n\n"


@pytest.mark.parametrize("document", [OPENAI, RESPONSE, ANTHROPIC, COUNTS_BOTH])
def test_usage_is_read_in_each_of_its_forms(document: object) -> None:
    assert read(json.dumps(document).encode(), streamed=False) == Usage(100, 96)


@pytest.mark.parametrize(
    "streamed",
    [
        [{"choices": [{}]}, {"choices": [{}], "usage": None}, OPENAI],
        [{"type": "response.created", "response": {"usage": None}}, {"type": "response.completed", "response": RESPONSE}],
        [{"type": "message_start", "message": ANTHROPIC}, {"type": "message_delta", "usage": {"output_tokens": 2}}],
    ],
)
def test_usage_of_a_stream_is_read_wherever_it_comes(streamed: list[object]) -> None:
    assert read(events(*streamed), streamed=True) == Usage(100, 96)


@pytest.mark.parametrize("details", [None, {}, {"cached_tokens": None}, {"cached_tokens": "96"}, [96]])
def test_usage_that_does_not_tell_is_none_and_not_zero(details: object) -> None:
    document = {"usage": {"prompt_tokens": 100, "prompt_tokens_details": details}}
    assert read(json.dumps(document).encode(), streamed=False) == Usage(100, None)


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b"<html>", b'{"error": {"message": "no"}}'])
def test_an_answer_that_is_none_or_an_error_is_not_complete(content: bytes) -> None:
    assert read(content, streamed=False) == Usage(complete=False)


def test_a_stream_with_an_error_in_it_is_not_complete() -> None:
    assert not read(events({"choices": [{}]}, {"error": {"message": "no"}}), streamed=True).complete
    assert read(events({"choices": [{}]}, {"error": None}), streamed=True).complete


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Reply(200, b'{"id": "1"}'), 200),
        (Reply(200, events({"choices": [{}]}), streamed=True), 200),
        (Reply(200, b'{"error": {"message": "no", "code": 400}}'), 400),
        (Reply(200, b'{"object": "error", "message": "no", "code": 400}'), 400),
        (Reply(200, events({"choices": [{}]}, {"error": {"code": 500}}), streamed=True), 500),
        (Reply(200, b'{"error": {"message": "no", "code": "invalid"}}'), 0),
        (Reply(200, b'{"error": "no"}'), 0),
        (Reply(200, b"<html>"), 0),
        (Reply(404, b'{"error": {"code": 400}}'), 404),
        (Reply(404, b'{"id": "1"}'), 404),
        (Reply(0), 0),
    ],
)
def test_an_error_under_200_is_an_error(reply: Reply, outcome: int) -> None:
    assert reply.outcome == outcome


def test_counters_are_summed_over_engines_and_over_tiers() -> None:
    text = "\n".join([
        "# TYPE vllm:prefix_cache_hits_total counter",
        'vllm:prefix_cache_hits_total{engine="0",model_name="a b"} 16.0',
        'vllm:prefix_cache_hits_total{engine="1",model_name="a b"} 1.6e+01 1712345',
        "vllm:external_prefix_cache_hits_total 4",
        'vllm:prefix_cache_hits_created{engine="0"} 1.7e9',
        'vllm:prefix_cache_queries_total{engine="0"} 99.0',
    ])  # fmt: skip
    assert found_tokens(text) == 36
    assert found_tokens("other_total 1\n") is None
    assert found_tokens("") is None


def test_an_observation_joins_what_is_told_and_counted() -> None:
    step = Step(0, Role.AGAIN, 0, 0)
    seen = observation(step, Reply(200, json.dumps(OPENAI).encode(), counted_tokens=96, seconds=0.5))
    assert (seen.answered, seen.prompt_tokens, seen.cached_tokens, seen.counted_tokens, seen.seconds) == (True, 100, 96, 96, 0.5)
    assert not observation(step, Reply(400, json.dumps(OPENAI).encode())).answered
    assert not observation(step, Reply(0)).answered


class Counting:
    """Answers completions; counts what was found, and begins anew when told."""

    def __init__(self, counter: str | None = "vllm:prefix_cache_hits_total") -> None:
        self.counter = counter
        self.found = 0
        self.asked: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        if request.path == "/metrics":
            return web.Response(text=f"{self.counter} {self.found}\n") if self.counter else web.Response(status=404)
        if request.path != ASKED.path:
            return web.Response(text='["no object"]')
        assert request.headers["x-asked"] == "yes"
        self.found += int(request.headers.get("x-found", "16"))
        streamed = "stream" in await request.json()
        return web.Response(
            body=b"data: {}\n\n" if streamed else b"{}", content_type="text/event-stream" if streamed else "application/json"
        )


async def ask(target: Engine, **fields: object) -> Reply:
    return await target.ask(Question(ASKED.path, ASKED.headers, {**ASKED.body, **fields}))


async def test_a_reply_has_the_rise_of_the_counter() -> None:
    async with http_server(Counting().answer) as (address, _), engine(f"http://{address}") as target:
        replies = [await ask(target), await ask(target, stream=True)]
    assert [(reply.status, reply.content, reply.streamed, reply.counted_tokens) for reply in replies] == [
        (200, b"{}", False, 16),
        (200, b"data: {}\n\n", True, 16),
    ]


async def test_a_counter_that_fell_says_nothing() -> None:
    server = Counting()
    async with http_server(server.answer) as (address, _), engine(f"http://{address}") as target:
        server.found = 100
        negative = Question(ASKED.path, {**ASKED.headers, "x-found": "-50"}, ASKED.body)
        assert (await target.ask(negative)).counted_tokens is None
        assert (await target.ask(ASKED)).counted_tokens == 16


async def test_an_engine_that_counts_nothing_is_asked_once() -> None:
    server = Counting(counter=None)
    async with http_server(server.answer) as (address, _), engine(f"http://{address}") as target:
        assert [(await ask(target)).counted_tokens for _ in range(3)] == [None] * 3
    assert server.asked.count("/metrics") == 1


async def test_an_engine_that_does_not_answer_is_status_0() -> None:
    async with http_server(Counting().answer) as (address, runner), engine(f"http://{address}") as target:
        await runner.cleanup()
        assert (await ask(target)).status == 0
        assert await target.document("/v1/models") is None


async def test_a_document_is_an_object_or_nothing() -> None:
    async with http_server(Counting().answer) as (address, _), engine(f"http://{address}") as target:
        assert await target.document("/other") is None


async def test_an_api_key_is_sent_as_a_bearer_token() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"got": request.headers.get("authorization")})

    async with http_server(answer) as (address, _), engine(f"http://{address}", api_key="key") as target:
        assert await target.document("/any") == {"got": "Bearer key"}


async def test_what_is_no_url_is_refused() -> None:
    with pytest.raises(SpecError, match="is no URL"):
        async with engine("tiny"):
            pass
