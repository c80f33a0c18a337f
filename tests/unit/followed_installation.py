"""Objects of an installation on an API server, and a gateway that follows them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cachescope.api.documents import API_VERSION
from cachescope.core.labels import API_KEYS_LABEL, COMPONENT_LABEL, ENGINE, HEAD, LEDGER_LABEL, POOL_LABEL, SHARD
from cachescope.core.leases import GUARD, LeaseStatement, lease_keys, lease_name, read_lease, write_lease
from cachescope.core.ledger_seals import seal_keys, sealed
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Ledger, Lineage, Role, is_shard
from cachescope.core.permits import permit_keys
from cachescope.core.policy_digest import policy_digest
from cachescope.core.record import EngineDigests
from cachescope.core.statements import Statement, write_statement
from cachescope.core.types import Digest, TargetName
from cachescope.gateway.authorizations import PoolState
from cachescope.gateway.challenges import ChallengeAnswer
from cachescope.gateway.exchange import RequestHead
from cachescope.gateway.identity.credentials import Forbidden, Identity, Unauthenticated
from cachescope.gateway.key_sets import ProviderKeySets
from cachescope.gateway.keys import parse_keys
from cachescope.gateway.main import Gateway, Options
from cachescope.gateway.policy import Policy
from cachescope.kube.rest import NotFoundError, Rest, collection
from e2e.stack.credentials import api_key_secret, new_key

KEYS = {"k1": "5a" * 32, "targets": "6b" * 32}
ENGINE_DIGESTS = EngineDigests(*(Digest(f"sha256:{digit * 64}") for digit in "123"))
POOL_SPEC = {
    "model": {"name": "tiny", "source": {"imagePath": "/models/tiny"}},
    "engine": {"type": "vLLM", "version": "0.32.0", "image": "localhost/engine:1"},
}
POOL = Ledger(Role.POOL, Lineage(1, "44" * 16), 1)
AUTHORIZATION = Ledger(Role.AUTHORIZATION, Lineage(1, "55" * 16), 1)
TARGET = TargetName("a" * 64)
POD_UID = "5f0f2d3c-2a1b-4c5d-8e9f-001122334455"
BOOT = "ab" * 16
SEALS = seal_keys(parse_keys(KEYS).root)


class Installation:
    """Objects in namespaces of the test, a gateway that follows them, and a guard that answers its challenges."""

    def __init__(self, rest: Rest, namespace: str, folder: Path) -> None:
        self.rest = rest
        self.namespace = namespace
        self.folder = folder
        self.key = new_key()
        self.pool_uid = ""
        self.tick = 0
        self.gateway: Gateway
        for name, text in {
            "config/settings.yaml": "leaseSeconds: 3\nmaxStaleSeconds: 3",
            **{f"root-keys/{key}": it for key, it in KEYS.items()},
        }.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    async def challenge(self, address: str, nonce: str) -> ChallengeAnswer:
        """Implements `Challenger`."""
        assert address == "10.1.2.3:8000"
        self.tick += 1
        lineages = POOL.lineage.id, AUTHORIZATION.lineage.id
        statement = Statement(
            nonce, self.pool_uid, POD_UID, BOOT, self.tick, ENGINE_DIGESTS, lineages[0], 1, lineages[1], 1, 60_000, "0.1.0"
        )
        return ChallengeAnswer(401, write_statement(permit_keys(parse_keys(KEYS).root, self.pool_uid).current, statement))

    def path(self, plural: str, name: str = "", *, namespace: str | None = None, api: str = API_VERSION) -> str:
        return "/".join(filter(None, (collection(api, plural, namespace or self.namespace), name)))

    async def create(self, kind: str, plural: str, name: str, spec: dict[str, Any], namespace: str | None = None) -> str:
        document = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
        made = await self.rest.create(self.path(plural, namespace=namespace), document)
        return str(made["metadata"]["uid"])

    async def declare(self) -> None:
        """A pool with its ledgers, and a tenant with a key, as people and the operator leave them."""
        self.pool_uid = await self.create("ServingPool", "servingpools", "tiny", POOL_SPEC)
        await self.write("tiny", POOL)
        await self.write(AUTHORIZATION_HEAD, AUTHORIZATION)
        await self.tenant("red", self.key)

    async def write(self, name: str, ledger: Ledger) -> None:
        """What the operator does with a ledger."""
        document = {"apiVersion": API_VERSION, "kind": "EpochLedger", "spec": sealed(SEALS, self.namespace, ledger)}
        metadata = {"name": name, "labels": {LEDGER_LABEL: SHARD if is_shard(name) else HEAD}}
        try:
            current = await self.rest.get(self.path("epochledgers", name))
        except NotFoundError:
            await self.rest.create(self.path("epochledgers"), {**document, "metadata": metadata})
        else:
            await self.rest.replace(self.path("epochledgers", name), {**current, **document})

    async def tenant(self, name: str, key: str, namespace: str | None = None) -> str:
        where = namespace or self.namespace
        await self.rest.create(self.path("secrets", namespace=where, api="v1"), api_key_secret(key, where, name, "ci"))
        uid = await self.create("Tenant", "tenants", name, {"identities": {"apiKeys": [{"secretName": name}]}}, where)
        accepted = [{"claim": f"api-keys:{where}/{name}", "since": 1}]
        await self.rest.merge(self.path("tenants", f"{name}/status", namespace=where), {"status": {"accepted": accepted}})
        return uid

    async def guard_comes_up(self) -> None:
        keys, pod = permit_keys(parse_keys(KEYS).root, self.pool_uid), {"kind": "Pod", "name": "tiny-0", "uid": POD_UID}
        statement = LeaseStatement(GUARD, POD_UID, BOOT, 1, 60_000, "0.1.0", pool_uid=self.pool_uid)
        spec = {
            "holder": "Guard",
            "pod": "tiny-0",
            "pool": "tiny",
            "tick": 1,
            "leaseSeconds": 60,
            "sequence": 1,
            "version": "0.1.0",
        }
        name = lease_name(POD_UID, BOOT)
        await self.create("FenceLease", "fenceleases", name, {**spec, "statement": write_lease(keys.current, statement)})
        slice_ = {
            "metadata": {"name": "tiny", "labels": {COMPONENT_LABEL: ENGINE, POOL_LABEL: "tiny"}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8000}],
            "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": True}, "targetRef": pod}],
        }
        await self.rest.create(self.path("endpointslices", api="discovery.k8s.io/v1"), slice_)

    def start(self, scope: str, key_sets: ProviderKeySets) -> Gateway:
        options = Options(self.folder, "", 0, self.namespace, scope, "gateway-0", str(uuid.uuid4()))
        self.gateway = Gateway(options, self.rest, key_sets=key_sets, challenger=self)
        return self.gateway

    @property
    def pool(self) -> str:
        return f"{self.namespace}/tiny"

    def routable(self) -> tuple[str, ...] | None:
        """Pods of the test's own pool; a cluster-wide gateway sees those of others too."""
        return self.gateway.fleet.routable(self.gateway.trusts()).get(self.pool_uid)

    async def who(self, key: str) -> Identity:
        found = self.gateway.standing.in_force()
        assert found is not None, list(self.gateway.standing.problems())
        return await found.snapshot.authenticator.authenticate(RequestHead("POST", "/", (("authorization", f"Bearer {key}"),)))

    async def becomes(self, key: str, expected: type[Exception] | None) -> None:
        """Wait until a key is refused so, or accepted."""
        async with asyncio.timeout(20):
            while True:
                try:
                    await self.who(key)
                except (Forbidden, Unauthenticated) as error:
                    if type(error) is expected:
                        return
                else:
                    if expected is None:
                        return
                await asyncio.sleep(0.02)

    def state(self) -> PoolState:
        """What the gateway holds for the pool."""
        snapshot = self.gateway.configuration.current()
        assert snapshot is not None
        return snapshot.states[self.pool_uid]

    def policy(self) -> Policy:
        """The policy in force."""
        snapshot = self.gateway.configuration.current()
        assert snapshot is not None
        return snapshot.policy

    async def digests(self) -> dict[str, Digest]:
        """What the operator computes of all that this gateway compiles."""
        namespace = None if self.gateway.followed.stores.namespaces else self.namespace
        plurals = {
            "Tenant": "tenants",
            "CacheScope": "cachescopes",
            "PublicSource": "publicsources",
            "ServingPool": "servingpools",
        }
        lists = {kind: self.rest.get(collection(API_VERSION, plural, namespace)) for kind, plural in plurals.items()}
        lists["Secret"] = self.rest.get(collection("v1", "secrets", namespace), labelSelector=f"{API_KEYS_LABEL}=true")
        return {kind: policy_digest(kind, (await found)["items"]) for kind, found in lists.items()}

    async def statement(self) -> LeaseStatement | None:
        """What the gateway's lease says now."""
        for item in (await self.rest.get(self.path("fenceleases")))["items"]:
            name = item["metadata"]["name"]
            if item["spec"]["holder"] == "Gateway" and item["metadata"].get("deletionTimestamp") is None:
                return read_lease(lease_keys(parse_keys(KEYS).root), item["spec"]["statement"], name=name)
        return None


async def eventually(installation: Installation, holds: Callable[[LeaseStatement], bool]) -> None:
    """Wait for what the gateway's lease says."""
    async with asyncio.timeout(20):
        while True:
            try:
                statement = await installation.statement()
            except NotFoundError:
                statement = None
            if statement is not None and holds(statement):
                return
            await asyncio.sleep(0.01)
