"""What the operator says of each resource. Readers take what they know and pass over the rest: a newer operator may say more."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Status(BaseModel):
    """A part of a status."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True, alias_generator=to_camel)


class Condition(Status):
    """As `metav1.Condition`."""

    type: str = Field(max_length=316, description="What it is about.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    observed_generation: int = Field(0, ge=0, description="Generation of the spec that it speaks of.")
    last_transition_time: str = Field(description="When the status last changed (RFC 3339).")
    reason: str = Field(min_length=1, max_length=1024, description="Why, in one word that programs may rely on.")
    message: str = Field("", max_length=32768, description="Why, and what to do, for people.")


class ConditionedStatus(Status):
    """What every status has."""

    observed_generation: int = Field(0, ge=0, description="Generation of the spec that this status speaks of.")
    conditions: tuple[Condition, ...] = Field(
        (), description="What holds, one entry a type.", json_schema_extra={"x-kubernetes-list-map-keys": ["type"]}
    )


class GuardStatus(Status):
    """One guard process."""

    pod: str = Field(description="Name of the pod.")
    version: str = Field(description="CacheScope's version in the engine's process.")
    sequence: int = Field(description="Ledger sequence that it applied.")
    live: bool = Field(description="Whether its lease moved within its length, on the operator's clock.")


class RouteStatus(Status):
    """What the engine does with a salt on one route."""

    route: str = Field(description="Its path.")
    capability: Literal["Enforced", "Broken", "Unsupported", "Unknown"] = Field(
        description="`Enforced`: the salt separates. `Broken`: it is taken and does not. `Unsupported`: it is not taken. "
        "`Unknown`: nobody measured it."
    )


class AdapterStatus(Status):
    """Digest of one LoRA adapter."""

    name: str = Field(description="What clients send as `model`.")
    digest: str = Field(description="Of the adapter's files.")


class EngineStatus(Status):
    """Digests of what engines loaded; several while a rollout is under way."""

    model: str = Field(description="Of the model's files.")
    tokenizer: str = Field(description="Of the tokenizer and its chat template.")
    runtime: str = Field(description="Of the engine, its version and the arguments that reach the cache.")
    version: str = Field("", description="The version that the engine says it has; empty where it does not say.")
    adapters: tuple[AdapterStatus, ...] = Field((), description="Of the LoRA adapters.")


class ProbedRoute(Status):
    """What the probe found of one way to ask."""

    route: str = Field(description="Its path.")
    variant: str = Field("", description="What was special; empty for a plain request.")
    found: Literal["Isolated", "Leaks", "NoReuse", "NoEvidence", "Failed", "Refused"] = Field(
        description="`Isolated`: in every try the prompt's owner found it again, and nobody else did. `Leaks`: somebody else found "
        "it. `NoReuse`: nobody found anything. `NoEvidence`: the engine does not tell. `Refused`: such requests are."
    )
    tries: int = Field(0, description="Prompts that were tried.")
    hits: int = Field(0, description="Of those, how many somebody else found.")


class IsolationProof(Status):
    """Processes of which the probe has shown the same."""

    routes: tuple[str, ...] = Field(
        description="Paths on which they keep salts apart, and with `several answers` behind them, for requests with `n` above 1. "
        "In all other requests nothing is reused."
    )
    boots: tuple[str, ...] = Field(description="Boot ids of their guards, as in the names of their FenceLeases.")


class IsolationStatus(Status):
    """What the probe has shown on the live pool."""

    verified_at: str = Field("", description="When it last showed of a process that it keeps tenants apart (RFC 3339).")
    proofs: tuple[IsolationProof, ...] = Field((), description="Of which processes; only these reuse.")
    leaked: tuple[str, ...] = Field((), description="Boot ids of processes that leaked. They serve nothing, and are never proven.")
    last: tuple[ProbedRoute, ...] = Field((), description="What the last run found.")
    fault: str = Field("", description="Why the last run showed nothing; empty when it did.")
    leak: str = Field("", description="What leaked; empty once every process was shown to keep tenants apart since.")
    incident: str = Field("", description="Id of the incident that the leak became.")


ModeName = Literal["Shared", "PerTenant", "Dedicated", "Disabled", ""]
"""How the tenants of a pool are kept apart."""


class ServingPoolStatus(ConditionedStatus):
    """What a pool is now."""

    mode: ModeName = Field(
        "", description="How tenants are kept apart; empty while it is not known. `Dedicated`: to one tenant, for another pool."
    )
    mode_reason: str = Field("", description="Why that mode.")
    epoch: int | None = Field(None, description="The pool's epoch that stands.")
    lineage: int | None = Field(None, description="Generation of the lineage of its ledger.")
    bypassed: bool = Field(False, description="Whether an incident switched reuse off; see spec.sharing.resumeAfter.")
    public_stopped: bool = Field(False, description="Whether an incident stopped public sharing; see spec.sharing.resumeAfter.")
    latest_incident: str = Field("", description="Id of the latest incident of the pool, for spec.sharing.resumeAfter.")
    replicas: int = Field(0, description="Engine pods.")
    ready_replicas: int = Field(0, description="Engine pods that answer their probe.")
    routable: int = Field(0, description="Engine pods that a gateway routes to: ready, guard proven, lease live.")
    selector: str = Field("", description="Of the pods, for autoscalers.")
    routes: tuple[RouteStatus, ...] = Field((), description="Verdict of the engine catalogue, by route.")
    engines: tuple[EngineStatus, ...] = Field((), description="What the engines loaded, each different one once.")
    isolation: IsolationStatus | None = Field(
        None, description="What the probe has shown; nothing where there is nothing to probe."
    )
    guards: tuple[GuardStatus, ...] = Field((), description="The guard processes that are known by their leases.")


class AcceptedIdentity(Status):
    """A claim that this tenant holds."""

    claim: str = Field(description="The claim in its one form.")
    since: int = Field(ge=0, description="When it was accepted, in milliseconds since 1970. Of two that match, the earlier holds.")


class TenantStatus(ConditionedStatus):
    """Which identities the tenant holds. Gateways know a tenant by these alone."""

    accepted: tuple[AcceptedIdentity, ...] = Field((), description="The claims that this tenant holds.")


class CacheScopeStatus(ConditionedStatus):
    """Whether the rule applies."""

    effective_class: str = Field(
        "", description="The widest class that applies now: of `Public` it is `Tenant` while nothing can be public."
    )


class PublicSourceStatus(ConditionedStatus):
    """Whether the text may be shared; see the condition `Usable`."""


class FenceCounts(Status):
    """Processes of one kind, by what they did about the epoch."""

    total: int = Field(0, description="All that are counted: those below, and those that are waited for.")
    acknowledged: int = Field(0, description="They applied it and closed what is older, or said that they ended.")
    expired: int = Field(0, description="They were not heard of for longer than their right lasts.")


Phase = Literal["", "Fencing", "Fenced", "Held", "Unconfirmed"]
"""Where a CacheEpoch is."""


class CacheEpochStatus(ConditionedStatus):
    """Which epoch stands, and how far its fence is."""

    epoch: int | None = Field(None, description="The target's epoch that stands; once it is fenced, the one that stood then.")
    phase: Phase = Field(
        "",
        description="`Fenced`: nothing older is used. `Fencing`: something older may still be, and waiting is enough. `Held`, "
        "`Unconfirmed`: somebody has to do something; the conditions say what.",
    )
    sequence: int | None = Field(None, description="Sequence of the ledger that announced it.")
    lineage: int | None = Field(None, description="Generation of that ledger's lineage.")
    guards: FenceCounts | None = Field(None, description="Guards.")
    gateways: FenceCounts | None = Field(None, description="Gateways.")
    committed_at: str = Field("", description="When the ledger was written (RFC 3339).")
    fenced_at: str = Field("", description="Since when nothing older is used (RFC 3339).")
    seconds: float | None = Field(
        None,
        description="From the write of the ledger, or the start of the operator if that was later, to the fence, by its own clock.",
    )
    fenced_states: tuple[str, ...] = Field(
        (), description="Once it is fenced: what was, one digest a ledger, so that an operator that starts anew knows it."
    )
