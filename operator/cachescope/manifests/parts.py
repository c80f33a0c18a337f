"""Parts of pods: labels, restricted security, writable folders, probes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cachescope.core.labels import COMPONENT_LABEL, MANAGED_BY_LABEL, NAME_LABEL

HUNG_GRACE_SECONDS = 10
"""Until a container that hangs is killed: it has nothing to drain, and its preStop hook would wait."""

Manifest = dict[str, Any]
"""One Kubernetes object."""


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


def http_probe(path: str, port: str | int, *, period: int = 5, failures: int = 3) -> Manifest:
    """A probe by HTTP; seconds and failures as in a pod."""
    target = {"path": path, "port": port, "scheme": "HTTP"}
    return {"httpGet": target, "periodSeconds": period, "failureThreshold": failures, "timeoutSeconds": 5}


def liveness_probe(path: str, port: str, *, failures: int = 3) -> Manifest:
    """A probe whose failure restarts the container soon."""
    probe = http_probe(path, port, period=10, failures=failures)
    return {**probe, "terminationGracePeriodSeconds": HUNG_GRACE_SECONDS}
