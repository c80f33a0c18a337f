"""`CacheEpoch`: what people declare to roll an epoch forward. Field descriptions are the specification."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from cachescope.api.documents import OBJECT_NAME, Resource, Strict
from cachescope.api.statuses import CacheEpochStatus
from cachescope.core.epochs import MAX_EPOCH


class EpochTarget(Strict):
    """What the epoch belongs to. It cannot be changed: make another CacheEpoch."""

    kind: Literal["ServingPool"] = Field("ServingPool", description="Kind of the target.")
    name: str = Field(pattern=OBJECT_NAME, max_length=40, description="Name of the pool in this namespace.")


class Incident(Strict):
    """Why all that is cached must become unreachable."""

    id: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$",
        description="Names the incident. Each id advances the epoch once, however often it is applied; another one does so again.",
    )
    reason: str = Field("", max_length=1024, description="For people; shown in Events and status.")


class CacheEpochSpec(Strict):
    """The epoch that is asked for. The effective one never falls: a lower declaration is held, and said in a condition."""

    target: EpochTarget
    floor: int | None = Field(
        None, ge=1, le=MAX_EPOCH, description="Lowest epoch that may stand; at most 1,000 above the one that stands."
    )
    incident: Incident | None = None

    @model_validator(mode="after")
    def _something(self) -> CacheEpochSpec:
        if self.floor is None and self.incident is None:
            raise ValueError("set floor, or incident, or both")
        return self


class CacheEpoch(Resource):
    """A declared epoch of a pool."""

    KIND: ClassVar[str] = "CacheEpoch"
    PLURAL: ClassVar[str] = "cacheepochs"

    kind: Literal["CacheEpoch"] = "CacheEpoch"
    spec: CacheEpochSpec
    status: CacheEpochStatus | None = None
