"""The processor's rules, on streams in memory and once over gRPC: what is held, what is read, what is answered, what is counted."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

from cachescope.gateway.budget import ByteBudget
from cachescope.gateway.errors import answer
from cachescope.gateway.exchange import Answer, Forward, RequestHead
from cachescope.gateway.messages import CHUNK_BYTES
from cachescope.gateway.processor import _Exchange, serve
from tests.unit.envoy_streams import Stream, body, head, request_trailers, response_trailers

CHAT = "/v1/chat/completions"
FORWARD = Forward("10.0.0.1:8000", CHAT, {"x-permit": "p"}, frozenset({"content-type"}), b"salted")
REFUSAL = answer("permission_denied")
CANARY = "a prompt that nobody may log"


class Gate:
    """Says what a test wants, and notes what it was asked."""

    max_request_bytes = 10

    def __init__(self, verdict: object = FORWARD, *, refusal: Answer | None = None) -> None:
        self.verdict = verdict
        self.refusal = refusal
        self.decided: list[bytes] = []
        self.ended: list[Forward] = []
        self.on_admit: Callable[[], None] = lambda: None
        self.on_end: Callable[[], None] = lambda: None

    async def admit(self, head: RequestHead) -> object:
        self.on_admit()
        return self.refusal or head

    async def decide(self, admitted: object, body: bytes) -> Any:
        assert isinstance(admitted, RequestHead)
        self.decided.append(body)
        if isinstance(self.verdict, Exception):
            raise self.verdict
        if isinstance(self.verdict, asyncio.Event):
            await self.verdict.wait()
        return self.verdict

    def finished(self, forward: Forward) -> None:
        self.ended.append(forward)
        self.on_end()


async def run(gate: Gate, *requests: ext_proc.ProcessingRequest, budget: ByteBudget | None = None, seconds: float = 5) -> Stream:
    stream, held = Stream(*requests), budget or ByteBudget(100)
    await _Exchange(gate, stream, held, seconds).run()
    assert held.held == 0
    return stream


def refused(stream: Stream) -> tuple[int, str]:
    """Status and code of the only reply."""
    (reply,) = stream.replies
    return reply.immediate_response.status.code, json.loads(reply.immediate_response.body)["error"]["code"]


def sent(stream: Stream) -> list[tuple[bytes, bool]]:
    """The chunks of the body that goes on, and which of them ends the request."""
    chunks = [
        reply.request_body.response.body_mutation.streamed_response for reply in stream.replies if reply.HasField("request_body")
    ]
    return [(chunk.body, chunk.end_of_stream) for chunk in chunks]


async def test_the_reply_to_the_headers_is_held_until_the_whole_body_is_here() -> None:
    gate = Gate()
    stream = await run(gate, head(CHAT), body(b"one", last=False), body(b"two"))
    assert gate.decided == [b"onetwo"]
    assert stream.replies[0].HasField("request_headers")
    assert sent(stream) == [(FORWARD.body, True)]
    assert set(stream.unread) == {0}, "nothing is written before all was read"
    assert gate.ended == [FORWARD]


async def test_an_answer_of_its_own_goes_out_at_once_and_the_body_is_not_read() -> None:
    gate = Gate(refusal=REFUSAL)
    stream = await run(gate, head(CHAT), body(b"one", last=False), body(b"two"))
    assert refused(stream) == (403, "permission_denied")
    assert stream.unread == [2]
    assert (gate.decided, gate.ended) == ([], [])


async def test_a_refusal_after_the_body_is_answered_and_not_counted_as_forwarded() -> None:
    gate = Gate(REFUSAL)
    assert refused(await run(gate, head(CHAT), body(b"one"))) == (403, "permission_denied")
    assert (gate.decided, gate.ended) == ([b"one"], [])


async def test_a_request_without_a_body_is_decided_with_an_empty_one() -> None:
    gate = Gate(Forward("10.0.0.1:8000", "/v1/models", {}, frozenset(), b""))
    stream = await run(gate, head("/v1/models", whole=True))
    assert gate.decided == [b""]
    assert [reply.WhichOneof("response") for reply in stream.replies] == ["request_headers"]
    assert len(gate.ended) == 1


async def test_a_body_for_a_request_that_had_none_is_an_error_since_envoy_would_drop_it() -> None:
    gate = Gate()
    assert refused(await run(gate, head(CHAT, whole=True))) == (500, "internal")
    assert gate.ended == [FORWARD]


@pytest.mark.parametrize(("length", "unread"), [("11", 2), ("10", 1), ("ten", 1), ("", 1)])
async def test_a_length_over_the_limit_is_refused_before_a_byte_is_read(length: str, unread: int) -> None:
    gate = Gate()
    stream = await run(gate, head(CHAT, ("content-length", length)), body(b"x" * 11, last=False), body(b"x"))
    assert refused(stream) == (413, "body_too_large")
    assert stream.unread == [unread]
    assert gate.decided == []


@pytest.mark.parametrize("size", [9, 10, 11, 12])
async def test_a_body_is_refused_at_the_byte_that_crosses_the_limit(size: int) -> None:
    gate = Gate()
    stream = await run(gate, head(CHAT), *(body(b"x", last=False) for _ in range(size)), body(b""))
    assert bool(gate.decided) == (size <= 10)
    if size > 10:
        assert refused(stream) == (413, "body_too_large")
        assert stream.unread == [size + 1 - 11]


async def test_a_body_that_all_requests_together_have_no_room_for_is_refused() -> None:
    gate = Gate()
    stream = await run(gate, head(CHAT), body(b"12345", last=False), body(b"6"), budget=ByteBudget(5))
    assert refused(stream) == (503, "gateway_not_ready")
    assert gate.decided == []
    await run(gate, head(CHAT), body(b"12345"), budget=ByteBudget(5))
    assert gate.decided == [b"12345"]


@pytest.mark.parametrize("verdict", [RuntimeError(CANARY), None, asyncio.Event(), FORWARD])
async def test_a_decision_that_fails_says_nothing_of_use_or_takes_too_long_is_a_503(
    verdict: object, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(verdict)
    stream = await run(gate, head(CHAT), body(b"one"), seconds=5 if verdict is FORWARD else 0.01)
    if verdict is FORWARD:
        assert gate.ended == [FORWARD], "control"
        return
    assert refused(stream) == (503, "gateway_not_ready")
    assert gate.ended == []
    assert CANARY not in caplog.text


async def test_an_admission_that_fails_is_a_503_and_the_log_has_no_more_than_its_type(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError(CANARY)

    gate = Gate()
    gate.on_admit = fail
    assert refused(await run(gate, head(CHAT), body(b"one"))) == (503, "gateway_not_ready")
    assert [(record.levelno, vars(record)["error"]) for record in caplog.records] == [(logging.ERROR, "ValueError")]
    assert CANARY not in caplog.text


@pytest.mark.parametrize("requests", [[], [head(CHAT)], [head(CHAT), body(b"one", last=False)]])
async def test_a_client_that_leaves_before_its_request_is_complete_gets_no_decision(requests: list[Any]) -> None:
    gate = Gate()
    stream = await run(gate, *requests)
    assert (stream.replies, gate.decided, gate.ended) == ([], [], [])


async def test_the_end_is_counted_once_also_when_envoy_is_gone_before_the_reply() -> None:
    gate, stream = Gate(), Stream(head(CHAT), body(b"one"))
    stream.lost = True
    with pytest.raises(asyncio.CancelledError):
        await _Exchange(gate, stream, ByteBudget(100), 5).run()
    assert gate.ended == [FORWARD]


async def test_the_end_is_counted_when_the_stream_ends_and_not_before() -> None:
    gate, stream = Gate(), Stream(head(CHAT), body(b"one"), response_trailers(), response_trailers())
    seen = []
    gate.on_end = lambda: seen.append(len(stream.requests))
    await _Exchange(gate, stream, ByteBudget(100), 5).run()
    assert seen == [0]
    assert [reply.WhichOneof("response") for reply in stream.replies[-2:]] == ["response_trailers"] * 2


async def test_a_message_that_asks_for_no_reply_gets_none() -> None:
    stream = await run(Gate(), head(CHAT), body(b"one"), body(b"late"))
    assert [reply.WhichOneof("response") for reply in stream.replies] == ["request_headers", "request_body"]


async def test_an_end_that_cannot_be_counted_is_logged_and_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise KeyError(CANARY)

    gate = Gate()
    gate.on_end = fail
    await run(gate, head(CHAT), body(b"one"))
    assert [vars(record)["error"] for record in caplog.records] == ["KeyError"]
    assert CANARY not in caplog.text


async def test_trailers_end_a_request_in_place_of_its_last_chunk() -> None:
    gate = Gate()
    stream = await run(gate, head(CHAT), body(b"one", last=False), request_trailers())
    assert gate.decided == [b"one"]
    assert sent(stream) == [(FORWARD.body, False)]
    assert stream.replies[-1].HasField("request_trailers")


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
async def test_a_body_goes_on_whole_in_chunks_of_which_the_last_is_marked(size: int) -> None:
    forward = Forward("10.0.0.1:8000", CHAT, {}, frozenset(), bytes(index % 251 for index in range(size)))
    chunks = sent(await run(Gate(forward), head(CHAT), body(b"one")))
    assert b"".join(chunk for chunk, _ in chunks) == forward.body
    assert max(len(chunk) for chunk, _ in chunks) <= CHUNK_BYTES
    assert [last for _, last in chunks] == [False] * (len(chunks) - 1) + [True]


async def test_over_grpc_a_request_is_decided_and_its_end_is_counted(tmp_path: Path) -> None:
    gate = Gate()
    counted = asyncio.Event()
    gate.on_end = counted.set
    server = await serve(gate, str(tmp_path / "s"))
    async with grpc.aio.insecure_channel(f"unix:{tmp_path / 's'}") as channel, asyncio.timeout(30):
        process: Any = channel.stream_stream(
            "/envoy.service.ext_proc.v3.ExternalProcessor/Process",
            request_serializer=ext_proc.ProcessingRequest.SerializeToString,
            response_deserializer=ext_proc.ProcessingResponse.FromString,
        )
        call = process()
        for message in (head(CHAT), body(b"one")):
            await call.write(message)
        replies = [await call.read() for _ in range(2)]
        assert not counted.is_set(), "the stream has not ended"
        await call.done_writing()
        await counted.wait()
    await server.stop(None)
    assert [reply.WhichOneof("response") for reply in replies] == ["request_headers", "request_body"]
    assert (gate.decided, gate.ended) == ([b"one"], [FORWARD])
