"""Changes to what Helm or the operator made, that are undone at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from e2e.stack import kubectl
from e2e.stack.install import OPERATOR, OPERATOR_PODS
from e2e.stack.waiting import until

Manifest = dict[str, Any]


@contextmanager
def changed(kind: str, name: str, change: Callable[[Manifest], None], namespace: str = kubectl.NAMESPACE) -> Iterator[None]:
    """An object as `change` makes it; afterwards exactly as it was."""
    before = kubectl.get(kind, name, namespace=namespace)
    after = deepcopy(before)
    change(after)
    kubectl.replace(after, namespace)
    try:
        yield
    finally:
        kubectl.replace(before, namespace)


@contextmanager
def removed(kind: str, name: str) -> Iterator[None]:
    """An object's absence; afterwards it is there again."""
    before = kubectl.get(kind, name)
    kubectl.run("delete", kind, name)
    try:
        yield
    finally:
        meta = {key: before["metadata"][key] for key in ("name", "namespace", "labels", "annotations") if key in before["metadata"]}
        kubectl.apply([{**before, "metadata": meta}])


@contextmanager
def no_operator() -> Iterator[None]:
    """Nobody heals meanwhile: the operator's Deployment has no pods, and then as many as before."""
    replicas = kubectl.get("deployment", OPERATOR)["spec"]["replicas"]
    kubectl.run("scale", "deployment", OPERATOR, "--replicas=0")
    until(lambda: not kubectl.pods(OPERATOR_PODS), "the operator is gone")
    try:
        yield
    finally:
        kubectl.run("scale", "deployment", OPERATOR, f"--replicas={replicas}")
        kubectl.rolled_out(OPERATOR)
