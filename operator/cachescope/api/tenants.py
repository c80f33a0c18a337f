"""`Tenant`: a party whose cache nobody else may observe. Field descriptions are the specification."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from cachescope.api.documents import OBJECT_NAME, Resource, Strict
from cachescope.api.statuses import TenantStatus


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
    audience: str = Field(min_length=1, max_length=512, description="What `aud` must be, or contain.")
    claims: dict[str, str] = Field({}, max_length=16, description="Claims that must be equal (or, for lists, contain the value).")
    principal_claim: str = Field("sub", min_length=1, max_length=128, description="The claim that names whom a token speaks for.")


class Identities(Strict):
    """By which credentials a tenant is recognised."""

    api_keys: tuple[ApiKeysIdentity, ...] = Field((), max_length=64, description="API keys, by the Secret with their hashes.")
    jwt: tuple[JwtClaimsIdentity, ...] = Field((), max_length=64, description="Tokens, by provider and claims.")


class TenantSpec(Strict):
    """Who the tenant is."""

    identities: Identities = Identities()
    suspended: bool = Field(False, description="All requests of the tenant are refused.")


class Tenant(Resource):
    """A party whose cache nobody else may observe."""

    KIND: ClassVar[str] = "Tenant"
    PLURAL: ClassVar[str] = "tenants"

    kind: Literal["Tenant"] = "Tenant"
    spec: TenantSpec
    status: TenantStatus | None = None
