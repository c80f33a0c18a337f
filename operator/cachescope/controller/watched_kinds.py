"""Which kinds the operator watches, and under which selector: it reads nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cachescope.core.labels import API_KEYS_LABEL, COMPONENT_LABEL, ENGINE, MANAGED_BY_LABEL
from cachescope.kube.kinds import KINDS, collection_of

CHILDREN: Final = f"{MANAGED_BY_LABEL}=cachescope,{COMPONENT_LABEL}={ENGINE}"
API_KEYS: Final = "ApiKeys"
"""Secrets with hashes of API keys, without their content; kept apart from the Secrets that the operator makes."""


@dataclass(frozen=True)
class WatchedKind:
    """A kind that is kept in memory.

    Attributes:
        kind: Its name here; that of the API, but for `API_KEYS`.
        selector: Labels that its objects must have.
        streamed: Whether it is watched; otherwise it is only listed from time to time.
        gapless: Whether it is followed by `lease_watch`, which knows when it missed something, and not by kopf.
    """

    kind: str
    selector: str = ""
    streamed: bool = True
    gapless: bool = False

    @property
    def api_kind(self) -> str:
        """Its name in the API."""
        return "Secret" if self.kind == API_KEYS else self.kind

    @property
    def api_version(self) -> str:
        """Group and version."""
        return KINDS[self.api_kind][0]

    @property
    def plural(self) -> str:
        """Its name in paths."""
        return KINDS[self.api_kind][1]

    def path(self, namespace: str | None) -> str:
        """Path of its list, in one namespace or in all."""
        return collection_of(self.api_kind, namespace)

    @property
    def query(self) -> dict[str, str]:
        """What selects its objects."""
        return {"labelSelector": self.selector} if self.selector else {}


WATCHED: Final = (
    *(WatchedKind(kind) for kind in ("ServingPool", "Tenant", "CacheScope", "PublicSource", "CacheEpoch", "EpochLedger")),
    *(
        WatchedKind(kind, CHILDREN)
        for kind in (
            "ServiceAccount",
            "Role",
            "RoleBinding",
            "Secret",
            "NetworkPolicy",
            "Service",
            "PodDisruptionBudget",
            "ControllerRevision",
            "Deployment",
            "Pod",
        )
    ),
    WatchedKind("FenceLease", gapless=True),
    # One watch of a kind has one selector, and both together would be all Secrets. Nothing but a condition waits for these.
    WatchedKind(API_KEYS, f"{API_KEYS_LABEL}=true", streamed=False),
)
"""Owners come before what they own, and leases after the pools whose keys they are signed with."""
LEASES: Final = next(kind for kind in WATCHED if kind.gapless)
NAMESPACES: Final = WatchedKind("Namespace")
"""Kept where all namespaces are served: their labels decide whose tenants may use a pool."""


def watched(namespace: str | None) -> tuple[WatchedKind, ...]:
    """What is kept in memory of one namespace, or (with `None`) of all."""
    return WATCHED if namespace else (*WATCHED, NAMESPACES)


def streamed(namespace: str | None) -> tuple[WatchedKind, ...]:
    """What kopf follows of it."""
    return tuple(kind for kind in watched(namespace) if kind.streamed and not kind.gapless)
