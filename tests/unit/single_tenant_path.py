"""The whole path where the engine knows no salts: a template, and a pool with a guarded engine for each of two tenants."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from cachescope.core.caches import Caching
from cachescope.core.endpoints import Endpoint
from cachescope.core.leases import GUARD, LeaseStatement, lease_name, write_lease
from cachescope.core.permits import permit_keys
from cachescope.core.record import EngineDigests, Loaded
from cachescope.core.statements import CHALLENGE_HEADER, STATEMENT_HEADER
from cachescope.core.types import Digest
from cachescope.gateway.audit import Audit
from cachescope.gateway.challenges import ChallengeAnswer
from cachescope.gateway.decision import Decision
from cachescope.gateway.exchange import Answer, Forward
from cachescope.gateway.fleet import Fleet
from cachescope.gateway.guard_leases import GuardLeases
from cachescope.gateway.wanted import Wanted
from cachescope.guard.asgi import Guard, Running
from cachescope.guard.binding import Binding
from cachescope.guard.key_folder import KeyFolder
from cachescope.guard.process import GuardProcess
from cachescope.kube.watched import Name
from tests.unit.guard_fakes import Server, scope, settings_of
from tests.unit.whole_path import CHAT, FIRST, NAMESPACE, POOL, POOL_UID, PrefixCachingEngine, WholePath

ENGINE = "llama.cpp"
TENANTS = ("blue", "green")


class UnsaltedEngine(PrefixCachingEngine):
    """Reuses whatever it has seen, whoever sent it; a request may ask for nothing."""

    def _cached(self, body: dict[str, Any]) -> int:
        assert "cache_salt" not in body, "it would drop one without a word"
        hits = super()._cached(body)
        return hits if body.get("cache_prompt", True) else 0


class Pod:
    """One guarded engine.

    Args:
        world: The path.
        pool: Name of its pool.
        number: Which pod; its engine's cache goes with it.
        pool_uid: UID of its pool.
        engine: Its engine; without one, one that knows no salts.
        caching: What keeps requests apart in it.
    """

    def __init__(
        self,
        world: WholePath,
        pool: str,
        number: int,
        *,
        pool_uid: str = "",
        engine: PrefixCachingEngine | None = None,
        caching: Caching = Caching.ONE_CACHE,
    ) -> None:
        self.pool, self.pool_uid = pool, pool_uid or f"uid-of-{pool}"
        self.uid, self.address = f"pod-{pool}-{number}", f"10.0.0.{number + 1}:8000"
        self.engine = engine or UnsaltedEngine()
        self.folder = world.folder / "pods" / self.uid
        self.folder.mkdir()
        self._world = world
        self.start(caching)

    def start(self, caching: Caching = Caching.ONE_CACHE) -> None:
        """Start its guard, as often as it likes, beside the same engine."""
        world = self._world
        keys = KeyFolder(Path("/nowhere"), lambda: world.clock_ms)
        keys.ring = permit_keys(world.snapshot().keys.root, self.pool_uid)
        loaded = Loaded(EngineDigests(*(Digest(f"sha256:{digit * 64}") for digit in "123")))
        told = {"pod_uid": self.uid, "caching": caching, "engine_type": self._type, "state_folder": self.folder}
        settings = settings_of(self.pool_uid, world.pool_target(), **told)
        self.process = GuardProcess(
            settings,
            source=world.heads,
            keys=keys,
            clock=lambda: world.clock_ms,
            digests=lambda: loaded,
            binding=Binding(self.folder) if caching is Caching.ONE_CACHE else None,
        )
        self.process.loaded = loaded
        self.process.on_bound = self.write_lease
        running = Running(self.process)
        running.background = None
        self.guard = Guard(self.engine, running)
        self.write_lease()

    @property
    def _type(self) -> str:
        return ENGINE if isinstance(self.engine, UnsaltedEngine) else "vLLM"

    def write_lease(self) -> None:
        """What the guard does in each round."""
        said = LeaseStatement(
            GUARD, self.uid, self.process.boot_id, 1, 60_000, "0.1.0", pool_uid=self.pool_uid, cache=self.process.cache
        )
        text = write_lease(permit_keys(self._world.snapshot().keys.root, self.pool_uid).current, said)
        lease = {
            "kind": "FenceLease",
            "metadata": {"name": lease_name(self.uid, self.process.boot_id)},
            "spec": {"statement": text},
        }
        self._world.cluster.apply(lease, NAMESPACE)


class SingleTenantPath(WholePath):
    """One gateway, a template, and a pod for each of two tenants.

    Attributes:
        pods: All pods, by address.
        elsewhere: Where the gateway believes the pods of a pool to be, if not where they are.
    """

    def __init__(self, folder: Path) -> None:
        self.pods: dict[str, Pod] = {}
        self.elsewhere: dict[str, str] = {}
        super().__init__(folder)
        (self.folder / "pods").mkdir()
        self.cluster.edit("ServingPool", POOL, _without_salts, namespace=NAMESPACE)
        for tenant in TENANTS:
            self.cluster.apply(self._dedicated(tenant), NAMESPACE)
        self.write_pool(FIRST)
        self.take_over()
        self.round()
        for tenant in TENANTS:
            self.add_pod(tenant)
        self.wanted = Wanted(lambda: self.clock_ms)
        self.fleet = Fleet(_Endpoints(self), self, GuardLeases(self.cluster.leases.get), clock=lambda: self.clock_ms)
        audit = Audit(CollectorRegistry())
        self.gate = Decision(self.in_force, self.fleet, audit, lambda: self.seconds, wanted=self.wanted.note)

    def add_pod(self, tenant: str) -> Pod:
        """A pod more, of a tenant's pool, that nobody used yet."""
        pod = Pod(self, pool_of(tenant), len(self.pods))
        self.pods[pod.address] = pod
        return pod

    def pod(self, tenant: str) -> Pod:
        """The newest pod of a tenant."""
        return [pod for pod in self.pods.values() if pod.pool == pool_of(tenant)][-1]

    def replace_pod(self, tenant: str) -> Pod:
        """What the operator does with a pod of another identity."""
        del self.pods[self.pod(tenant).address]
        return self.add_pod(tenant)

    def write_pool(self, ledger: Any) -> None:
        """Each tenant's pool has a ledger of its own, and the template's target is in all of them."""
        for tenant in TENANTS:
            self.cluster.write_ledger(NAMESPACE, pool_of(tenant), ledger)
        super().write_pool(ledger)

    async def challenge(self, address: str, nonce: str) -> ChallengeAnswer:
        """Implements `Challenger` on the guards in this process."""
        return await challenged(self.pods[address], nonce)

    async def send(self, forward: Forward, **changes: Any) -> Server:
        """What the guard and the engine at its address do with it."""
        headers = [(name.encode(), value.encode()) for name, value in forward.set_headers.items()]
        server = Server([changes.pop("body", forward.body)])
        pod = self.pods[changes.pop("address", forward.endpoint)]
        await pod.guard(scope(path=forward.path, headers=headers, **changes), server.receive, server.send)
        self.gate.finished(forward)
        return server

    async def outcome(self, key: str, text: str, **fields: Any) -> int | str:
        """The tokens that were found, or the code of the refusal."""
        body = json.dumps({"model": POOL, "messages": [{"role": "user", "content": text}], **fields}).encode()
        forward = await self.decide(key, body)
        if isinstance(forward, Answer):
            return forward.reason
        self.last = forward
        server = await self.send(forward)
        if server.status != 200:
            return server.code
        return int(json.loads(server.body)["usage"]["prompt_tokens_details"]["cached_tokens"])

    def _dedicated(self, tenant: str) -> dict[str, Any]:
        template = self.cluster.pools.documents[Name(NAMESPACE, POOL)]
        whose = {"poolName": POOL, "poolUid": POOL_UID, "tenantName": tenant, "tenantUid": self.tenant_uid(tenant)}
        metadata = {"name": pool_of(tenant), "uid": f"uid-of-{pool_of(tenant)}"}
        return {"kind": "ServingPool", "metadata": metadata, "spec": {**template["spec"], "dedicatedTo": whose}}


