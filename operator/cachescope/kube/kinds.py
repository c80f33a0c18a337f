"""Which REST path an object has: kinds, their versions and their plural names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cachescope.api.documents import API_VERSION
from cachescope.kube.rest import collection

_RBAC: Final = "rbac.authorization.k8s.io/v1"

KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "ConfigMap": ("v1", "configmaps"),
    "ControllerRevision": ("apps/v1", "controllerrevisions"),
    "Deployment": ("apps/v1", "deployments"),
    "Event": ("events.k8s.io/v1", "events"),
    "Lease": ("coordination.k8s.io/v1", "leases"),
    "Namespace": ("v1", "namespaces"),
    "NetworkPolicy": ("networking.k8s.io/v1", "networkpolicies"),
    "Pod": ("v1", "pods"),
    "PodDisruptionBudget": ("policy/v1", "poddisruptionbudgets"),
    "Role": (_RBAC, "roles"),
    "RoleBinding": (_RBAC, "rolebindings"),
    "Secret": ("v1", "secrets"),
    "Service": ("v1", "services"),
    "ServiceAccount": ("v1", "serviceaccounts"),
    "CacheEpoch": (API_VERSION, "cacheepochs"),
    "CacheScope": (API_VERSION, "cachescopes"),
    "EpochLedger": (API_VERSION, "epochledgers"),
    "FenceLease": (API_VERSION, "fenceleases"),
    "PublicSource": (API_VERSION, "publicsources"),
    "ServingPool": (API_VERSION, "servingpools"),
    "Tenant": (API_VERSION, "tenants"),
}
"""API version and plural name of each kind; all but `Namespace` are namespaced."""


def collection_of(kind: str, namespace: str | None) -> str:
    """Path of all objects of a kind, in one namespace or (with `None`) in all.

    Raises:
        RuntimeError: The kind is not in the table.
    """
    if kind not in KINDS:
        raise RuntimeError(f"the kind {kind!r} has no path here; add it to the table of kinds")
    return collection(*KINDS[kind], namespace)


def path_of(document: Mapping[str, Any]) -> str:
    """Path of an object, by its kind, namespace and name.

    Raises:
        RuntimeError: The kind is not in the table, or the object has no namespace.
    """
    metadata = document["metadata"]
    if not metadata.get("namespace"):
        raise RuntimeError(f"the {document['kind']} {metadata['name']} has no namespace; give its manifest one")
    return f"{collection_of(document['kind'], metadata['namespace'])}/{metadata['name']}"
