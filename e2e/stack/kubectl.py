"""kubectl as the stack uses it: apply, wait, read, forward a port on loopback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from e2e.stack.paths import CACHE, KUBECONFIG

NAMESPACE = "cachescope-demo"
FIELD_MANAGER = "cachescope-demo"


class KubectlError(Exception):
    """kubectl failed; the message is what it printed."""


def run(*arguments: str, stdin: str | None = None, namespace: str = NAMESPACE, timeout: float = 300) -> str:
    """Run kubectl in a namespace and return what it printed.

    Raises:
        KubectlError: It failed.
    """
    command = [_binary(), f"--kubeconfig={KUBECONFIG}", f"--namespace={namespace}", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise KubectlError(f"kubectl {' '.join(arguments[:3])}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def apply(manifests: Sequence[dict[str, Any]], namespace: str = NAMESPACE) -> str:
    """Apply objects server-side as one field manager."""
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
    options = ("--server-side", "--force-conflicts", f"--field-manager={FIELD_MANAGER}", "-f", "-")
    return run("apply", *options, stdin=document, namespace=namespace)


def get(*arguments: str, namespace: str = NAMESPACE) -> Any:  # noqa: ANN401 - JSON of any kind
    """Read objects as JSON."""
    return json.loads(run("get", *arguments, "-o", "json", namespace=namespace))


def rolled_out(deployment: str, seconds: int = 300) -> None:
    """Wait until a Deployment has rolled out."""
    run("rollout", "status", f"deployment/{deployment}", f"--timeout={seconds}s", timeout=seconds + 30)


@contextmanager
def forwarded(target: str, port: int, namespace: str = NAMESPACE) -> Iterator[str]:
    """Forward a port of a pod or Service to a free port on loopback; yields `127.0.0.1:port`."""
    command = [_binary(), f"--kubeconfig={KUBECONFIG}", f"--namespace={namespace}", "port-forward", target, f":{port}"]
    with subprocess.Popen(
        [*command, "--address=127.0.0.1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            address = _address(process)
            # It prints a line for each connection; unread, they would fill the pipe and stop it.
            threading.Thread(target=process.communicate, daemon=True).start()
            yield address
        finally:
            process.terminate()
            process.wait(10)


def _address(process: subprocess.Popen[str]) -> str:
    line = process.stdout.readline() if process.stdout else ""
    found = re.search(r"Forwarding from (127\.0\.0\.1:\d+)", line)
    if not found:
        raise KubectlError(f"port-forward did not start: {line.strip()}")
    return found.group(1)


def _binary() -> str:
    ours = [path for path in sorted((CACHE / "bin").glob("kubectl-*")) if os.access(path, os.X_OK)]
    return str(ours[-1]) if ours else "kubectl"
