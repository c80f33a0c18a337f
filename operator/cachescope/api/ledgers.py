"""`EpochLedger` and `FenceLease`: what operator, guards and gateways keep in the API. People read them and never write them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from cachescope.api.documents import OBJECT_NAME, Resource, Strict
from cachescope.core.epochs import MAX_EPOCH
from cachescope.core.leases import MAX_CHARACTERS

StoredEpoch = Annotated[int, Field(ge=0, le=MAX_EPOCH)]


class Lineage(Strict):
    """One history of a ledger."""

    generation: int = Field(ge=1, le=MAX_EPOCH, description="Greater than that of every earlier history.")
    id: str = Field(pattern=r"^[0-9a-f]{32}$", description="Random; it is in every salt.")


class EpochLedgerSpec(Strict):
    """The epochs that stand for one pool. Nothing in it ever falls."""

    lineage: Lineage
    sequence: int = Field(ge=1, le=MAX_EPOCH, description="Number of the change.")
    base: int = Field(ge=0, le=MAX_EPOCH, description="Floor of every target without one of its own.")
    floors: dict[str, StoredEpoch] = Field(
        max_length=1024,
        description="Floors by target name (a keyed hash).",
        json_schema_extra={"x-kubernetes-map-type": "atomic"},
    )
    incidents: dict[str, StoredEpoch] = Field(
        max_length=256,
        description="Epoch that each incident was given, by target name and incident id, hashed.",
        json_schema_extra={"x-kubernetes-map-type": "atomic"},
    )


class EpochLedger(Resource):
    """The epochs that stand for one pool; it outlives the pool. Written by the operator alone."""

    KIND: ClassVar[str] = "EpochLedger"
    PLURAL: ClassVar[str] = "epochledgers"

    kind: Literal["EpochLedger"] = "EpochLedger"
    spec: EpochLedgerSpec


class FenceLeaseSpec(Strict):
    """What one process says of itself. Readers believe the statement alone; the other fields are for people."""

    holder: Literal["Guard", "Gateway"] = Field(description="What the process is.")
    pod: str = Field(pattern=OBJECT_NAME, min_length=1, max_length=253, description="Name of the pod.")
    pool: str = Field("", max_length=63, description="Name of the pool; empty for a gateway.")
    tick: int = Field(ge=0, le=MAX_EPOCH, description="Milliseconds since the process started.")
    lease_seconds: int = Field(ge=1, le=3600, description="Length of its right, in seconds.")
    sequence: int = Field(0, ge=0, le=MAX_EPOCH, description="Ledger sequence that a guard applied.")
    version: str = Field(max_length=64, description="CacheScope's version in the process.")
    statement: str = Field(min_length=1, max_length=MAX_CHARACTERS, description="All of it, signed.")


class FenceLease(Resource):
    """The right of one process; named by its pod's UID and a random id."""

    KIND: ClassVar[str] = "FenceLease"
    PLURAL: ClassVar[str] = "fenceleases"

    kind: Literal["FenceLease"] = "FenceLease"
    spec: FenceLeaseSpec
