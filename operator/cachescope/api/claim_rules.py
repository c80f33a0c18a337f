"""Whose claims an installation takes: which Tenants may claim what, by its settings and by the namespaces of both.

Rules:

- a provider's tokens may be claimed where the provider's `namespaces` say, a SPIFFE id where those of its trust domain do;
- a ServiceAccount may be claimed where the installation takes their tokens: by Tenants of its own namespace, and by those of the
  installation's, which belongs to the platform. Otherwise whoever writes Tenants anywhere could be everybody's workload;
- a Secret of API keys is always of the Tenant's own namespace.

The operator refuses a claim by them, and gateways pass over a claim that they refuse, whatever a status says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from cachescope.api.claims import Claim, JwtClaim, Lists, MtlsClaim, ServiceAccountClaim
from cachescope.api.settings import IdentityProvider, Settings, TrustDomain


class Refusal(Enum):
    """Why nobody of a namespace may make a claim."""

    UNKNOWN = "unknown"
    """The settings know no such provider or trust domain, not for this namespace, or no ServiceAccounts."""
    FOREIGN = "foreign"
    """The ServiceAccount is of another namespace."""


@dataclass(frozen=True)
class ClaimRules:
    """The rules of one installation.

    Attributes:
        settings: Its settings.
        home: Its namespace.
    """

    settings: Settings
    home: str

    @cached_property
    def lists(self) -> Lists:
        """The token claims that may have several values, by provider."""
        return self.settings.list_claims

    def refusal(self, claim: Claim, namespace: str) -> Refusal | None:
        """Why a Tenant of a namespace may not make a claim."""
        if isinstance(claim, ServiceAccountClaim):
            return self._of_account(claim, namespace)
        if isinstance(claim, JwtClaim):
            return _within(self._providers.get(claim.provider), namespace)
        if isinstance(claim, MtlsClaim):
            return _within(self._trust_domains.get(claim.spiffe_id.trust_domain), namespace)
        return None

    @cached_property
    def _providers(self) -> Mapping[str, IdentityProvider]:
        return {provider.name: provider for provider in self.settings.identity_providers}

    @cached_property
    def _trust_domains(self) -> Mapping[str, TrustDomain]:
        return {domain.name: domain for domain in self.settings.trust_domains}

    def _of_account(self, claim: ServiceAccountClaim, namespace: str) -> Refusal | None:
        if namespace not in {claim.namespace, self.home}:
            return Refusal.FOREIGN
        return None if self.settings.service_accounts else Refusal.UNKNOWN


def _within(found: IdentityProvider | TrustDomain | None, namespace: str) -> Refusal | None:
    return None if found is not None and found.admits(namespace) else Refusal.UNKNOWN
