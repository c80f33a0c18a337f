"""Bad input on every route: a 4xx that says what to do, never a fault of the gateway, and nothing forwarded."""

from __future__ import annotations

import json
import time
from typing import Any

from cachescope.core.permits import PERMIT_HEADER, read_permit
from cachescope.core.types import Reuse
from cachescope.engines.routes import Kind, Route
from cachescope.gateway.bodies import CHECKS, BadBody, Sanitized
from cachescope.gateway.decision import KEPT_HEADERS
from cachescope.gateway.exchange import Answer, Forward, RequestHead
from tests.unit.bodies import COUNTING, GOOD, MESSAGE, ROUTES, SAID, every_route, outcome
from tests.unit.whole_path import POOL_UID, WholePath, path, prompt

__all__ = ["path"]

MEGABYTE = 1024 * 1024
# One value of each type of JSON; `null` is left out: it means that the client did not ask.
VALUES: list[Any] = [True, 7, 1.5, "", "text", [], [7], ["text"], [[]], [{}], {}, {"a": 1}]
FITS: dict[Kind, list[Any]] = {
    Kind.TEXT: ["", "text"],
    Kind.TEXTS: [[], ["text"]],
    Kind.TEXT_OR_TEXTS: ["", "text", [], ["text"]],
    Kind.BOOLEAN: [True],
    Kind.INTEGER: [7],
    Kind.INTEGERS: [[], [7]],
    Kind.NUMBER: [7, 1.5],
    Kind.OBJECT: [{}, {"a": 1}],
    Kind.LIST: [[], [7], ["text"], [[]], [{}]],
}


def good(route: Route, **fields: Any) -> bytes:
    return json.dumps(GOOD[route.path] | fields).encode()


BODIES: dict[str, bytes] = {
    "nothing": b"",
    "no object": b"[]",
    "no JSON": b"{",
    "form": b"model=tiny",
    "gzip": b"\x1f\x8b\x08\x00\x00",
    "a name twice": b'{"model": "tiny", "model": "other"}',
    "a salt twice": b'{"cache_salt": "a", "\\u0063ache_salt": "b"}',
    "deep": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "many": b'{"a":[' + b"[]," * 100_000 + b"1]}",
    "a huge integer": b'{"seed": 1' + b"0" * 100_000 + b"}",
    "a huge number": b'{"temperature": 1e999}',
    "NaN": b'{"temperature": NaN}',
    "infinity": b'{"temperature": -Infinity}',
    "no UTF-8": b'{"model": "\xff"}',
    "UTF-16": '{"model": "tiny"}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"model": "tiny"}',
    "half of a pair": b'{"model": "\\ud800"}',
    "a second value": b"{} {}",
    "no fields": b"{}",
    "a model alone": b'{"model": "tiny"}',
    "an unknown name": b'{"model": "tiny", "mystery": 1}',
    "a megabyte of name": b'{"' + b"x" * MEGABYTE + b'": 1}',
}
HEADS: dict[str, tuple[tuple[str, str], ...]] = {
    "no type": (),
    "a form": (("content-type", "application/x-www-form-urlencoded"),),
    "text": (("content-type", "text/plain"),),
    "JSON lines": (("content-type", "application/jsonl"),),
    "another charset": (("content-type", "application/json; charset=latin-1"),),
    "UTF-7": (("content-type", "application/json; charset=utf-7"),),
    "two charsets": (("content-type", "application/json; charset=utf-8; charset=utf-16"),),
    "two types": (("content-type", "application/json"), ("content-type", "application/json")),
    "joined types": (("content-type", "application/json, text/plain"),),
    "compressed": (("content-type", "application/json"), ("content-encoding", "gzip")),
    "an unknown encoding": (("content-type", "application/json"), ("content-encoding", "rot13")),
    "encoded twice": (("content-type", "application/json"), ("content-encoding", "identity"), ("content-encoding", "gzip")),
}


def refusal(verdict: object) -> dict[str, Any]:
    """What a client reads in a refusal."""
    assert isinstance(verdict, Answer), "nothing is forwarded"
    assert 400 <= verdict.status < 500, verdict.reason
    document = json.loads(verdict.body)
    error: dict[str, Any] = document["error"]
    assert document.keys() == {"error"}
    assert error.keys() == {"message", "type", "param", "code"}
    assert 0 < len(error["message"]) < 600
    return error


