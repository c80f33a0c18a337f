"""An operator without its watcher: a store, an API in memory whose writes the store hears, and the reconcilers."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

from cachescope.api.settings import IdentityProvider, JwksSource, Settings
from cachescope.controller.authorizations import Authorizations
from cachescope.controller.cache_epochs import CacheEpochs
from cachescope.controller.dispatch import authorization
from cachescope.controller.fences import Fences
from cachescope.controller.installation import Installation
from cachescope.controller.lease_book import LeaseBook
from cachescope.controller.ledger_objects import LedgerObjects
from cachescope.controller.ledger_site import LedgerSite
from cachescope.controller.outcomes import Outcomes
from cachescope.controller.policy_inputs import PolicyInputs
from cachescope.controller.pool_ledgers import PoolLedgers
from cachescope.controller.pools import Pools
from cachescope.controller.public_sources import PublicSources
from cachescope.controller.root_keys import RootKeys
from cachescope.controller.scopes import Scopes
from cachescope.controller.store import Key, Store, key_of
from cachescope.controller.tenants import Tenants
from cachescope.controller.watched_kinds import streamed
from cachescope.core.errors import ClusterError
from cachescope.core.ledger_documents import parse_ledger
from cachescope.core.ledger_seals import seal_keys, sealed
from cachescope.core.ledgers import advanced
from cachescope.kube.applying import Applier
from cachescope.kube.kinds import collection_of, path_of
from cachescope.kube.rest import Document
from cachescope.manifests.platform import Platform
from tests.unit.fake_api import FakeApi
from tests.unit.pools import PLATFORM

POOL: Document = {
    "apiVersion": "cachescope.dev/v1alpha1",
    "kind": "ServingPool",
    "metadata": {"name": "tiny", "namespace": "ns", "uid": "pool-uid-1", "generation": 1},
    "spec": {
        "model": {"name": "tiny", "source": {"imagePath": "/models/tiny"}},
        "engine": {"version": "0.32.0", "image": "registry.example/vllm:0.32.0"},
    },
}
CHILDREN = [
    ("ServiceAccount", "tiny-engine"),
    ("Role", "tiny-engine"),
    ("RoleBinding", "tiny-engine"),
    ("Secret", "tiny-permit-keys"),
    ("NetworkPolicy", "tiny"),
    ("Service", "tiny"),
    ("PodDisruptionBudget", "tiny"),
    ("Deployment", "tiny"),
]
POOL_KEY = Key("ServingPool", "ns", "tiny")
PROVIDER = IdentityProvider(name="corp", issuer="https://corp.example", jwks=JwksSource(secret_name="corp"))
SETTINGS = Settings(identity_providers=(PROVIDER,))


class HeardApi(FakeApi):
    """An API in memory that tells the store of what is written.

    Attributes:
        lost: Paths (their ends) whose next write is committed without an answer.
        refused: Paths (their ends) whose writes fail.
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        self.lost: set[str] = set()
        self.refused: set[str] = set()

    @property
    def writes(self) -> list[str]:
        return [item for item in self.requests if item != "get"]

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None, **query: str) -> None:
        document = self._found(path)
        await super().delete(path, uid=uid, resource_version=resource_version, **query)
        self._version += 1
        self.store.remove(document["kind"], {"metadata": {**document["metadata"], "resourceVersion": str(self._version)}})

    def _store(self, path: str, document: Document) -> Document:
        if any(path.endswith(end) for end in self.refused):
            raise ClusterError("the API server is away; try again")
        written = super()._store(path, document)
        if any(path.endswith(end) for end in self.lost):
            self.lost.clear()
            raise ClusterError("the answer was lost; try again")
        if written.get("kind") in {"FenceLease", *(kind.kind for kind in streamed("ns"))}:
            self.store.put(str(written["kind"]), written)
        return written


