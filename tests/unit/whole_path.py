"""The whole path in one process: gateway decision, guard, and a fake engine whose prefix cache works as vLLM's does.

Nothing here is a stub of what is tested: configuration, authentication, cleaning, salt, permit and guard are the real ones. Only
sockets and the engine are not.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from cachescope.api.settings import IdentityProvider
from cachescope.core.endpoints import Endpoint
from cachescope.core.epochs import EpochVector, Floors, target_name
from cachescope.core.heads import Head, parse_head
from cachescope.core.permits import permit_keys
from cachescope.core.record import EngineDigests
from cachescope.core.statements import CHALLENGE_HEADER, STATEMENT_HEADER
from cachescope.core.types import Digest, Epoch, TargetKind, TargetName
from cachescope.gateway.audit import Audit
from cachescope.gateway.challenges import ChallengeAnswer
from cachescope.gateway.configuration import Configuration
from cachescope.gateway.decision import Decision
from cachescope.gateway.exchange import Answer, Forward, RequestHead
from cachescope.gateway.fleet import Fleet
from cachescope.gateway.identity.jwks import KeySet
from cachescope.gateway.identity.jwks_sources import FileKeySet
from cachescope.guard.asgi import Guard, Running
from cachescope.guard.key_folder import KeyFolder
from cachescope.guard.process import GuardProcess
from cachescope.guard.settings import Settings as GuardSettings
from cachescope.guard.wire import Receive, Scope, Send
from e2e.stack.credentials import Credentials, load
from tests.unit.guard_fakes import FakeHeads, Server, scope

EXAMPLES = Path(__file__).parents[2] / "examples" / "demo"
POOL_UID = "6d1f3f0e-0a77-4b66-9a5b-8a8f5a0c1d01"
ADDRESS = "10.0.0.1:8000"
CHAT = "/v1/chat/completions"
BLOCK = 16


class PrefixCachingEngine:
    """Answers chat requests, and reuses blocks of a prefix as vLLM does: the salt is part of the first block's hash."""

    def __init__(self) -> None:
        self.blocks: set[bytes] = set()
        self.seen: list[dict[str, Any]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - one route is enough
        body = json.loads((await receive())["body"])
        self.seen.append(body)
        usage = {"prompt_tokens": len(self._text(body)), "prompt_tokens_details": {"cached_tokens": self._cached(body)}}
        answer = json.dumps({"object": "chat.completion", "usage": usage}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": answer, "more_body": False})

    def _text(self, body: dict[str, Any]) -> str:
        return "".join(str(message["content"]) for message in body["messages"])

    def _cached(self, body: dict[str, Any]) -> int:
        text, parent, hits, missed = self._text(body), repr(body.get("cache_salt")).encode(), 0, False
        for start in range(0, len(text) // BLOCK * BLOCK, BLOCK):
            parent = hashlib.sha256(parent + text[start : start + BLOCK].encode()).digest()
            missed = missed or parent not in self.blocks
            hits += 0 if missed else 1
            self.blocks.add(parent)
        return hits * BLOCK


class WholePath:
    """One gateway, one guarded engine, and the demo's tenants.

    Args:
        folder: An empty folder for the configuration.
        guard: The guard's class; tests pass a leaky one to see that they would notice.
    """

    def __init__(self, folder: Path, guard: type[Guard] = Guard) -> None:
        self.folder = folder
        self.credentials: Credentials = load(folder / "credentials.json")
        self.clock_ms = 10_000_000
        write_configuration(folder, self.credentials)
        self.configuration = Configuration(folder / "mounted", FileKeySets(), time.time)
        self.configuration.refresh()
        assert self.configuration.fault is None, self.configuration.fault
        self.engine = PrefixCachingEngine()
        self.heads = FakeHeads(self._head())
        self.process = self._guard_process()
        running = Running(self.process)
        running.background = None
        self.guard = guard(self.engine, running)
        self.fleet = Fleet(OneEndpoint(), self, lambda: self.clock_ms)
        self.gate = Decision(self.configuration.current, self.fleet, Audit(CollectorRegistry()))
        self.last: Forward | None = None

    async def challenge(self, address: str, nonce: str) -> ChallengeAnswer:
        """Implements `Challenger` on the guard in this process."""
        assert address == ADDRESS
        server = Server([b"{}"])
        await self.guard(scope(path=CHAT, headers=[(CHALLENGE_HEADER.encode(), nonce.encode())]), server.receive, server.send)
        return ChallengeAnswer(server.status, server.headers.get(STATEMENT_HEADER))

    async def prove(self) -> None:
        """Let the gateway challenge the guard."""
        self.clock_ms += 1000
        snapshot = self.configuration.current()
        assert snapshot is not None
        self.fleet.step(snapshot.trusts)
        for task in list(self.fleet.under_way):
            await task

    async def decide(self, key: str, body: bytes, path: str = CHAT, **headers: str) -> Forward | Answer:
        """What the gateway does with a request."""
        given = {"authorization": f"Bearer {key}", "content-type": "application/json", **headers}
        head = RequestHead("POST", path, tuple((name.replace("_", "-"), value) for name, value in given.items()))
        admitted = await self.gate.admit(head)
        return admitted if isinstance(admitted, Answer) else await self.gate.decide(admitted, body)

    async def send(self, forward: Forward, **changes: Any) -> Server:
        """What the guard and the engine do with it."""
        headers = [(name.encode(), value.encode()) for name, value in forward.set_headers.items()]
        server = Server([changes.pop("body", forward.body)])
        await self.guard(scope(path=forward.path, headers=headers, **changes), server.receive, server.send)
        self.gate.finished(forward)
        return server

    async def cached(self, key: str, text: str, **fields: Any) -> int:
        """Send a chat request and return the tokens that the engine found in its cache."""
        body = {"model": "tiny", "messages": [{"role": "user", "content": text}], **fields}
        forward = await self.decide(key, json.dumps(body).encode())
        assert isinstance(forward, Forward), forward
        self.last = forward
        server = await self.send(forward)
        assert server.status == 200, server.body
        return int(json.loads(server.body)["usage"]["prompt_tokens_details"]["cached_tokens"])

    def raise_pool_epoch(self, value: int) -> None:
        """Roll the pool's epoch forward, for gateway and guard."""
        head = self._head()
        self.heads.head = Head(head.lineage, head.sequence + 1, Floors({self.pool_target(): Epoch(value)}, head.floors.base))
        (self.folder / "mounted/config/head.json").write_text(
            json.dumps({"lineage": "lineage", "sequence": 2, "base": 1, "floors": {self.pool_target(): value}})
        )
        self.configuration.refresh()

    def pool_target(self) -> TargetName:
        snapshot = self.configuration.current()
        assert snapshot is not None
        return target_name(snapshot.keys.targets, TargetKind.POOL, POOL_UID)

    def vector(self, value: int) -> EpochVector:
        return EpochVector.of({self.pool_target(): Epoch(value)})

    def _head(self) -> Head:
        return parse_head(json.loads((self.folder / "mounted/config/head.json").read_text()))

    def _guard_process(self) -> GuardProcess:
        snapshot = self.configuration.current()
        assert snapshot is not None
        nowhere = Path("/nowhere")
        settings = GuardSettings(POOL_UID, self.pool_target(), "pod-uid", nowhere, nowhere, nowhere, 60_000, 0)
        keys = KeyFolder(nowhere, lambda: self.clock_ms)
        keys.ring = permit_keys(snapshot.keys.root, POOL_UID)
        engine = EngineDigests(*(Digest(f"sha256:{digit * 64}") for digit in "123"))
        process = GuardProcess(settings, source=self.heads, keys=keys, clock=lambda: self.clock_ms, digests=lambda: engine)
        process.engine = engine
        return process


class OneEndpoint:
    """Implements `EndpointSource` with one ready engine."""

    def endpoints(self, pool: str) -> Sequence[Endpoint]:
        return [Endpoint(pool, "pod-uid", ADDRESS)]


class FileKeySets:
    """Implements `KeySets` with files alone."""

    def of(self, provider: IdentityProvider, secrets: Path) -> KeySet:
        assert provider.jwks.secret_name
        return FileKeySet(secrets / provider.jwks.secret_name / "jwks.json", time.monotonic)


def write_configuration(folder: Path, credentials: Credentials) -> None:
    """Write the demo's configuration as it is mounted in a cluster."""
    mounted = folder / "mounted"
    head = json.dumps({"lineage": "lineage", "sequence": 1, "base": 1, "floors": {}})
    files = {
        "config/settings.yaml": (EXAMPLES / "settings.yaml").read_text(),
        "config/resources.yaml": (EXAMPLES / "resources.yaml").read_text(),
        "config/head.json": head,
        **{f"root-keys/{name}": value for name, value in credentials.root_keys.items()},
        **{f"secrets/{name}/{key}": text for name, data in credentials.secrets().items() for key, text in data.items()},
    }
    for name, text in files.items():
        (mounted / name).parent.mkdir(parents=True, exist_ok=True)
        (mounted / name).write_text(text)


def prompt() -> str:
    """A text of many blocks that nobody sent before."""
    return secrets.token_hex(16) + " once upon a midnight dreary" * 20
