"""Policy: declared resources, indexed for requests, once for each change.

Rules:

- a tenant may use the pools that admit its namespace: those of the namespace itself, and those whose selector matches its labels;
- a selector counts in the installation's namespace and in those that its settings list: no other team draws prompts to its engines
  that the platform did not trust with them;
- a pool serves its model and each of its adapters by a name of its own;
- of several pools that serve one name, the tenant's own namespace comes first, then the installation's, then the oldest, then
  the least UID: a newcomer that takes the name of another's model changes nothing for those who are served;
- a pool of one tenant takes no part in that: it serves that tenant, by UID, and nobody else, in the place of the pool that it was
  made of; what names that one names it;
- every request has exactly one scope: of the CacheScopes of the tenant's namespace that name it and the pool, the narrowest, and
  without one the default, class `Tenant`; what a scope names and nobody declared is passed over (`scope_rules`);
- a tenant of sensitivity High may use the pools that admit no other Tenant now, and of one name no other pool in its place;
- while a CacheScope of a namespace cannot be read, its tenants share nothing (class `Request`): it may say anything;
- the operator's probe speaks for tenants that nobody declares: each of them may use one pool, by the default scope;
- what is unclear narrows and never widens, and a fault in one object changes nothing for the owners of others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from cachescope.api.pools import ServingPool
from cachescope.api.scopes import CacheScope
from cachescope.core.classes import Rule
from cachescope.core.probes import tenant_uids
from cachescope.core.public_sources import Source
from cachescope.core.types import ScopeClass
from cachescope.gateway.readings import KnownPool, KnownTenant
from cachescope.gateway.scope_rules import rule_of


@dataclass(frozen=True)
class EffectiveScope:
    """The sharing rule of one tenant on one pool.

    Attributes:
        rule: What it allows.
        uid: UID of the CacheScope; of the pool where the default applies.
        policy_revision: Revision of this rule alone: the generation of the CacheScope.
    """

    rule: Rule
    uid: str
    policy_revision: int

    @property
    def scope_class(self) -> ScopeClass:
        """The widest class."""
        return self.rule.scope_class


@dataclass(frozen=True)
class Served:
    """What a name in requests stands for.

    Attributes:
        pool: The pool that serves it. Of one that cannot be read as in `KnownPool`.
        adapter: The adapter of that pool, or empty for the model itself.
    """

    pool: ServingPool
    adapter: str = ""


@dataclass(frozen=True)
class Declared:
    """What the API holds.

    Attributes:
        pools: All pools.
        tenants: All tenants.
        scopes: The CacheScopes that can be read.
        sealed: Namespaces with a CacheScope that cannot be read.
        namespaces: Labels by namespace.
        home: The installation's namespace.
        shared: Further namespaces whose pools may serve others.
        sources: The inventory of public sources, by namespace and name.
    """

    pools: Collection[KnownPool] = ()
    tenants: Collection[KnownTenant] = ()
    scopes: Collection[CacheScope] = ()
    sealed: frozenset[str] = frozenset()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    home: str = ""
    shared: frozenset[str] = frozenset()
    sources: Mapping[tuple[str, str], Source] = field(default_factory=dict)


class Policy:
    """Everything declared, indexed for requests.

    Args:
        declared: What the API holds.

    Attributes:
        tenants: Tenants by UID.
        pools: Pools by UID, those that cannot be read left out.
        uids: UIDs of all pools, by namespace and name.
        routes: Paths that may be routed to a pool's engines, by its UID; pools all of whose routes may be are left out.
        proofs: What was proven of each pool's processes, by its UID.
        probed: UIDs of the pools that the operator's probe may ask.
    """

    def __init__(self, declared: Declared) -> None:
        self.tenants = {tenant.uid: tenant for tenant in declared.tenants}
        self._probers = dict(_probers(declared.pools))
        self.tenants.update({uid: _prober(uid, pool) for uid, pool in self._probers.items()})
        self.probed = frozenset(pool.uid for pool in self._probers.values())
        self.proofs = {item.pool.uid: item.proofs for item in declared.pools}
        self.pools = {item.pool.uid: item.pool for item in declared.pools if item.readable}
        self.uids = {(item.pool.namespace, item.pool.name): item.pool.uid for item in declared.pools}
        self._sealed = declared.sealed
        self._namespaces = declared.namespaces
        self._local: defaultdict[str, list[KnownPool]] = defaultdict(list)
        self.routes = {item.pool.uid: item.routes for item in declared.pools if item.routes is not None}
        self._templates = {item.pool.uid for item in declared.pools if item.template}
        self._dedicated = _dedicated(declared.pools)
        for item in sorted(declared.pools, key=_age):
            if item.pool.spec.dedicated_to is None:
                self._local[item.pool.namespace].append(item)
        self._trusted = declared.shared | {declared.home}
        self._open = [item for namespace in self._trusted for item in self._local.get(namespace, ()) if _labels(item.pool)]
        self._open.sort(key=lambda item: (item.pool.namespace != declared.home, *_age(item)))
        self._rules = _rules(declared.scopes)
        self._sources = declared.sources
        self._served: dict[str, Mapping[str, Served]] = {}
        self._tenants_of: defaultdict[str, list[str]] = defaultdict(list)
        for tenant in declared.tenants:
            self._tenants_of[tenant.namespace].append(tenant.uid)
        self._served_alone: dict[str, Mapping[str, Served]] = {}

    @property
    def refused(self) -> frozenset[str]:
        """UIDs of the tenants whose credentials are refused."""
        return frozenset(uid for uid, tenant in self.tenants.items() if tenant.refused)

    def models(self, tenant_uid: str) -> Mapping[str, Served]:
        """What a tenant may use, by the name that clients send as `model`."""
        tenant = self.tenants.get(tenant_uid)
        if tenant is None:
            return {}
        if tenant_uid in self._probers:
            pool = self._probers[tenant_uid]
            return {pool.spec.model.name: Served(pool)}
        if tenant.namespace not in self._served:
            # Made when it is asked for: every namespace with every pool would be too many.
            self._served[tenant.namespace] = _first_by_name(self._admitting(tenant.namespace))
        found = self._served[tenant.namespace]
        return self._models_alone(tenant, found) if tenant.high else found

    def serving(self, tenant_uid: str, pool: ServingPool) -> tuple[ServingPool, ...]:
        """The pools whose engines may serve a tenant in the place of one, the preferred first.

        While a pool changes its mode both may have engines: they are told apart by what their guards say of themselves. Whoever
        shares with nobody is served by engines of his own alone, where the pool has such.
        """
        own = self._dedicated.get((pool.namespace, pool.uid, tenant_uid), ())
        if pool.uid not in self._templates:
            return (pool, *own)
        return own if self.tenants[tenant_uid].high else (*own, pool)

    def scope(self, tenant_uid: str, pool: ServingPool) -> EffectiveScope:
        """The sharing rule of a tenant on a pool."""
        tenant = self.tenants[tenant_uid]
        found = self._rules.get((tenant.namespace, tenant.name), ()) if pool.namespace == tenant.namespace else ()
        scopes = [item for item in found if _names(item, pool)]
        rule = rule_of(scopes, tenant.name, self._sources)
        if tenant.namespace in self._sealed and tenant_uid not in self._probers:
            return EffectiveScope(replace(rule, scope_class=ScopeClass.REQUEST), pool.uid, 1)
        holding = max(
            (item for item in scopes if item.spec.scope_class is rule.scope_class), key=lambda item: item.uid, default=None
        )
        return EffectiveScope(rule, holding.uid, holding.metadata.generation) if holding else EffectiveScope(rule, pool.uid, 1)

    def _models_alone(self, tenant: KnownTenant, found: Mapping[str, Served]) -> Mapping[str, Served]:
        if tenant.uid not in self._served_alone:
            self._served_alone[tenant.uid] = {name: item for name, item in found.items() if self._alone(tenant, item.pool)}
        return self._served_alone[tenant.uid]

    def _alone(self, tenant: KnownTenant, pool: ServingPool) -> bool:
        """Whether a pool admits no other Tenant than this one, refused and unreadable ones included, or has engines for each."""
        if pool.uid in self._templates:
            return True
        admitted = (uid for name, uids in self._tenants_of.items() if self._admits(pool, name) for uid in uids)
        return list(islice(admitted, 2)) == [tenant.uid]

    def _admits(self, pool: ServingPool, namespace: str) -> bool:
        if pool.namespace == namespace:
            return True
        labels = _labels(pool) if pool.namespace in self._trusted else {}.items()
        return bool(labels) and labels <= self._namespaces.get(namespace, {}).items()

    def _admitting(self, namespace: str) -> Iterator[KnownPool]:
        """Pools that admit a namespace, the ones that come first first."""
        yield from self._local.get(namespace, ())
        labels = self._namespaces.get(namespace, {}).items()
        yield from (item for item in self._open if _labels(item.pool) <= labels)


def _probers(pools: Iterable[KnownPool]) -> Iterator[tuple[str, ServingPool]]:
    """The tenants of the operator's probe, each with its one pool."""
    for item in pools:
        if item.readable and not item.template and item.pool.spec.dedicated_to is None:
            yield from ((uid, item.pool) for uid in tenant_uids(item.pool.uid))


