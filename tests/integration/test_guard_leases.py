"""A guard's lease and ledger on a real API server, with the rights that a pool's ServiceAccount has and no others."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cachescope.api.ledgers import FenceLease
from cachescope.core.admission import Refusal
from cachescope.core.errors import ClusterError
from cachescope.core.heads import write_head
from cachescope.core.keys import KeyRing
from cachescope.core.leases import Seen, read_lease
from cachescope.guard.lease_heads import LeaseHeads
from cachescope.guard.lease_holder import LeaseHolder
from cachescope.leases.api import LEASES, LEDGERS, LeaseApi
from cachescope.leases.rounds import DONE, FAILED, GONE, LeaseConflict, LeaseGone, LostAnswer, Stored, Written
from e2e.stack import kubectl
from tests.unit.guard_fakes import KEY, LEASE_MS, World, head_at, vector

SECONDS = 30
POOL = "tiny"
LINEAGE = "c" * 32
RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Account:
    """A pool's ServiceAccount in a namespace of its own, as it is mounted into a pod.

    Attributes:
        namespace: The namespace.
        url: The API server.
        folder: Holds `token` and `ca.crt`.
    """

    namespace: str
    url: str
    folder: Path

    def api(self, url: str = "") -> LeaseApi:
        return LeaseApi(url or self.url, self.folder, namespace=self.namespace, seconds=10, clock=lambda: 0)

    def kubectl(self, *arguments: str) -> str:
        return kubectl.run(*arguments, namespace=self.namespace)

    def write_ledger(self, tenant: int = 1, sequence: int = 1, **changes: Any) -> None:
        spec = {**write_head(head_at(tenant=tenant, sequence=sequence, **{"lineage": LINEAGE, **changes})), "incidents": {}}
        kubectl.apply([_object("cachescope.dev/v1alpha1", "EpochLedger", POOL, spec=spec)], namespace=self.namespace)


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    name = f"cachescope-leases-{secrets.token_hex(4)}"
    kubectl.run("create", "namespace", name, namespace=name)
    kubectl.apply(_rights(name), namespace=name)
    folder = tmp_path_factory.mktemp("serviceaccount")
    cluster = json.loads(kubectl.run("config", "view", "--raw", "--minify", "-o", "json"))["clusters"][0]["cluster"]
    (folder / "token").write_text(kubectl.run("create", "token", f"{POOL}-engine", namespace=name))
    (folder / "ca.crt").write_bytes(_authority(cluster))
    yield Account(name, cluster["server"], folder)
    kubectl.run("delete", "namespace", name, "--wait=false", namespace=name)


class Losing:
    """The API server with answers that get lost: `after` the commit or `before` it."""

    def __init__(self, api: LeaseApi) -> None:
        self._api = api
        self.losses: list[str] = []
        self.writes = 0

    async def create(self, name: str, spec: Mapping[str, Any]) -> Written:
        loss = self._next()
        written = await self._api.create(name, spec)
        return self._answer(loss, written)

    async def replace(self, name: str, spec: Mapping[str, Any], resource_version: str) -> Written:
        loss = self._next()
        written = await self._api.replace(name, spec, resource_version)
        return self._answer(loss, written)

    async def get(self, name: str) -> Stored | None:
        return await self._api.get(name)

    async def close(self) -> None:
        await self._api.close()

    def _next(self) -> str:
        self.writes += 1
        loss = self.losses.pop(0) if self.losses else ""
        if loss == "before":
            raise LostAnswer("lost on the way there")
        return loss

    def _answer(self, loss: str, written: Written) -> Written:
        if loss == "after":
            raise LostAnswer("lost on the way back")
        return written


class RealGuard(World):
    """A guard process with a lease on the API server; only its clock is a test's."""

    def __init__(self, account: Account) -> None:
        super().__init__(pod_uid=str(uuid.uuid4()), pool=POOL, namespace=account.namespace)
        self.account = account
        self.api = account.api()
        self.store = Losing(self.api)
        self.heads = LeaseHeads(lambda: self.api.ledger(POOL), self.clock)
        self.process.source = self.heads
        self.holder = LeaseHolder(self.process, self.heads, store=self.store)

    async def round(self, *losses: str) -> None:
        self.clock.now += 1000
        self.store.losses = list(losses)
        await self.holder.rounds.round()

    def stored(self) -> dict[str, Any]:
        return dict(kubectl.get("fencelease", self.holder.lease_name(), namespace=self.account.namespace))

    async def status(self) -> int:
        """What a request with a permit of this process is answered."""
        return (await self.ask(self.permit(pod_uid=self.settings.pod_uid, lineage=LINEAGE))).status

    @property
    def left(self) -> int:
        return self.heads.right_left_ms(self.clock())


