"""CacheScopes: whether what they name exists, and which class they come to now.

A name of something that does not exist is nobody else's fault; the rule holds for the others. Gateways wait for none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from cachescope.api.conditions import ConditionType, Reason
from cachescope.api.documents import parse
from cachescope.api.public_sources import PublicSource
from cachescope.api.scopes import CacheScope
from cachescope.controller.installation import Installation
from cachescope.controller.origins import named_by, template_uid
from cachescope.controller.store import Key
from cachescope.controller.verdicts import Verdict, accepted_spec, report
from cachescope.core.errors import SpecError
from cachescope.core.public_sources import Usability
from cachescope.core.types import ScopeClass

_NAMED = 5


@dataclass(frozen=True)
class Scopes:
    """Reconciles scopes.

    Attributes:
        site: The installation.
        now: Seconds since 1970.
    """

    site: Installation
    now: Callable[[], float]

    async def reconcile(self, key: Key, _failures: int) -> None:
        """Say whether a scope applies.

        Raises:
            ClusterError: It could not be written; try again later.
        """
        document = self.site.store.staying(key)
        if document is None:
            return
        scope = await accepted_spec(self.site.rest, CacheScope, document)
        if scope is None:
            return
        missing, lacking = self._all_missing(scope), self._lacking(scope)
        effective = ScopeClass.TENANT if lacking else scope.spec.scope_class
        await report(self.site.rest, document, {"effectiveClass": effective.value}, [_accepted(missing, lacking)])

    def _all_missing(self, scope: CacheScope) -> list[str]:
        spec = scope.spec
        strangers = sorted({item.tenant for item in spec.applications} - set(spec.tenants))
        return [
            *self._missing("ServingPool", scope.namespace, spec.pools),
            *self._of_one_tenant(scope.namespace, spec.pools),
            *self._missing("Tenant", scope.namespace, spec.tenants),
            *self._missing("PublicSource", scope.namespace, spec.public_sources),
            *(f"Tenant {name!r} of an application, which must be one of spec.tenants" for name in strangers),
        ]

    def _missing(self, kind: str, namespace: str, names: Iterable[str]) -> list[str]:
        return [f"{kind} {name!r}" for name in dict.fromkeys(names) if self.site.store.get(kind, namespace, name) is None]

    def _of_one_tenant(self, namespace: str, names: Iterable[str]) -> Iterator[str]:
        """Pools that were made of others for one tenant: a rule for those holds for them, and one that names them for nothing."""
        for name in dict.fromkeys(names):
            pool = self.site.store.get("ServingPool", namespace, name)
            if pool is not None and template_uid(pool):
                yield f"ServingPool {name!r}, which is of one tenant (name {named_by(pool)!r}, that it was made of)"

    def _lacking(self, scope: CacheScope) -> str:
        """What a scope of class `Public` lacks for anything to be public now; empty when there can be."""
        if scope.spec.scope_class is not ScopeClass.PUBLIC:
            return ""
        if not any(self._shares_publicly(scope.namespace, name) for name in scope.spec.pools):
            return "none of its pools is shared by its tenants at stage Public, or an incident stopped public sharing there"
        return "" if any(self._usable(scope)) else "none of its publicSources is usable now"

    def _shares_publicly(self, namespace: str, name: str) -> bool:
        pool = self.site.store.get("ServingPool", namespace, name) or {}
        stage = ((pool.get("spec") or {}).get("sharing") or {}).get("stage")
        status = pool.get("status") or {}
        return stage == "Public" and not status.get("publicStopped") and status.get("mode", "Shared") == "Shared"

    def _usable(self, scope: CacheScope) -> Iterator[bool]:
        for name in scope.spec.public_sources:
            document = self.site.store.get("PublicSource", scope.namespace, name)
            try:
                source = parse(PublicSource, document, name).source() if document else None
            except SpecError:
                source = None
            yield source is not None and source.usability(self.now()) is Usability.APPROVED


def _accepted(missing: list[str], lacking: str) -> Verdict:
    if missing:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        what = ", ".join(missing[:_NAMED]) + more
        message = f"not in this namespace: {what}; the rule holds for the others: create them, or correct the names"
        return Verdict(ConditionType.ACCEPTED, "False", Reason.REFERENCE_NOT_FOUND, message)
    if lacking:
        return Verdict(ConditionType.ACCEPTED, "True", Reason.NOTHING_PUBLIC, f"{lacking}; until then it is of class Tenant")
    return Verdict(ConditionType.ACCEPTED, "True", Reason.ACCEPTED)
