"""CacheScopes: whether what they name exists. A name that does not is nobody else's fault; the rule holds for the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cachescope.api.conditions import ConditionType, Reason
from cachescope.api.scopes import CacheScope
from cachescope.controller.installation import Installation
from cachescope.controller.store import Key
from cachescope.controller.verdicts import Verdict, accepted_spec, report

_NAMED = 5


@dataclass(frozen=True)
class Scopes:
    """Reconciles scopes.

    Attributes:
        site: The installation.
    """

    site: Installation

    async def reconcile(self, key: Key, _failures: int) -> None:
        """Say whether a scope applies.

        Raises:
            ClusterError: It could not be written; try again later.
        """
        document = self.site.store.get(*key)
        if document is None or "deletionTimestamp" in document["metadata"]:
            return
        scope = await accepted_spec(self.site.rest, CacheScope, document)
        if scope is None:
            return
        missing = [*self._missing("ServingPool", scope.namespace, scope.spec.pools)]
        missing += self._missing("Tenant", scope.namespace, scope.spec.tenants)
        await report(self.site.rest, document, {"effectiveClass": scope.spec.scope_class.value}, [_accepted(missing)])

    def _missing(self, kind: str, namespace: str, names: Iterable[str]) -> list[str]:
        return [f"{kind} {name!r}" for name in dict.fromkeys(names) if self.site.store.get(kind, namespace, name) is None]


def _accepted(missing: list[str]) -> Verdict:
    if not missing:
        return Verdict(ConditionType.ACCEPTED, "True", Reason.ACCEPTED)
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    what = ", ".join(missing[:_NAMED]) + more
    message = f"not in this namespace: {what}; the rule holds for the others: create them, or correct the names"
    return Verdict(ConditionType.ACCEPTED, "False", Reason.REFERENCE_NOT_FOUND, message)
