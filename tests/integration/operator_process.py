"""The operator as a process of its own against the real API server, and what the tests ask of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.stack import kubectl
from e2e.stack.paths import KUBECONFIG, ROOT
from tests.integration.ports import free_port

SECONDS = 60
_START = """
import os, pathlib, sys
from cachescope import logs
from cachescope.controller.main import run
from cachescope.controller.options import Options
logs.configure()
settings = pathlib.Path(sys.argv[4]) if sys.argv[4:] else None
gateway = os.environ.get("CACHESCOPE_GATEWAY_URL", "http://127.0.0.1:9")
image = "example.invalid/guard:0.1.0"
run(Options(sys.argv[1], image, port=int(sys.argv[2]), identity=sys.argv[3], settings=settings, gateway=gateway))
"""
_TEMPLATE = {"nodeSelector": {"cachescope.dev/no-such-node": "true"}}


class Operator:
    """One running process, with the settings in a file, if any."""

    def __init__(self, namespace: str, log: Path, settings: Path | None = None, gateway: str = "") -> None:
        self.port = free_port()
        self.log = log
        environment = {**os.environ, "KUBECONFIG": str(KUBECONFIG), "PYTHONPATH": str(ROOT / "operator")}
        environment |= {"CACHESCOPE_GATEWAY_URL": gateway} if gateway else {}
        arguments = [namespace, str(self.port), "test", *([str(settings)] if settings else [])]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _START, *arguments], env=environment, stdout=output, stderr=output
            )

    def ask(self, path: str) -> tuple[int, str]:
        """Status and body of a health path; 0 when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def leads(self) -> bool:
        """Whether it leads and has loaded everything."""
        return '"Leading"' in self.ask("/readyz")[1]

    def count(self, name: str) -> float:
        """The sum of a counter, Leases aside."""
        lines = [line for line in self.ask("/metrics")[1].splitlines() if line.startswith(name)]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=30)


@contextmanager
def running(namespace: str, log: Path) -> Iterator[Operator]:
    """An operator that leads."""
    operator = Operator(namespace, log)
    try:
        until(operator.leads, why=log.read_text)
        yield operator
    finally:
        operator.stop(signal.SIGKILL)


@contextmanager
def kept_running(namespace: str, log: Path, settings: Path, gateway: str = "") -> Iterator[None]:
    """An operator that is started anew whenever it ends, as the kubelet does it; it finds gateways at a URL."""
    ended = threading.Event()
    thread = threading.Thread(target=_keep_running, args=(namespace, log, settings, gateway, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _keep_running(namespace: str, log: Path, settings: Path, gateway: str, ended: threading.Event) -> None:
    while not ended.is_set():
        operator = Operator(namespace, log, settings, gateway)
        while operator.process.poll() is None and not ended.wait(0.2):
            pass
        operator.stop(signal.SIGKILL)


def pool(name: str = "tiny", **spec: Any) -> dict[str, Any]:
    """A pool whose pods no node takes."""
    model = {"name": name, "source": {"imagePath": "/model"}}
    engine = {"version": "0.32.0", "image": "example.invalid/engine:1"}
    content = {"model": model, "engine": engine, "podTemplate": _TEMPLATE, **spec}
    return resource("ServingPool", name, content)


def resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """A resource of ours."""
    return {"apiVersion": "cachescope.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def condition(kind: str, name: str, type_: str, namespace: str) -> str:
    """`<status> <reason>` of a condition of the present spec; empty while there is none."""
    found = kubectl.condition(kubectl.get(kind, name, namespace=namespace), type_)
    return f"{found['status']} {found['reason']}" if found else ""


def until(holds: Callable[[], object], *, why: Callable[[], str] = lambda: "") -> None:
    """Wait for a condition, with a deadline."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"it did not come about in {SECONDS} s\n{why()}")
        time.sleep(0.2)
