"""A guard with a clock that a test moves, heads that a test raises, and an engine that records what reaches it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cachescope.core.digests import sha256
from cachescope.core.epochs import FIRST_EPOCH, EpochVector
from cachescope.core.errors import ClusterError
from cachescope.core.heads import Epochs, Heads, Seen
from cachescope.core.keys import Key, KeyRing
from cachescope.core.ledgers import Flags, Floor, Ledger, Lineage, Role
from cachescope.core.permits import PERMIT_HEADER, Permit, write_permit
from cachescope.core.record import EngineDigests, Loaded
from cachescope.core.types import Digest, Epoch, Reuse, ScopeClass, TargetName
from cachescope.guard.asgi import Guard, Running
from cachescope.guard.closing import Closing
from cachescope.guard.key_folder import KeyFolder
from cachescope.guard.process import GuardProcess
from cachescope.guard.settings import Settings
from cachescope.guard.wire import App, Message, Receive, Scope, Send
from tests.unit.lease_fakes import Clock

KEY = Key("2026-11-30", b"k" * 32)
POOL = TargetName("a" * 64)
TENANT = TargetName("b" * 64)
ENGINE = EngineDigests(Digest("sha256:" + "1" * 64), Digest("sha256:" + "2" * 64), Digest("sha256:" + "3" * 64))
BODY = b'{"model":"tiny","prompt":"hello"}'
PATH = "/v1/completions"
LEASE_MS = 60_000


class FakeHeads:
    """Heads and a right in memory."""

    def __init__(self, heads: Heads | None) -> None:
        self.heads = heads
        self.generation = 1
        self.left_ms = 1000
        self.over = 0
        self.refreshed = 0
        self.next: Heads | None = None

    def right_left_ms(self, now_ms: int) -> int:  # noqa: ARG002 - the port's signature
        return self.left_ms

    def over_ms(self, now_ms: int) -> int:  # noqa: ARG002 - the port's signature
        return self.over

    async def refresh(self) -> None:
        self.refreshed += 1
        if self.next is not None:
            self.heads = self.next


class FakeConfirmation:
    """An engine that confirms when a test lets it."""

    def __init__(self) -> None:
        self.allowed = asyncio.Event()
        self.allowed.set()
        self.failures = 0
        self.asked: list[list[str]] = []
        self.done: set[str] = set()

    def saw(self, app: App, scope: Scope) -> None:
        """It is found without looking."""

    async def confirmed(self, closed: Collection[str]) -> None:
        self.asked.append(sorted(closed))
        if self.failures:
            self.failures -= 1
            raise ClusterError("not now")
        await self.allowed.wait()
        self.done.update(closed)


class FakeKeeper:
    """A keeper that keeps nothing and says whether it runs."""

    def __init__(self) -> None:
        self.outcomes = {"done": 7, "failed": 2}
        self.running = False
        self.hurried = asyncio.Event()

    async def run(self) -> None:
        self.running = True
        try:
            await asyncio.Event().wait()
        finally:
            self.running = False

    def hurry(self) -> None:
        self.hurried.set()


class Engine:
    """An ASGI app that records what reaches it, and streams what a test feeds it."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.bodies: list[bytes] = []
        self.chunks: asyncio.Queue[bytes | None] | None = None
        self.disconnected = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self.scopes.append(scope)
        self.bodies.append((await receive()).get("body", b""))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        if self.chunks is None:
            await send({"type": "http.response.body", "body": b"answer", "more_body": False})
            return
        listener = asyncio.ensure_future(self._listen(receive))
        try:
            while (chunk := await self.chunks.get()) is not None:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            listener.cancel()

    async def _listen(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.disconnected.set()


@dataclass
class Server:
    """The server's side of one request.

    Attributes:
        messages: What the guard handed over.
        gone: Set when the client goes away.
    """

    parts: list[bytes]
    messages: list[Message] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    received: int = 0

    async def receive(self) -> Message:
        self.received += 1
        if self.parts:
            return {"type": "http.request", "body": self.parts.pop(0), "more_body": bool(self.parts)}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.messages.append(message)
        self.arrived.set()

    async def until_messages(self, count: int) -> None:
        while len(self.messages) < count:
            self.arrived.clear()
            await asyncio.wait_for(self.arrived.wait(), 5)

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.messages[1:])

    @property
    def complete(self) -> bool:
        return bool(self.messages) and not self.messages[-1].get("more_body", True)

    @property
    def code(self) -> str:
        return str(json.loads(self.body)["error"]["code"])


