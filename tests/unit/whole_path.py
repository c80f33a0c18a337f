"""The whole path in one process: gateway decision, guard, and a fake engine whose prefix cache works as vLLM's does.

Nothing here is a stub of what is tested: configuration, authentication, cleaning, salt, permit and guard are the real ones. Only
sockets and the engine are not.
"""

from __future__ import annotations

import copy
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from cachescope.api.settings import IdentityProvider
from cachescope.core.endpoints import Endpoint
from cachescope.core.epochs import target_name
from cachescope.core.heads import Heads
from cachescope.core.leases import GUARD, LeaseStatement, lease_name, write_lease
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Floor, Ledger, Lineage, Role, advanced
from cachescope.core.permits import permit_keys
from cachescope.core.record import EngineDigests, Loaded
from cachescope.core.scopes import Credential
from cachescope.core.statements import CHALLENGE_HEADER, STATEMENT_HEADER
from cachescope.core.types import Digest, Epoch, TargetKind, TargetName
from cachescope.engines.vllm import ROUTES
from cachescope.gateway.audit import Audit
from cachescope.gateway.challenges import ChallengeAnswer
from cachescope.gateway.configuration import Configuration
from cachescope.gateway.decision import Decision
from cachescope.gateway.exchange import Answer, Forward, Peer, RequestHead
from cachescope.gateway.fleet import Fleet
from cachescope.gateway.guard_leases import GuardLeases
from cachescope.gateway.identity.cluster_keys import ClusterKeySet
from cachescope.gateway.identity.jwks import KeySet
from cachescope.gateway.identity.jwks_sources import FileKeySet
from cachescope.gateway.identity.service_accounts import ClusterKeys
from cachescope.gateway.snapshot import Snapshot
from cachescope.gateway.standing import InForce
from cachescope.guard.asgi import Guard, Running
from cachescope.guard.key_folder import KeyFolder
from cachescope.guard.process import GuardProcess
from cachescope.guard.wire import Receive, Scope, Send
from cachescope.kube.rest import Rest
from cachescope.kube.watched import Name
from e2e.stack.credentials import Credentials, load
from tests.unit.cluster_fakes import FakeCluster, settled
from tests.unit.guard_fakes import FakeHeads, Server, scope, settings_of

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMESPACE = "models"
POOL = "tiny"
POOL_UID = "6d1f3f0e-0a77-4b66-9a5b-8a8f5a0c1d01"
ADDRESS = "10.0.0.1:8000"
CHAT = "/v1/chat/completions"
BLOCK = 16
ROOT_KEYS = {"k1": "5a" * 32, "targets": "6b" * 32}
FIRST = Ledger(Role.POOL, Lineage(1, "11" * 16), 1)
FIRST_AUTHORIZATION = Ledger(Role.AUTHORIZATION, Lineage(1, "22" * 16), 1)


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

    Attributes:
        pool_ledger: What the operator wrote last of the pool.
        authorization: The same of the namespace's authorization head.
        fresh_only: Whether the gateway's right ran out.
        seconds: The gateway's wall clock, in seconds since 1970.
    """

    def __init__(self, folder: Path, guard: type[Guard] = Guard) -> None:
        self.folder = folder
        self.credentials: Credentials = load(folder / "credentials.json")
        self.clock_ms = 10_000_000
        self.seconds = time.time()
        self.cluster = cluster_of(self.credentials)
        write_mounted(folder, self.credentials)
        self.key_sets = FileKeySets()
        self.configuration = Configuration(folder / "mounted", self.cluster.stores, self.key_sets, now=time.time)
        self.pool_ledger, self.authorization = FIRST, FIRST_AUTHORIZATION
        self.fresh_only = False
        self.refresh()
        self.round()
        self.engine = PrefixCachingEngine()
        self.heads = FakeHeads(Heads(FIRST, FIRST_AUTHORIZATION))
        self.process = self._guard_process()
        running = Running(self.process)
        running.background = None
        self.guard = guard(self.engine, running)
        self.fleet = Fleet(OneEndpoint(), self, GuardLeases(self.cluster.leases.get), clock=lambda: self.clock_ms)
        self.gate = Decision(self.in_force, self.fleet, Audit(CollectorRegistry()), lambda: self.seconds)
        self.last: Forward | None = None
        self.write_lease()
        self.prove_isolation()

    def snapshot(self) -> Snapshot:
        """The configuration in force."""
        found = self.configuration.current()
        assert found is not None, self.configuration.fault
        return found

    def in_force(self) -> InForce | None:
        """What the gateway decides with, under a right that a test does not care for."""
        found = self.configuration.current()
        return InForce(found, self.fresh_only) if found is not None and not self.configuration.stale else None

    def round(self) -> None:
        """Let the gateway read all ledgers, as in each of its rounds."""
        self.configuration.take_ledgers(self.cluster.read_ledgers(self.configuration.ledgers))

    def refresh(self) -> None:
        """Let the gateway take over what changed; nothing may be at fault."""
        self.take_over()
        assert (self.configuration.fault, self.configuration.faults()) == ("", {})

    def take_over(self) -> None:
        """The same, whatever is at fault."""
        settled(self.configuration.refresh())

    def edit(self, kind: str, name: str, change: Callable[[dict[str, Any]], object]) -> None:
        """Change an object, and let the gateway take it over."""
        self.cluster.edit(kind, name, change, namespace=NAMESPACE)
        self.take_over()

    def set(self, **settings: Any) -> None:
        """Change settings of the installation, and let the gateway take them over."""
        file = self.folder / "mounted/config/settings.yaml"
        file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **settings}))
        self.refresh()

    def edit_namespace(self, name: str, labels: dict[str, str]) -> None:
        """Label a namespace."""
        self.cluster.apply({"kind": "Namespace", "metadata": {"name": name, "namespace": "", "labels": labels}}, "")

    def write_lease(self, **changes: Any) -> None:
        """What the guard does in each round."""
        boot_id = self.process.boot_id
        statement = LeaseStatement(GUARD, "pod-uid", boot_id, 1, 60_000, "0.1.0", pool_uid=POOL_UID)
        text = write_lease(permit_keys(self.snapshot().keys.root, POOL_UID).current, replace(statement, **changes))
        name = lease_name("pod-uid", boot_id)
        self.cluster.apply({"kind": "FenceLease", "metadata": {"name": name}, "spec": {"statement": text}}, NAMESPACE)

    def prove_isolation(self, *paths: str) -> None:
        """What the operator writes once the probe has been there; by default of every route."""
        proof = {"routes": list(paths or [path for _, path in ROUTES]), "boots": [self.process.boot_id]}
        self.edit("ServingPool", POOL, lambda pool: pool.update(status={"isolation": {"proofs": [proof]}}))

    async def challenge(self, address: str, nonce: str) -> ChallengeAnswer:
        """Implements `Challenger` on the guard in this process."""
        assert address == ADDRESS
        server = Server([b"{}"])
        await self.guard(scope(path=CHAT, headers=[(CHALLENGE_HEADER.encode(), nonce.encode())]), server.receive, server.send)
        return ChallengeAnswer(server.status, server.headers.get(STATEMENT_HEADER))

    async def prove(self) -> None:
        """Let the gateway challenge the guard."""
        self.clock_ms += 1000
        self.fleet.step(self.snapshot().trusts)
        for task in list(self.fleet.under_way):
            await task

    async def decide(
        self, key: str | None, body: bytes, path: str = CHAT, *, peer: Peer | None = None, **headers: str
    ) -> Forward | Answer:
        """What the gateway does with a request, with a bearer credential and over a connection with a certificate, if any."""
        bearer = {"authorization": f"Bearer {key}"} if key else {}
        given = {**bearer, "content-type": "application/json", **headers}
        head = RequestHead("POST", path, tuple((name.replace("_", "-"), value) for name, value in given.items()), peer)
        admitted = await self.gate.admit(head)
        return admitted if isinstance(admitted, Answer) else await self.gate.decide(admitted, body)

    async def models(self, key: str) -> object:
        """What the gateway answers who asks for models."""
        return await self.gate.admit(RequestHead("GET", "/v1/models", (("authorization", f"Bearer {key}"),)))

    async def send(self, forward: Forward, **changes: Any) -> Server:
        """What the guard and the engine do with it."""
        headers = [(name.encode(), value.encode()) for name, value in forward.set_headers.items()]
        server = Server([changes.pop("body", forward.body)])
        await self.guard(scope(path=forward.path, headers=headers, **changes), server.receive, server.send)
        self.gate.finished(forward)
        return server

    async def cached(self, key: str | None, text: str, *, peer: Peer | None = None, **fields: Any) -> int:
        """Send a chat request and return the tokens that the engine found in its cache."""
        body = {"model": "tiny", "messages": [{"role": "user", "content": text}], **fields}
        forward = await self.decide(key, json.dumps(body).encode(), peer=peer)
        assert isinstance(forward, Forward), forward
        self.last = forward
        server = await self.send(forward)
        assert server.status == 200, server.body
        return int(json.loads(server.body)["usage"]["prompt_tokens_details"]["cached_tokens"])

    def raise_pool_epoch(self, value: int) -> None:
        """Roll the pool's epoch forward, for gateway and guard."""
        self.advance_pool(floors={self.pool_target(): Floor(Epoch(value), abort_below=Epoch(value))})

    def advance_pool(self, **changes: Any) -> None:
        """Write the next state of the pool's ledger, for gateway and guard."""
        self.write_pool(advanced(self.pool_ledger, **changes))

    def advance_authorization(self, floors: dict[TargetName, Floor] | None = None, **changes: Any) -> None:
        """Write the next state of the authorization head, for gateway and guard; other targets stay as they are."""
        self.write_authorization(advanced(self.authorization, floors={**self.authorization.floors, **(floors or {})}, **changes))

    def write_pool(self, ledger: Ledger) -> None:
        """What the operator does with the pool's ledger; both learn of it by their watches."""
        self.pool_ledger = ledger
        self.cluster.write_ledger(NAMESPACE, POOL, ledger)
        self._tell()

    def write_authorization(self, ledger: Ledger) -> None:
        """What the operator does with the authorization head."""
        self.authorization = ledger
        self.cluster.write_ledger(NAMESPACE, AUTHORIZATION_HEAD, ledger)
        self._tell()

    def _tell(self) -> None:
        self.heads.heads = Heads(self.pool_ledger, self.authorization)
        self.configuration.take_hints()

    def pool_target(self) -> TargetName:
        return target_name(self.snapshot().keys.targets, TargetKind.POOL, POOL_UID)

    def tenant_target(self, name: str) -> TargetName:
        return target_name(self.snapshot().keys.targets, TargetKind.TENANT, self.tenant_uid(name))

    def principal_target(self, tenant: str, who: Credential) -> TargetName:
        key, uid = self.snapshot().keys.targets, self.tenant_uid(tenant)
        return target_name(key, TargetKind.PRINCIPAL, uid, who.kind, who.issuer, who.subject)

    def tenant_uid(self, name: str) -> str:
        return str(self.cluster.tenants.documents[Name(NAMESPACE, name)]["metadata"]["uid"])

    def _guard_process(self) -> GuardProcess:
        snapshot = self.snapshot()
        keys = KeyFolder(Path("/nowhere"), lambda: self.clock_ms)
        keys.ring = permit_keys(snapshot.keys.root, POOL_UID)
        engine = EngineDigests(*(Digest(f"sha256:{digit * 64}") for digit in "123"))
        settings = settings_of(POOL_UID, self.pool_target())
        process = GuardProcess(settings, source=self.heads, keys=keys, clock=lambda: self.clock_ms, digests=lambda: Loaded(engine))
        process.loaded = Loaded(engine)
        return process


