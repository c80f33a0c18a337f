"""`CacheEpoch`: what people declare to roll an epoch forward. Field descriptions are the specification."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import ClassVar, Literal

from pydantic import AwareDatetime, Field, model_validator

from cachescope.api.documents import Resource, Strict
from cachescope.api.statuses import CacheEpochStatus
from cachescope.core.epochs import MAX_EPOCH
from cachescope.core.errors import SpecError
from cachescope.core.scopes import JWT, MTLS, SERVICE_ACCOUNT
from cachescope.core.service_accounts import read_subject
from cachescope.core.spiffe import read_spiffe_id

OF_PEOPLE = frozenset({"Tenant", "Principal", "Compartment"})
_READERS: Mapping[str, Callable[[str], object]] = {MTLS: read_spiffe_id, SERVICE_ACCOUNT: read_subject}


class PrincipalName(Strict):
    """Whom a credential speaks for."""

    kind: Literal["api-key", "jwt", "mtls", "service-account"] = Field(description="How the credential is verified.")
    issuer: str = Field("", max_length=512, description="With `jwt` the `iss` of its tokens; otherwise empty.")
    subject: str = Field(
        min_length=1,
        max_length=2048,
        description="The API key's principal, the token's principal claim, the SPIFFE id, or "
        "`system:serviceaccount:<namespace>:<name>`.",
    )

    @model_validator(mode="after")
    def _subject(self) -> PrincipalName:
        """A name that no credential can have would deny nobody, and say nothing of it."""
        read = _READERS.get(self.kind)
        try:
            if read is not None:
                read(self.subject)
        except SpecError as error:
            raise ValueError(str(error)) from error
        return self

    @model_validator(mode="after")
    def _issuer(self) -> PrincipalName:
        if (self.kind == JWT) != bool(self.issuer):
            raise ValueError("tokens have an issuer and other credentials have none; set issuer with `kind: jwt` and only then")
        return self


class EpochTarget(Strict):
    """What the epoch belongs to. It cannot be changed: make another CacheEpoch."""

    kind: Literal["ServingPool", "CacheScope", "Tenant", "Principal", "Compartment", "Namespace"] = Field(
        "ServingPool",
        description="`ServingPool`, `CacheScope`: what is cached there. `Tenant`, `Principal`, `Compartment`: what they were "
        "allowed. `Namespace`: every ledger of this namespace; for `restored` alone.",
    )
    name: str = Field(
        "",
        pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$",
        max_length=253,
        description="Name of the object in this namespace; of a principal or compartment its Tenant. Empty for `Namespace`.",
    )
    principal: PrincipalName | None = Field(None, description="Of the Tenant; with `kind: Principal` and only then.")
    compartment: str = Field("", max_length=253, description="Its name, of the Tenant; with `kind: Compartment` and only then.")

    @model_validator(mode="after")
    def _whole(self) -> EpochTarget:
        if (self.kind == "Principal") != (self.principal is not None):
            raise ValueError("set principal with `kind: Principal` and only then")
        if (self.kind == "Compartment") != bool(self.compartment):
            raise ValueError("set compartment with `kind: Compartment` and only then")
        if (self.kind == "Namespace") != (self.name == ""):
            raise ValueError("set name, except with `kind: Namespace`")
        return self


class InFlight(Strict):
    """What happens to requests that are being answered."""

    mode: Literal["Abort", "Drain"] = Field("Abort", description="`Abort`: they are cut. `Drain`: they may end, for some seconds.")
    drain_seconds: int = Field(0, ge=0, le=600, description="For how long, with `Drain`. A later `Abort` cuts them all the same.")

    @model_validator(mode="after")
    def _seconds(self) -> InFlight:
        if (self.mode == "Drain") != (self.drain_seconds > 0):
            raise ValueError("set drainSeconds with `mode: Drain` and only then")
        return self


class Incident(Strict):
    """Why all of before must become unreachable."""

    id: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$",
        description="Names the incident. Each id advances the epoch once, however often it is applied; another one does so again.",
    )
    reason: str = Field("", max_length=1024, description="For people; shown in Events and status.")
    stop_public_sharing: bool = Field(
        False, description="Of a pool: nothing is shared publicly until `spec.sharing.resumeAfter` of the pool names this incident."
    )
    bypass_reuse: bool = Field(
        False, description="Of a pool: nothing is reused at all until `spec.sharing.resumeAfter` of the pool names this incident."
    )
    in_flight: InFlight = InFlight()


class Restored(Strict):
    """The cluster was restored from a backup: every ledger goes on in a new lineage, once for each incident id."""

    confirmed: bool = Field(
        False, description="All requests are refused until it is true: set it once revocations made since the backup are made anew."
    )
    lineage: int | None = Field(
        None,
        ge=1,
        le=MAX_EPOCH,
        description="With `confirmed`: the lineage in which requests are refused, as the condition `Fenced` says. Without it, or "
        "with an earlier one, nothing is confirmed: what was left over from one restore says nothing of the next.",
    )


class CacheEpochSpec(Strict):
    """The epoch that is asked for. The effective one never falls: a lower declaration is held, and said in a condition."""

    target: EpochTarget
    floor: int | None = Field(
        None, ge=1, le=MAX_EPOCH, description="Lowest epoch that may stand; at most 1,000 above the one that stands."
    )
    incident: Incident | None = None
    deny: bool = Field(
        False,
        description="Of a tenant, principal or compartment, with an incident: its credentials are refused from then on, also after "
        "this object is deleted, until an incident with `readmit`. Of a compartment: in that compartment.",
    )
    readmit: bool = Field(
        False, description="Of a tenant, principal or compartment, with an incident: takes back every `deny` of before."
    )
    credentials_issued_before: AwareDatetime | None = Field(
        None,
        description="Of a tenant, principal or compartment, with an incident: credentials issued before are refused (a token's "
        "`iat`, an API key's `created`, a certificate's beginning; one that says none of them is refused too). Whole seconds, at "
        "most a day ahead; never taken back.",
    )
    restored: Restored | None = Field(None, description="With `kind: Namespace` and an incident, and only then.")

    @model_validator(mode="after")
    def _something(self) -> CacheEpochSpec:
        if self.floor is None and self.incident is None:
            raise ValueError("set floor, or incident, or both")
        if (self.target.kind == "Namespace") != (self.restored is not None):
            raise ValueError("set restored with a target of `kind: Namespace` and only then")
        if self.target.kind == "Namespace" and (self.floor is not None or self.incident is None):
            raise ValueError("a restore is an incident without a floor; set incident, and remove floor")
        return self

    @model_validator(mode="after")
    def _of_people(self) -> CacheEpochSpec:
        asked = self.deny or self.readmit or self.credentials_issued_before is not None
        if asked and (self.target.kind not in OF_PEOPLE or self.incident is None):
            raise ValueError(
                "deny, readmit and credentialsIssuedBefore belong to an incident of a Tenant, Principal or Compartment; set both"
            )
        if self.deny and self.readmit:
            raise ValueError("deny and readmit contradict each other; set one")
        return self

    @model_validator(mode="after")
    def _of_pools(self) -> CacheEpochSpec:
        if self.incident and self.target.kind != "ServingPool":
            if self.incident.stop_public_sharing or self.incident.bypass_reuse:
                raise ValueError("stopPublicSharing and bypassReuse belong to a pool; set `kind: ServingPool`")
            if self.incident.in_flight.mode == "Drain":
                raise ValueError("only what a pool holds can drain; set `mode: Abort`")
        return self

    @property
    def issued_before(self) -> int:
        """Seconds since 1970, or 0."""
        moment: datetime | None = self.credentials_issued_before
        return int(moment.timestamp()) if moment else 0


class CacheEpoch(Resource):
    """A declared epoch of a pool, a scope, a tenant, a principal or a compartment."""

    KIND: ClassVar[str] = "CacheEpoch"
    PLURAL: ClassVar[str] = "cacheepochs"

    kind: Literal["CacheEpoch"] = "CacheEpoch"
    spec: CacheEpochSpec
    status: CacheEpochStatus | None = None
