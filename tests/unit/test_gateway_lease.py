"""The gateway's own lease: it says what is applied, is signed, and without its right nothing is decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from cachescope.api.documents import API_VERSION, parse
from cachescope.api.ledgers import FenceLease, FenceLeaseSpec
from cachescope.core.epochs import Floors, epoch
from cachescope.core.errors import ClusterError, SpecError, WireFormatError
from cachescope.core.leases import GATEWAY, LeaseStatement, Right, Seen, lease_keys, read_lease, write_lease
from cachescope.core.types import Epoch
from cachescope.gateway import lease as lease_module
from cachescope.gateway.audit import Audit
from cachescope.gateway.decision import Decision
from cachescope.gateway.exchange import Forward
from cachescope.gateway.keys import parse_keys
from cachescope.gateway.lease import GatewayLease, Pod, RestLeases, ledgers_path
from cachescope.gateway.standing import MAX_AGE_SECONDS, Standing
from cachescope.kube.rest import ApiError, ConflictError, Document, NotFoundError
from cachescope.leases.rounds import LeaseConflict, LeaseGone, LostAnswer, Rounds, Stored
from tests.unit.whole_path import FIRST, NAMESPACE, POOL, POOL_UID, ROOT_KEYS, WholePath

CHAT = b'{"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}'
PATH = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/fenceleases"


class Api:
    """Leases and ledgers in memory; `fail` is raised by the next request."""

    def __init__(self, path: WholePath) -> None:
        self.path = path
        self.leases: dict[str, Document] = {}
        self.fail: ApiError | None = None
        self.version = 0

    async def get(self, path: str, **query: str) -> Document:  # noqa: ARG002 - one page is enough
        self._may_fail()
        if path == ledgers_path(NAMESPACE):
            return {"metadata": {"resourceVersion": "1"}, "items": list(self.path.cluster.ledgers.documents.values())}
        if path not in self.leases:
            raise NotFoundError(404, "it is not there; create it")
        return self.leases[path]

    def watch(self, *_: object, **__: object) -> Any:
        raise NotImplementedError

    async def create(self, path: str, document: Mapping[str, Any], **_: str) -> Document:
        self._may_fail()
        path = f"{path}/{document['metadata']['name']}"
        if path in self.leases:
            raise ConflictError(409, "it is there; read it")
        return self._store(path, document)

    async def replace(self, path: str, document: Mapping[str, Any], **_: str) -> Document:
        self._may_fail()
        if path not in self.leases:
            raise NotFoundError(404, "it is not there; create it")
        if self.leases[path]["metadata"]["resourceVersion"] != document["metadata"]["resourceVersion"]:
            raise ConflictError(409, "it changed; read it")
        return self._store(path, document)

    def _store(self, path: str, document: Mapping[str, Any]) -> Document:
        self.version += 1
        metadata = {**document["metadata"], "resourceVersion": str(self.version), "uid": f"uid-of-lease-{path}"[:64]}
        self.leases[path] = {**document, "metadata": metadata}
        return self.leases[path]

    def _may_fail(self) -> None:
        failure, self.fail = self.fail, None
        if failure:
            raise failure


class World:
    """A gateway with its lease."""

    def __init__(self, folder: Path) -> None:
        self.path = WholePath(folder)
        self.api = Api(self.path)
        self.now = 0
        self.right = Right()
        self.ages: dict[str, float | None] = {"Tenant": 0.0}
        self.holder = GatewayLease(
            Pod(NAMESPACE, "gateway-0", "gateway-pod-uid"),
            api=self.api,
            ledgers=ledgers_path(NAMESPACE),
            configuration=self.path.configuration,
            routable=lambda: self.path.fleet.routable(self.path.snapshot().trusts),
            lease_ms=60_000,
        )
        store = RestLeases(self.api, NAMESPACE)
        self.rounds = Rounds(store, self.holder, right=self.right, clock=lambda: self.now, lease_ms=60_000)
        self.standing = Standing(self.path.configuration, self.right, lambda: self.now, lambda: self.ages)
        self.path.gate = Decision(self.standing.in_force, self.path.fleet, Audit(CollectorRegistry()))

    @property
    def lease(self) -> FenceLease:
        (document,) = self.api.leases.values()
        return parse(FenceLease, document, "the API")

    async def status(self) -> tuple[int, str]:
        found = await self.path.decide(self.path.credentials.api_keys["blue-carol"], CHAT)
        return (200, "") if isinstance(found, Forward) else (found.status, found.reason)


@pytest.fixture
async def world(tmp_path: Path) -> World:
    found = World(tmp_path)
    await found.path.prove()
    return found


async def test_the_lease_says_what_is_applied_and_is_signed(world: World) -> None:
    await world.rounds.round()
    keys, lease = lease_keys(world.path.snapshot().keys.root), world.lease
    statement = read_lease(keys, lease.spec.statement, name=lease.name)
    assert (statement.holder, statement.pod_uid, statement.lease_ms) == (GATEWAY, "gateway-pod-uid", 60_000)
    assert statement.heads == {POOL_UID: Seen(FIRST.lineage, 1, 1)}
    assert statement.routable == {POOL_UID: ("pod-uid",)}
    assert lease.name.startswith("gateway-pod-uid.")
    assert (lease.spec.holder, lease.spec.pod, lease.spec.tick) == ("Gateway", "gateway-0", statement.tick)
    with pytest.raises(WireFormatError):
        read_lease(world.path.snapshot().permits[POOL_UID], lease.spec.statement, name=lease.name)


async def test_a_ledger_that_nobody_can_read_ends_no_round(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise OverflowError

    monkeypatch.setattr(lease_module, "read_ledger", broken)
    found = await world.holder.read_heads()
    assert ["OverflowError" in reading.fault for reading in found.values()] == [True]


async def test_without_a_live_right_nothing_is_decided(world: World) -> None:
    assert await world.status() == (503, "gateway_not_ready")
    await world.rounds.round()
    assert await world.status() == (200, "")
    world.now = 59_999
    assert await world.status() == (200, "")
    world.now = 60_000
    assert await world.status() == (503, "gateway_not_ready")
    assert "no live right" in " ".join(world.standing.problems())
    await world.rounds.round()
    assert await world.status() == (200, "")
    assert not list(world.standing.problems())


async def test_a_right_that_ended_while_a_body_came_in_is_a_503(world: World) -> None:
    await world.rounds.round()
    assert world.path.gate.max_request_bytes == world.path.snapshot().settings.max_request_bytes
    world.right.revoke()
    assert world.path.gate.max_request_bytes > len(CHAT)


@pytest.mark.parametrize(
    ("age", "status"), [(0.0, 200), (30.0, 200), (MAX_AGE_SECONDS, 200), (MAX_AGE_SECONDS + 1, 503), (None, 503)]
)
async def test_a_watch_that_is_not_followed_ends_decisions_after_two_minutes(world: World, age: float | None, status: int) -> None:
    await world.rounds.round()
    world.ages["CacheScope"] = age
    assert (await world.status())[0] == status
    assert ("CacheScope" in " ".join(world.standing.problems())) is (status == 503)


async def test_a_round_takes_over_the_heads_that_it_read(world: World) -> None:
    floors = Floors({world.path.pool_target(): Epoch(8)}, epoch(1))
    world.path.cluster.write_ledger(NAMESPACE, POOL, replace(FIRST, sequence=4, floors=floors))
    await world.rounds.round()
    assert world.path.snapshot().heads[POOL_UID].sequence == 4
    await world.rounds.round()
    statement = read_lease(lease_keys(world.path.snapshot().keys.root), world.lease.spec.statement, name=world.lease.name)
    assert statement.heads[POOL_UID].sequence == 4


async def test_a_ledger_that_cannot_be_read_costs_no_right(world: World) -> None:
    broken = {"metadata": {"name": "other", "namespace": NAMESPACE, "resourceVersion": "1"}, "spec": {"lineage": 1}}
    world.path.cluster.ledgers.put(broken)
    await world.rounds.round()
    assert await world.status() == (200, "")
    assert f"EpochLedger {NAMESPACE}/other" in world.path.configuration.faults()


async def test_ledgers_that_cannot_be_listed_cost_the_right(world: World) -> None:
    async def refuse(path: str, **_: str) -> Document:
        raise ApiError(403, f"{path} is forbidden; check the Role")

    world.api.get = refuse  # type: ignore[method-assign]
    await world.rounds.round()
    assert await world.status() == (503, "gateway_not_ready")


async def test_a_lease_that_was_deleted_ends_the_right_and_goes_on_under_another_name(world: World) -> None:
    await world.rounds.round()
    name = world.holder.lease_name()
    world.api.leases.clear()
    await world.rounds.round()
    assert await world.status() == (503, "gateway_not_ready")
    await world.rounds.round()
    assert await world.status() == (200, "")
    assert world.holder.lease_name() not in (name, "")
    assert world.lease.name == world.holder.lease_name()


async def test_without_a_configuration_there_is_nothing_to_say(world: World) -> None:
    world.path.configuration._snapshot = None
    with pytest.raises(SpecError, match="readyz"):
        world.holder.spec(1)
    await world.rounds.round()
    assert not world.api.leases


MEANINGS: list[tuple[ApiError, type[Exception]]] = [
    (ConflictError(409, "x"), LeaseConflict),
    (ApiError(0, "no answer"), LostAnswer),
    (ApiError(500, "x"), LostAnswer),
    (ApiError(504, "x"), LostAnswer),
    (ApiError(403, "x"), ApiError),
    (ApiError(422, "x"), ApiError),
    (ApiError(429, "x"), ApiError),
]


@pytest.mark.parametrize(("error", "meaning"), MEANINGS)
async def test_refusals_of_the_api_server_are_told_apart(world: World, error: ApiError, meaning: type[Exception]) -> None:
    store = RestLeases(world.api, NAMESPACE)
    for write in (store.create("a.b", {"tick": 1}), store.replace("a.b", {"tick": 1}, "1")):
        world.api.fail = error
        with pytest.raises(ClusterError) as raised:
            await write
        assert type(raised.value) is meaning


async def test_a_lease_is_stored_and_read_whole(world: World) -> None:
    store = RestLeases(world.api, NAMESPACE)
    assert await store.get("a.b") is None
    with pytest.raises(LeaseGone):
        await store.replace("a.b", {"tick": 1}, "1")
    made = await store.create("a.b", {"tick": 1})
    assert await store.replace("a.b", {"tick": 2}, made.resource_version) == await store.get("a.b") == Stored("2", 2)
    with pytest.raises(LeaseConflict):
        await store.replace("a.b", {"tick": 3}, made.resource_version)
    world.api.leases[f"{PATH}/a.b"]["metadata"]["deletionTimestamp"] = "now"
    found = await store.get("a.b")
    assert found is not None
    assert found.deleting


async def test_an_answer_that_is_no_lease_is_a_lost_one(world: World) -> None:
    async def nonsense(*_: object, **__: str) -> Document:
        return {"kind": "Status"}

    world.api.create = nonsense  # type: ignore[method-assign, assignment]
    with pytest.raises(LostAnswer):
        await RestLeases(world.api, NAMESPACE).create("a.b", {"tick": 1})


def test_the_lease_of_a_gateway_with_a_thousand_pools_can_be_read() -> None:
    keys = lease_keys(parse_keys(ROOT_KEYS).root)
    uids = [f"{number:08}-0000-4000-8000-000000000000" for number in range(1000)]
    heads, routable = {uid: Seen("11" * 16, 2**40, 2**40) for uid in uids}, {uid: (uid, uid) for uid in uids}
    statement = LeaseStatement(GATEWAY, uids[0], "ab" * 16, 1, 60_000, "0.1.0", heads=heads, routable=routable)
    text = write_lease(keys.current, statement)
    assert read_lease(keys, text, name=f"{uids[0]}.{'ab' * 16}") == statement
    assert FenceLeaseSpec(holder="Gateway", pod="g", tick=1, lease_seconds=60, version="0.1.0", statement=text)
