"""Processes of pods, which are processes of this machine: stopped, continued, killed, and cut off from the API server."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.cluster.local.processes import Process, identify, send
from e2e.cluster.local.settings import API_SERVICE_ADDRESS, NODE_ADDRESS

PAUSE = b"/pause"
RULES = tuple(
    (chain, "-p", "tcp", side, address, "-j", "DROP")
    for chain, side in (("OUTPUT", "-d"), ("INPUT", "-s"))
    for address in (API_SERVICE_ADDRESS, NODE_ADDRESS)
)


def of_pod(pod: dict[str, Any], program: str = "") -> tuple[Process, ...]:
    """A pod's processes, the one that holds its network namespace aside.

    Args:
        pod: The pod.
        program: Text that their command lines contain.

    Raises:
        LookupError: There is none.
    """
    uid = pod["metadata"]["uid"]
    marks = {uid, uid.replace("-", "_")}
    found = tuple(process for path in Path("/proc").glob("[0-9]*") if (process := _matching(path, marks, program.encode())))
    if not found:
        raise LookupError(f"no process {program} of pod {pod['metadata']['name']} runs on this machine; look at the pod")
    return found


@contextmanager
def stopped(*processes: Process) -> Iterator[None]:
    """Processes that stand still."""
    for process in processes:
        send(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            send(process, signal.SIGCONT)


@contextmanager
def cut_off(pod: dict[str, Any]) -> Iterator[None]:
    """A pod that no packet from or to the API server passes; nothing is refused, all of it is lost."""
    # Held open: a container that is started anew has other processes in the same network.
    network = os.open(f"/proc/{of_pod(pod)[0].pid}/ns/net", os.O_RDONLY)
    try:
        for rule in RULES:
            _iptables(network, "-I", *rule)
        yield
    finally:
        for rule in RULES:
            _iptables(network, "-D", *rule)
        os.close(network)


def _matching(path: Path, marks: set[str], program: bytes) -> Process | None:
    try:
        groups, command = (path / "cgroup").read_text(), (path / "cmdline").read_bytes()
    except OSError:
        return None  # it ended while we looked
    if not any(mark in groups for mark in marks) or command.startswith(PAUSE) or program not in command:
        return None
    return identify(int(path.name))


def _iptables(network: int, *arguments: str) -> None:
    entered = f"--net=/proc/{os.getpid()}/fd/{network}"
    subprocess.run(["nsenter", entered, "iptables", "-w", *arguments], check=True, capture_output=True)
