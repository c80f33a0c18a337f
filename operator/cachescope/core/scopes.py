"""Subjects and namespaces: whom a scope separates, and the keyed hash that stands for it.

Rules:

- every request has exactly one class and one subject;
- UIDs separate, names never do: a tenant that is deleted and made anew is another tenant;
- the namespace is HMAC-SHA-256 over the framed subject with a server-side key, so that nobody can compute or compare it;
- a class is narrowed by policy, never widened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cachescope.core.errors import SpecError
from cachescope.core.frames import Field
from cachescope.core.keys import Key
from cachescope.core.types import Digest, Namespace, ScopeClass

API_KEY: Final = "api-key"
JWT: Final = "jwt"
MTLS: Final = "mtls"
SERVICE_ACCOUNT: Final = "service-account"
CREDENTIAL_KINDS: Final = (API_KEY, JWT, MTLS, SERVICE_ACCOUNT)


@dataclass(frozen=True)
class Credential:
    """Who a verified credential speaks for.

    Attributes:
        kind: How it was verified: one of `CREDENTIAL_KINDS`.
        issuer: Who vouches for it: the JWT's `iss`. Empty for the others: of API keys it is the tenant, a SPIFFE id names its own,
            and of ServiceAccounts it is this cluster, whatever name its issuer has at the time.
        subject: The stable name of the principal: the JWT's principal claim, the API key's principal, the SPIFFE id, or the
            ServiceAccount as its tokens name it (`system:serviceaccount:<namespace>:<name>`).
    """

    kind: str
    issuer: str
    subject: str


@dataclass(frozen=True)
class Subject:
    """Whom the scope of one request separates from everybody else.

    Attributes:
        scope_class: The effective class.
        scope_uid: UID of the CacheScope, or of the pool where the default scope applies.
        tenant_uid: UID of the Tenant; empty only for `Public`.
        compartment: Name of the authorized compartment; for `Compartment` and, where one applies, narrower classes.
        credential: Who asks; for `Principal` and `Request`.
        sources: Sorted digests of the approved sources; for `Public` alone.
    """

    scope_class: ScopeClass
    scope_uid: str
    tenant_uid: str = ""
    compartment: str | None = None
    credential: Credential | None = None
    sources: tuple[Digest, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a subject that does not separate what its class promises."""
        problem = _problem(self)
        if problem:
            raise SpecError(f"a subject of class {self.scope_class.value} {problem}")

    def fields(self) -> tuple[Field, ...]:
        """Everything that separates this subject, in a fixed order."""
        who = (self.credential.kind, self.credential.issuer, self.credential.subject) if self.credential else None
        return (self.scope_class.value, self.scope_uid, self.tenant_uid, self.compartment, who, list(self.sources))


def namespace(key: Key, subject: Subject) -> Namespace:
    """The namespace of a subject.

    Args:
        key: The namespace key; server-side only.
        subject: Whom the scope separates.

    Returns:
        64 hexadecimal digits that reveal nothing without the key.
    """
    return Namespace(key.mac("cachescope/namespace/v1", subject.fields()).hex())


def _problem(subject: Subject) -> str | None:
    if not subject.scope_uid:
        return "needs the UID of its CacheScope"
    if subject.scope_class is ScopeClass.PUBLIC:
        private = subject.tenant_uid or subject.compartment or subject.credential
        return "must name approved sources and nobody" if private or not subject.sources else None
    if subject.sources:
        return "must not name public sources"
    if not subject.tenant_uid:
        return "needs a tenant UID"
    return _missing_part(subject)


def _missing_part(subject: Subject) -> str | None:
    if subject.scope_class is ScopeClass.TENANT and (subject.compartment or subject.credential):
        return "must not carry a compartment or a principal"
    if subject.scope_class is ScopeClass.COMPARTMENT and (not subject.compartment or subject.credential):
        return "needs a compartment and no principal"
    if subject.scope_class in {ScopeClass.PRINCIPAL, ScopeClass.REQUEST} and not subject.credential:
        return "needs the principal of a verified credential"
    return None
