"""Denials that name a Tenant and are not fenced for it as it is now: one that was made anew is another target.

Until they are, it holds no identity. Otherwise a revoked tenant that was deleted and made again would be served until the ledgers
know its new UID, and every process has heard of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from cachescope.controller.declared_epochs import Declared, ledgers_of, of_people
from cachescope.controller.fences import Fences
from cachescope.controller.outcomes import Outcomes
from cachescope.controller.store import Key, Store
from cachescope.core.keys import Key as SecretKey


def unfenced_denials(
    store: Store, targets: SecretKey, rulers: Sequence[str], *, tenant: Key, outcomes: Outcomes, fences: Fences
) -> list[str]:
    """Names of the CacheEpochs that refuse credentials of a Tenant, and are not fenced for it yet.

    Args:
        store: Objects as last seen.
        targets: The key that names targets.
        rulers: Namespaces whose authorization ledgers hold for the tenants of all.
        tenant: The Tenant.
        outcomes: What ledgers made of CacheEpochs.
        fences: Which states are fenced.
    """
    declared = (item for item in of_people(store, targets, [tenant.namespace]) if _denies(item, tenant.name))
    return [
        item.key.name
        for item in declared
        if not all(_fenced(item, name, outcomes, fences) for name in ledgers_of(store, rulers, item.key, item.epoch))
    ]


def _denies(item: Declared, tenant: str) -> bool:
    spec = item.epoch.spec
    return spec.target.name == tenant and (spec.deny or spec.credentials_issued_before is not None)


def _fenced(item: Declared, ledger: str, outcomes: Outcomes, fences: Fences) -> bool:
    outcome = outcomes.of(item.key).get(ledger)
    if outcome is None or outcome.version != item.version or outcome.lineage is None or not outcome.sequence:
        return False
    fence = fences.of(ledger, outcome.lineage, outcome.sequence)
    return fence is not None and fence.fenced_ms is not None
