"""Seconds of CPU that processes of this machine used: the cluster's, and those that a measurement started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from e2e.cluster.local.processes import ProcessTable, alive
from e2e.cluster.progress import Progress
from e2e.stack.paths import LAYOUT

_TICKS = os.sysconf("SC_CLK_TCK")
_COMPONENTS = ("kube-apiserver", "etcd")


def processes(**others: int) -> dict[str, int]:
    """Process ids by name: of the cluster's API server and store as far as they run here, and others."""
    table = ProcessTable(LAYOUT.cluster / "processes.json", logs=LAYOUT.log, progress=Progress()).records()
    ours = {name: table[name].process for name in _COMPONENTS if name in table}
    return {name: process.pid for name, process in ours.items() if alive(process)} | others


def used(pids: Mapping[str, int]) -> dict[str, float]:
    """Seconds of CPU so far, by name; proc_pid_stat(5), fields 14 and 15. A name `machine` is added: all processes together."""
    found = {name: _seconds(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]) for name, pid in pids.items()}
    user, nice, system = Path("/proc/stat").read_text().split()[1:4]
    return found | {"machine": _seconds([user, nice, system])}


def since(before: Mapping[str, float], pids: Mapping[str, int]) -> dict[str, float]:
    """Seconds of CPU since then, by name."""
    return {name: value - before[name] for name, value in used(pids).items()}


def shown(seconds: Mapping[str, float]) -> str:
    """For people."""
    return ", ".join(f"{name} {value:.2f}" for name, value in seconds.items())


def _seconds(ticks: list[str]) -> float:
    return sum(map(int, ticks)) / _TICKS
