"""What reaches an engine is what the decision said, byte by byte."""

from __future__ import annotations

import asyncio
import hashlib
import os

import pytest

from cachescope.gateway.exchange import Answer, Forward, RequestHead
from tests.integration.envoy_fixtures import Gateway, envoy, gateway
from tests.integration.http_wire import connected, read_message, request, send, until

__all__ = ["envoy", "gateway"]

TRIES = 50


async def test_changed_body_has_its_own_length_and_exact_bytes(gateway: Gateway) -> None:
    async def change(_: RequestHead, body: bytes) -> Forward:
        return gateway.gate.forward(body + b' "salt": "added"')

    gateway.gate.on_decide = change
    answer = await send(gateway.port, request(b'{"a": 1}'))
    assert answer.status == 200
    upstream = gateway.engine.requests[0]
    assert upstream.body == b'{"a": 1} "salt": "added"'
    assert upstream.values("content-length") == [str(len(upstream.body))]
    assert upstream.values("transfer-encoding") == []


async def test_body_of_12_mb_arrives_whole(gateway: Gateway) -> None:
    body = os.urandom(12 * 1024 * 1024)
    answer = await send(gateway.port, request(body))
    assert answer.status == 200
    assert gateway.engine.requests[0].values("content-length") == [str(len(body))]
    assert hashlib.sha256(gateway.engine.requests[0].body).digest() == hashlib.sha256(body).digest()
    assert answer.body == body


async def test_chunked_upload_arrives_with_a_length(gateway: Gateway) -> None:
    head = request(None, headers=(("transfer-encoding", "chunked"),))
    answer = await send(gateway.port, head + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    assert answer.status == 200
    upstream = gateway.engine.requests[0]
    assert (upstream.body, upstream.values("content-length"), upstream.values("transfer-encoding")) == (b"abcde", ["5"], [])


async def test_empty_body_in_place_of_a_body_is_sent_as_such(gateway: Gateway) -> None:
    async def empty(_: RequestHead, __: bytes) -> Forward:
        return gateway.gate.forward(b"")

    gateway.gate.on_decide = empty
    assert (await send(gateway.port, request(b"abc"))).status == 200
    assert gateway.engine.requests[0].body == b""


async def test_request_without_body_is_decided_and_forwarded(gateway: Gateway) -> None:
    assert (await send(gateway.port, request(None, method="GET"))).status == 200
    assert gateway.gate.bodies == [b""]
    assert gateway.engine.requests[0].start == "GET /v1/chat/completions HTTP/1.1"


async def test_body_for_a_request_without_one_is_a_fault_not_a_pass(gateway: Gateway) -> None:
    async def invent(_: RequestHead, __: bytes) -> Forward:
        return gateway.gate.forward(b"from nowhere")

    gateway.gate.on_decide = invent
    answer = await send(gateway.port, request(None, method="GET"))
    assert (answer.status, answer.error()["code"], gateway.engine.requests) == (500, "internal", [])
    await until(lambda: len(gateway.gate.ended) == 1, "the forward was given back")


async def test_only_kept_and_set_headers_reach_the_engine(gateway: Gateway) -> None:
    own = (
        ("authorization", "Bearer sk"),
        ("x-custom", "1"),
        ("x-tenant-id", "evil"),
        ("x-cache-salt", "evil"),
        ("x-cachescope-permit", "evil"),
        ("x-cachescope-body-length", "1"),
        ("x-forwarded-for", "192.0.2.1"),
        ("x-envoy-retry-on", "5xx"),
        ("cookie", "a=b"),
        ("accept", "text/event-stream"),
    )
    assert (await send(gateway.port, request(b"{}", headers=own))).status == 200
    got = dict(gateway.engine.requests[0].headers)
    assert got.pop("x-request-id")
    assert got == {
        "host": gateway.engine.endpoint,
        "content-type": "application/json",
        "accept": "text/event-stream",
        "content-length": "2",
        "x-cachescope-permit": "sealed",
        "x-gateway-destination-endpoint": gateway.engine.endpoint,
    }


async def test_untrusted_headers_are_gone_before_the_decision(gateway: Gateway) -> None:
    own = tuple(
        (name, "evil") for name in ("x-tenant-id", "x-cache-salt", "x-cachescope-scope", "x-forwarded-host", "x-request-id")
    )
    await send(gateway.port, request(b"{}", headers=own))
    assert "evil" not in {value for _, value in gateway.gate.heads[0].headers}


async def test_what_a_client_says_to_the_decision_arrives_as_it_came_and_ends_there(gateway: Gateway) -> None:
    own = (
        *(("x-cachescope-context", text) for text in ('{"dataClass":"public"}', '{"dataClass":"secret"}')),
        ("X-CacheScope-Compartment", "m-1"),
        ("x-cachescope-handle", "pc-1"),
        *((f"x-cachescope-{name}", "evil") for name in ("", "c", "challenge", "statement", "permit", "salt")),
    )
    assert (await send(gateway.port, request(b"{}", headers=own))).status == 200
    said = [(name, value) for name, value in gateway.gate.heads[0].headers if name.startswith("x-cachescope-")]
    assert sorted(said) == [
        ("x-cachescope-compartment", "m-1"),
        ("x-cachescope-context", '{"dataClass":"public"}'),
        ("x-cachescope-context", '{"dataClass":"secret"}'),
        ("x-cachescope-handle", "pc-1"),
    ]
    assert {name for name, _ in gateway.engine.requests[0].headers if name.startswith("x-cachescope-")} == {"x-cachescope-permit"}


async def test_client_destination_never_steers(gateway: Gateway) -> None:
    stranger = gateway.engine.endpoint
    gateway.gate.endpoint = "127.0.0.1:1"  # nothing listens there
    names = ("x-gateway-destination-endpoint", "X-Gateway-Destination-Endpoint")
    for index in range(TRIES):
        raw = request(b"{}", headers=((names[index % 2], stranger),) * (1 + index % 3))
        assert (await send(gateway.port, raw)).status == 503
    assert gateway.engine.requests == []
    gateway.gate.endpoint = stranger  # the control: the decision's own does steer
    assert (await send(gateway.port, request())).status == 200
    assert len(gateway.engine.requests) == 1


async def test_repeated_header_is_never_one_value(gateway: Gateway) -> None:
    await send(gateway.port, request(b"{}", headers=(("x-a", "1"), ("x-a", "2"), ("authorization", "b"), ("authorization", "c"))))
    head = gateway.gate.heads[0]
    assert (head.values("x-a"), head.one("x-a")) == (["1", "2"], None)
    assert head.values("authorization") == ["b,c"]  # Envoy joins those that it knows by name


async def test_bytes_outside_ascii_become_the_replacement(gateway: Gateway) -> None:
    await send(gateway.port, request(b"{}", headers=(("authorization", "Bearer \xff\xe9"),)))
    assert gateway.gate.heads[0].one("authorization") == "Bearer \ufffd\ufffd"


async def test_path_reaches_the_decision_as_sent(gateway: Gateway) -> None:
    for path in ("/v1//chat", "/v1/../admin", "/v1/chat%2fcompletions", "/v1/chat?x=1"):
        await send(gateway.port, request(path=path))
    assert [head.path for head in gateway.gate.heads] == ["/v1//chat", "/v1/../admin", "/v1/chat%2fcompletions", "/v1/chat?x=1"]


async def test_request_id_is_the_gateways_and_returns_to_the_client(gateway: Gateway) -> None:
    answer = await send(gateway.port, request(b"{}", headers=(("x-request-id", "mine"),)))
    assert answer.values("x-request-id") == gateway.engine.requests[0].values("x-request-id") != ["mine"]
    assert answer.values("server") == ["cachescope"]


async def test_expect_continue_is_answered_before_the_body(gateway: Gateway) -> None:
    async with connected(gateway.port) as (reader, writer):
        writer.write(request(None, headers=(("content-length", "2"), ("expect", "100-continue"))))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"{}")
        assert (await read_message(reader)).status == 200
    assert gateway.engine.requests[0].values("expect") == []