class World:
    """One guard process, its engine, and a gateway that signs permits for it."""

    def __init__(self, guard: type[Guard] = Guard, **changes: Any) -> None:
        self.clock = Clock(5_000_000)
        self.source = FakeHeads(head_at())
        self.settings = replace(settings_of("pool-uid", POOL), **changes)
        keys = KeyFolder(Path("/nowhere"), self.clock)
        keys.ring = KeyRing.of(KEY)
        self.process = GuardProcess(self.settings, source=self.source, keys=keys, clock=self.clock, digests=lambda: Loaded(ENGINE))
        self.process.loaded = Loaded(ENGINE)
        self.confirmation = FakeConfirmation()
        self.process.closing = Closing(self.process.in_flight, self.confirmation, _no_pause)
        self.running = Running(self.process)
        self.running.background = None
        self.engine = Engine()
        self._guard = guard
        self.app: App = guard(self.engine, self.running)
        self.clock.now += 30_000
        self._ids = 0

    def serve(self, app: App) -> None:
        """Put another engine behind the guard."""
        self.app = self._guard(app, self.running)

    def permit(self, **changes: Any) -> Permit:
        self._ids += 1
        permit = Permit(
            id=f"{self._ids:032x}",
            pool_uid="pool-uid",
            pod_uid="pod-uid",
            boot_id=self.process.boot_id,
            tick=self.process.tick() - 1000,
            method="POST",
            path=PATH,
            body_digest=sha256(BODY),
            record_digest=Digest("sha256:" + "4" * 64),
            runtime_digest=ENGINE.runtime,
            scope=ScopeClass.TENANT,
            epochs=vector(1, 1),
            seen=seen(1),
            reuse=Reuse.SALTED,
        )
        return replace(permit, **changes)

    async def ask(self, permit: Permit | str | None = None, body: bytes = BODY, **changes: Any) -> Server:
        """Send one request through the guard and wait for its end."""
        server = Server([body])
        await self.app(self.scope(permit, **changes), server.receive, server.send)
        return server

    def scope(self, permit: Permit | str | None = None, **changes: Any) -> Scope:
        text = write_permit(KEY, permit) if isinstance(permit, Permit) else permit
        headers = [(PERMIT_HEADER.encode(), text.encode())] if text is not None else []
        return scope(**{"headers": [*headers, *changes.pop("headers", [])], **changes})


def settings_of(pool_uid: str, pool_target: TargetName, **changes: Any) -> Settings:
    """Settings of a guard that finds nothing on its disk."""
    nowhere = Path("/nowhere")
    settings = Settings(
        namespace="models",
        pool="tiny",
        pool_uid=pool_uid,
        pool_target=pool_target,
        pod_name="tiny-0",
        pod_uid="pod-uid",
        keys_folder=nowhere,
        model_path=nowhere,
        api_url="https://192.0.2.1:443",
        lease_ms=LEASE_MS,
        metrics_port=0,
    )
    return replace(settings, **changes)


def scope(method: str = "POST", path: str = PATH, query: bytes = b"", headers: Sequence[tuple[bytes, bytes]] = ()) -> Scope:
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "root_path": "",
        "headers": list(headers),
    }


def vector(pool: int, tenant: int) -> Epochs:
    return Epochs(EpochVector.of({POOL: Epoch(pool)}), EpochVector.of({TENANT: Epoch(tenant)}))


def seen(sequence: int, lineage: str = "lineage") -> Seen:
    return Seen(lineage, sequence, lineage, sequence)


def head_at(pool: int = 1, tenant: int = 1, *, sequence: int = 1, lineage: str = "lineage", generation: int = 1) -> Heads:
    """Heads at those epochs; what is in flight below them is closed at once."""
    history = Lineage(generation, lineage)
    return Heads(
        Ledger(Role.POOL, history, sequence, floors={POOL: at_once(pool)}),
        Ledger(Role.AUTHORIZATION, history, sequence, floors={TENANT: at_once(tenant)}),
    )


def at_once(epoch: int) -> Floor:
    return Floor(Epoch(epoch), abort_below=Epoch(epoch))


def draining(pool: int, seconds: int, *, abort_below: int = FIRST_EPOCH, sequence: int = 2) -> Heads:
    """Heads below which the pool's requests drain, from the epoch on below which they are closed."""
    return with_pool(floors={POOL: Floor(Epoch(pool), Epoch(abort_below), seconds)}, sequence=sequence)


def with_pool(**changes: Any) -> Heads:
    heads = head_at()
    return replace(heads, pool=replace(heads.pool, history=(), **changes))


def with_authorization(**changes: Any) -> Heads:
    heads = head_at()
    return replace(heads, authorization=replace(heads.authorization, history=(), **changes))


def bypassing(pool: int = 1) -> Heads:
    return with_pool(floors={POOL: at_once(pool)}, sequence=2, flags=Flags(bypassed=Epoch(pool)))


def public_stopped(pool: int = 1) -> Heads:
    return with_pool(floors={POOL: at_once(pool)}, sequence=2, flags=Flags(public_stopped=Epoch(pool)))


def denying(tenant: int) -> Heads:
    return with_authorization(sequence=2, floors={TENANT: Floor(Epoch(tenant), Epoch(tenant), denied=Epoch(tenant))})


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop turn until something holds that has no event."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - it has no event, and the wait has a deadline
            await asyncio.sleep(0)


async def _no_pause(_: float) -> None:
    await asyncio.sleep(0)
