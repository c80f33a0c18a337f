"""A gateway on a real API server: it takes over what is declared, holds its own lease, and tells whom it routes to."""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from cachescope.api.documents import API_VERSION
from cachescope.core.epochs import Floors, epoch
from cachescope.core.heads import Head, write_head
from cachescope.core.labels import COMPONENT_LABEL, ENGINE, POOL_LABEL
from cachescope.core.leases import GUARD, LeaseStatement, lease_keys, lease_name, read_lease, write_lease
from cachescope.core.permits import permit_keys
from cachescope.core.record import EngineDigests
from cachescope.core.statements import Statement, write_statement
from cachescope.core.types import Digest
from cachescope.gateway.challenges import ChallengeAnswer
from cachescope.gateway.exchange import RequestHead
from cachescope.gateway.health import Health
from cachescope.gateway.identity.credentials import Forbidden, Identity, Unauthenticated
from cachescope.gateway.identity.jwks_sources import key_session
from cachescope.gateway.key_sets import ProviderKeySets
from cachescope.gateway.keys import parse_keys
from cachescope.gateway.main import Gateway, Options
from cachescope.kube.rest import NotFoundError, Rest, collection
from e2e.stack import kubectl
from e2e.stack.credentials import api_key_secret, new_key
from tests.integration.following import namespace, rest, running, until

__all__ = ["namespace", "rest"]

KEYS = {"k1": "5a" * 32, "targets": "6b" * 32}
ENGINE_DIGESTS = EngineDigests(*(Digest(f"sha256:{digit * 64}") for digit in "123"))
POOL_SPEC = {
    "model": {"name": "tiny", "source": {"imagePath": "/models/tiny"}},
    "engine": {"type": "vLLM", "version": "0.32.0", "image": "localhost/engine:1"},
}
LINEAGE = "44" * 16
POD_UID = "5f0f2d3c-2a1b-4c5d-8e9f-001122334455"
BOOT = "ab" * 16


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
            "config/settings.yaml": "leaseSeconds: 3",
            **{f"root-keys/{key}": it for key, it in KEYS.items()},
        }.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    async def challenge(self, address: str, nonce: str) -> ChallengeAnswer:
        """Implements `Challenger`."""
        assert address == "10.1.2.3:8000"
        self.tick += 1
        statement = Statement(nonce, self.pool_uid, POD_UID, BOOT, self.tick, ENGINE_DIGESTS, LINEAGE, 1, "0.1.0")
        return ChallengeAnswer(401, write_statement(permit_keys(parse_keys(KEYS).root, self.pool_uid).current, statement))

    def path(self, plural: str, name: str = "", *, namespace: str | None = None, api: str = API_VERSION) -> str:
        return "/".join(filter(None, (collection(api, plural, namespace or self.namespace), name)))

    async def create(self, kind: str, plural: str, name: str, spec: dict[str, Any], namespace: str | None = None) -> str:
        document = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
        made = await self.rest.create(self.path(plural, namespace=namespace), document)
        return str(made["metadata"]["uid"])

    async def declare(self) -> None:
        """A pool with its ledger, and a tenant with a key, as people and the operator leave them."""
        self.pool_uid = await self.create("ServingPool", "servingpools", "tiny", POOL_SPEC)
        await self.create("EpochLedger", "epochledgers", "tiny", ledger(Head(LINEAGE, 1, Floors(base=epoch(1)))))
        await self.tenant("red", self.key)

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
        snapshot = self.gateway.standing.in_force()
        assert snapshot is not None, list(self.gateway.standing.problems())
        return await snapshot.authenticator.authenticate(RequestHead("POST", "/", (("authorization", f"Bearer {key}"),)))

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

    async def statement(self) -> LeaseStatement | None:
        """What the gateway's lease says now."""
        for item in (await self.rest.get(self.path("fenceleases")))["items"]:
            name = item["metadata"]["name"]
            if item["spec"]["holder"] == "Gateway" and item["metadata"].get("deletionTimestamp") is None:
                return read_lease(lease_keys(parse_keys(KEYS).root), item["spec"]["statement"], name=name)
        return None


def ledger(head: Head) -> dict[str, Any]:
    return {**write_head(head), "incidents": {}}


@pytest.fixture
async def installation(rest: Rest, namespace: str, tmp_path: Path) -> Installation:
    found = Installation(rest, namespace, tmp_path)
    await found.declare()
    return found


@pytest.fixture(params=["Namespaced", "Cluster"])
async def live(request: pytest.FixtureRequest, installation: Installation) -> AsyncIterator[Installation]:
    async with key_session() as session, AsyncExitStack() as stack:
        gateway = installation.start(request.param, ProviderKeySets(session))
        for task in gateway.tasks():
            await stack.enter_async_context(running(task))
        await until(lambda: gateway.standing.in_force() is not None)
        yield installation


