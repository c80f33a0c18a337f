"""Claims: the identities of a Tenant, each as one text, and which of them are about the same credentials.

Rules:

- a claim has one text, whatever the order in which its fields were written: two equal claims are equal texts;
- a Secret of API keys is claimed by its namespace and name; the namespace is the Tenant's own, so nobody claims another's Secret;
- two claims on tokens overlap when provider and audience are equal and no claim name has different values in both: one token could
  then match both. Whom a token speaks for within a tenant (`principalClaim`) separates no tenants.

Who of two holds a claim is decided by the operator and recorded in `status.accepted`; gateways read it there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from cachescope.api.tenants import Tenant
from cachescope.core.errors import SpecError

API_KEYS = "api-keys:"
JWT = "jwt:"


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

    def overlaps(self, other: JwtClaim) -> bool:
        """Whether one token could match both."""
        if (self.provider, self.audience) != (other.provider, other.audience):
            return False
        return all(other.claims.get(name, value) == value for name, value in self.claims.items())


Claim = ApiKeysClaim | JwtClaim


def claims_of(tenant: Tenant) -> tuple[str, ...]:
    """The claims that a Tenant declares, in their order, each once."""
    return tuple(dict.fromkeys(map(str, declared(tenant))))


def declared(tenant: Tenant) -> list[Claim]:
    """The claims that a Tenant declares, as values."""
    identities = tenant.spec.identities
    keys: list[Claim] = [ApiKeysClaim(tenant.namespace, item.secret_name) for item in identities.api_keys]
    return keys + [JwtClaim(item.provider, item.audience, item.claims, item.principal_claim) for item in identities.jwt]


def overlaps(left: str, right: str) -> bool:
    """Whether one credential could match both claims.

    Raises:
        SpecError: A text is no claim.
    """
    one, other = read_claim(left), read_claim(right)
    if isinstance(one, JwtClaim) and isinstance(other, JwtClaim):
        return one.overlaps(other)
    return one == other


def read_claim(text: str) -> Claim:
    """Read a claim from its text.

    Raises:
        SpecError: It is of no form that is known here.
    """
    try:
        if text.startswith(API_KEYS):
            return _api_keys(text.removeprefix(API_KEYS))
        if text.startswith(JWT):
            return _jwt(json.loads(text.removeprefix(JWT)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpecError(f"the claim {text!r} cannot be read ({error!r}); update the older of operator and gateway") from error
    raise SpecError(f"the claim {text!r} is of a kind that is not known here; update the older of operator and gateway")


def _api_keys(text: str) -> ApiKeysClaim:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise ValueError("namespace and name of a Secret are needed")
    return ApiKeysClaim(namespace, name)


def _jwt(fields: dict[str, object]) -> JwtClaim:
    provider, audience, principal, claims = (fields[name] for name in ("provider", "audience", "principalClaim", "claims"))
    if len(fields) != 4 or not isinstance(claims, dict):
        raise ValueError("four fields are known, of which `claims` is an object")
    texts = [provider, audience, principal, *claims.values()]
    if not all(isinstance(value, str) for value in texts):
        raise TypeError("all values are texts")
    return JwtClaim(str(provider), str(audience), claims, str(principal))