@every_route
async def test_a_bad_body_is_refused_and_the_good_one_is_served(path: WholePath, route: Route) -> None:
    key = path.credentials.api_keys["blue-carol"]
    for name, body in BODIES.items():
        assert refusal(await path.decide(key, body, route.path)), name
    assert path.engine.seen == []
    assert isinstance(await path.decide(key, good(route), route.path), Forward)


@every_route
async def test_a_body_that_could_be_read_in_two_ways_is_not_even_awaited(path: WholePath, route: Route) -> None:
    who = ("authorization", f"Bearer {path.credentials.api_keys['blue-carol']}")
    for name, headers in HEADS.items():
        verdict = await path.gate.admit(RequestHead("POST", route.path, (who, *headers)))
        assert isinstance(verdict, Answer), name
        assert (verdict.status, verdict.reason) == (415, "unsupported_media_type")
    for text in ("application/json", 'application/json; charset="UTF-8"', "Application/JSON;charset=utf-8"):
        assert not isinstance(await path.gate.admit(RequestHead("POST", route.path, (who, ("content-type", text)))), Answer)


@every_route
async def test_a_model_that_is_not_the_tenants_is_not_found_and_never_repeated(path: WholePath, route: Route) -> None:
    """Names of LoRA adapters are such where no pool declares them."""
    for name in ("an-adapter", "tiny ", "x" * MEGABYTE):
        verdict = await path.decide(path.credentials.api_keys["blue-carol"], good(route, model=name), route.path)
        assert (refusal(verdict)["code"], refusal(verdict)["param"]) == ("model_not_found", "model")


@every_route
def test_every_field_takes_its_own_kind_of_value_alone(route: Route) -> None:
    plain = {name: kind for name, kind in route.body.keep.items() if kind is not Kind.SHAPED and name != "model"}
    for name, kind in plain.items():
        for value in VALUES:
            found = outcome(route, **{name: value})
            if any(value == fit and type(value) is type(fit) for fit in FITS[kind]):
                assert isinstance(found, Sanitized), f"{name}: {value!r}"
                assert found.fields[name] == value
            else:
                assert isinstance(found, BadBody), f"{name}: {value!r}"
                assert (found.param, found.code) == (name, "invalid_type")


def test_an_integer_is_one_however_it_is_written() -> None:
    assert isinstance(outcome(MESSAGE, max_tokens=8.0), Sanitized)
    for value in (8.5, True, "8", [8]):
        assert isinstance(outcome(MESSAGE, max_tokens=value), BadBody)


@every_route
def test_whatever_has_a_shape_of_its_own_is_held_to_it(route: Route) -> None:
    shaped = {name for name, kind in route.body.keep.items() if kind is Kind.SHAPED}
    assert shaped <= CHECKS[route.dialect].keys()
    for name in sorted(shaped):
        whole = next((names for names in route.asks if name in names), frozenset[str]())
        partner = dict.fromkeys(whole - GOOD[route.path].keys(), "hi")
        found = [outcome(route, **partner | {name: value}) for value in [*VALUES, {"cache_salt": "x"}, [{"cache_salt": "x"}]]]
        refusals = [item for item in found if isinstance(item, BadBody)]
        assert len(refusals) > len(found) / 2 or name == "chat_template_kwargs", name
        assert all(item.param and item.param.startswith(name) for item in refusals), name


@every_route
def test_a_megabyte_in_any_field_is_judged_at_once(route: Route) -> None:
    """Long text is a prompt where text may stand; anywhere else it is refused, and no message repeats it."""
    long = "x" * MEGABYTE
    start = time.process_time()
    for name in sorted({*route.body.keep, *route.body.drop, *route.body.refuse}):
        found = outcome(route, **{name: long})
        if isinstance(found, BadBody):
            assert len(found.message) < 300, name
        else:
            assert name in found.stripped or found.fields[name] == long
    assert time.process_time() - start < 3


def test_every_kind_has_a_value_that_fits_and_one_that_does_not() -> None:
    assert FITS.keys() | {Kind.SHAPED} == set(Kind)
    used = {kind for route in ROUTES for kind in route.body.keep.values()}
    assert used == set(Kind)


