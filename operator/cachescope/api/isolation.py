"""The part of a ServingPool that says how its tenants are kept apart. Field descriptions are the specification."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cachescope.api.documents import DNS_LABEL, OBJECT_NAME, Strict

IsolationName = Literal["Auto", "Shared", "PerTenant", "Disabled"]


class TenantSelector(Strict):
    """Which tenants get engines of their own."""

    match_labels: dict[str, str] = Field(
        {},
        max_length=16,
        description="Labels of the Tenant, all of them; without any, every Tenant of the pool's namespace.",
        json_schema_extra={"x-kubernetes-map-type": "atomic"},
    )


class Isolation(Strict):
    """How the tenants of a pool are kept apart."""

    mode: IsolationName = Field(
        "Auto",
        description="`Shared`: one set of engines, and a salt in each request; refused where the engine does not enforce salts. "
        "`PerTenant`: engines for each tenant, in a ServingPool of its own that the operator makes. `Disabled`: one set of engines "
        "that reuse nothing. `Auto`: `Shared` where every route that clients may reach enforces salts, else `PerTenant`.",
    )
    tenants: TenantSelector = Field(TenantSelector(), description="Which tenants get engines of their own, in mode `PerTenant`.")
    max_isolated_pools: int = Field(
        16,
        ge=0,
        le=1000,
        description="Most tenants that get engines of their own; who has them keeps them, then come the oldest. "
        "The others are not served.",
    )
    idle_seconds: int | None = Field(
        None,
        ge=60,
        le=604_800,
        description="After which a tenant's engines that nobody asked are stopped; the next request gets 503 with `Retry-After` "
        "and starts them. Without it they run all the time.",
    )
    verify_seconds: int = Field(
        3600,
        ge=60,
        le=604_800,
        description="How often it is shown again that the engines of mode `Shared` keep tenants apart. A process that starts is "
        "always probed first, and reuses nothing before.",
    )
    unverified: Literal["Fresh", "Refuse"] = Field(
        "Fresh",
        description="What engine processes of mode `Shared` do before the probe has shown that they keep tenants apart. `Fresh`: "
        "they serve where no other one can, with a salt in every request that nobody has again. `Refuse`: they serve nothing, so "
        "that an engine which heeds no salts meets no two tenants; a pool of one pod answers 503 for some seconds after a restart.",
    )
    min_warm_seconds: int = Field(300, ge=1, le=86_400, description="For how long engines that a request started run at least.")


class DedicatedTo(Strict):
    """The tenant that a pool is for, and the pool that it was made of. The operator alone sets it; nobody changes it."""

    pool_name: str = Field(pattern=DNS_LABEL, max_length=40, description="Name of the pool that it was made of.")
    pool_uid: str = Field(min_length=8, max_length=64, description="UID of that pool.")
    tenant_name: str = Field(pattern=OBJECT_NAME, max_length=253, description="Name of the tenant.")
    tenant_uid: str = Field(min_length=8, max_length=64, description="UID of the tenant: no other of that name is ever served.")