class OneEndpoint:
    """Implements `EndpointSource` with one ready engine."""

    def endpoints(self, pool: str) -> Sequence[Endpoint]:
        return [Endpoint(pool, "pod-uid", ADDRESS)]


class FileKeySets:
    """Implements `KeySets` with files, and the cluster's own keys as a test says."""

    def __init__(self) -> None:
        self.cluster: ClusterKeys = ClusterKeySet(Rest(), time.monotonic)

    def of(self, provider: IdentityProvider, secrets: Path) -> KeySet:
        assert provider.jwks.secret_name
        return FileKeySet(secrets / provider.jwks.secret_name / "jwks.json", time.monotonic)


def cluster_of(credentials: Credentials) -> FakeCluster:
    """The quickstart's resources, as an API server and an operator leave them."""
    cluster = FakeCluster()
    cluster.apply({"kind": "Namespace", "metadata": {"name": NAMESPACE, "namespace": ""}}, "")
    for document in copy.deepcopy(quickstart()):
        if document["kind"] == "ServingPool":
            document["metadata"]["uid"] = POOL_UID
        cluster.apply(document, NAMESPACE)
    for secret in credentials.secrets(NAMESPACE):
        cluster.apply(secret, NAMESPACE)
    cluster.write_ledger(NAMESPACE, POOL, FIRST)
    cluster.write_ledger(NAMESPACE, AUTHORIZATION_HEAD, FIRST_AUTHORIZATION)
    return cluster


