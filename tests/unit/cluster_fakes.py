"""The Kubernetes API as the gateway sees it, in memory, with an operator that accepts claims in the order in which they come."""

from __future__ import annotations

import asyncio
import base64
import copy
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from cachescope.api.claims import claims_of, overlaps
from cachescope.api.documents import API_VERSION, parse
from cachescope.api.tenants import Tenant
from cachescope.core.errors import SpecError
from cachescope.core.labels import API_KEYS_LABEL, HEAD, LEDGER_LABEL, SHARD
from cachescope.core.ledger_documents import write_ledger
from cachescope.core.ledgers import Ledger, is_shard
from cachescope.core.policy_digest import POLICY_KINDS
from cachescope.gateway import readings
from cachescope.gateway.ledger_heads import LedgerHeads, LedgerRead
from cachescope.gateway.policy_history import PolicyHistory
from cachescope.gateway.readings import Reading
from cachescope.gateway.stores import Stores
from cachescope.kube.watched import Name, name_of

T = TypeVar("T")


class FakeStore(Generic[T]):
    """Objects of one kind; each is read once for each version of it, as `Watched` does it."""

    def __init__(self, read: Callable[[dict[str, Any]], Reading[T]]) -> None:
        self._read = read
        self._items: dict[Name, Reading[T]] = {}
        self._version = 0
        self.documents: dict[Name, dict[str, Any]] = {}
        self.version = 0
        self.seconds: float | None = 0.0
        self.history = PolicyHistory()
        self.history.record(0)

    def put(self, document: dict[str, Any]) -> None:
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        name = name_of(document)
        self.documents[name] = document
        self._replace(name, self._read(document))

    def take(self, namespace: str, name: str, value: Reading[T]) -> None:
        """Something that was read already."""
        self._replace(Name(namespace, name), value)

    def remove(self, namespace: str, name: str) -> None:
        del self.documents[Name(namespace, name)]
        self._replace(Name(namespace, name), None)

    def _replace(self, name: Name, value: Reading[T] | None) -> None:
        self.history.replaced(self._items.pop(name, None), value)
        if value is not None:
            self._items[name] = value
        self.version += 1
        self.history.record(self.version)

    def items(self) -> dict[Name, Reading[T]]:
        return dict(self._items)

    def get(self, namespace: str, name: str) -> Reading[T] | None:
        return self._items.get(Name(namespace, name))

    def age(self) -> float | None:
        return self.seconds


class FakeCluster:
    """Everything that the gateway follows."""

    def __init__(self) -> None:
        self.pools = FakeStore(readings.of_policy("ServingPool", readings.read_pool))
        self.tenants = FakeStore(readings.of_policy("Tenant", readings.read_tenant))
        self.scopes = FakeStore(readings.of_policy("CacheScope", readings.read_scope))
        self.sources = FakeStore(readings.of_policy("PublicSource", readings.read_public_source))
        self.ledgers = FakeStore(readings.read_ledger)
        self.secrets = FakeStore(readings.of_policy("Secret", readings.read_secret))
        self.namespaces = FakeStore(readings.of_policy("Namespace", readings.read_namespace))
        self.leases = FakeStore(readings.read_lease)
        self._count = 0

    @property
    def stores(self) -> Stores:
        histories = {kind: self.store(kind).history for kind in POLICY_KINDS}
        return Stores(
            self.pools, self.tenants, self.scopes, self.sources, self.ledgers, self.secrets, self.namespaces, "models", histories
        )

    def store(self, kind: str) -> FakeStore[Any]:
        stores: Mapping[str, FakeStore[Any]] = {
            "ServingPool": self.pools,
            "Tenant": self.tenants,
            "CacheScope": self.scopes,
            "PublicSource": self.sources,
            "EpochLedger": self.ledgers,
            "FenceLease": self.leases,
            "Secret": self.secrets,
            "Namespace": self.namespaces,
        }
        return stores[kind]

    def apply(self, document: dict[str, Any], namespace: str, *, accept: bool = True) -> None:
        """Create or replace an object; a Secret that is not labelled is nothing that the gateway sees."""
        document = copy.deepcopy(document)
        if document["kind"] == "Secret":
            document["data"] = {name: base64.b64encode(text.encode()).decode() for name, text in document.pop("stringData").items()}
            if document["metadata"].get("labels", {}).get(API_KEYS_LABEL) != "true":
                return
        self._count += 1
        kind, metadata = document["kind"], {"namespace": namespace, **document["metadata"]}
        before = self.store(kind).documents.get(name_of({"metadata": metadata}), {"metadata": {}})
        metadata = {
            "uid": f"{kind.lower()}-uid-{self._count:05}",
            "creationTimestamp": f"2026-01-01T00:00:00.{self._count:05}Z",
            "generation": before["metadata"].get("generation", 0) + 1,
            **{key: value for key, value in before["metadata"].items() if key in {"uid", "creationTimestamp"}},
            **metadata,
        }
        whole = {**document, "metadata": metadata, "status": document.get("status") or before.get("status") or {}}
        self.store(kind).put(whole)
        if kind == "Tenant" and accept:
            self._accept(whole)

    def edit(
        self, kind: str, name: str, change: Callable[[dict[str, Any]], object], *, namespace: str, accept: bool = True
    ) -> None:
        """Change an object in place, as somebody who edits it."""
        document = copy.deepcopy(self.store(kind).documents[Name(namespace, name)])
        change(document)
        document["metadata"]["generation"] += 1
        self.store(kind).put(document)
        if kind == "Tenant" and accept:
            self._accept(document)

    def write_ledger(self, namespace: str, name: str, ledger: Ledger) -> None:
        """What the operator does with a ledger."""
        metadata = {"name": name, "labels": {LEDGER_LABEL: SHARD if is_shard(name) else HEAD}}
        spec = {**write_ledger(ledger), "mac": {"key": "k1", "value": "0" * 64}}
        self.apply({"apiVersion": API_VERSION, "kind": "EpochLedger", "metadata": metadata, "spec": spec}, namespace)

    def read_ledgers(self, ledgers: LedgerHeads) -> LedgerRead:
        """What a round reads of them."""
        found = self.ledgers.items()
        heads = {name: reading for name, reading in found.items() if not is_shard(name.name)}
        return LedgerRead(ledgers.known, heads, {name: found[name] for name in ledgers.missing(heads) if name in found})

    def _accept(self, document: dict[str, Any]) -> None:
        try:
            tenant = parse(Tenant, {key: value for key, value in document.items() if key != "status"}, "test")
        except SpecError:
            return
        own = {item["claim"]: item for item in document["status"].get("accepted", [])}
        others = [
            item["claim"]
            for name, other in self.tenants.documents.items()
            if name != name_of(document)
            for item in other["status"].get("accepted", [])
        ]
        accepted = []
        for claim in claims_of(tenant):
            if claim in own or not any(overlaps(claim, other, {}) for other in others):
                self._count += 1
                accepted.append(own.get(claim, {"claim": claim, "since": self._count}))
        self.tenants.put({**document, "status": {"accepted": accepted}})


def settled(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also below a loop that runs."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