@every_route
async def test_a_request_that_reaches_no_cache_has_a_permit_for_none_and_any_other_is_salted(path: WholePath, route: Route) -> None:
    forward = await path.decide(path.credentials.api_keys["blue-carol"], good(route), route.path)
    assert isinstance(forward, Forward)
    permit = read_permit(path.snapshot().permits[POOL_UID], forward.set_headers[PERMIT_HEADER])
    assert permit.reuse is (Reuse.SALTED if route.salt else Reuse.NONE)
    assert (permit.path, forward.path, forward.keep_headers) == (route.path, route.path, KEPT_HEADERS)
    assert ("cache_salt" in json.loads(forward.body)) == (route.salt is not None)


async def test_without_a_right_what_reaches_no_cache_is_served_as_before(path: WholePath) -> None:
    path.fresh_only = True
    for route, reuse in ((COUNTING, Reuse.NONE), (MESSAGE, Reuse.FRESH)):
        forward = await path.decide(path.credentials.api_keys["blue-carol"], good(route), route.path)
        assert isinstance(forward, Forward)
        assert read_permit(path.snapshot().permits[POOL_UID], forward.set_headers[PERMIT_HEADER]).reuse is reuse
        assert (await path.send(forward)).status == 200


async def test_routes_share_a_salt_within_a_scope_and_never_across(path: WholePath) -> None:
    """Blocks are compared by their tokens: what two routes have in common is one tenant's own."""
    mine, theirs = path.credentials.api_keys["blue-carol"], path.credentials.api_keys["red-alice"]

    async def salts(key: str) -> set[str]:
        found = set()
        for route in ROUTES:
            forward = await path.decide(key, good(route), route.path)
            assert isinstance(forward, Forward)
            found |= {json.loads(forward.body).get("cache_salt", "")}
        return found - {""}

    assert len(await salts(mine)) == 1
    assert not await salts(mine) & await salts(theirs)
    text = prompt()
    assert await path.cached(mine, text) == 0
    forward = await path.decide(mine, good(MESSAGE, messages=[SAID | {"content": text}]), MESSAGE.path)
    assert isinstance(forward, Forward)
    found = json.loads((await path.send(forward)).body)["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert found > 0, "this engine makes one token sequence of both"


OTHER_ROUTES = [
    ("POST", "/v2/chat"), ("POST", "/v2/embed"), ("POST", "/cohere/v2/chat"), ("POST", "/v1/audio/transcriptions"),
    ("POST", "/v1/audio/translations"), ("GET", "/v1/realtime"), ("POST", "/v1/chat/completions/render"),
    ("POST", "/v1/messages/render"), ("POST", "/v1/completions/render"), ("POST", "/v1/responses/render"),
    ("POST", "/v1/chat/completions/derender"), ("POST", "/inference/v1/generate"), ("POST", "/invocations"),
    ("POST", "/generative_scoring"), ("POST", "/v1/systemone"), ("POST", "/v1/load_lora_adapter"),
    ("POST", "/v1/unload_lora_adapter"), ("GET", "/tokenizer_info"), ("POST", "/reset_prefix_cache"), ("POST", "/reset_mm_cache"),
    ("POST", "/collective_rpc"), ("GET", "/server_info"), ("POST", "/sleep"), ("GET", "/load"), ("GET", "/version"),
    ("GET", "/kv_event_sources"), ("GET", "/metrics"), ("GET", "/health"), ("GET", "/docs"), ("GET", "/v1/responses/resp_1"),
    ("POST", "/v1/responses/resp_1/cancel"), ("GET", "/v1/messages"), ("GET", "/v1/embeddings"), ("POST", "/v1/embeddings/"),
    ("POST", "//v1/embeddings"), ("POST", "/v1/%65mbeddings"), ("POST", "/v1/embeddings?"), ("POST", "/V1/embeddings"),
    ("POST", "/v1/pooling"), ("POST", "/v1/classify"), ("POST", "/v2/score"), ("POST", "/v1/tokenize"),
]  # fmt: skip


async def test_every_other_route_is_not_found(path: WholePath) -> None:
    who = ("authorization", f"Bearer {path.credentials.api_keys['blue-carol']}")
    for method, target in OTHER_ROUTES:
        verdict = await path.gate.admit(RequestHead(method, target, (who, ("content-type", "application/json"))))
        assert isinstance(verdict, Answer), target
        assert (verdict.status, verdict.reason) == (404, "not_found"), target
