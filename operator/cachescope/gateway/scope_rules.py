"""From CacheScopes to the sharing rule of one tenant on one pool (`core.classes.Rule`).

Rules, where several CacheScopes name the tenant and the pool:

- the narrowest class holds, and the narrowest of what they say of a data class;
- whom one of them lists as an application may send a context: it narrows;
- public is only what every one of them approves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from typing import TypeVar

from cachescope.api.scopes import CacheScope
from cachescope.core.classes import Approved, DataClass, Rule, narrowest
from cachescope.core.public_sources import Source
from cachescope.core.scopes import Credential
from cachescope.core.types import Digest, ScopeClass

T = TypeVar("T")
Sources = Mapping[tuple[str, str], Source]
"""The inventory of public sources, by namespace and name."""


def rule_of(scopes: Sequence[CacheScope], tenant: str, sources: Sources) -> Rule:
    """The rule that some CacheScopes make for a tenant.

    Args:
        scopes: Those that name the tenant and one pool.
        tenant: The tenant's name.
        sources: The inventory.
    """
    if not scopes:
        return Rule()
    return Rule(
        scope_class=narrowest(scope.spec.scope_class for scope in scopes),
        classification=_classification(scopes),
        applications=frozenset().union(*(_applications(scope, tenant) for scope in scopes)),
        approved=_approved(scopes, tenant, sources),
    )


def _classification(scopes: Sequence[CacheScope]) -> Mapping[DataClass, ScopeClass]:
    chosen = [pair for scope in scopes for pair in scope.spec.classification.chosen()]
    return {data: narrowest(said for of, said in chosen if of is data) for data, _ in chosen}


def _applications(scope: CacheScope, tenant: str) -> frozenset[Credential]:
    return frozenset(Credential(item.kind, item.issuer, item.subject) for item in scope.spec.applications if item.tenant == tenant)


def _approved(scopes: Sequence[CacheScope], tenant: str, sources: Sources) -> Approved:
    named = _of_all([scope.spec.public_sources for scope in scopes])
    namespace = scopes[0].namespace
    return Approved(
        applications=_of_all([_applications(scope, tenant) for scope in scopes]),
        sources={name: sources[namespace, name] for name in named if (namespace, name) in sources},
        bundles=frozenset(map(Digest, _of_all([scope.spec.prompt_bundles for scope in scopes]))),
        toolsets=frozenset(map(Digest, _of_all([scope.spec.toolsets for scope in scopes]))),
    )


def _of_all(parts: Sequence[Collection[T]]) -> frozenset[T]:
    return reduce(frozenset.intersection, map(frozenset, parts))
