"""The API server gone for a while, and other processes of the cluster; only where they are ours."""

from __future__ import annotations

import subprocess
import sys
import time

from e2e.cluster import session
from e2e.cluster.local.processes import Process, ProcessTable
from e2e.cluster.progress import Progress
from e2e.stack.paths import LAYOUT, ROOT

API_SERVER, KUBELET = "kube-apiserver", "kubelet"
WATCHING = ("kube-controller-manager", "kube-scheduler", "kube-proxy")


def possible() -> bool:
    """Whether the cluster's API server is a process of this machine."""
    return session.recorded_provider(LAYOUT) == "local"


def without_api_server(seconds: float) -> None:
    """End the API server, and start it again after that time; returns when the cluster is whole.

    It ends as in a crash: one that leaves in order takes its address out of the Service before. The cluster's own watches wait
    longer from try to try, a minute in the end; so they are started anew with it, and whoever is tested finds a cluster that works.
    """
    _processes().crash(API_SERVER)
    time.sleep(seconds)  # the length of the outage, not a wait for anything
    _processes().stop(*WATCHING)
    bring_up()


def bring_up() -> None:
    """Start what does not run; returns when the cluster is whole.

    Raises:
        RuntimeError: It does not become so; with what was printed.
    """
    done = subprocess.run([sys.executable, "-m", "e2e.cluster", "up"], cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the cluster did not come up: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def kubelet() -> Process:
    """The kubelet of the node."""
    return _processes().records()[KUBELET].process


def _processes() -> ProcessTable:
    return ProcessTable(LAYOUT.cluster / "processes.json", logs=LAYOUT.log, progress=Progress())
