"""How each kind presents itself in kubectl: short name, columns, whether it scales and whether people write it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from cachescope.api.documents import Resource
from cachescope.api.epochs import CacheEpoch
from cachescope.api.ledgers import EpochLedger, FenceLease
from cachescope.api.pools import ServingPool
from cachescope.api.public_sources import PublicSource
from cachescope.api.scopes import CacheScope
from cachescope.api.tenants import Tenant


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; a wide one is shown with `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False

    def entry(self) -> dict[str, Any]:
        """As the CRD holds it."""
        entry: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return {**entry, "priority": 1} if self.wide else entry


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind.

    Attributes:
        model: Its pydantic model.
        short_name: For kubectl.
        columns: Of `kubectl get`, in this order; the age is added.
        scales: Whether autoscalers may set `spec.replicas`.
        declared: Whether people write it. What processes write whole gets no defaults.
    """

    model: type[Resource]
    short_name: str
    columns: tuple[Column, ...]
    scales: bool = False
    declared: bool = True


def _condition(name: str, condition: str, field: str = "status", *, wide: bool = False) -> Column:
    return Column(name, f'.status.conditions[?(@.type=="{condition}")].{field}', wide=wide)


_ACCEPTED = _condition("Accepted", "Accepted")
_WHY = _condition("Reason", "Accepted", "reason", wide=True)

KINDS: Final = (
    Kind(
        ServingPool,
        "spool",
        (
            _condition("Ready", "Ready"),
            Column("Mode", ".status.mode"),
            Column("Epoch", ".status.epoch", "integer"),
            Column("Routable", ".status.routable", "integer"),
            _condition("Isolated", "IsolationVerified"),
            _condition("Reason", "Ready", "reason", wide=True),
            Column("Replicas", ".spec.replicas", "integer", wide=True),
            Column("Engine", ".spec.engine.version", wide=True),
            Column("Model", ".spec.model.name", wide=True),
        ),
        scales=True,
    ),
    Kind(Tenant, "ctenant", (_ACCEPTED, Column("Suspended", ".spec.suspended", "boolean"), _WHY)),
    Kind(
        CacheScope,
        "cscope",
        (
            _ACCEPTED,
            Column("Class", ".spec.class"),
            Column("Effective", ".status.effectiveClass"),
            _WHY,
            Column("Pools", ".spec.pools", wide=True),
            Column("Tenants", ".spec.tenants", wide=True),
        ),
    ),
    Kind(
        PublicSource,
        "psource",
        (
            _condition("Usable", "Usable"),
            _condition("Reason", "Usable", "reason"),
            Column("Expires", ".spec.approval.expires"),
            Column("Title", ".spec.title"),
            Column("Owner", ".spec.owner", wide=True),
            Column("Digest", ".spec.digest", wide=True),
        ),
    ),
    Kind(
        CacheEpoch,
        "cepoch",
        (
            Column("Kind", ".spec.target.kind"),
            Column("Target", ".spec.target.name"),
            Column("Epoch", ".status.epoch", "integer"),
            Column("Phase", ".status.phase"),
            Column("Acknowledged", ".status.guards.acknowledged", "integer"),
            Column("Expired", ".status.guards.expired", "integer"),
            Column("Guards", ".status.guards.total", "integer"),
            _condition("Fenced", "Fenced"),
            _condition("Held", "Held"),
            Column("Incident", ".spec.incident.id"),
            _condition("Accepted", "Accepted", wide=True),
            _condition("Reason", "Fenced", "reason", wide=True),
            Column("Floor", ".spec.floor", "integer", wide=True),
        ),
    ),
    Kind(
        EpochLedger,
        "eledger",
        (
            Column("Role", ".spec.role"),
            Column("Sequence", ".spec.sequence", "integer"),
            Column("Base", ".spec.base", "integer"),
            Column("Lineage", ".spec.lineage.id", wide=True),
            Column("Generation", ".spec.lineage.generation", "integer", wide=True),
        ),
        declared=False,
    ),
    Kind(
        FenceLease,
        "flease",
        (
            Column("Holder", ".spec.holder"),
            Column("Pool", ".spec.pool"),
            Column("Pod", ".spec.pod"),
            Column("Sequence", ".spec.sequence", "integer"),
            Column("Version", ".spec.version"),
            Column("Tick", ".spec.tick", "integer", wide=True),
            Column("Lease", ".spec.leaseSeconds", "integer", wide=True),
            Column("Renewed", ".spec.renewTime", "date", wide=True),
        ),
        declared=False,
    ),
)
"""Every kind of the API group."""
