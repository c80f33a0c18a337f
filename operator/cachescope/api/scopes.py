"""`CacheScope`: whom cached prefixes may be shared with. Field descriptions are the specification."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints, model_validator

from cachescope.api.documents import OBJECT_NAME, Resource, Strict
from cachescope.api.epochs import PrincipalName
from cachescope.api.public_sources import DIGEST
from cachescope.api.statuses import CacheScopeStatus
from cachescope.core.classes import WIDEST, DataClass
from cachescope.core.types import ScopeClass

ApprovedDigest = Annotated[str, StringConstraints(pattern=DIGEST, max_length=71)]
SourceName = Annotated[str, StringConstraints(pattern=OBJECT_NAME, max_length=253)]


class Classification(Strict):
    """The widest class by data class. It narrows and never widens."""

    public: ScopeClass | None = Field(None, description="Of what everybody may know. Without it, `Public`.")
    internal: ScopeClass | None = Field(None, description="Of what stays within the tenant. Without it, and at most, `Tenant`.")
    confidential: ScopeClass | None = Field(None, description="Of one matter. Without it, and at most, `Compartment`.")
    personal: ScopeClass | None = Field(None, description="Of one person. Without it, and at most, `Principal`.")
    secret: ScopeClass | None = Field(None, description="Of nobody else. Without it, and at most, `Request`.")

    @model_validator(mode="after")
    def _narrow(self) -> Classification:
        for data, chosen in self.chosen():
            if chosen.width < WIDEST[data].width:
                raise ValueError(too_wide(data, chosen.value))
        return self

    def chosen(self) -> Iterator[tuple[DataClass, ScopeClass]]:
        """What is set."""
        for data in DataClass:
            chosen: ScopeClass | None = getattr(self, data.value)
            if chosen is not None:
                yield data, chosen


def too_wide(data: DataClass, chosen: str) -> str:
    """Why a class is refused for a data class."""
    widest = WIDEST[data].value
    return f"{chosen} is wider than {widest}, the widest class of {data.value} data; set {data.value} to {widest} or narrower"


class Application(PrincipalName):
    """A principal of a Tenant that is trusted to say what its requests are made of (`x-cachescope-context`)."""

    tenant: str = Field(pattern=OBJECT_NAME, max_length=253, description="Name of its Tenant, one of `tenants`.")


class CacheScopeSpec(Strict):
    """A sharing rule. Where several name one tenant and one pool, the narrowest applies; without any, `Tenant` does."""

    scope_class: ScopeClass = Field(
        ScopeClass.TENANT,
        alias="class",
        description="The widest class. `Public`: shared by all tenants of the rule, where a request is made of approved sources "
        "alone, and `Tenant` otherwise. `Tenant`: within a tenant. `Compartment`: within an authorized compartment of it. "
        "`Principal`: within one credential's principal. `Request`: never.",
    )
    pools: tuple[str, ...] = Field(min_length=1, max_length=256, description="Names of the pools of this namespace it applies to.")
    tenants: tuple[str, ...] = Field(
        min_length=1, max_length=1024, description="Names of the tenants of this namespace it applies to."
    )
    applications: tuple[Application, ...] = Field(
        (),
        max_length=64,
        description="Who may send `x-cachescope-context`. Whoever else sends it is refused. Their word narrows; it makes public "
        "only what is approved here.",
    )
    classification: Classification = Classification()
    public_sources: tuple[SourceName, ...] = Field(
        (), max_length=256, description="Names of the PublicSources of this namespace that may be shared; for class `Public`."
    )
    prompt_bundles: tuple[ApprovedDigest, ...] = Field(
        (), max_length=64, description="Digests of the prompt bundles that a public request may be made with."
    )
    toolsets: tuple[ApprovedDigest, ...] = Field(
        (), max_length=64, description="Digests of the tool declarations (RFC 8785) that a public request may send."
    )


class CacheScope(Resource):
    """A sharing rule for tenants on pools."""

    KIND: ClassVar[str] = "CacheScope"
    PLURAL: ClassVar[str] = "cachescopes"

    kind: Literal["CacheScope"] = "CacheScope"
    spec: CacheScopeSpec
    status: CacheScopeStatus | None = None
