"""From the claims that tenants hold to the credentials that are known: tokens by claim, API keys by the Secrets that hold them.

The order is that in which claims were accepted, so that of several that match one credential the first decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from cachescope.api.claims import ApiKeysClaim, JwtClaim
from cachescope.api.settings import IdentityProvider
from cachescope.gateway.identity.api_keys import ApiKeyEntry
from cachescope.gateway.identity.claimants import JwtIdentity
from cachescope.gateway.readings import Held, KeyEntry, KnownTenant

Secrets = Mapping[tuple[str, str], Iterable[KeyEntry]]
"""API keys by namespace and name of the Secret that holds them."""


class Holding(NamedTuple):
    """A claim and the tenant that holds it."""

    held: Held
    tenant_uid: str
    namespace: str


def in_order(tenants: Iterable[KnownTenant]) -> list[Holding]:
    """All claims that tenants hold, the earliest first."""
    holdings = [Holding(held, tenant.uid, tenant.namespace) for tenant in tenants for held in tenant.held]
    return sorted(holdings, key=lambda holding: (holding.held.since, holding.tenant_uid))


def jwt_identities(
    holdings: Iterable[Holding], providers: Iterable[IdentityProvider], compartments: Mapping[str, str] = MappingProxyType({})
) -> list[JwtIdentity]:
    """Whose tokens are whose; a claim is worth nothing where its provider is not for the tenant's namespace.

    Args:
        holdings: Claims in the order in which they were accepted.
        providers: The installation's providers.
        compartments: The claim that lists compartments, by UID of the tenant.
    """
    known, found = {provider.name: provider for provider in providers}, []
    for item in holdings:
        it = item.held.claim
        if isinstance(it, JwtClaim) and _meaningful(it) and it.provider in known and known[it.provider].admits(item.namespace):
            lists = compartments.get(item.tenant_uid, "")
            found.append(JwtIdentity(item.tenant_uid, it.provider, it.audience, it.claims, it.principal_claim, lists))
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
