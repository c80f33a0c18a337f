"""Why pods of a pool do not run, in words that stay the same while the fault does.

What the kubelet and the scheduler say changes from second to second (`ErrImagePull` and `ImagePullBackOff` take turns, messages
count and name pods); a condition that repeated them would be written again and again. The one pod that is named is the first by its
name, as long as it is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cachescope.kube.rest import Document

_STARTING = frozenset({"PodInitializing", "ContainerCreating"})
_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff"})
_NODES = re.compile(r"^\d+/\d+ nodes are available: ")
_COUNTS = re.compile(r"\b\d+ ")
_PODS = re.compile(r'pods "[^"]*"')


def failing(pods: Sequence[Document]) -> str:
    """What fails in the first pod that fails, and where to look; empty for nothing."""
    for pod in _by_name(pods):
        for container in _containers(pod):
            if reason := _container_fault(container, pod["metadata"]):
                return f"container {container.get('name')} of pod {pod['metadata']['name']}: {reason}"
    return ""


def unschedulable(pods: Sequence[Document]) -> tuple[str, str]:
    """Name of the first pod that the scheduler cannot place, and what it says of it; empty for none."""
    for pod in _by_name(pods):
        condition = _condition(pod, "PodScheduled")
        if condition.get("status") == "False" and condition.get("reason") == "Unschedulable":
            return pod["metadata"]["name"], _steady(str(condition.get("message", ""))) or "no reason given"
    return "", ""


def not_created(deployment: Document | None) -> str:
    """Why the Deployment's pods cannot be created (a quota, a policy); empty for nothing."""
    condition = _condition(deployment or {}, "ReplicaFailure")
    return _PODS.sub("pods", str(condition.get("message", "")))[:300] if condition.get("status") == "True" else ""


def ready(pod: Document) -> bool:
    """Whether a pod is ready and stays."""
    return _condition(pod, "Ready").get("status") == "True" and "deletionTimestamp" not in pod["metadata"]


def first(pods: Sequence[Document]) -> str:
    """Name of the first pod that stays; empty for none."""
    return next((str(pod["metadata"]["name"]) for pod in _by_name(pods) if "deletionTimestamp" not in pod["metadata"]), "")


def _by_name(pods: Sequence[Document]) -> list[Document]:
    return sorted(pods, key=lambda item: str(item["metadata"]["name"]))


def _containers(pod: Document) -> Iterable[Mapping[str, Any]]:
    status = pod.get("status") or {}
    return (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))


def _container_fault(container: Mapping[str, Any], pod: Mapping[str, Any]) -> str:
    state = container.get("state") or {}
    waiting = (state.get("waiting") or {}).get("reason", "")
    where = f"{pod['name']} -n {pod['namespace']}"
    if waiting in _IMAGE:
        return f"ImagePullBackOff: the image cannot be pulled; see `kubectl describe pod {where}`"
    ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated")
    if container.get("restartCount") and not container.get("ready") and ended and ended.get("exitCode"):
        fault = f"{ended.get('reason') or 'Error'}: it ended with exit code {ended['exitCode']}"
        return f"{fault}; see `kubectl logs {where} -c {container.get('name')} --previous`"
    return "" if waiting in _STARTING or not waiting else f"{waiting}; see `kubectl describe pod {where}`"


def _condition(document: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    conditions = (document.get("status") or {}).get("conditions") or ()
    return next((item for item in conditions if item.get("type") == kind), {})


def _steady(message: str) -> str:
    first_line = _NODES.sub("", message).split(". ")[0].rstrip(".")
    return ", ".join(sorted({_COUNTS.sub("", part).strip() for part in first_line.split(",")}))[:300]
