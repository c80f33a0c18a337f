"""Parts that every pod of the project shares: metadata, restricted security, writable folders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cachescope.core.labels import COMPONENT_LABEL, MANAGED_BY_LABEL, NAME_LABEL, PART_OF_LABEL

Manifest = dict[str, Any]
"""One Kubernetes object."""


@dataclass(frozen=True)
class Site:
    """Where and from which images an installation is rendered.

    Attributes:
        namespace: Namespace of the gateway and the pools; it belongs to the platform.
        gateway_image: Image of the gateway.
        guard_image: Image of the init container that brings the guard.
        monitoring_namespace: Namespace that may scrape metrics.
    """

    namespace: str
    gateway_image: str
    guard_image: str
    monitoring_namespace: str = "monitoring"


def metadata(site: Site, name: str, component: str, **labels: str) -> Manifest:
    """Object metadata with the recommended labels."""
    return {
        "name": name,
        "namespace": site.namespace,
        "labels": {**selector(name, component), PART_OF_LABEL: "cachescope", **labels},
    }


def selector(name: str, component: str) -> dict[str, str]:
    """Labels that select the pods of one component."""
    return {NAME_LABEL: name, COMPONENT_LABEL: component, MANAGED_BY_LABEL: "cachescope"}


def pod_security() -> Manifest:
    """Pod security context of the restricted profile; no fixed UID, so that any platform may choose one."""
    return {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def container_security() -> Manifest:
    """Container security context of the restricted profile, with a read-only root file system."""
    return {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def environment(values: Mapping[str, str], **from_fields: str) -> list[Manifest]:
    """Environment variables: plain values, then those that the pod's own fields give."""
    plain = [{"name": name, "value": value} for name, value in values.items()]
    return plain + [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in from_fields.items()]


def literal(text: str) -> str:
    """A text that Kubernetes hands over as it is: `$(NAME)` would be replaced after it was checked here."""
    return text.replace("$", "$$")


def empty_dirs(names: Iterable[str]) -> list[Manifest]:
    """Writable folders that live as long as the pod."""
    return [{"name": name, "emptyDir": {}} for name in names]


def http_probe(path: str, port: str, *, period: int = 5, failures: int = 3, scheme: str = "HTTP") -> Manifest:
    """A probe by HTTP or HTTPS; seconds and failures as in a pod."""
    target = {"path": path, "port": port, "scheme": scheme}
    return {"httpGet": target, "periodSeconds": period, "failureThreshold": failures, "timeoutSeconds": 5}


def liveness_probe(path: str, port: str, *, failures: int = 3, scheme: str = "HTTP") -> Manifest:
    """A probe whose failure restarts the container soon: one that hangs has nothing to drain, and its preStop hook would wait."""
    probe = http_probe(path, port, period=10, failures=failures, scheme=scheme)
    return {**probe, "terminationGracePeriodSeconds": 10}
