"""`EpochLedger` and `FenceLease`: what operator, guards and gateways keep in the API. People read them and never write them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints

from cachescope.api.documents import OBJECT_NAME, Resource, Strict
from cachescope.core.epochs import MAX_EPOCH
from cachescope.core.leases import MAX_CHARACTERS

StoredEpoch = Annotated[int, Field(ge=0, le=MAX_EPOCH)]
DIGEST = r"^sha256:[0-9a-f]{64}$"
MOST_FLOORS = 1024
MOST_INCIDENTS = 256
"""Of a shard as of a pool; what nobody declares any more makes room."""


def _by_target(description: str) -> Any:  # noqa: ANN401 - pydantic's own
    return Field(max_length=MOST_FLOORS, description=description, json_schema_extra={"x-kubernetes-map-type": "atomic"})


class Lineage(Strict):
    """One history of a ledger."""

    generation: int = Field(ge=1, le=MAX_EPOCH, description="Greater than that of every earlier history.")
    id: str = Field(pattern=r"^[0-9a-f]{32}$", description="Random; it is in every salt.")


class LedgerMark(Strict):
    """Names one state of a ledger."""

    lineage: Lineage
    sequence: int = Field(ge=1, le=MAX_EPOCH, description="Number of the change that made it.")
    digest: str = Field(pattern=DIGEST, max_length=71, description="Of its content.")


class LedgerFlags(Strict):
    """What incidents switched off in a pool, as epochs of the pool. A flag is on until something later takes it back."""

    public_stopped: StoredEpoch = Field(description="Epoch of the last incident that stopped public sharing.")
    bypassed: StoredEpoch = Field(description="Epoch of the last incident that switched reuse off.")
    resumed: StoredEpoch = Field(description="Epoch of the incident after which people resumed.")


class Seal(Strict):
    """The operator's MAC over the digest."""

    key: str = Field(min_length=1, max_length=63, description="Id of the root key that its key was derived from.")
    value: str = Field(pattern=r"^[0-9a-f]{64}$", description="HMAC-SHA-256.")


class LongestRight(Strict):
    """The longest right that anybody may have. It is raised before a longer one is handed out."""

    lease_seconds: int = Field(ge=0, le=3600, description="Length of the right.")
    fresh_seconds: int = Field(
        ge=0, le=3600, description="A guard's longest answer without one; how long a gateway goes on without."
    )


class EpochLedgerSpec(Strict):
    """What stands: epochs that never fall, and what is refused. Written by the operator alone."""

    role: Literal["Pool", "Authorization", "Shard"] = Field(
        description="`Pool`: cache epochs of one pool. `Authorization`: what changed lately for tenants and principals. "
        "`Shard`: all floors of some of them."
    )
    lineage: Lineage
    sequence: int = Field(ge=1, le=MAX_EPOCH, description="Number of the change.")
    previous_digest: str = Field(max_length=71, description="Digest of the state before; empty for the first of a lineage.")
    digest: str = Field(
        pattern=DIGEST, max_length=71, description="Of everything here but history, ancestors, longestRight and mac."
    )
    mac: Seal
    history: tuple[Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$", max_length=32)], ...] = Field(
        min_length=1, max_length=256, description="Beginnings of the digests of the last states, this one last."
    )
    ancestors: tuple[Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$", max_length=32)], ...] = Field(
        (),
        max_length=256,
        description="Beginnings of the digests of states of earlier lineages that it holds all of: their holders may go on.",
    )
    longest_right: LongestRight | None = Field(
        None, description="Of a pool: of its guards. Of the installation's own authorization head: of gateways."
    )
    base: int = Field(ge=0, le=MAX_EPOCH, description="Floor of every target without one of its own.")
    floors: dict[str, StoredEpoch] = _by_target("Floors by target name (a keyed hash).")
    abort_below: dict[str, StoredEpoch] = _by_target("Requests in flight below it are cut at once.")
    drain_seconds: dict[str, StoredEpoch] = _by_target("For how long requests in flight above that may drain.")
    denied: dict[str, StoredEpoch] = _by_target("Epoch of the last denial.")
    readmitted: dict[str, StoredEpoch] = _by_target("Epoch at which denials were taken back.")
    issued_before: dict[str, StoredEpoch] = _by_target("Credentials issued before this second since 1970 are refused.")
    flags: LedgerFlags
    reach: int = Field(ge=0, le=MAX_EPOCH, description="Of an authorization head: it lists every change after this sequence.")
    changed: dict[str, StoredEpoch] = _by_target("Of an authorization head: the sequence at which a target changed last.")
    shards: dict[str, LedgerMark] = Field(
        max_length=16,
        description="Of an authorization head: the state of each shard.",
        json_schema_extra={"x-kubernetes-map-type": "atomic"},
    )
    policy: dict[str, Annotated[str, StringConstraints(pattern=DIGEST, max_length=71)]] = Field(
        max_length=16,
        description="Of an authorization head: digests of what policy is made of, by kind.",
        json_schema_extra={"x-kubernetes-map-type": "atomic"},
    )
    restored: StoredEpoch = Field(description="Times that somebody said that the cluster was restored.")
    confirmed: StoredEpoch = Field(description="How many of them are confirmed; requests are refused until all are.")
    incidents: dict[str, StoredEpoch] = Field(
        max_length=MOST_INCIDENTS,
        description="Epoch that each incident was given, by target name and incident id, hashed.",
        json_schema_extra={"x-kubernetes-map-type": "atomic"},
    )


class EpochLedger(Resource):
    """What stands for one pool, or for a namespace's tenants; it outlives them. Written by the operator alone."""

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
    renew_time: str = Field(
        "", max_length=64, description="When the process wrote it, by the clock of its own machine (RFC 3339); nothing rests on it."
    )
    version: str = Field(max_length=64, description="CacheScope's version in the process.")
    statement: str = Field(min_length=1, max_length=MAX_CHARACTERS, description="All of it, signed.")


class FenceLease(Resource):
    """The right of one process; named by its pod's UID and a random id."""

    KIND: ClassVar[str] = "FenceLease"
    PLURAL: ClassVar[str] = "fenceleases"

    kind: Literal["FenceLease"] = "FenceLease"
    spec: FenceLeaseSpec
