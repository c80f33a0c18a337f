"""`CacheScope`: whom cached prefixes may be shared with. Field descriptions are the specification."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from cachescope.api.documents import Resource, Strict
from cachescope.api.statuses import CacheScopeStatus
from cachescope.core.types import ScopeClass


class CacheScopeSpec(Strict):
    """A sharing rule. Where several name one tenant and one pool, the narrowest applies; without any, `Tenant` does."""

    scope_class: Literal[ScopeClass.TENANT, ScopeClass.PRINCIPAL, ScopeClass.REQUEST] = Field(
        ScopeClass.TENANT, alias="class", description="Shared within a tenant, within one credential's principal, or never."
    )
    pools: tuple[str, ...] = Field(min_length=1, max_length=256, description="Names of the pools of this namespace it applies to.")
    tenants: tuple[str, ...] = Field(
        min_length=1, max_length=1024, description="Names of the tenants of this namespace it applies to."
    )


class CacheScope(Resource):
    """A sharing rule for tenants on pools."""

    KIND: ClassVar[str] = "CacheScope"
    PLURAL: ClassVar[str] = "cachescopes"

    kind: Literal["CacheScope"] = "CacheScope"
    spec: CacheScopeSpec
    status: CacheScopeStatus | None = None