@cache
def quickstart() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / "quickstart.yaml").read_text()))


@cache
def demo_settings() -> str:
    return yaml.safe_dump(yaml.safe_load((EXAMPLES / "demo-values.yaml").read_text())["settings"])


def write_mounted(folder: Path, credentials: Credentials) -> None:
    """Write what is mounted into a gateway."""
    mounted = folder / "mounted"
    key_sets = {item["metadata"]["name"]: item["stringData"] for item in credentials.secrets(NAMESPACE)}
    files = {
        "config/settings.yaml": demo_settings(),
        **{f"root-keys/{name}": value for name, value in ROOT_KEYS.items()},
        **{f"secrets/{name}/jwks.json": data["jwks.json"] for name, data in key_sets.items() if "jwks.json" in data},
    }
    for name, text in files.items():
        (mounted / name).parent.mkdir(parents=True, exist_ok=True)
        (mounted / name).write_text(text)


def prompt() -> str:
    """A text of many blocks that nobody sent before."""
    return secrets.token_hex(16) + " once upon a midnight dreary" * 20


@pytest.fixture
async def path(tmp_path: Path) -> WholePath:
    """A path whose engine's guard has proven itself; test modules that import it name it in `__all__`."""
    world = WholePath(tmp_path)
    await world.prove()
    return world
