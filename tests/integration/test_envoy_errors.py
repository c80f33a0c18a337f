"""Every error that a client meets is of OpenAI's shape, with a code of the table."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from cachescope.gateway.errors import ERRORS, ErrorName, answer
from cachescope.gateway.exchange import Answer, RequestHead
from tests.integration.envoy_fixtures import Gateway, envoy, gateway
from tests.integration.http_wire import Message, request, send

__all__ = ["envoy", "gateway"]

CODES = {form.code or name for name, form in ERRORS.items()}


@asynccontextmanager
async def client(port: int) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(api_key="sk-test", base_url=f"http://127.0.0.1:{port}/v1", max_retries=0) as opened:
        yield opened


async def chat(port: int) -> openai.APIStatusError:
    """The error that OpenAI's own client raises."""
    async with client(port) as opened:
        with pytest.raises(openai.APIStatusError) as raised:
            await opened.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    return raised.value


@pytest.mark.parametrize("name", ERRORS)
async def test_every_answer_of_the_table_reaches_openais_client(gateway: Gateway, name: ErrorName) -> None:
    async def refuse(_: RequestHead) -> Answer:
        return answer(name, "100 % exact", param="model")

    gateway.gate.on_admit = refuse
    error = await chat(gateway.port)
    form = ERRORS[name]
    assert (error.status_code, error.code, error.type, error.param) == (form.status, form.code or name, form.type, "model")
    assert "100 % exact" in error.message
    assert all(error.response.headers[key] == value for key, value in form.headers.items())


async def test_openais_client_raises_its_own_classes(gateway: Gateway) -> None:
    classes: dict[ErrorName, type[openai.APIStatusError]] = {
        "authentication_required": openai.AuthenticationError,
        "permission_denied": openai.PermissionDeniedError,
        "model_not_found": openai.NotFoundError,
        "invalid_request": openai.BadRequestError,
        "conflict": openai.ConflictError,
        "no_endpoint": openai.InternalServerError,
    }
    for name, expected in classes.items():

        async def refuse(_: RequestHead, name: ErrorName = name) -> Answer:
            return answer(name)

        gateway.gate.on_admit = refuse
        assert type(await chat(gateway.port)) is expected


async def test_dead_engine_is_503_with_retry_after(gateway: Gateway) -> None:
    gateway.gate.endpoint = "127.0.0.1:1"
    error = await chat(gateway.port)
    assert (error.status_code, error.code, error.response.headers["retry-after"]) == (503, "upstream_unavailable", "1")


async def test_engine_reset_is_503(gateway: Gateway) -> None:
    async def reset(_: Message, writer: Any) -> None:
        writer.transport.abort()

    gateway.engine.behaviour = reset
    error = await chat(gateway.port)
    assert (error.status_code, error.code) == (503, "upstream_unavailable")
    assert len(gateway.engine.requests) == 1  # not tried again


async def test_engine_that_speaks_no_http_is_an_error_of_the_table(gateway: Gateway) -> None:
    async def garbage(_: Message, writer: Any) -> None:
        writer.write(b"garbage\r\n\r\n")

    gateway.engine.behaviour = garbage
    error = await chat(gateway.port)
    assert (error.status_code, error.code) == (502, "upstream_invalid_answer")


async def test_engines_own_error_passes_unchanged(gateway: Gateway) -> None:
    async def refuse(_: Message, writer: Any) -> None:
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nmine")

    gateway.engine.behaviour = refuse
    reply = await send(gateway.port, request())
    assert (reply.status, reply.body) == (503, b"mine")


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\nhost: a\r\nbad header\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\nhost: a\r\nx: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (b"GET /v1/models HTTP/1.1\r\nhost: a\r\n" + b"".join(b"x-%d: 1\r\n" % n for n in range(101)) + b"\r\n", 431),
        (b"OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n", 404),
        (b"GET http://evil.test/v1/models HTTP/1.1\r\nhost: a\r\nx_y: 1\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.0\r\nhost: a\r\n\r\n", 426),
    ],
)
async def test_what_is_no_request_is_an_error_of_the_table(gateway: Gateway, raw: bytes, status: int) -> None:
    async def refuse(_: RequestHead) -> Answer:
        return answer("not_found")

    gateway.gate.on_admit = refuse
    reply = await send(gateway.port, raw)
    assert reply.status == status
    assert reply.error()["code"] in CODES


async def test_healthz_needs_no_processor_and_reaches_no_decision(gateway: Gateway) -> None:
    assert (await send(gateway.port, request(None, method="GET", path="/healthz"))).status == 200
    assert gateway.gate.heads == []
