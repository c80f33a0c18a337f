"""One installation for tests of fences: a namespace, a pool whose guards are simulated, and what is asked of both."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from cachescope.controller.options import LEASE_NAME
from cachescope.controller.root_keys import read_texts
from cachescope.core.errors import ClusterError
from cachescope.core.keys import root_ring
from cachescope.core.labels import FIELD_MANAGER
from cachescope.core.leases import lease_keys
from cachescope.core.ledger_documents import parse_ledger
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Ledger
from cachescope.kube.kinds import collection_of
from cachescope.kube.rest import Document, NotFoundError, Rest
from cachescope.leases.api import LeaseApi
from e2e.stack import kubectl
from tests.integration import following
from tests.integration.kubelet import mount_account, mount_secret
from tests.integration.operator_process import pool, resource
from tests.integration.simulated_guards import Home, Simulated

POOL = "tiny"
LEASE_MS, FRESH_MS = 3000, 1000
SECONDS = 60


class CrowdedApi(LeaseApi):
    """The requests of many processes over one client, which opens as many connections as they need."""

    def _open(self) -> aiohttp.ClientSession:
        session = super()._open()
        connector = session.connector
        if connector is not None:
            connector._limit = 0
        return session


@dataclass(frozen=True)
class Stage:
    """The installation.

    Attributes:
        namespace: Its namespace.
        rest: The API server, as people ask it.
        folder: A folder of the test's own.
    """

    namespace: str
    rest: Rest
    folder: Path

    @property
    def log(self) -> Path:
        """Where its operators write."""
        return self.folder / f"{self.namespace}.log"

    def path(self, kind: str, name: str = "") -> str:
        """Path of a kind, or of an object."""
        return collection_of(kind, self.namespace) + (f"/{name}" if name else "")

    async def get(self, kind: str, name: str) -> Document:
        """An object, read by quorum."""
        return await self.rest.get(self.path(kind, name))

    async def apply(self, document: Document) -> None:
        """Apply a resource as people do."""
        document["metadata"]["namespace"] = self.namespace
        await self.rest.apply(self.path(document["kind"], document["metadata"]["name"]), document, "people")

    async def delete(self, kind: str, name: str) -> None:
        """Delete an object."""
        await self.rest.delete(self.path(kind, name))

    async def declare(self, name: str, **spec: Any) -> None:
        """Apply a CacheEpoch of the pool."""
        await self.apply(resource("CacheEpoch", name, {"target": {"name": POOL}, **spec}))

    async def roll_back(self, name: str) -> None:
        """Apply an incident."""
        await self.declare(name, incident={"id": name, "reason": "a fault is tested"})

    async def ledger(self, name: str = POOL) -> Ledger:
        """A ledger as it stands."""
        return parse_ledger((await self.get("EpochLedger", name))["spec"])

    async def epoch(self) -> int:
        """The pool's epoch that stands."""
        ledger = await self.ledger()
        return max((int(floor.epoch) for floor in ledger.floors.values()), default=int(ledger.base))

    async def status(self, name: str) -> Document:
        """The status of a CacheEpoch, and what its condition `Fenced` says as `fenced` and `reason`."""
        found = await self.get("CacheEpoch", name)
        condition = kubectl.condition(found, "Fenced")
        return {**(found.get("status") or {}), "fenced": condition.get("status", ""), "reason": condition.get("reason", "")}

    async def fenced(self, name: str, guards: Iterable[Simulated] = (), *, people: bool = False) -> Document:
        """Wait until a CacheEpoch is fenced; at that moment nobody may hold a right on something older.

        Returns:
            Its status.
        """
        everybody = list(guards)
        found: Document = {}

        async def complete() -> bool:
            nonlocal found
            found = await self.status(name)
            if found["fenced"] != "True":
                return False
            lagging = [item for item in everybody if item.left_ms and not _holds(item, found["sequence"], people=people)]
            assert not lagging, f"{len(lagging)} processes were counted that may still use what is older"
            return True

        await self.until(complete)
        return found

    async def until(self, holds: Any) -> None:
        """Wait for what only the API server knows, with a deadline."""
        try:
            async with asyncio.timeout(SECONDS):
                while not await holds():  # noqa: ASYNC110 - the API server has no event of ours to wait for
                    await asyncio.sleep(0.05)
        except TimeoutError as error:
            log = self.log.read_text()[-6000:] if self.log.exists() else ""
            raise AssertionError(f"it did not come about in {SECONDS} s\n{log}") from error

    async def exists(self, kind: str, name: str) -> bool:
        """Whether an object is there."""
        try:
            await self.get(kind, name)
        except NotFoundError:
            return False
        return True

    async def leave_election(self) -> None:
        """Nobody leads any more: the next operator need not wait for the end of a dead one's Lease."""
        await self.delete("Lease", LEASE_NAME)

    async def shape(self, lease_ms: int, **spec: Any) -> None:
        """Apply the pool with such a right."""
        await self.apply(pool(POOL, fence={"leaseSeconds": lease_ms // 1000, "freshSeconds": FRESH_MS // 1000}, **spec))

    async def made(self, lease_ms: int = LEASE_MS, **spec: Any) -> Home:
        """The pool, made by an operator that runs, and what its processes need."""
        await self.shape(lease_ms, **spec)
        for kind, name in (("EpochLedger", POOL), ("EpochLedger", AUTHORIZATION_HEAD), ("Secret", f"{POOL}-permit-keys")):
            await self.until(lambda kind=kind, name=name: self.exists(kind, name))
        await self.until(lambda: self.exists("RoleBinding", f"{POOL}-engine"))
        uid = (await self.get("ServingPool", POOL))["metadata"]["uid"]
        root = root_ring(read_texts(await self.get("Secret", "cachescope-root-keys")))
        keys, api = await self._keys(), await self._api(lease_ms)
        home = Home(self.namespace, POOL, uid, keys, lease_keys(root).current, api, lease_ms, FRESH_MS)
        await self.until(lambda: _may_read(api))
        return home

    async def _keys(self) -> Path:
        folder = self.folder / f"{self.namespace}-keys"
        await asyncio.to_thread(mount_secret, folder, self.namespace, f"{POOL}-permit-keys")
        return folder

    async def _api(self, lease_ms: int) -> LeaseApi:
        folder = self.folder / f"{self.namespace}-account"
        server = await asyncio.to_thread(mount_account, folder, self.namespace, f"{POOL}-engine")
        return CrowdedApi(server, folder, namespace=self.namespace, seconds=lease_ms / 6000, clock=lambda: 0)


class Advance:
    """One rollback, and that it is one."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.before = 0
        self.sequence = 0

    async def __aenter__(self) -> Advance:
        self.before, self.sequence = await self.stage.epoch(), (await self.stage.ledger()).sequence
        return self

    async def __aexit__(self, failed: object, *_: object) -> None:
        if failed is None:
            found = (await self.stage.epoch(), (await self.stage.ledger()).sequence)
            assert found == (self.before + 1, self.sequence + 1), "it advances exactly once"

    @property
    def stands(self) -> int:
        """The epoch afterwards."""
        return self.before + 1

    async def written(self) -> None:
        """Wait until the ledger says so."""

        async def advanced() -> bool:
            return await self.stage.epoch() == self.stands

        await self.stage.until(advanced)


def _holds(item: Simulated, sequence: int, *, people: bool) -> bool:
    return item.holds_people(sequence) if people or not hasattr(item, "holds") else item.holds(sequence)


async def _may_read(api: LeaseApi) -> bool:
    try:
        await api.ledger(POOL)
    except ClusterError:
        return False
    return True


@asynccontextmanager
async def asking(namespace: str, folder: Path) -> AsyncIterator[Stage]:
    """An installation in a namespace that there is."""
    async with Rest() as rest:
        yield Stage(namespace, rest, folder)


async def disconnected() -> None:
    """Wait until no connection of this event loop is open: aiohttp ends those with TLS a moment after their session."""
    transports: Any = asyncio.get_running_loop()
    await following.until(lambda: all(transport._sock is None for transport in transports._transports.values()))


@asynccontextmanager
async def staged(folder: Path) -> AsyncIterator[Stage]:
    """A namespace of its own, and its end."""
    async with asking(f"cachescope-fence-{secrets.token_hex(4)}", folder) as stage:
        rest = stage.rest
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": stage.namespace}}
        await rest.create("/api/v1/namespaces", namespace, fieldManager=FIELD_MANAGER)
        try:
            yield stage
        finally:
            await rest.delete(f"/api/v1/namespaces/{stage.namespace}")
