"""Whatever the processor does wrong, no request reaches an engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

from cachescope.gateway import messages
from cachescope.gateway.exchange import Answer, Forward, RequestHead
from tests.integration.envoy_fixtures import KEPT, Envoy, Gateway, envoy, gateway, running_gateway
from tests.integration.http_wire import Engine, request, running_engine, send, until

__all__ = ["envoy", "gateway"]

TRIES = 50
Wrong = Callable[[Any, Engine], Awaitable[None]]


async def close_at_once(_: Any, __: Engine) -> None:
    return


async def abort_after_headers(context: Any, _: Engine) -> None:
    await context.read()
    await context.abort(grpc.StatusCode.INTERNAL, "fault")


async def close_after_the_body(context: Any, _: Engine) -> None:
    while not (await context.read()).request_body.end_of_stream:
        pass


async def garbage(context: Any, _: Engine) -> None:
    await context.read()
    await context.write(b"\xff\xfe garbage")


async def empty_message(context: Any, _: Engine) -> None:
    await context.read()
    await context.write(b"")
    await read_all(context)


async def body_before_headers(context: Any, _: Engine) -> None:
    await context.read()
    for chunk in messages.body_chunks(b"{}", last=True):
        await context.write(chunk.SerializeToString())
    await read_all(context)


async def answer_for_the_response(context: Any, _: Engine) -> None:
    await context.read()
    reply = ext_proc.ProcessingResponse(response_headers=ext_proc.HeadersResponse())
    await context.write(reply.SerializeToString())
    await read_all(context)


async def no_destination(context: Any, _: Engine) -> None:
    await read_body(context)
    reply = ext_proc.ProcessingResponse(request_headers=ext_proc.HeadersResponse(response={"clear_route_cache": True}))
    await context.write(reply.SerializeToString())
    for chunk in messages.body_chunks(b"{}", last=True):
        await context.write(chunk.SerializeToString())
    await read_all(context)


async def forbidden_mutation(context: Any, engine: Engine) -> None:
    forward = Forward(engine.endpoint, "/v1/chat/completions", {":method": "PUT"}, KEPT, b"{}")
    await read_body(context)
    await context.write(messages.forward_headers(forward, RequestHead("POST", "/", ()), has_body=True).SerializeToString())
    await read_all(context)


async def read_body(context: Any) -> None:
    await context.read()
    while not (await context.read()).request_body.end_of_stream:
        pass


async def read_all(context: Any) -> None:
    while isinstance(await context.read(), ext_proc.ProcessingRequest):
        pass


WRONG = (
    close_at_once,
    abort_after_headers,
    close_after_the_body,
    garbage,
    empty_message,
    body_before_headers,
    answer_for_the_response,
    no_destination,
    forbidden_mutation,
)


@asynccontextmanager
async def wrong_processor(socket_path: str, engine: Engine, wrong: Wrong, service: str) -> AsyncIterator[None]:
    async def process(_: Any, context: Any) -> None:
        await wrong(context, engine)

    handler = grpc.stream_stream_rpc_method_handler(process, ext_proc.ProcessingRequest.FromString, bytes)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Process": handler}),))
    server.add_insecure_port(f"unix:{socket_path}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
async def test_wrong_processor_never_reaches_an_engine(envoy: Envoy, wrong: Wrong) -> None:
    service = "envoy.service.ext_proc.v3.ExternalProcessor"
    async with running_engine() as engine, wrong_processor(envoy.settings.processor_socket, engine, wrong, service):
        for _ in range(TRIES):
            answer = await send(envoy.port, request())
            assert answer.status in {500, 503}
            assert answer.error()["code"] in {"gateway_not_ready", "internal"}
        assert engine.requests == []
    async with running_gateway(envoy) as control:
        assert (await send(envoy.port, request())).status == 200
        assert len(control.engine.requests) == 1


async def test_unknown_service_never_reaches_an_engine(envoy: Envoy) -> None:
    async with (
        running_engine() as engine,
        wrong_processor(envoy.settings.processor_socket, engine, close_at_once, "another.Service"),
    ):
        for _ in range(TRIES):
            assert (await send(envoy.port, request())).status == 503
        assert engine.requests == []


async def test_faulty_gate_is_503_and_the_next_request_passes(gateway: Gateway) -> None:
    async def fault(*_: object) -> Answer:
        raise ValueError("the prompt, which no log may hold")

    gate = gateway.gate
    for on_admit, on_decide in ((fault, None), (None, fault)):
        gate.on_admit, gate.on_decide = on_admit, on_decide
        answer = await send(gateway.port, request())
        assert (answer.status, answer.error()["code"]) == (503, "gateway_not_ready")
    assert gateway.engine.requests == []
    gate.on_admit = gate.on_decide = None
    assert (await send(gateway.port, request())).status == 200
    await until(lambda: len(gate.ended) == 1, "only the one that passed had an end")


async def test_fault_of_the_gate_is_logged_without_its_message(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    async def fault(*_: object) -> Answer:
        raise ValueError("the prompt")

    gateway.gate.on_decide = fault
    await send(gateway.port, request())
    assert [record.getMessage() for record in caplog.records] == ["decision failed"]
    assert "the prompt" not in caplog.text


async def test_destination_that_is_no_address_reaches_nothing(gateway: Gateway) -> None:
    for endpoint in ("", "engine.test:80", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:99999"):
        gateway.gate.endpoint = endpoint
        assert (await send(gateway.port, request())).status == 503, endpoint
    assert gateway.engine.requests == []
