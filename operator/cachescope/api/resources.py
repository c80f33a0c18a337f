"""The resources that people write. Field descriptions are the specification."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from cachescope.api.documents import DNS_LABEL, OBJECT_NAME, Metadata, Resource, Strict
from cachescope.core.types import ScopeClass


class Model(Strict):
    """The model that a pool serves."""

    name: str = Field(min_length=1, max_length=128, description="Name that clients send as `model`.")
    path: str = Field(pattern=r"^/", description="Folder of the model inside the engine container.")


class Engine(Strict):
    """The engine that serves it."""

    type: Literal["vLLM"] = "vLLM"
    version: str = Field(description="Version of the engine in the image; it decides whether salts are enforced.")
    image: str = Field(min_length=1)
    args: tuple[str, ...] = Field((), description="Further arguments; those that open another front door are refused.")
    env: dict[str, str] = Field({}, description="Further environment; variables that open another front door are refused.")


class Fence(Strict):
    """How long a guard's right lasts."""

    lease_seconds: int = Field(60, ge=3, le=600, description="Length of the right, and maximal age of a permit, in seconds.")


class ServingPoolSpec(Strict):
    """What a platform team asks of one pool."""

    model: Model
    engine: Engine
    replicas: int = Field(1, ge=0, le=1000)
    resources: dict[str, Any] = Field({}, description="Container resources of the engine, as in a pod.")
    fence: Fence = Fence()


class ServingPool(Resource):
    """Engines that serve one model behind one guard key."""

    KIND: ClassVar[str] = "ServingPool"

    kind: Literal["ServingPool"] = "ServingPool"
    spec: ServingPoolSpec

    @field_validator("metadata")
    @classmethod
    def _short_name(cls, metadata: Metadata) -> Metadata:
        if len(metadata.name) > 40 or not re.match(DNS_LABEL, metadata.name):
            raise ValueError("a pool name is a DNS-1035 label of at most 40 characters")
        return metadata


class ApiKeysIdentity(Strict):
    """API keys of a tenant, by the Secret that holds their hashes."""

    secret_name: str = Field(pattern=OBJECT_NAME)


class JwtClaimsIdentity(Strict):
    """Tokens of one provider that belong to this tenant."""

    provider: str = Field(min_length=1, description="Name of an identity provider of the installation.")
    audience: str = Field(min_length=1)
    claims: dict[str, str] = Field({}, description="Claims that must be equal (or, for lists, contain the value).")
    principal_claim: str = Field("sub", min_length=1)


class Identities(Strict):
    """By which credentials a tenant is recognised."""

    api_keys: tuple[ApiKeysIdentity, ...] = ()
    jwt: tuple[JwtClaimsIdentity, ...] = ()


class TenantSpec(Strict):
    """Who the tenant is."""

    identities: Identities = Identities()
    suspended: bool = Field(False, description="All requests of the tenant are refused.")


class Tenant(Resource):
    """A party whose cache nobody else may observe."""

    KIND: ClassVar[str] = "Tenant"

    kind: Literal["Tenant"] = "Tenant"
    spec: TenantSpec


class CacheScopeSpec(Strict):
    """Whom cached prefixes may be shared with."""

    scope_class: Literal[ScopeClass.TENANT, ScopeClass.PRINCIPAL, ScopeClass.REQUEST] = Field(
        ScopeClass.TENANT, alias="class", description="Shared within a tenant, within one credential, or never."
    )
    pools: tuple[str, ...] = Field(min_length=1, description="Names of the pools it applies to.")
    tenants: tuple[str, ...] = Field(min_length=1, description="Names of the tenants it applies to.")
    policy_revision: int = Field(1, ge=1, description="Raised with every change of this scope; it is part of the salt.")


class CacheScope(Resource):
    """A sharing rule for tenants on pools."""

    KIND: ClassVar[str] = "CacheScope"

    kind: Literal["CacheScope"] = "CacheScope"
    spec: CacheScopeSpec
