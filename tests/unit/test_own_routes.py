"""What the gateway tells of a request without sending it: handles, and the keys of neighbouring caches, over the whole path."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from cachescope.gateway.exchange import Answer, Forward
from tests.unit.test_sharing import ALICE, CAROL, CONTEXT, DAN, World
from tests.unit.whole_path import CHAT, POOL

HANDLES, KEYS = "/cachescope/v1/handles", "/cachescope/v1/cache-keys"
HELLO = {"model": POOL, "messages": [{"role": "user", "content": "hello"}]}
OTHER = {"model": POOL, "messages": [{"role": "user", "content": "good bye"}]}
INTERNAL = json.dumps({"dataClass": "internal"})
TRIES = 50


@pytest.fixture
async def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    await made.prove()
    made.declare("Tenant")
    return made


async def asked(world: World, who: str, path: str, body: object, **headers: Any) -> Answer | Forward:
    return await world.decide(world.credentials.api_keys[who], json.dumps(body).encode(), path, **headers)


async def told(world: World, who: str, path: str, inner: object = HELLO, **headers: str) -> dict[str, Any]:
    found = await asked(world, who, path, {"path": CHAT, "body": inner}, **headers)
    assert isinstance(found, Answer)
    assert found.status == 200, found.body
    document: dict[str, Any] = json.loads(found.body)
    return document


async def presented(world: World, caplog: pytest.LogCaptureFixture, who: str, handle: str, body: object = HELLO) -> str:
    """What is said in the audit line of a handle."""
    caplog.clear()
    with caplog.at_level(logging.INFO):
        forward = await asked(world, who, CHAT, body, x_cachescope_handle=handle)
    assert isinstance(forward, Forward)
    assert handle not in str(forward.set_headers) + forward.body.decode()
    assert "x-cachescope-handle" not in forward.keep_headers
    (line,) = [record for record in caplog.records if record.message == "forwarded"]
    return str(line.__dict__["handle"])


async def test_a_handle_names_the_prefix_of_its_own_request(world: World, caplog: pytest.LogCaptureFixture) -> None:
    found = await told(world, CAROL, HANDLES)
    assert found["expires_at"] == int(world.seconds) + 3600
    assert await presented(world, caplog, CAROL, found["handle"]) == "Matches"
    assert await presented(world, caplog, DAN, found["handle"]) == "Matches", "their tenant shares"


async def test_somebody_elses_handle_is_a_miss_and_the_request_is_served_as_without_one(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    handle = (await told(world, ALICE, HANDLES))["handle"]
    for _ in range(TRIES):
        assert await presented(world, caplog, CAROL, handle) == "OtherSubject"
    assert await presented(world, caplog, ALICE, handle) == "Matches"


async def test_what_changed_since_makes_a_handle_miss(world: World, caplog: pytest.LogCaptureFixture) -> None:
    handle = (await told(world, CAROL, HANDLES))["handle"]
    assert await presented(world, caplog, CAROL, handle, OTHER) == "OtherContent"
    world.raise_pool_epoch(5)
    world.round()
    await world.prove()
    assert await presented(world, caplog, CAROL, handle) == "OldGeneration"
    world.seconds += 3600
    assert await presented(world, caplog, CAROL, handle) == "Expired"
    assert await presented(world, caplog, CAROL, "pc-nonsense") == "Unreadable"


async def test_the_answer_does_not_depend_on_a_handle(world: World) -> None:
    handle = (await told(world, ALICE, HANDLES))["handle"]
    without, mine, others = [
        await asked(world, who, CHAT, HELLO, **headers)
        for who, headers in ((CAROL, {}), (CAROL, {"x_cachescope_handle": handle}), (CAROL, {"x_cachescope_handle": "pc-x.y"}))
    ]
    assert isinstance(without, Forward)
    assert isinstance(mine, Forward)
    assert isinstance(others, Forward)
    assert without.body == mine.body == others.body


async def test_what_is_not_reused_has_no_prefix_to_name(world: World, caplog: pytest.LogCaptureFixture) -> None:
    handle = (await told(world, CAROL, HANDLES))["handle"]
    world.stage("Observe")
    refused = await asked(world, CAROL, HANDLES, {"path": CHAT, "body": HELLO})
    assert isinstance(refused, Answer)
    assert refused.status == 400
    assert await presented(world, caplog, CAROL, handle) == "NotReused"


async def test_an_application_learns_the_keys_of_neighbouring_caches(world: World) -> None:
    mine, again, other = [await told(world, CAROL, KEYS, body, x_cachescope_context=INTERNAL) for body in (HELLO, HELLO, OTHER)]
    assert mine == again
    assert (mine["scope_class"], mine["reuse"]) == ("Tenant", "Salted")
    assert mine["kv_scope"] == other["kv_scope"]
    assert mine["retrieval_scope"] == other["retrieval_scope"]
    assert mine["response_scope"] != other["response_scope"]


async def test_an_answer_cache_tells_ways_of_asking_apart(world: World) -> None:
    plain, warm = [await told(world, CAROL, KEYS, {**HELLO, "temperature": value}) for value in (0, 0.7)]
    assert plain["kv_scope"] == warm["kv_scope"]
    assert plain["response_scope"] != warm["response_scope"]


async def test_keys_of_two_tenants_never_meet(world: World) -> None:
    for number in range(TRIES):
        body = {**HELLO, "messages": [{"role": "user", "content": f"question {number}"}]}
        red, blue = [await told(world, who, KEYS, body) for who in (ALICE, CAROL)]
        names = ("kv_scope", "retrieval_scope", "response_scope")
        assert not {red[name] for name in names} & {blue[name] for name in names}
    assert await told(world, CAROL, KEYS) == await told(world, CAROL, KEYS), "the control: one tenant meets itself"


async def test_what_is_secret_gets_keys_that_are_never_used_again(world: World) -> None:
    secret = json.dumps({"dataClass": "secret"})
    first, second = [await told(world, CAROL, KEYS, HELLO, x_cachescope_context=secret) for _ in range(2)]
    assert first["reuse"] == "Fresh"
    assert not {first["kv_scope"], first["retrieval_scope"], first["response_scope"]} & set(map(str, second.values()))


async def test_keys_are_for_listed_applications_alone(world: World) -> None:
    refused = await asked(world, DAN, KEYS, {"path": CHAT, "body": HELLO})
    assert isinstance(refused, Answer)
    assert refused.status == 403
    assert (await told(world, CAROL, KEYS))["kv_scope"], "the control: carol is listed"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (HANDLES, {}, "path"),
        (HANDLES, {"path": CHAT}, "body"),
        (HANDLES, {"path": "/v1/models", "body": {}}, "path"),
        (HANDLES, {"path": HANDLES, "body": {}}, "path"),
        (HANDLES, {"path": "/tokenize", "body": {"model": POOL, "prompt": "hello"}}, "path"),
        (HANDLES, {"path": ["/v1"], "body": {}}, "path"),
        (HANDLES, {"path": CHAT, "body": HELLO, "ttl_seconds": 0}, "ttl_seconds"),
        (HANDLES, {"path": CHAT, "body": HELLO, "ttl_seconds": True}, "ttl_seconds"),
        (HANDLES, {"path": CHAT, "body": HELLO, "ttl_seconds": 10**9}, "ttl_seconds"),
        (KEYS, {"path": CHAT, "body": HELLO, "ttl_seconds": 5}, "ttl_seconds"),
        (KEYS, {"path": CHAT, "body": {**HELLO, "prompt_embeds": "x"}}, "prompt_embeds"),
    ],
)
async def test_a_body_that_encloses_no_request_is_refused_by_name(world: World, path: str, body: object, param: str) -> None:
    found = await asked(world, CAROL, path, body)
    assert isinstance(found, Answer)
    assert (found.status, json.loads(found.body)["error"]["param"]) == (400, param)


async def test_a_model_that_is_nobodys_business_is_not_found(world: World) -> None:
    found = await asked(world, CAROL, HANDLES, {"path": CHAT, "body": {**HELLO, "model": "other"}})
    assert isinstance(found, Answer)
    assert found.status == 404


async def test_a_second_handle_is_an_error_and_no_choice(world: World) -> None:
    found = await asked(world, CAROL, CHAT, HELLO, x_cachescope_handle="pc-a.b", **{"x-cachescope-handle": "pc-c.d"})
    assert isinstance(found, Answer)
    assert (found.status, CONTEXT in str(found.body)) == (400, False)
