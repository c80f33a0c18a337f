"""Guards whose leases and ledgers are on a real API server, with the rights that a pool's ServiceAccount has and no others."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachescope.core.errors import ClusterError
from cachescope.core.keys import KeyRing
from cachescope.core.leases import LeaseStatement, read_lease
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Mark
from cachescope.guard.lease_heads import LeaseHeads
from cachescope.guard.lease_holder import LeaseHolder
from cachescope.leases.api import LEASES, LEDGERS, LeaseApi
from cachescope.leases.ports import LostAnswer, Stored, Written
from e2e.stack import kubectl
from tests.unit.guard_fakes import KEY, World, seen
from tests.unit.ledger_book import LedgerBook

SECONDS = 30
POOL = "tiny"
LINEAGE = "c" * 32
API_VERSION = "cachescope.dev/v1alpha1"
CHANGES = 50
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

    def begin(self) -> LedgerBook:
        """New ledgers, whatever was there."""
        self.kubectl("delete", "epochledger", POOL, AUTHORIZATION_HEAD, "--ignore-not-found")
        book = LedgerBook(POOL, "pool-uid", namespace=self.namespace, lineage=LINEAGE)
        self.write(book)
        return book

    def restore(self, book: LedgerBook) -> None:
        """The ledgers as a backup has them."""
        self.kubectl("delete", "epochledger", POOL, AUTHORIZATION_HEAD)
        self.write(book)

    def write(self, book: LedgerBook) -> None:
        names = (POOL, AUTHORIZATION_HEAD)
        kubectl.apply(
            [manifest(API_VERSION, "EpochLedger", name, spec=book.spec(name)) for name in names], namespace=self.namespace
        )


class Losing:
    """The API server with answers that get lost: `after` the commit or `before` it."""

    def __init__(self, api: LeaseApi) -> None:
        self._api = api
        self.losses: list[str] = []
        self.writes = 0
        self.acknowledged: set[Mark] = set()
        self.committed = asyncio.Event()

    async def create(self, name: str, spec: Mapping[str, Any]) -> Written:
        loss = self._next()
        written = await self._api.create(name, spec)
        return self._answer(loss, written)

    async def replace(self, name: str, spec: Mapping[str, Any], resource_version: str) -> Written:
        loss = self._next()
        written = await self._api.replace(name, spec, resource_version)
        self.acknowledged = set(read_lease(KeyRing.of(KEY), spec["statement"], name=name).acknowledged.values())
        self.committed.set()
        return self._answer(loss, written)

    async def get(self, name: str) -> Stored | None:
        return await self._api.get(name)

    async def close(self) -> None:
        await self._api.close()

    def watch_ledger(self, name: str) -> AsyncIterator[object]:
        return self._api.watch_ledger(name)

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

    def __init__(self, account: Account, book: LedgerBook) -> None:
        super().__init__(pod_uid=str(uuid.uuid4()), pool=POOL, namespace=account.namespace)
        self.account = account
        self.book = book
        self.api = account.api()
        self.store = Losing(self.api)
        self.heads = LeaseHeads(self.api.ledger, self.clock, pool=POOL)
        self.process.source = self.heads
        self.holder = LeaseHolder(self.process, self.heads, store=self.store)

    async def round(self, *losses: str) -> None:
        self.clock.now += 1000
        self.store.losses = list(losses)
        await self.holder.rounds.round()
        await self.process.closed()  # as it does beside its requests

    def stored(self) -> dict[str, Any]:
        return dict(kubectl.get("fencelease", self.holder.lease_name(), namespace=self.account.namespace))

    def statement(self) -> LeaseStatement:
        return read_lease(KeyRing.of(KEY), self.stored()["spec"]["statement"], name=self.holder.lease_name())

    def marks(self) -> tuple[Mark, Mark]:
        assert self.heads.applied is not None
        return self.heads.applied.pool.mark, self.heads.applied.authorization.mark

    async def until_acknowledged(self, mark: Mark) -> None:
        """A write that was answered said so."""
        async with asyncio.timeout(SECONDS):
            while mark not in self.store.acknowledged:
                self.store.committed.clear()
                await self.store.committed.wait()

    async def status(self) -> int:
        """What a request with a permit of this process is answered."""
        return (await self.ask(self.permit(pod_uid=self.settings.pod_uid, seen=seen(1, LINEAGE)))).status

    @property
    def left(self) -> int:
        return self.heads.right_left_ms(self.clock())


@asynccontextmanager
async def keeping(guard: RealGuard) -> AsyncIterator[None]:
    """The guard keeps its right by itself, as in its background; its clock is the process's."""
    guard.clock.now += 1000
    works = [asyncio.ensure_future(guard.holder.run()), asyncio.ensure_future(guard.process.keep_closing())]
    try:
        await guard.until_acknowledged(guard.book.pool.mark)
        yield
    finally:
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)


async def may_read(api: LeaseApi) -> bool:
    try:
        await api.ledger(POOL)
    except ClusterError:
        return False
    return True


def manifest(api_version: str, kind: str, name: str, **parts: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **parts}


def rights(namespace: str) -> list[dict[str, Any]]:
    """ServiceAccount, Role and RoleBinding as a pool's pods have them."""
    name = f"{POOL}-engine"
    rules = [
        {"apiGroups": ["cachescope.dev"], "resources": [LEASES], "verbs": ["create", "get", "update"]},
        {
            "apiGroups": ["cachescope.dev"],
            "resources": [LEDGERS],
            "resourceNames": [POOL, AUTHORIZATION_HEAD],
            "verbs": ["get", "list", "watch"],
        },
    ]
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    return [
        manifest("v1", "ServiceAccount", name),
        manifest(f"{RBAC}/v1", "Role", name, rules=rules),
        manifest(f"{RBAC}/v1", "RoleBinding", name, roleRef={"apiGroup": RBAC, "kind": "Role", "name": name}, subjects=[subject]),
    ]