async def test_a_gateway_is_ready_once_everything_is_loaded_and_its_lease_is_held(live: Installation) -> None:
    ready, report = Health(live.gateway.standing, live.gateway.fleet, dict).report()
    assert ready, report
    assert report["problems"] == []
    assert all(age is not None for age in live.gateway.followed.ages().values())
    statement = await live.statement()
    assert statement is not None
    assert statement.heads[live.pool_uid].lineage == LINEAGE
    assert (await live.who(live.key)).credential.subject == "ci"


async def test_what_changes_is_taken_over(live: Installation) -> None:
    tenant = live.path("tenants", "red")
    await live.rest.merge(tenant, {"spec": {"suspended": True}})
    await live.becomes(live.key, Forbidden)
    await live.rest.merge(tenant, {"spec": {"suspended": False}})
    await live.becomes(live.key, None)
    await live.rest.merge(live.path("secrets", "red", api="v1"), {"metadata": {"labels": {"cachescope.dev/api-keys": None}}})
    await live.becomes(live.key, Unauthenticated)
    await live.rest.merge(live.path("secrets", "red", api="v1"), {"metadata": {"labels": {"cachescope.dev/api-keys": "true"}}})
    await live.becomes(live.key, None)
    await live.rest.merge(f"{tenant}/status", {"status": {"accepted": []}})
    await live.becomes(live.key, Unauthenticated)


async def test_a_ledger_that_rises_is_taken_over(live: Installation) -> None:
    path = live.path("epochledgers", "tiny")
    current = await live.rest.get(path)
    await live.rest.replace(path, {**current, "spec": ledger(Head(LINEAGE, 2, Floors(base=epoch(9))))})
    await until(lambda: live.gateway.configuration.current().heads[live.pool_uid].floors.base == 9)  # type: ignore[union-attr]
    await live.rest.delete(path)
    await until(lambda: live.pool not in live.gateway.trusts())


async def test_a_guard_with_a_lease_is_routed_to_and_the_gateways_lease_says_so_at_once(live: Installation) -> None:
    assert live.routable() is None
    await live.guard_comes_up()
    await until(lambda: live.routable() == (POD_UID,))
    await eventually(live, lambda statement: statement.routable.get(live.pool_uid) == (POD_UID,))
    await live.rest.delete(live.path("fenceleases", lease_name(POD_UID, BOOT)))
    await until(lambda: live.routable() is None)
    await eventually(live, lambda statement: live.pool_uid not in statement.routable)


async def test_a_lease_that_somebody_deleted_is_made_anew_under_another_name(live: Installation) -> None:
    before = await live.statement()
    assert before is not None
    await live.rest.delete(live.path("fenceleases", lease_name(before.pod_uid, before.boot_id)))
    await eventually(live, lambda statement: statement.boot_id != before.boot_id)
    await until(lambda: live.gateway.standing.in_force() is not None)


async def test_an_api_server_that_answers_no_more_ends_the_right_and_its_return_brings_it_back(
    live: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert live.rest._api is not None
    with monkeypatch.context() as patch:
        patch.setattr(live.rest._api.configuration, "_base_path", "https://127.0.0.1:1")
        assert live.gateway.standing.in_force() is not None, "an outage that is shorter than the lease stops nothing"
        await until(lambda: live.gateway.standing.in_force() is None)
    await until(lambda: live.gateway.standing.in_force() is not None)
    assert (await live.who(live.key)).credential.subject == "ci"


@pytest.fixture
def other_namespace() -> Iterator[str]:
    name = f"cachescope-other-{secrets.token_hex(4)}"
    kubectl.run("create", "namespace", name, namespace=name)
    yield name
    kubectl.run("delete", "namespace", name, "--wait=false", namespace=name)


async def test_another_namespace_is_admitted_by_its_labels_alone(live: Installation, other_namespace: str) -> None:
    key = new_key()
    uid = await live.tenant("visitor", key, other_namespace)
    allowed = {"namespaces": {"from": "Selector", "matchLabels": {"team": "visitor"}}}
    await live.rest.merge(live.path("servingpools", "tiny"), {"spec": {"allowedTenants": allowed}})
    if live.gateway.followed.stores.namespaces is None:
        await live.becomes(key, Unauthenticated)  # a gateway of one namespace knows no tenant of another
        return
    await live.becomes(key, None)
    assert not models(live, uid)
    await live.rest.merge(f"/api/v1/namespaces/{other_namespace}", {"metadata": {"labels": {"team": "visitor"}}})
    await until(lambda: models(live, uid) == ["tiny"])
    await live.rest.merge(f"/api/v1/namespaces/{other_namespace}", {"metadata": {"labels": {"team": None}}})
    await until(lambda: not models(live, uid))


def models(live: Installation, uid: str) -> list[str]:
    snapshot = live.gateway.configuration.current()
    assert snapshot is not None
    return list(snapshot.policy.models(uid))


async def eventually(live: Installation, holds: Callable[[LeaseStatement], bool]) -> None:
    """Wait for what the gateway's lease says."""
    async with asyncio.timeout(20):
        while True:
            try:
                statement = await live.statement()
            except NotFoundError:
                statement = None
            if statement is not None and holds(statement):
                return
            await asyncio.sleep(0.05)
