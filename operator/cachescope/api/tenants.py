"""`Tenant`: a party whose cache nobody else may observe. Field descriptions are the specification."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, StringConstraints, field_validator
from pydantic.config import JsonDict

from cachescope.api.documents import NAMESPACE_NAME, OBJECT_NAME, Resource, Strict
from cachescope.api.epochs import PrincipalName
from cachescope.api.statuses import TenantStatus
from cachescope.core.scopes import API_KEY, JWT, MTLS, SERVICE_ACCOUNT
from cachescope.core.service_accounts import PATTERN as ACCOUNT
from cachescope.core.spiffe import MAX_BYTES, PATTERN

MOST_OF_A_NAME = 128
ClaimValue = Annotated[str, StringConstraints(max_length=512)]


class ApiKeysIdentity(Strict):
    """API keys of a tenant."""

    secret_name: str = Field(
        pattern=OBJECT_NAME,
        description='A Secret of this namespace with hashes of keys, labelled `cachescope.dev/api-keys: "true"`; '
        "`cachescope keys create` makes one.",
    )


class JwtClaimsIdentity(Strict):
    """Tokens of one provider that belong to this tenant."""

    provider: str = Field(min_length=1, max_length=63, description="Name of an identity provider of the installation.")
    audience: str = Field(min_length=1, max_length=512, description="What `aud` must be.")
    claims: dict[str, ClaimValue] = Field(
        {},
        max_length=16,
        description="Claims that must be equal; those that the provider's `listClaims` names must contain the value.",
    )
    principal_claim: str = Field("sub", min_length=1, max_length=128, description="The claim that names whom a token speaks for.")

    @field_validator("claims")
    @classmethod
    def _short_names(cls, claims: dict[str, str]) -> dict[str, str]:
        if any(len(name) > MOST_OF_A_NAME for name in claims):
            raise ValueError(f"the name of a claim has at most {MOST_OF_A_NAME} characters")
        return claims


class MtlsIdentity(Strict):
    """A workload with a certificate of its own."""

    spiffe_id: str = Field(
        pattern=f"^{PATTERN}$",
        max_length=MAX_BYTES,
        description="The one URI in its certificate, exactly; its trust domain is one of the installation's.",
    )


class ServiceAccountIdentity(Strict):
    """A ServiceAccount of this cluster."""

    name: str = Field(pattern=OBJECT_NAME, max_length=253, description="Name of the ServiceAccount.")
    namespace: str | None = Field(
        None,
        pattern=NAMESPACE_NAME,
        max_length=63,
        description="Its namespace; this one without it. Another one is allowed to Tenants of the installation's namespace alone.",
    )


class Identities(Strict):
    """By which credentials a tenant is recognised."""

    api_keys: tuple[ApiKeysIdentity, ...] = Field((), max_length=64, description="API keys, by the Secret with their hashes.")
    jwt: tuple[JwtClaimsIdentity, ...] = Field((), max_length=64, description="Tokens, by provider and claims.")
    mtls: tuple[MtlsIdentity, ...] = Field((), max_length=64, description="Client certificates, by SPIFFE id.")
    service_accounts: tuple[ServiceAccountIdentity, ...] = Field(
        (), max_length=64, description="ServiceAccounts, by their tokens for the installation's audience."
    )


def _subject_of(pattern: str, others: list[str]) -> JsonDict:
    """A subject is of a pattern, unless its kind is one of the others. Of two that do not fit the API server names the first."""
    return {"anyOf": [{"properties": {"subject": {"pattern": f"^{pattern}$"}}}, {"properties": {"kind": {"enum": [*others]}}}]}


class AuthorizedPrincipal(PrincipalName):
    """Whom a credential speaks for."""

    # By patterns, and not by a rule as elsewhere: CEL counts all that there may be, and these would cost too much.
    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [
                _subject_of(PATTERN, [API_KEY, JWT, SERVICE_ACCOUNT]),
                _subject_of(ACCOUNT, [API_KEY, JWT, MTLS]),
            ]
        }
    )


class CompartmentMembers(Strict):
    """Who is authorized for one compartment."""

    name: str = Field(min_length=1, max_length=253, description="Its name, as clients send it in `x-cachescope-compartment`.")
    principals: tuple[AuthorizedPrincipal, ...] = Field(max_length=256, description="Whose credentials are authorized for it.")


class Compartments(Strict):
    """Matters within the tenant, and who is authorized for which. A compartment that a client merely names is refused."""

    claim: str = Field(
        "",
        max_length=MOST_OF_A_NAME,
        description="The claim of its tokens that lists the compartments a token is authorized for: one text or a list of texts, "
        "each of at most 253 characters. Anything else authorizes for none.",
    )
    members: tuple[CompartmentMembers, ...] = Field(
        (), max_length=256, description="Compartments, with the principals that are authorized beside those whose token says so."
    )


class TenantSpec(Strict):
    """Who the tenant is."""

    identities: Identities = Identities()
    compartments: Compartments = Compartments()
    sensitivity: Literal["Standard", "High"] = Field(
        "Standard",
        description="`High`: served only by pools that admit no other Tenant, never public, and refused rather than decided by a "
        "gateway that lost its right.",
    )
    suspended: bool = Field(False, description="All requests of the tenant are refused.")


class Tenant(Resource):
    """A party whose cache nobody else may observe."""

    KIND: ClassVar[str] = "Tenant"
    PLURAL: ClassVar[str] = "tenants"

    kind: Literal["Tenant"] = "Tenant"
    spec: TenantSpec
    status: TenantStatus | None = None
