"""Policy: resources compiled into what a request needs to know, once for each change.

Rules:

- every request has exactly one scope: of the CacheScopes that name its pool and its tenant the narrowest applies, and without one
  the default, class `Tenant`;
- two objects that claim the same thing (a UID, a model name, an API key id) are an error of the configuration, never a choice;
- a CacheScope that names something unknown is an error: silently ignoring it could widen a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cachescope.api.resources import CacheScope, ServingPool, Tenant
from cachescope.core.errors import SpecError
from cachescope.core.types import ScopeClass

T = TypeVar("T")


@dataclass(frozen=True)
class EffectiveScope:
    """The sharing rule of one tenant on one pool.

    Attributes:
        scope_class: The class.
        uid: UID of the CacheScope; of the pool where the default applies.
        policy_revision: Revision of this rule alone.
    """

    scope_class: ScopeClass
    uid: str
    policy_revision: int


@dataclass(frozen=True)
class Policy:
    """Everything declared, indexed for requests.

    Attributes:
        pools: Pools by the model name that clients send.
        tenants: Tenants by UID.
        scopes: Effective scopes by tenant UID and pool UID, where a CacheScope applies.
    """

    pools: Mapping[str, ServingPool]
    tenants: Mapping[str, Tenant]
    scopes: Mapping[tuple[str, str], EffectiveScope]

    def scope(self, tenant_uid: str, pool: ServingPool) -> EffectiveScope:
        """The sharing rule of a tenant on a pool."""
        default = EffectiveScope(ScopeClass.TENANT, pool.uid, 1)
        return self.scopes.get((tenant_uid, pool.uid), default)

    @property
    def suspended(self) -> frozenset[str]:
        """UIDs of the tenants that are refused."""
        return frozenset(uid for uid, tenant in self.tenants.items() if tenant.spec.suspended)


def compile_policy(pools: Sequence[ServingPool], tenants: Sequence[Tenant], scopes: Sequence[CacheScope]) -> Policy:
    """Compile resources.

    Raises:
        SpecError: Two objects claim the same, or a reference names nothing.
    """
    _unique([*pools, *tenants, *scopes], lambda item: item.uid, "UID")
    by_name = _unique(pools, lambda pool: pool.name, "pool name")
    tenant_names = _unique(tenants, lambda tenant: tenant.name, "tenant name")
    return Policy(
        pools=_unique(pools, lambda pool: pool.spec.model.name, "model name"),
        tenants={tenant.uid: tenant for tenant in tenants},
        scopes=_effective(scopes, by_name, tenant_names),
    )


def _effective(
    scopes: Sequence[CacheScope], pools: Mapping[str, ServingPool], tenants: Mapping[str, Tenant]
) -> dict[tuple[str, str], EffectiveScope]:
    effective: dict[tuple[str, str], EffectiveScope] = {}
    for scope in sorted(scopes, key=lambda item: (item.spec.scope_class.width, item.uid)):
        rule = EffectiveScope(scope.spec.scope_class, scope.uid, scope.spec.policy_revision)
        for pool in scope.spec.pools:
            for tenant in scope.spec.tenants:
                pair = (_known(tenants, tenant, scope, "tenant").uid, _known(pools, pool, scope, "pool").uid)
                effective[pair] = rule
    return effective


def _known(items: Mapping[str, T], name: str, scope: CacheScope, what: str) -> T:
    if name not in items:
        raise SpecError(f"CacheScope {scope.name!r} names the {what} {name!r}, which does not exist; create it or remove the name")
    return items[name]


def _unique(items: Iterable[T], key: Callable[[T], str], what: str) -> dict[str, T]:
    found: dict[str, T] = {}
    for item in items:
        if key(item) in found:
            raise SpecError(f"two objects have the {what} {key(item)!r}; give one of them another")
        found[key(item)] = item
    return found
