"""What the gateway follows in the Kubernetes API, and where: one namespace, or all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from cachescope.api.documents import API_VERSION, Resource
from cachescope.api.ledgers import EpochLedger, FenceLease
from cachescope.api.pools import ServingPool
from cachescope.api.public_sources import PublicSource
from cachescope.api.scopes import CacheScope
from cachescope.api.tenants import Tenant
from cachescope.core.labels import API_KEYS_LABEL
from cachescope.core.public_sources import Source
from cachescope.gateway import readings
from cachescope.gateway.policy_history import PolicyHistory
from cachescope.gateway.readings import KeyEntry, KnownLedger, KnownPool, KnownTenant, LeaseText, Reading
from cachescope.gateway.steady import Steady
from cachescope.kube.endpoint_slices import EndpointSlices
from cachescope.kube.rest import collection
from cachescope.kube.watched import RETRY_SECONDS, Api, Name, Watched

CLUSTER = "Cluster"

T = TypeVar("T")
V_co = TypeVar("V_co", covariant=True)


class Store(Protocol[V_co]):
    """Objects of one kind as they were last seen."""

    @property
    def version(self) -> int:
        """Rises with each change."""

    def items(self) -> Mapping[Name, V_co]:
        """What there is."""

    def age(self) -> float | None:
        """Seconds since it was last known to be so, or `None` before the first time."""


@dataclass(frozen=True)
class Stores:
    """Everything that a configuration is made of, beside what is mounted.

    Attributes:
        pools: ServingPools.
        tenants: Tenants.
        scopes: CacheScopes.
        sources: PublicSources.
        ledgers: EpochLedgers, as the watch shows them.
        secrets: API keys of labelled Secrets.
        namespaces: Labels of namespaces; `None` where a single namespace is followed, since no other is known then.
        home: The installation's namespace.
        histories: The digests that each kind of policy passed through.
    """

    pools: Store[Reading[KnownPool]]
    tenants: Store[Reading[KnownTenant]]
    scopes: Store[Reading[CacheScope]]
    sources: Store[Reading[Source]]
    ledgers: Store[Reading[KnownLedger]]
    secrets: Store[Reading[tuple[KeyEntry, ...]]]
    namespaces: Store[Reading[dict[str, str]]] | None = None
    home: str = ""
    histories: Mapping[str, PolicyHistory] = field(default_factory=dict)

    def by_kind(self) -> dict[str, Store[Reading[Any]]]:
        """All of them, by kind."""
        found: dict[str, Store[Reading[Any]] | None] = {
            "ServingPool": self.pools,
            "Tenant": self.tenants,
            "CacheScope": self.scopes,
            "PublicSource": self.sources,
            "EpochLedger": self.ledgers,
            "Secret": self.secrets,
            "Namespace": self.namespaces,
        }
        return {kind: store for kind, store in found.items() if store is not None}


@dataclass(frozen=True)
class Followed:
    """Everything that is followed.

    Attributes:
        stores: What configurations are made of.
        leases: FenceLeases.
        slices: Endpoints.
        others: The watches of `stores`.
    """

    stores: Stores
    leases: Watched[Reading[LeaseText]]
    slices: EndpointSlices
    others: Mapping[str, Watched[Any]] = field(default_factory=dict)

    def watches(self) -> dict[str, Watched[Any]]:
        """Every watch, by kind."""
        return {**self.others, "FenceLease": self.leases, "EndpointSlice": self.slices.watched}

    def ages(self) -> dict[str, float | None]:
        """Seconds since the API server last answered each watch."""
        return {kind: watch.age() for kind, watch in self.watches().items()}

    async def renew(self, kind: str) -> int:
        """List a kind anew, by quorum; the version that the store has then."""
        watch = self.others[kind]
        await watch.renew()
        return watch.version

    async def run(self) -> None:
        """Follow all of it until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind, watch in self.watches().items():
                group.create_task(_steadily(kind, watch))


def follow(api: Api, namespace: str, scope: str, *, changed: Callable[[], None], ledgers_changed: Callable[[], None]) -> Followed:
    """Watches for an installation.

    Args:
        api: The API server.
        namespace: The installation's namespace.
        scope: `Cluster` for the resources of all namespaces, anything else for its own alone.
        changed: Called after a change that a new configuration is made for.
        ledgers_changed: Called after a change of the ledgers.
    """
    where = None if scope == CLUSTER else namespace
    own = partial(_watched, api, where)
    policy = _PolicyWatches(api, changed)
    pools = policy.watch("ServingPool", _path(ServingPool, where), readings.read_pool)
    tenants = policy.watch("Tenant", _path(Tenant, where), readings.read_tenant)
    scopes = policy.watch("CacheScope", _path(CacheScope, where), readings.read_scope)
    sources = policy.watch("PublicSource", _path(PublicSource, where), readings.read_public_source)
    labelled = f"{API_KEYS_LABEL}=true"
    secrets = policy.watch("Secret", collection("v1", "secrets", where), readings.read_secret, label_selector=labelled)
    namespaces = None if where else policy.watch("Namespace", collection("v1", "namespaces", None), readings.read_namespace)
    ledgers = own(EpochLedger, readings.read_ledger, ledgers_changed)
    stores = Stores(pools, tenants, scopes, sources, ledgers, secrets, namespaces, namespace, policy.histories)
    watches: dict[str, Watched[Any]] = {kind: store for kind, store in stores.by_kind().items() if isinstance(store, Watched)}
    leases = own(FenceLease, readings.read_lease, lambda: None)
    return Followed(stores, leases, EndpointSlices(api, where), watches)


async def _steadily(kind: str, watch: Watched[Any]) -> None:
    """Follow one kind; should an object end that all the same, its list is read anew, and the other kinds know nothing of it."""
    steady = Steady(f"watch of {kind}")
    while True:
        with steady:
            await watch.run()
        await asyncio.sleep(RETRY_SECONDS)


def _watched(
    api: Api,
    namespace: str | None,
    kind: type[Resource],
    parse: Callable[[readings.Document], Reading[T]],
    changed: Callable[[], None],
) -> Watched[Reading[T]]:
    return Watched(api, _path(kind, namespace), parse=readings.whatever(parse), changed=changed)


@dataclass(frozen=True)
class _PolicyWatches:
    """Makes watches of what policy is compiled from; they keep the digests that they pass through."""

    api: Api
    changed: Callable[[], None]
    histories: dict[str, PolicyHistory] = field(default_factory=dict)

    def watch(
        self, kind: str, path: str, parse: Callable[[readings.Document], Reading[T]], *, label_selector: str | None = None
    ) -> Watched[Reading[T]]:
        """The watch of one kind."""
        history = self.histories[kind] = PolicyHistory()

        def told() -> None:
            history.record(watch.version)
            self.changed()

        watch = Watched(
            self.api,
            path,
            parse=readings.whatever(readings.of_policy(kind, parse)),
            label_selector=label_selector,
            changed=told,
            replaced=history.replaced,
        )
        return watch


def _path(kind: type[Resource], namespace: str | None) -> str:
    return collection(API_VERSION, kind.PLURAL, namespace)
