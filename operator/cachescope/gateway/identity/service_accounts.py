"""Tokens of this cluster's ServiceAccounts: whose they are.

Rules:

- a token whose `iss` is the cluster's own issuer is a ServiceAccount's and nothing else, so a configured provider of that issuer
  gets none of them; while the issuer is not known, nobody can say whose a token is that speaks for a ServiceAccount;
- it is for the installation's audience alone: one that others take too could be sent on by them;
- `sub` names a ServiceAccount in the one way in which the API server writes it;
- it is verified as every token, offline, by the API server's own keys: it is good until it ends, also when its ServiceAccount or
  the pod that it is bound to is gone. To ask the API server about each token (TokenReview) would take a right on the whole
  cluster, a question within each request, and an API server that always answers.

Source: Kubernetes, "Managing Service Accounts"; KEP-1393 (discovery of the issuer).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cachescope.api.claims import AUDIENCE, values_of
from cachescope.api.settings import SERVICE_ACCOUNTS_PROVIDER, ServiceAccounts
from cachescope.core.errors import SpecError
from cachescope.core.scopes import SERVICE_ACCOUNT, Credential
from cachescope.core.service_accounts import PREFIX, ServiceAccount, read_subject
from cachescope.gateway.identity.credentials import Forbidden, Identity, KeysUnavailable, Unauthenticated
from cachescope.gateway.identity.jwks import KeySet
from cachescope.gateway.identity.jwt_tokens import Provider
from cachescope.gateway.strict_json import Json


class ClusterKeys(KeySet, Protocol):
    """The keys of the cluster's own issuer."""

    @property
    def issuer(self) -> str | None:
        """The `iss` of its tokens; `None` before it was read."""


@dataclass(frozen=True)
class ServiceAccountTokens:
    """Implements `Door` for one state of settings and tenants.

    Attributes:
        settings: What the installation takes.
        keys: The cluster's keys.
        holders: UIDs of tenants by the ServiceAccount that they hold.
    """

    settings: ServiceAccounts
    keys: ClusterKeys
    holders: Mapping[ServiceAccount, str] = field(default_factory=dict)

    def takes(self, claims: Mapping[str, Json]) -> bool:
        """Whether a token is one of a ServiceAccount, or nobody can say yet."""
        subject = claims.get("sub")
        if self.keys.issuer is None:
            return isinstance(subject, str) and subject.startswith(PREFIX)
        return claims.get("iss") == self.keys.issuer

    def provider(self) -> Provider:
        """The issuer as it is now.

        Raises:
            KeysUnavailable: It was never read.
        """
        if self.keys.issuer is None:
            raise KeysUnavailable("the cluster's issuer of tokens is not known yet; try again later")
        algorithms, leeway = self.settings.algorithms, self.settings.leeway_seconds
        return Provider(SERVICE_ACCOUNTS_PROVIDER, self.keys.issuer, algorithms, self.keys, leeway)

    def identity(self, claims: Mapping[str, Json], issued_at: int | None) -> Identity:
        """Whose verified token it is.

        Raises:
            Unauthenticated: It is for another audience, or speaks for no ServiceAccount.
            Forbidden: No tenant holds the ServiceAccount.
        """
        if self.settings.audience not in values_of(claims.get(AUDIENCE), several=False):
            raise Unauthenticated("the token is not for this service alone; request one with its audience and no other")
        subject = claims.get("sub")
        try:
            account = read_subject(subject if isinstance(subject, str) else "")
        except SpecError:
            raise Unauthenticated("the token speaks for no ServiceAccount; send one that the API server issued") from None
        tenant_uid = self.holders.get(account)
        if tenant_uid is None:
            raise Forbidden("the ServiceAccount belongs to no tenant; ask the platform team to add it to a Tenant")
        return Identity(tenant_uid, Credential(SERVICE_ACCOUNT, "", account.subject), issued_at)