async def test_pipelined_requests_are_answered_in_order_and_do_not_mix(gateway: Gateway) -> None:
    bodies = [b'{"n": %d}' % number for number in range(10)]
    async with connected(gateway.port) as (reader, writer):
        writer.write(b"".join(request(body) for body in bodies))
        answers = [await read_message(reader) for _ in bodies]
    assert [answer.body for answer in answers] == bodies
    assert gateway.gate.bodies == bodies


async def test_concurrent_requests_do_not_mix(gateway: Gateway) -> None:
    bodies = [os.urandom(1000 + 700 * number) for number in range(40)]
    answers = await asyncio.gather(*(send(gateway.port, request(body)) for body in bodies))
    assert [answer.body for answer in answers] == bodies


@pytest.mark.parametrize(
    "framing",
    [
        (("content-length", "5"), ("transfer-encoding", "chunked")),
        (("transfer-encoding", "chunked"), ("content-length", "0")),
        (("transfer-encoding", "xchunked"),),
        (("transfer-encoding", "chunked, identity"),),
        (("content-length", "5"), ("content-length", "6")),
        (("content-length", "+5"),),
        (("content_length", "5"),),
    ],
)
async def test_ambiguous_framing_is_refused(gateway: Gateway, framing: tuple[tuple[str, str], ...]) -> None:
    smuggled = b"0\r\n\r\n" + request(b"{}", path="/smuggled")
    answer = await send(gateway.port, request(None, headers=framing) + smuggled)
    assert 400 <= answer.status < 502
    assert answer.error()["code"] in {"invalid_request", "internal"}
    assert all("/smuggled" not in head.path for head in gateway.gate.heads)
    assert gateway.engine.requests == []


@pytest.mark.parametrize("upgrade", ["websocket", "h2c"])
async def test_upgrade_is_not_passed_on(gateway: Gateway, upgrade: str) -> None:
    raw = request(None, method="GET", headers=(("connection", "upgrade"), ("upgrade", upgrade)))
    answer = await send(gateway.port, raw)
    assert answer.status != 101
    assert all(not message.values("upgrade") for message in gateway.engine.requests)


async def test_connect_is_refused(gateway: Gateway) -> None:
    answer = await send(gateway.port, b"CONNECT example.test:443 HTTP/1.1\r\nhost: example.test:443\r\n\r\n")
    assert (answer.status, answer.error()["code"]) == (403, "permission_denied")
    assert gateway.gate.heads == []
    assert gateway.engine.requests == []


async def test_admit_answers_before_the_body_is_sent(gateway: Gateway) -> None:
    async def refuse(_: RequestHead) -> Answer:
        return Answer(401, b'{"error": {}}', "authentication_required", {"www-authenticate": "Bearer"})

    gateway.gate.on_admit = refuse
    answer = await send(gateway.port, request(None, headers=(("content-length", "1000000"),)))
    assert (answer.status, answer.body, answer.values("www-authenticate")) == (401, b'{"error": {}}', ["Bearer"])
    assert answer.values("content-type") == ["application/json"]
    assert gateway.gate.bodies == []