class Bench:
    """Everything that reconciles, wired together."""

    def __init__(self, platform: Platform = PLATFORM) -> None:
        self.store, self.now = Store(), 1000.0
        self.api = HeardApi(self.store)
        self.keys = RootKeys(self.api, "cachescope-system")
        self.due: list[Key] = []
        self.restart(platform)

    def restart(self, platform: Platform = PLATFORM, settings: Settings = SETTINGS) -> None:
        """A new process: nothing is left but what the API holds."""
        self.store = self.api.store = Store()
        for document in self.api.objects.values():
            if document.get("kind") in {"FenceLease", *(kind.kind for kind in streamed("ns"))}:
                self.store.put(document["kind"], document)
        self.book = LeaseBook(self.store, self.keys, home="ns", clock=lambda: self.now, news=lambda *_: None)
        self.told: list[Key] = []
        self.outcomes = Outcomes(self.told.append)
        self.fences = Fences(self.book, self._nothing, told=self._fence_moved)
        self._reconcilers(self._ledgers(), platform, settings)
        self._hear()

    def _ledgers(self) -> LedgerSite:
        return LedgerSite(
            rest=self.api,
            store=self.store,
            objects=LedgerObjects(self.api, self.store, self.keys),
            keys=self.keys,
            leases=self.book,
            fences=self.fences,
            outcomes=self.outcomes,
            now=lambda: self.now,
        )

    def _reconcilers(self, ledgers: LedgerSite, platform: Platform, settings: Settings) -> None:
        self.authorizations = Authorizations(ledgers, ["ns"], PolicyInputs(self.api, self.store, namespace="ns"))
        self.site = Installation(
            rest=self.api,
            store=self.store,
            applier=Applier(self.api),
            keys=self.keys,
            leases=self.book,
            ledgers=PoolLedgers(ledgers),
            fences=self.fences,
            outcomes=self.outcomes,
            platform=platform,
            settings=settings,
            again=lambda key, _: self.due.append(key),
        )
        self.pools, self.scopes = Pools(self.site), Scopes(self.site, lambda: self.now)
        self.sources = PublicSources(self.site, lambda: self.now)
        self.tenants = Tenants(self.site, ["ns"], now=lambda: self.now, clock=lambda: self.now)

    def _hear(self) -> None:
        """Tell the listeners of what is there already, as the first list does."""
        self.store.listen(self.tenants.hear)
        self.store.listen(self.book.hear)
        for kind, hear in (("EpochLedger", self.book.hear), ("FenceLease", self.book.hear), ("Tenant", self.tenants.hear)):
            for document in self.store.all(kind):
                hear(key_of(kind, document), None, document)

    async def start(self) -> None:
        await self.keys.refresh(datetime(2026, 11, 30, tzinfo=UTC))
        self.api.requests.clear()

    def declare(self, document: Document, **spec: Any) -> Document:
        """Somebody applies a resource."""
        path = path_of(document)
        old = copy.deepcopy(self.api.objects.get(path) or document)
        old["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        old["spec"] = {**document["spec"], **spec}
        return self.api._store(path, old)

    def remove(self, kind: str, name: str) -> None:
        """Somebody deletes an object, and the watch says so."""
        document = self.api.objects.pop(f"{collection_of(kind, 'ns')}/{name}")
        self.api._version += 1
        document["metadata"]["resourceVersion"] = str(self.api._version)
        self.store.remove(kind, document)

    def found(self, kind: str, name: str) -> Document:
        return self.api.objects[f"{collection_of(kind, 'ns')}/{name}"]

    def sealed(self, **changes: Any) -> Document:
        """The spec of the pool's ledger, one change on, as another operator of the installation writes it."""
        ledger = advanced(parse_ledger(self.found("EpochLedger", "tiny")["spec"]), **changes)
        return sealed(seal_keys(self.keys.ring), POOL["metadata"]["uid"], ledger)

    def names(self, kind: str) -> list[str]:
        """Names of all objects of a kind."""
        return sorted(item["metadata"]["name"] for item in self.store.all(kind))

    def condition(self, kind: str, name: str, type_: str) -> tuple[str, str]:
        conditions = self.found(kind, name)["status"]["conditions"]
        return next((item["status"], item["reason"]) for item in conditions if item["type"] == type_)

    def message(self, kind: str, name: str, type_: str) -> str:
        conditions = self.found(kind, name)["status"]["conditions"]
        return next(str(item["message"]) for item in conditions if item["type"] == type_)

    async def pass_over(self, *failures: int) -> None:
        """One pass over the pool, and over the CacheEpochs that it has news for."""
        try:
            await self.pools.reconcile(POOL_KEY, *(failures or (0,)))
        finally:
            await self.tell()

    async def authorize(self) -> None:
        """One pass over the authorization ledgers, and over the CacheEpochs that it has news for."""
        await self.authorizations.reconcile(authorization("ns"), 0)
        await self.tell()

    async def tell(self) -> None:
        """Write the statuses that are due."""
        await self.fences.look()
        self.told += [key_of("CacheEpoch", item) for item in self.store.all("CacheEpoch")]  # as `dispatch` does for each change
        while self.told:
            await CacheEpochs(self.site).reconcile(self.told.pop(0), 0)

    def _fence_moved(self, ledger: str) -> None:
        self.told.extend(self.outcomes.concerned(ledger))

    async def _nothing(self) -> None:
        """There is nothing to list that the store has not heard of."""


def epoch(name: str, **spec: Any) -> Document:
    """A CacheEpoch of the pool."""
    return {
        "apiVersion": "cachescope.dev/v1alpha1",
        "kind": "CacheEpoch",
        "metadata": {"name": name, "namespace": "ns", "uid": f"epoch-uid-{name}", "generation": 0},
        "spec": {"target": {"name": "tiny"}, **spec},
    }


def tenant(name: str, namespace: str = "ns", created: str = "", **identities: Any) -> Document:
    """A Tenant."""
    metadata = {"name": name, "namespace": namespace, "uid": f"tenant-uid-{name}", "generation": 0, "creationTimestamp": created}
    return {"apiVersion": "cachescope.dev/v1alpha1", "kind": "Tenant", "metadata": metadata, "spec": {"identities": identities}}
