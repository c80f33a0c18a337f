"""Every refusal of the guard, through its ASGI interface, each beside a request that differs only in that and is admitted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from cachescope.core.admission import Refusal
from cachescope.core.digests import sha256
from cachescope.core.epochs import EpochVector
from cachescope.core.heads import Epochs, Seen
from cachescope.core.keys import Key
from cachescope.core.permits import write_permit
from cachescope.core.types import Digest, Epoch
from cachescope.guard.asgi import Admitted, Guard
from cachescope.guard.in_flight import Flight
from cachescope.guard.process import GuardProcess
from cachescope.guard.wire import Receive, Scope
from tests.unit.guard_fakes import (
    BODY,
    KEY,
    LEASE_MS,
    PATH,
    TENANT,
    Server,
    World,
    bypassing,
    denying,
    head_at,
    seen,
    vector,
)

NONCE = "n" * 22
TRIES = 50

PERMIT_FAULTS: dict[str, tuple[Callable[[World], dict[str, Any]], Refusal]] = {
    "pool": (lambda _: {"pool_uid": "other"}, Refusal.OTHER_PROCESS),
    "pod": (lambda _: {"pod_uid": "other"}, Refusal.OTHER_PROCESS),
    "boot": (lambda _: {"boot_id": "0" * 32}, Refusal.OTHER_BOOT),
    "method": (lambda _: {"method": "GET"}, Refusal.OTHER_REQUEST),
    "path": (lambda _: {"path": "/v1/chat/completions"}, Refusal.OTHER_REQUEST),
    "trailing slash": (lambda _: {"path": PATH + "/"}, Refusal.OTHER_REQUEST),
    "query": (lambda _: {"path": PATH + "?a=b"}, Refusal.OTHER_REQUEST),
    "body": (lambda _: {"body_digest": sha256(BODY + b" ")}, Refusal.OTHER_REQUEST),
    "tick ahead": (lambda world: {"tick": world.process.tick() + 1}, Refusal.TICK_AHEAD),
    "too old": (lambda world: {"tick": world.process.tick() - LEASE_MS - 1}, Refusal.TOO_OLD),
    "runtime": (lambda _: {"runtime_digest": Digest("sha256:" + "9" * 64)}, Refusal.OTHER_RUNTIME),
    "lineage": (lambda _: {"seen": Seen("restored", 1, "lineage", 1)}, Refusal.OTHER_LINEAGE),
    "authorization lineage": (lambda _: {"seen": Seen("lineage", 1, "restored", 1)}, Refusal.OTHER_LINEAGE),
    "no pool epoch": (
        lambda _: {"epochs": Epochs(EpochVector.of({TENANT: Epoch(1)}), vector(1, 1).authorization)},
        Refusal.NO_POOL_EPOCH,
    ),
    "pool behind": (lambda _: {"epochs": vector(0, 1)}, Refusal.BEHIND),
    "tenant behind": (lambda _: {"epochs": vector(1, 0)}, Refusal.BEHIND),
    "tenant ahead": (lambda _: {"epochs": vector(1, 2)}, Refusal.GUARD_BEHIND),
    "sequence ahead": (lambda _: {"seen": Seen("lineage", 2, "lineage", 1)}, Refusal.GUARD_BEHIND),
    "authorization ahead": (lambda _: {"seen": Seen("lineage", 1, "lineage", 2)}, Refusal.GUARD_BEHIND),
}


class LeakyGuard(Guard):
    """A guard that lets all pass: every zero of this suite must fail on it."""

    async def decide(self, process: GuardProcess, scope: Scope, receive: Receive) -> Admitted:  # noqa: ARG002 - the signature
        flight = Flight(World().permit(), process.source.heads or head_at(), generation=process.source.generation, now=0)
        return Admitted(flight, (await receive()).get("body", b""))


async def _replay(world: World) -> None:
    text = write_permit(KEY, world.permit())
    await world.ask(text)
    world.engine.bodies.clear()
    await world.ask(text)


async def _forged(world: World) -> None:
    await world.ask(write_permit(Key(KEY.id, b"x" * 32), world.permit()))


async def _without(world: World) -> None:
    await world.ask()


async def _metrics(world: World) -> None:
    await world.ask(method="GET", path="/metrics")


async def _another_body(world: World) -> None:
    await world.ask(world.permit(), BODY + b" ")


async def _without_right(world: World) -> None:
    world.source.left_ms = 0
    await world.ask(world.permit())


async def _without_heads(world: World) -> None:
    world.source.heads = None
    await world.ask(world.permit())


async def _revoked(world: World) -> None:
    world.source.heads = denying(2)
    await world.ask(world.permit(epochs=vector(1, 2), seen=Seen("lineage", 1, "lineage", 2)))


async def _reuse_under_a_bypass(world: World) -> None:
    world.source.heads = bypassing()
    await world.ask(world.permit(seen=Seen("lineage", 2, "lineage", 1)))


ATTACKS = [_replay, _forged, _without, _metrics, _another_body, _without_right, _without_heads, _revoked, _reuse_under_a_bypass]


async def _reached(world: World, fault: str) -> int:
    await world.ask(world.permit(**PERMIT_FAULTS[fault][0](world)))
    return len(world.engine.bodies)


async def test_a_valid_permit_reaches_the_engine_with_its_whole_body() -> None:
    world = World()
    server = await world.ask(world.permit(), headers=[(b"x-cachescope-challenge", NONCE.encode()), (b"accept", b"*/*")])
    assert (server.status, server.body, server.complete) == (200, b"answer", True)
    assert world.engine.bodies == [BODY]
    assert world.engine.scopes[0]["headers"] == [(b"accept", b"*/*"), (b"x-request-id", f"{1:032x}".encode())]
    assert world.running.requests.by_outcome == {"admitted": 1}
    assert world.process.in_flight.counts() == {"open": 0, "draining": 0, "closing": 0}


async def test_the_engine_sees_one_request_id_that_ends_with_the_permits() -> None:
    world = World()
    given = [(b"X-Request-Id", b"of-the-gateway" + b"x" * 90), (b"x-request-id", b"second")]
    await world.ask(world.permit(), headers=given)
    ((name, value),) = [header for header in world.engine.scopes[0]["headers"] if header[0].lower() == b"x-request-id"]
    assert (name, value) == (b"x-request-id", b"of-the-gateway" + b"x" * 50 + b"-" + f"{1:032x}".encode())


async def test_the_engine_listens_for_a_client_that_goes_away() -> None:
    world = World()
    server = Server([BODY])
    await world.app({**world.scope(world.permit()), "asgi": {"version": "3.0", "spec_version": "2.4"}}, server.receive, server.send)
    assert world.engine.scopes[0]["asgi"]["spec_version"] == "2.3"


@pytest.mark.parametrize("fault", PERMIT_FAULTS)
async def test_a_permit_for_something_else_is_refused(fault: str) -> None:
    world = World()
    expected = PERMIT_FAULTS[fault][1]
    server = await world.ask(world.permit(**PERMIT_FAULTS[fault][0](world)))
    assert (server.status, server.code) == (expected.status, expected.code)
    assert server.headers.get("retry-after") == (None if expected.retry_after is None else str(expected.retry_after))
    assert world.engine.bodies == []
    assert world.running.requests.by_outcome == {expected.code: 1}


@pytest.mark.parametrize("fault", PERMIT_FAULTS)
async def test_a_leaky_guard_fails_the_zero_of_every_fault(fault: str) -> None:
    assert await _reached(World(), fault) == 0
    assert await _reached(World(LeakyGuard), fault) == 1


@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_leaky_guard_fails_the_zero_of_every_attack(attack: Callable[[World], Any]) -> None:
    tight, leaky = World(), World(LeakyGuard)
    await attack(tight)
    await attack(leaky)
    assert (len(tight.engine.bodies), len(leaky.engine.bodies)) == (0, 1)


async def test_everything_but_health_needs_a_permit() -> None:
    world = World()
    for method, path in [("GET", "/metrics"), ("POST", "/health"), ("GET", "/health/"), ("GET", "/ping"), ("GET", "/v1/models")]:
        server = await world.ask(method=method, path=path)
        assert (server.status, server.code) == (401, "permit_required")
    assert world.engine.scopes == []


async def test_an_encoded_health_path_needs_a_permit() -> None:
    world = World()
    server = Server([b""])
    await world.app({**world.scope(method="GET", path="/health"), "raw_path": b"/%68ealth"}, server.receive, server.send)
    assert server.status == 401


async def test_health_passes_without_body_and_query() -> None:
    world = World()
    server = await world.ask(method="GET", path="/health", query=b"a=b", body=b"ignored")
    assert server.status == 200
    assert (world.engine.bodies, world.engine.scopes[0]["query_string"]) == ([b""], b"")


@pytest.mark.parametrize("path", ["/v1/a%20b", "/v1/a%2Fb", "//v1/a"])
async def test_the_path_is_compared_as_it_was_sent(path: str) -> None:
    world = World()
    assert (await world.ask(world.permit(path=path), path=path)).status == 200
    decoded = await world.ask(world.permit(path="/v1/a b"), path=path)
    assert decoded.code == Refusal.OTHER_REQUEST.code


async def test_the_query_belongs_to_the_path() -> None:
    world = World()
    assert (await world.ask(world.permit(path=PATH + "?a=b"), query=b"a=b")).status == 200
    assert (await world.ask(world.permit(), query=b"a=b")).code == Refusal.OTHER_REQUEST.code


async def test_ticks_at_both_ends_of_the_age_are_admitted() -> None:
    world = World()
    world.clock.now += LEASE_MS
    for tick in (world.process.tick(), world.process.tick() - LEASE_MS):
        assert (await world.ask(world.permit(tick=tick))).status == 200


async def test_two_permit_headers_are_refused() -> None:
    world = World()
    text = write_permit(KEY, world.permit())
    server = await world.ask(text, headers=[(b"X-CacheScope-Permit", text.encode())])
    assert server.code == Refusal.PERMIT_INVALID.code
    assert (await world.ask(text)).status == 200


@pytest.mark.parametrize("text", ["", "v1", "v1.a.b.c", "\x00\xff", "v1." + "a" * 20_000])
async def test_what_is_no_permit_is_refused(text: str) -> None:
    world = World()
    server = Server([BODY])
    await world.app(world.scope(headers=[(b"x-cachescope-permit", text.encode("latin-1"))]), server.receive, server.send)
    assert server.code == Refusal.PERMIT_INVALID.code


async def test_a_refused_body_is_never_read() -> None:
    world = World()
    server = Server([BODY])
    await world.app(world.scope(world.permit(pod_uid="other")), server.receive, server.send)
    assert (server.status, server.received) == (403, 0)


async def test_a_permit_is_used_once_in_many_tries() -> None:
    world = World()
    text = write_permit(KEY, world.permit())
    statuses = [(await world.ask(text)).status for _ in range(TRIES)]
    assert statuses == [200] + [403] * (TRIES - 1)


async def test_a_permit_is_used_once_by_concurrent_requests() -> None:
    world = World()
    text = write_permit(KEY, world.permit())
    servers = [Server([BODY[:7], BODY[7:]]) for _ in range(TRIES)]
    await asyncio.gather(*(world.app(world.scope(text), server.receive, server.send) for server in servers))
    assert sorted(server.status for server in servers) == [200] + [403] * (TRIES - 1)
    assert len(world.engine.bodies) == 1


async def test_a_full_memory_of_used_permits_refuses_and_forgets_nothing() -> None:
    world = World(used_permits=2)
    used = [write_permit(KEY, world.permit()) for _ in range(2)]
    assert [(await world.ask(text)).status for text in used] == [200, 200]
    assert (await world.ask(world.permit())).code == Refusal.MEMORY_FULL.code
    assert (await world.ask(used[0])).code == Refusal.USED.code
    world.clock.now += LEASE_MS + 1
    assert (await world.ask(world.permit())).status == 200
    assert (await world.ask(used[0])).code == Refusal.TOO_OLD.code


async def test_a_body_over_the_limit_is_refused_by_declaration_and_by_size() -> None:
    world = World(max_body_bytes=len(BODY))
    assert (await world.ask(world.permit())).status == 200
    longer = BODY + b" "
    assert (await world.ask(world.permit(body_digest=sha256(longer)), longer)).code == Refusal.TOO_LARGE.code
    declared = Server([BODY])
    length = [(b"content-length", str(len(longer)).encode())]
    await world.app(world.scope(world.permit(), headers=length), declared.receive, declared.send)
    assert (declared.status, declared.received) == (413, 0)


async def test_a_client_that_goes_away_while_sending_gets_nothing_and_uses_nothing() -> None:
    world = World()
    permit = world.permit()
    server = Server([])
    server.gone.set()
    await world.app(world.scope(permit), server.receive, server.send)
    assert (server.messages, world.engine.bodies) == ([], [])
    assert (await world.ask(permit)).status == 200


async def test_a_guard_that_is_behind_reads_again_once_and_admits() -> None:
    world = World()
    world.source.next = head_at(tenant=2, sequence=2)
    server = await world.ask(world.permit(epochs=vector(1, 2), seen=seen(2)))
    assert (server.status, world.source.refreshed) == (200, 1)
    assert (await world.ask(world.permit(epochs=vector(1, 3)))).code == Refusal.GUARD_BEHIND.code
    assert world.source.refreshed == 2


async def test_an_epoch_that_rises_while_the_body_arrives_refuses() -> None:
    world = World()
    server = Server([BODY])
    permit = world.permit()

    async def slow() -> Any:
        world.source.heads = head_at(tenant=2, sequence=2)
        return await server.receive()

    await world.app(world.scope(permit), slow, server.send)
    assert (server.code, world.engine.bodies) == (Refusal.BEHIND.code, [])


@pytest.mark.parametrize("missing", ["heads", "runtime", "keys"])
async def test_what_is_not_known_yet_refuses(missing: str) -> None:
    world = World()
    permit = world.permit()
    if missing == "heads":
        world.source.heads = None
    elif missing == "runtime":
        world.process.loaded = None
    else:
        world.process.keys.ring = None
    server = await world.ask(permit)
    assert (server.status, server.code) == (503, Refusal.NO_RIGHT.code)
    challenged = await world.ask(headers=[(b"x-cachescope-challenge", NONCE.encode())])
    assert (challenged.status, "x-cachescope-statement" in challenged.headers) == (401, False)


async def test_websockets_are_closed() -> None:
    world = World()
    server = Server([])
    await world.app({"type": "websocket", "path": "/v1/realtime", "headers": []}, server.receive, server.send)
    assert [(message["type"], message["code"]) for message in server.messages] == [("websocket.close", 1008)]


async def test_an_unknown_scope_is_an_error() -> None:
    world = World()
    server = Server([])
    with pytest.raises(RuntimeError, match="no ASGI scope"):
        await world.app({"type": "webtransport"}, server.receive, server.send)


async def test_a_root_path_refuses_everything() -> None:
    world = World()
    server = Server([BODY])
    await world.app({**world.scope(world.permit()), "root_path": "/x"}, server.receive, server.send)
    assert (server.status, server.code, world.engine.bodies) == (503, "guard_misconfigured", [])


def _fail(*_: object, **__: object) -> None:
    raise ZeroDivisionError("injected")


@pytest.mark.parametrize(
    "collaborator",
    ["process.source.right_left_ms", "process.keys.reload_if_due", "process.used.use", "process.in_flight.enter", "process.clock",
     "process.state", "process.admit", "process.look", "process.read_permit", "process.statement"],
)  # fmt: skip
async def test_a_fault_in_any_collaborator_lets_nothing_through(collaborator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    permit: Any = world.permit()
    if collaborator == "process.keys.reload_if_due":
        permit = write_permit(Key("unknown", b"x" * 32), permit)
    *path, name = collaborator.split(".")
    owner: Any = world
    for part in path:
        owner = getattr(owner, part)
    monkeypatch.setattr(owner, name, _fail)
    challenge = [(b"x-cachescope-challenge", NONCE.encode())]
    server = await world.ask(permit, headers=challenge) if name != "statement" else await world.ask(headers=challenge)
    assert server.status == (401 if name == "statement" else 503)
    assert world.engine.bodies == []


async def test_a_permit_whose_fields_have_other_types_lets_nothing_through() -> None:
    world = World()
    faults: list[dict[str, Any]] = [
        {"tick": "now"},
        {"tick": float("nan")},
        {"tick": True},
        {"id": ["list"]},
        {"seen": Seen("lineage", None, "lineage", 1)},  # type: ignore[arg-type]
        {"epochs": Epochs(vector(1, 1).cache, EpochVector(((TENANT, 1.5),)))},  # type: ignore[arg-type]
    ]
    for changes in faults:
        server = await world.ask(world.permit(**changes))
        assert server.code == Refusal.PERMIT_INVALID.code, changes
    assert world.engine.bodies == []