async def challenged(pod: Pod, nonce: str) -> ChallengeAnswer:
    """What the guard of a pod answers to a challenge."""
    server = Server([b"{}"])
    headers = [(CHALLENGE_HEADER.encode(), nonce.encode())]
    await pod.guard(scope(path=CHAT, headers=headers), server.receive, server.send)
    return ChallengeAnswer(server.status, server.headers.get(STATEMENT_HEADER))


def pool_of(tenant: str) -> str:
    """Name of a tenant's pool."""
    return f"tiny-{tenant}"


class _Endpoints:
    """Implements `EndpointSource`."""

    def __init__(self, world: SingleTenantPath) -> None:
        self._world = world

    def endpoints(self, pool: str) -> Sequence[Endpoint]:
        name = pool.partition("/")[2]
        return [Endpoint(pool, pod.uid, pod.address) for pod in self._world.pods.values() if pod.pool == name]


def _without_salts(document: dict[str, Any]) -> None:
    claim = {"persistentVolumeClaim": {"claimName": "models", "path": "tiny.gguf"}}
    document["spec"]["engine"] = {"type": ENGINE, "version": "2026.10.11549", "image": "registry.example/llama-cpp:1"}
    document["spec"]["model"]["source"] = claim
    document["spec"]["guard"] = {"mode": "Sidecar"}
