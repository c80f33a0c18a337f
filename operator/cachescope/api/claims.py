"""Claims: the identities of a Tenant, each as one text, and which of them are about the same credentials.

Rules:

- a claim has one text, whatever the order in which its fields were written: two equal claims are equal texts;
- a Secret of API keys is claimed by its namespace and name; the namespace is the Tenant's own, so nobody claims another's Secret;
- a workload is claimed by its SPIFFE id, a ServiceAccount by its namespace and name: each is one credential, so two of these claims
  overlap when they are equal. Which namespaces may claim which is left to `claim_rules`;
- a claim of a token has one value, unless the provider's `listClaims` names it; a list of several where one is due matches nobody;
- two claims on tokens overlap when no claim of a token (`aud` is one) tells them apart: one that both ask for, with different
  values, and that has one value in each token. Whom a token speaks for within a tenant (`principalClaim`) separates no tenants.

So of two that do not overlap, never both match one token: operator and gateways use the same functions and settings.

Who of two holds a claim is decided by the operator and recorded in `status.accepted`; gateways read it there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from cachescope.api.tenants import Tenant
from cachescope.core.errors import SpecError
from cachescope.core.spiffe import SpiffeId, read_spiffe_id

API_KEYS = "api-keys:"
JWT = "jwt:"
MTLS = "mtls:"
SERVICE_ACCOUNT = "service-account:"
AUDIENCE = "aud"

Lists = Mapping[str, Collection[str]]
"""Names of the token claims that may have several values, by provider."""


@dataclass(frozen=True)
class ApiKeysClaim:
    """All API keys of one Secret."""

    namespace: str
    secret_name: str

    def __str__(self) -> str:
        """`api-keys:<namespace>/<name>`."""
        return f"{API_KEYS}{self.namespace}/{self.secret_name}"


@dataclass(frozen=True)
class JwtClaim:
    """All tokens of one provider that are for an audience and carry these claims."""

    provider: str
    audience: str
    claims: Mapping[str, str] = field(default_factory=dict)
    principal_claim: str = "sub"

    def __str__(self) -> str:
        """`jwt:` and JSON with sorted names and no blanks. Unlike `core.digests.canonical` it takes names that are not ASCII."""
        fields = {
            "provider": self.provider,
            "audience": self.audience,
            "claims": dict(self.claims),
            "principalClaim": self.principal_claim,
        }
        return JWT + json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def told_apart_by(self, lists: Lists) -> dict[str, str]:
        """What a token must say that says one thing only: values by name."""
        several = lists.get(self.provider, ())
        asked = {**self.claims, AUDIENCE: self.audience}
        return {name: value for name, value in asked.items() if name not in several}

    def overlaps(self, other: JwtClaim, lists: Lists) -> bool:
        """Whether one token could match both."""
        if self.provider != other.provider:
            return False
        theirs = other.told_apart_by(lists)
        return all(theirs.get(name, value) == value for name, value in self.told_apart_by(lists).items())


@dataclass(frozen=True)
class MtlsClaim:
    """All client certificates of one workload."""

    spiffe_id: SpiffeId

    def __str__(self) -> str:
        """`mtls:<SPIFFE id>`."""
        return f"{MTLS}{self.spiffe_id}"


@dataclass(frozen=True)
class ServiceAccountClaim:
    """All tokens of one ServiceAccount of this cluster."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """`service-account:<namespace>/<name>`."""
        return f"{SERVICE_ACCOUNT}{self.namespace}/{self.name}"


Claim = ApiKeysClaim | JwtClaim | MtlsClaim | ServiceAccountClaim


def claims_of(tenant: Tenant) -> tuple[str, ...]:
    """The claims that a Tenant declares, in their order, each once."""
    return tuple(dict.fromkeys(map(str, declared(tenant))))


def declared(tenant: Tenant) -> list[Claim]:
    """The claims that a Tenant declares, as values."""
    identities = tenant.spec.identities
    return [
        *(ApiKeysClaim(tenant.namespace, item.secret_name) for item in identities.api_keys),
        *(JwtClaim(item.provider, item.audience, item.claims, item.principal_claim) for item in identities.jwt),
        *(MtlsClaim(read_spiffe_id(item.spiffe_id)) for item in identities.mtls),
        *(ServiceAccountClaim(item.namespace or tenant.namespace, item.name) for item in identities.service_accounts),
    ]


def values_of(claim: object, *, several: bool) -> Sequence[str]:
    """The values of a token's claim, as JSON has it: the text, or those of a list, which holds one unless there may be several."""
    if isinstance(claim, str):
        return (claim,)
    if not isinstance(claim, list) or (len(claim) > 1 and not several):
        return ()
    return [item for item in claim if isinstance(item, str)]


def overlaps(left: str, right: str, lists: Lists) -> bool:
    """Whether one credential could match both claims.

    Args:
        left: A claim.
        right: Another.
        lists: What may have several values.

    Raises:
        SpecError: A text is no claim.
    """
    one, other = read_claim(left), read_claim(right)
    if isinstance(one, JwtClaim) and isinstance(other, JwtClaim):
        return one.overlaps(other, lists)
    return one == other


def read_claim(text: str) -> Claim:
    """Read a claim from its text.

    Raises:
        SpecError: It is of no form that is known here.
    """
    try:
        if text.startswith(API_KEYS):
            return ApiKeysClaim(*_names(text.removeprefix(API_KEYS)))
        if text.startswith(JWT):
            return _jwt(json.loads(text.removeprefix(JWT)))
        if text.startswith(MTLS):
            return MtlsClaim(read_spiffe_id(text.removeprefix(MTLS)))
        if text.startswith(SERVICE_ACCOUNT):
            return ServiceAccountClaim(*_names(text.removeprefix(SERVICE_ACCOUNT)))
    except (SpecError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SpecError(f"the claim {text!r} cannot be read ({error!r}); update the older of operator and gateway") from error
    raise SpecError(f"the claim {text!r} is of a kind that is not known here; update the older of operator and gateway")


def _names(text: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise ValueError("the namespace and the name of an object are needed")
    return namespace, name


def _jwt(fields: dict[str, object]) -> JwtClaim:
    provider, audience, principal, claims = (fields[name] for name in ("provider", "audience", "principalClaim", "claims"))
    if len(fields) != 4 or not isinstance(claims, dict):
        raise ValueError("four fields are known, of which `claims` is an object")
    texts = [provider, audience, principal, *claims.values()]
    if not all(isinstance(value, str) for value in texts):
        raise TypeError("all values are texts")
    return JwtClaim(str(provider), str(audience), claims, str(principal))
