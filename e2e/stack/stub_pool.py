"""Pools whose engine is the stub (`e2e.stub_engine`): ready within seconds, and small enough for many of them on one node."""

from __future__ import annotations

import shlex
from typing import Any

from cachescope.core.labels import POOL_LABEL
from e2e.stack import kubectl, shown
from e2e.stack.kubectl import NAMESPACE
from e2e.stack.tenancy import object_of
from e2e.stack.waiting import until
from e2e.stub_engine.faults import VARIABLE

IMAGE = "stub-engine"
VERSION = "0.32.0"
MODEL_PATH = "/models/tiny"
FAULTS = "/tmp/faults"  # noqa: S108 - an emptyDir of the pod
READY_SECONDS = 120


def document(name: str, *, image: str, replicas: int = 1, lease_seconds: int = 3, args: tuple[str, ...] = ()) -> dict[str, Any]:
    """The pool; clients name it as the model.

    Args:
        name: Its name.
        image: The stub's image.
        replicas: Engine pods.
        lease_seconds: Length of a guard's right.
        args: Further arguments of the engine, e.g. `--token-seconds 0.1`.
    """
    spec: dict[str, Any] = {
        "model": {"name": name, "source": {"imagePath": MODEL_PATH}},
        "engine": {"type": "vLLM", "version": VERSION, "image": image, "args": list(args), "env": {VARIABLE: FAULTS}},
        "replicas": replicas,
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "fence": {"leaseSeconds": lease_seconds},
    }
    return object_of("ServingPool", name, spec)


def bring_up(pool: dict[str, Any], namespace: str = NAMESPACE) -> None:
    """Apply a pool and wait until it is ready.

    Raises:
        TimeoutError: It is not within that time.
    """
    name = pool["metadata"]["name"]
    kubectl.apply([pool], namespace)
    until(lambda: is_ready(name, namespace), f"the pool {name} is Ready; see `kubectl describe servingpool {name}`", READY_SECONDS)


def is_ready(name: str, namespace: str = NAMESPACE) -> bool:
    """Whether a pool is ready, and its reuse on; see `shown.is_ready`."""
    return shown.is_ready(name, namespace)


def pods(name: str) -> str:
    """Labels of a pool's engine pods."""
    return f"{POOL_LABEL}={name}"


def set_fault(pod: str, fault: str, namespace: str = NAMESPACE) -> None:
    """Switch a fault on, e.g. `never-confirm` or `slow-prefill=2`."""
    _shell(pod, f"mkdir -p {FAULTS} && touch {FAULTS}/{shlex.quote(fault)}", namespace)


def clear_faults(pod: str, namespace: str = NAMESPACE) -> None:
    """Switch all faults off."""
    _shell(pod, f"rm -rf {FAULTS}", namespace)


def _shell(pod: str, script: str, namespace: str) -> None:
    kubectl.run("exec", pod, "-c", "engine", "--", "sh", "-c", script, namespace=namespace)
