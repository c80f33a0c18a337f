"""etcd put back to an earlier state, as after a disaster; only where the control plane's processes are ours.

The data folder is copied while nothing runs, so that the copy is whole. What anybody wrote to the cluster in between is gone.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e2e.cluster.local.components import CONTROL_PLANE
from e2e.cluster.local.processes import ProcessTable, send
from e2e.cluster.progress import Progress
from e2e.faults.processes import of_pod, stopped
from e2e.stack import outage
from e2e.stack.paths import LAYOUT

DATA, COPY = LAYOUT.cluster / "etcd", LAYOUT.cluster / "etcd-copy"
_PODS = LAYOUT.cluster / "kubelet" / "pods"
_EMPTY_DIRS = "volumes/kubernetes.io~empty-dir"
STATE = "guard-state"


def copy() -> None:
    """Keep a copy of the present."""
    _down()
    shutil.rmtree(COPY, ignore_errors=True)
    shutil.copytree(DATA, COPY)
    _up()


def put_back(meanwhile: Callable[[], object] = lambda: None) -> None:
    """Go back to the copy, which is used up by that; `meanwhile` is done while no API server is there."""
    _down()
    meanwhile()
    shutil.rmtree(DATA)
    COPY.rename(DATA)
    _up()


def forget(pods: list[dict[str, Any]]) -> None:
    """Take from pods all that they remember, and end their processes; the kubelet starts them again."""
    for pod in pods:
        processes = of_pod(pod)
        with stopped(*processes):  # so that none writes down what it knows before it ends
            for memory in _memories(pod):
                memory.unlink()
            for process in processes:
                send(process, signal.SIGKILL)


def _memories(pod: dict[str, Any]) -> list[Path]:
    folder = _PODS / pod["metadata"]["uid"] / _EMPTY_DIRS / STATE
    return [path for path in folder.rglob("*") if path.is_file()]


def _down() -> None:
    ProcessTable(LAYOUT.cluster / "processes.json", logs=LAYOUT.log, progress=Progress()).stop(*reversed(CONTROL_PLANE))


def _up() -> None:
    outage.bring_up()
