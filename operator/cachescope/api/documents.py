"""What all resources have in common, and how one is read."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from cachescope.core.errors import SpecError

GROUP: Final = "cachescope.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "cachescope.dev/v1alpha1"
OBJECT_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
NAMESPACE_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"


class Strict(BaseModel):
    """A model that refuses unknown fields, so that a typo is an error and never a default."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, alias_generator=to_camel)


class Metadata(BaseModel):
    """The parts of object metadata that matter here; the others (labels, managed fields) are left alone."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True, alias_generator=to_camel)

    name: str = Field(min_length=1, max_length=253)
    namespace: str = "default"
    uid: str = Field(min_length=8, max_length=64, description="UID of the object: names never stand in for it.")
    generation: int = Field(1, ge=1, description="Number of the spec; it rises with each change.")
    creation_timestamp: str = Field("", description="When the API server made the object (RFC 3339); of two claims the older wins.")


class Resource(Strict):
    """A resource: kind, metadata and a spec that the subclass adds."""

    KIND: ClassVar[str]
    PLURAL: ClassVar[str]

    api_version: Literal["cachescope.dev/v1alpha1"] = API_VERSION
    metadata: Metadata

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.metadata.namespace

    @property
    def name(self) -> str:
        """Name within the namespace."""
        return self.metadata.name

    @property
    def uid(self) -> str:
        """UID; what separates it from every other object, past ones included."""
        return self.metadata.uid


AnyResource = TypeVar("AnyResource", bound=Resource)


def parse(kind: type[AnyResource], document: dict[str, Any], source: str) -> AnyResource:
    """Parse one document that comes from the API server.

    Fields that it does not know are left alone: the API server refuses or prunes what its schema does not know, so they come from a
    newer release whose CRDs are there already, perhaps as a default that nobody wrote. A pool is served on meanwhile.

    Raises:
        SpecError: It is not valid; every fault is named.
    """
    try:
        return kind.model_validate(document, extra="ignore")
    except ValidationError as error:
        raise SpecError(f"{source}: the {kind.KIND} is not valid ({faults(error)}); correct these fields") from error


def faults(error: ValidationError) -> str:
    """Every fault of a document, each with the field that it is in."""
    return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
