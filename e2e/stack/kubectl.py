"""kubectl as the stack uses it: apply, wait, read, forward a port on loopback."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from e2e.stack import forwarding
from e2e.stack.paths import KUBECONFIG, LAYOUT
from e2e.stack.waiting import until

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


def pods(name: str, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """The pods whose label `app.kubernetes.io/name` is that name."""
    found: list[dict[str, Any]] = get("pods", "-l", f"app.kubernetes.io/name={name}", namespace=namespace)["items"]
    return found


def ready_pod(name: str, namespace: str = NAMESPACE, *, seconds: float = 180) -> dict[str, Any]:
    """Wait for a pod that is ready and stays: one that is being deleted may be ready, and soon answers nobody.

    Raises:
        TimeoutError: There is none within that time.
    """
    found: list[dict[str, Any]] = []

    def look() -> bool:
        found[:] = [pod for pod in pods(name, namespace) if _is_ready(pod)]
        return bool(found)

    until(look, f"a pod of {name} is ready", seconds)
    return found[0]


@contextmanager
def forwarded_pod(name: str, port: int, namespace: str = NAMESPACE) -> Iterator[str]:
    """Forward a port of a ready pod, found by its name label; yields `127.0.0.1:port`."""
    with forwarded(f"pod/{ready_pod(name, namespace)['metadata']['name']}", port, namespace) as address:
        yield address


def forwarded(target: str, port: int, namespace: str = NAMESPACE) -> AbstractContextManager[str]:
    """Forward a port of a pod or Service to a free port on loopback; yields `127.0.0.1:port`."""
    return forwarding.kept([_binary(), f"--kubeconfig={KUBECONFIG}", f"--namespace={namespace}"], target, port)


def _is_ready(pod: dict[str, Any]) -> bool:
    if "deletionTimestamp" in pod["metadata"]:
        return False
    return any(item["type"] == "Ready" and item["status"] == "True" for item in pod["status"].get("conditions") or [])


def _binary() -> str:
    return LAYOUT.program("kubectl")