@pytest.fixture
async def guard(account: Account) -> AsyncIterator[RealGuard]:
    account.kubectl("delete", "epochledger", POOL, "--ignore-not-found")
    account.write_ledger()
    made = RealGuard(account)
    async with asyncio.timeout(SECONDS):
        while not await _may_read(made.api):  # noqa: ASYNC110 - a new Role has no event that says it holds
            await asyncio.sleep(0.1)
    yield made
    await made.api.close()


async def test_a_round_publishes_the_lease_and_grants_the_right(guard: RealGuard) -> None:
    assert await guard.status() == Refusal.NO_RIGHT.status
    await guard.round()
    first = guard.stored()
    assert (guard.left, await guard.status()) == (LEASE_MS, 200)
    await guard.round()
    second = guard.stored()
    assert first["metadata"]["uid"] == second["metadata"]["uid"]
    assert first["metadata"]["resourceVersion"] != second["metadata"]["resourceVersion"]
    spec = FenceLease.model_validate(second).spec
    statement = read_lease(KeyRing.of(KEY), spec.statement, name=second["metadata"]["name"])
    assert (spec.tick, statement.tick, spec.pool) == (guard.process.tick(), guard.process.tick(), POOL)
    assert statement.heads == {"pool-uid": Seen(LINEAGE, 1, 1)}


async def test_a_raised_ledger_is_read_within_a_round_and_between_two(guard: RealGuard, account: Account) -> None:
    await guard.round()
    account.write_ledger(tenant=2, sequence=2)
    permit = guard.permit(pod_uid=guard.settings.pod_uid, lineage=LINEAGE, epochs=vector(1, 2), sequence=2)
    assert (await guard.ask(permit)).status == 200
    account.write_ledger(tenant=3, sequence=3)
    await guard.round()
    assert guard.heads.applied == head_at(tenant=3, sequence=3, lineage=LINEAGE)
    account.write_ledger(lineage="d" * 32, generation=2)
    await guard.round()
    assert guard.heads.applied == head_at(lineage="d" * 32, generation=2)
    assert guard.holder.outcomes[FAILED] == 0


async def test_a_guard_may_do_what_its_rounds_need_and_nothing_else(guard: RealGuard, account: Account) -> None:
    await guard.round()
    lease, ledger = f"{LEASES}/{guard.holder.lease_name()}", f"{LEDGERS}/{POOL}"
    whole = kubectl.get("epochledger", POOL, namespace=account.namespace)
    other = _object("cachescope.dev/v1alpha1", "EpochLedger", "other", spec=whole["spec"])
    allowed = [("GET", lease, None), ("GET", ledger, None)]
    refused = [
        ("GET", LEASES, None),
        ("GET", f"{LEASES}?watch=true&timeoutSeconds=1", None),
        ("DELETE", lease, None),
        ("DELETE", LEASES, None),
        ("PATCH", lease, {"spec": {"tick": 9}}),
        ("GET", LEDGERS, None),
        ("GET", f"{LEDGERS}/other", None),
        ("POST", LEDGERS, other),
        ("PUT", ledger, whole),
        ("DELETE", ledger, None),
        ("GET", "servingpools", None),
    ]
    assert [(await guard.api._send(*each))[0] for each in allowed] == [200, 200]
    assert [(await guard.api._send(*each))[0] for each in refused] == [403] * len(refused)


async def test_a_lease_that_somebody_deletes_makes_another_process_of_the_guard(guard: RealGuard, account: Account) -> None:
    await guard.round()
    before = guard.holder.lease_name()
    account.kubectl("delete", "fencelease", before)
    await guard.round()
    assert (guard.left, await guard.status(), guard.holder.outcomes[GONE]) == (0, Refusal.NO_RIGHT.status, 1)
    assert guard.holder.lease_name() != before
    await guard.round()
    assert (guard.stored()["metadata"]["name"], await guard.status()) == (guard.holder.lease_name(), 200)
    assert await guard.api.get(before) is None


async def test_a_lease_that_is_marked_for_deletion_is_left(guard: RealGuard, account: Account) -> None:
    await guard.round()
    before = guard.holder.lease_name()
    _finalizers(account, before, ["test.cachescope.dev/hold"])
    try:
        account.kubectl("delete", "fencelease", before, "--wait=false")
        await guard.round()
        assert (guard.left, guard.holder.outcomes[GONE]) == (0, 1)
        await guard.round()
        assert (guard.left, guard.holder.lease_name() == before) == (LEASE_MS, False)
    finally:
        _finalizers(account, before, [])


