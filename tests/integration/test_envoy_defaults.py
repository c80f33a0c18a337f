"""The eight defaults of Envoy that are wrong for this gateway, each set right."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from signal import SIGKILL, SIGSTOP
from typing import Any

from cachescope.gateway.exchange import Forward, RequestHead
from tests.integration.envoy_fixtures import Envoy, Gateway, envoy, gateway, running_gateway
from tests.integration.http_wire import Engine, Message, connected, read_message, request, running_engine, send

__all__ = ["envoy", "gateway"]


@contextmanager
def processor_process(envoy: Envoy, engine: Engine) -> Iterator[subprocess.Popen[bytes]]:
    folders = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-m", "tests.integration.stub_processor", envoy.settings.processor_socket, engine.endpoint]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": folders}) as process:
        try:
            yield process
        finally:
            process.kill()


async def serving(port: int) -> None:
    """Wait until a request passes."""
    async with asyncio.timeout(20):
        while (await send(port, request())).status != 200:  # noqa: ASYNC110 another process starts
            await asyncio.sleep(0.02)


def test_1_processor_failures_are_never_a_pass(envoy: Envoy) -> None:
    external = http_filters(envoy)["envoy.filters.http.ext_proc"]
    assert external.get("failure_mode_allow", False) is False
    assert external.get("allow_mode_override", False) is False
    assert external["status_on_error"] == {"code": "ServiceUnavailable"}


async def test_2_dead_processor_is_503(envoy: Envoy) -> None:
    answer = await send(envoy.port, request())
    assert (answer.status, answer.error()["code"], answer.values("retry-after")) == (503, "gateway_not_ready", ["1"])


async def test_3_killed_and_frozen_processors_are_503(envoy: Envoy) -> None:
    async with running_engine() as engine:
        for signal in (SIGKILL, SIGSTOP):
            with processor_process(envoy, engine) as process:
                await serving(envoy.port)
                served = len(engine.requests)
                async with connected(envoy.port) as (reader, writer):
                    writer.write(request(None, headers=(("content-length", "2"), ("expect", "100-continue"))))
                    await reader.readuntil(b"\r\n\r\n")
                    process.send_signal(signal)
                    writer.write(b"{}")
                    answer = await read_message(reader)
                assert (answer.status, answer.error()["code"]) == (503, "gateway_not_ready")
                assert len(engine.requests) == served


async def test_4_decision_slower_than_200_ms_passes_and_over_its_limit_is_503(envoy: Envoy) -> None:
    async with running_gateway(envoy, decision_seconds=0.6) as gateway:
        delays = iter((0.3, 30.0))

        async def slow(_: RequestHead, body: bytes) -> Forward:
            await asyncio.sleep(next(delays))
            return gateway.gate.forward(body)

        gateway.gate.on_decide = slow
        assert (await send(envoy.port, request())).status == 200
        answer = await send(envoy.port, request())
        assert (answer.status, answer.error()["code"]) == (503, "gateway_not_ready")
        assert len(gateway.engine.requests) == 1
        assert http_filters(envoy)["envoy.filters.http.ext_proc"]["message_timeout"] == "5s"


async def test_5_an_answer_may_take_as_long_as_it_moves(gateway: Gateway) -> None:
    route = engines_route(gateway.envoy)
    assert (route["timeout"], route["idle_timeout"]) == ("0s", "600s")
    assert "retry_policy" not in route
    go = asyncio.Event()

    async def pausing(_: Message, writer: Any) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n")
        await go.wait()
        writer.write(b"1\r\nb\r\n0\r\n\r\n")

    gateway.engine.behaviour = pausing
    async with connected(gateway.port) as (reader, writer):
        writer.write(request())
        head = await reader.readuntil(b"1\r\na\r\n")
        go.set()
        assert (head[:12], await reader.readuntil(b"0\r\n\r\n")) == (b"HTTP/1.1 200", b"1\r\nb\r\n0\r\n\r\n")


async def test_6_too_large_a_body_is_413_in_json(gateway: Gateway) -> None:
    gateway.gate.max_request_bytes = 1000
    announced = await send(gateway.port, request(None, headers=(("content-length", "1001"),)))
    chunked = request(None, headers=(("transfer-encoding", "chunked"),)) + b"3e9\r\n" + b"a" * 1001 + b"\r\n"
    for answer in (announced, await send(gateway.port, chunked)):
        assert (answer.status, answer.error()["code"]) == (413, "body_too_large")
    assert (gateway.gate.bodies, gateway.engine.requests) == ([], [])
    assert (await send(gateway.port, request(b"a" * 1000))).status == 200


async def test_7_client_destination_is_removed_before_everything_else(gateway: Gateway) -> None:
    stranger = ("x-gateway-destination-endpoint", gateway.engine.endpoint)
    await send(gateway.port, request(b"{}", headers=(stranger,)))
    assert gateway.gate.heads[0].values(stranger[0]) == []


async def test_8_local_replies_say_nothing_of_envoys_inside(envoy: Envoy) -> None:
    assert "RESPONSE_CODE_DETAILS" not in str(connection_manager(envoy)["local_reply_config"])


def connection_manager(envoy: Envoy) -> dict[str, Any]:
    listener = envoy.config()["ListenersConfigDump"]["static_listeners"][0]["listener"]
    manager: dict[str, Any] = listener["filter_chains"][0]["filters"][0]["typed_config"]
    return manager


def http_filters(envoy: Envoy) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry["typed_config"] for entry in connection_manager(envoy)["http_filters"]}


def engines_route(envoy: Envoy) -> dict[str, Any]:
    routes = connection_manager(envoy)["route_config"]["virtual_hosts"][0]["routes"]
    found: list[dict[str, Any]] = [entry["route"] for entry in routes if "route" in entry]
    assert len(found) == 1
    return found[0]