def _prober(uid: str, pool: ServingPool) -> KnownTenant:
    """Such a tenant: without a name, so that no CacheScope names it, and without a claim, so that no credential is its own."""
    return KnownTenant(pool.namespace, "", uid, refused=False, held=())


def _age(item: KnownPool) -> tuple[str, str]:
    """What sorts the oldest first."""
    return item.pool.metadata.creation_timestamp, item.pool.uid


def _first_by_name(pools: Iterable[KnownPool]) -> Mapping[str, Served]:
    found: dict[str, Served] = {}
    for item in pools:
        found.setdefault(item.pool.spec.model.name, Served(item.pool))
        for adapter in item.pool.spec.engine.adapters:
            found.setdefault(adapter.name, Served(item.pool, adapter.name))
    return found


def _labels(pool: ServingPool) -> ItemsView[str, str]:
    """What the labels of another namespace must hold; empty when none is admitted."""
    return (pool.spec.allowed_tenants.namespaces.match_labels or {}).items()


def _rules(scopes: Collection[CacheScope]) -> Mapping[tuple[str, str], list[CacheScope]]:
    """CacheScopes by namespace and name of the tenants that they name."""
    found: defaultdict[tuple[str, str], list[CacheScope]] = defaultdict(list)
    for scope in scopes:
        for tenant in dict.fromkeys(scope.spec.tenants):
            found[scope.namespace, tenant].append(scope)
    return dict(found)


def _names(scope: CacheScope, pool: ServingPool) -> bool:
    made_of = pool.spec.dedicated_to
    return (made_of.pool_name if made_of else pool.name) in scope.spec.pools


def _dedicated(pools: Collection[KnownPool]) -> Mapping[tuple[str, str, str], tuple[ServingPool, ...]]:
    """Pools of single tenants, the oldest first, by namespace, UID of what they were made of, and UID of the tenant.

    There may be several: one that the operator did not make has no engines that prove themselves, and keeps nobody from the others.
    """
    found: defaultdict[tuple[str, str, str], list[ServingPool]] = defaultdict(list)
    for item in sorted(pools, key=_age):
        made_of = item.pool.spec.dedicated_to
        if made_of and item.readable:
            found[item.pool.namespace, made_of.pool_uid, made_of.tenant_uid].append(item.pool)
    return {key: tuple(items) for key, items in found.items()}