@pytest.mark.parametrize(("losses", "writes"), [([], 1), (["after"], 1), (["before"], 2), (["before", "after"], 2)])
@pytest.mark.parametrize("first", [True, False])
async def test_lost_answers_are_decided_by_what_is_stored(guard: RealGuard, losses: list[str], writes: int, first: bool) -> None:
    if not first:
        await guard.round()
    before = guard.store.writes
    await guard.round(*losses)
    assert (guard.store.writes - before, guard.holder.outcomes[FAILED], guard.holder.outcomes[GONE]) == (writes, 0, 0)
    assert (guard.left, guard.stored()["spec"]["tick"]) == (LEASE_MS, guard.process.tick() + writes - 1)


async def test_a_round_whose_writes_are_all_lost_grants_nothing(guard: RealGuard) -> None:
    await guard.round("before", "before")
    assert (guard.left, guard.holder.outcomes) == (0, {DONE: 0, FAILED: 1, GONE: 0})
    assert await guard.api.get(guard.holder.lease_name()) is None


async def test_a_lease_that_somebody_else_wrote_is_read_and_written_again(guard: RealGuard, account: Account) -> None:
    await guard.round()
    account.kubectl("annotate", "fencelease", guard.holder.lease_name(), "test.cachescope.dev/by=hand")
    await guard.round()
    assert (guard.left, guard.store.writes, guard.holder.outcomes) == (LEASE_MS, 3, {DONE: 2, FAILED: 0, GONE: 0})


async def test_the_errors_of_the_api_server_are_those_of_the_port(guard: RealGuard) -> None:
    await guard.round()
    name, spec = guard.holder.lease_name(), guard.stored()["spec"]
    version = guard.stored()["metadata"]["resourceVersion"]
    nobody = f"{uuid.uuid4()}.{'0' * 32}"
    with pytest.raises(LeaseConflict):
        await guard.api.create(name, spec)
    with pytest.raises(LeaseConflict):
        await guard.api.replace(name, {**spec, "tick": spec["tick"] + 1}, "1")
    with pytest.raises(LeaseGone):
        await guard.api.replace(nobody, spec, version)
    assert await guard.api.get(nobody) is None
    with pytest.raises(ClusterError, match="422") as refused:
        await guard.api.replace(name, {**spec, "version": "another, and no higher tick"}, version)
    assert type(refused.value) is ClusterError
    assert await guard.api.get(name) == Stored(version, spec["tick"])


async def test_without_a_ledger_there_is_no_right_and_no_further_write(guard: RealGuard, account: Account) -> None:
    account.kubectl("delete", "epochledger", POOL)
    for _ in range(3):
        await guard.round()
    assert (guard.left, guard.store.writes, guard.holder.outcomes[FAILED]) == (0, 1, 3)
    account.write_ledger()
    await guard.round()
    assert (guard.left, await guard.status()) == (LEASE_MS, 200)


async def test_an_api_server_that_is_not_there_grants_nothing(guard: RealGuard, account: Account) -> None:
    await guard.round()
    nowhere = account.api("https://127.0.0.1:1")
    with pytest.raises(LostAnswer, match="did not answer"):
        await nowhere.get(guard.holder.lease_name())
    await nowhere.close()


async def _may_read(api: LeaseApi) -> bool:
    try:
        await api.ledger(POOL)
    except ClusterError:
        return False
    return True


def _finalizers(account: Account, name: str, finalizers: list[str]) -> None:
    patch = json.dumps({"metadata": {"finalizers": finalizers}})
    account.kubectl("patch", "fencelease", name, "--type=merge", f"--patch={patch}")


def _authority(cluster: dict[str, str]) -> bytes:
    data = cluster.get("certificate-authority-data")
    return base64.b64decode(data) if data else Path(cluster["certificate-authority"]).read_bytes()


def _object(api_version: str, kind: str, name: str, **parts: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **parts}


def _rights(namespace: str) -> list[dict[str, Any]]:
    """ServiceAccount, Role and RoleBinding as a pool's pods have them."""
    name = f"{POOL}-engine"
    rules = [
        {"apiGroups": ["cachescope.dev"], "resources": [LEASES], "verbs": ["create", "get", "update"]},
        {"apiGroups": ["cachescope.dev"], "resources": [LEDGERS], "resourceNames": [POOL], "verbs": ["get"]},
    ]
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    return [
        _object("v1", "ServiceAccount", name),
        _object(f"{RBAC}/v1", "Role", name, rules=rules),
        _object(f"{RBAC}/v1", "RoleBinding", name, roleRef={"apiGroup": RBAC, "kind": "Role", "name": name}, subjects=[subject]),
    ]
