"""From the claims that tenants hold to the credentials that are known.

Tokens are known by claim, API keys by the Secrets that hold them, workloads and ServiceAccounts by their names.

The order is that in which claims were accepted, so that of several that match one credential the first decides. A claim that the
installation does not take from that namespace is worth nothing, whatever a status says (`api.claim_rules`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from cachescope.api.claim_rules import ClaimRules
from cachescope.api.claims import ApiKeysClaim, JwtClaim, MtlsClaim, ServiceAccountClaim
from cachescope.core.service_accounts import ServiceAccount
from cachescope.core.spiffe import SpiffeId
from cachescope.gateway.identity.api_keys import ApiKeyEntry
from cachescope.gateway.identity.claimants import JwtIdentity
from cachescope.gateway.readings import Held, KeyEntry, KnownTenant

Secrets = Mapping[tuple[str, str], Iterable[KeyEntry]]
"""API keys by namespace and name of the Secret that holds them."""


class Holding(NamedTuple):
    """A claim and the tenant that holds it."""

    held: Held
    tenant_uid: str


def in_order(tenants: Iterable[KnownTenant], rules: ClaimRules) -> list[Holding]:
    """All claims that tenants hold and may hold, the earliest first."""
    holdings = [
        Holding(held, tenant.uid)
        for tenant in tenants
        for held in tenant.held
        if rules.refusal(held.claim, tenant.namespace) is None
    ]
    return sorted(holdings, key=lambda holding: (holding.held.since, holding.tenant_uid))


def jwt_identities(holdings: Iterable[Holding], compartments: Mapping[str, str] = MappingProxyType({})) -> list[JwtIdentity]:
    """Whose tokens are whose.

    Args:
        holdings: Claims in the order in which they were accepted.
        compartments: The claim that lists compartments, by UID of the tenant.
    """
    found = []
    for item in holdings:
        it = item.held.claim
        if isinstance(it, JwtClaim) and _meaningful(it):
            lists = compartments.get(item.tenant_uid, "")
            found.append(JwtIdentity(item.tenant_uid, it.provider, it.audience, it.claims, it.principal_claim, lists))
    return found


def workloads(holdings: Iterable[Holding]) -> dict[SpiffeId, str]:
    """UIDs of tenants by the workload that they hold."""
    found: dict[SpiffeId, str] = {}
    for item in holdings:
        if isinstance(item.held.claim, MtlsClaim):
            found.setdefault(item.held.claim.spiffe_id, item.tenant_uid)
    return found


def accounts(holdings: Iterable[Holding]) -> dict[ServiceAccount, str]:
    """UIDs of tenants by the ServiceAccount that they hold."""
    found: dict[ServiceAccount, str] = {}
    for item in holdings:
        if isinstance(item.held.claim, ServiceAccountClaim):
            found.setdefault(ServiceAccount(item.held.claim.namespace, item.held.claim.name), item.tenant_uid)
    return found


def api_keys(holdings: Iterable[Holding], secrets: Secrets) -> dict[str, list[ApiKeyEntry]]:
    """The entries of all API keys by key id. A Secret that is not there yet holds no keys."""
    found: defaultdict[str, list[ApiKeyEntry]] = defaultdict(list)
    for item in holdings:
        claim = item.held.claim
        if isinstance(claim, ApiKeysClaim):
            bound_to = f"{claim.namespace}/{claim.secret_name}"
            for key in secrets.get((claim.namespace, claim.secret_name), ()):
                found[key.key_id].append(ApiKeyEntry(key.hash, item.tenant_uid, key.principal, bound_to, key.created))
    return dict(found)


def _meaningful(claim: JwtClaim) -> bool:
    """Whether a claim asks for an audience at all; one that does not would match nobody in particular."""
    return bool(claim.provider and claim.audience and claim.principal_claim)
