"""kubectl as the stack uses it: apply, wait, read, forward a port on loopback."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from e2e.cluster import session
from e2e.stack import api, forwarding
from e2e.stack.paths import DEMO_NAMESPACE, KUBECONFIG, LAYOUT
from e2e.stack.waiting import until

NAMESPACE = DEMO_NAMESPACE
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
    options = ("--server-side", "--force-conflicts", f"--field-manager={FIELD_MANAGER}", "-f", "-")
    return run("apply", *options, stdin=_listed(manifests), namespace=namespace)


def replace(item: dict[str, Any], namespace: str = NAMESPACE) -> str:
    """Bring an object to exactly this state, whoever owns its fields."""
    meta = {key: value for key, value in item["metadata"].items() if key not in {"resourceVersion", "managedFields", "uid"}}
    return run("replace", "-f", "-", stdin=_listed([{**item, "metadata": meta}]), namespace=namespace)


def get(*arguments: str, namespace: str = NAMESPACE) -> Any:  # noqa: ANN401 - JSON of any kind
    """Read objects as JSON."""
    return json.loads(run("get", *arguments, "-o", "json", namespace=namespace))


def exists(kind: str, name: str, namespace: str = NAMESPACE) -> bool:
    """Whether an object is there."""
    return bool(run("get", kind, name, "--ignore-not-found", "-o", "name", namespace=namespace).strip())


def rolled_out(deployment: str, seconds: int = 300, namespace: str = NAMESPACE) -> None:
    """Wait until a Deployment has rolled out."""
    wait = ("rollout", "status", f"deployment/{deployment}", f"--timeout={seconds}s")
    run(*wait, timeout=seconds + 30, namespace=namespace)


def condition(item: dict[str, Any], kind: str) -> dict[str, Any]:
    """A condition of an object; empty where it has none of that type, or one that speaks of an older spec."""
    found = [each for each in (item.get("status") or {}).get("conditions") or [] if each["type"] == kind]
    generation = item["metadata"].get("generation", 0)
    return found[0] if found and found[0].get("observedGeneration", generation) == generation else {}


def pods(labels: str, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """The pods that a label selector finds."""
    return api.pods(labels, namespace)


def staying_pods(labels: str, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """Those of them that nobody has deleted."""
    return [pod for pod in pods(labels, namespace) if "deletionTimestamp" not in pod["metadata"]]


def ready_pod(labels: str, namespace: str = NAMESPACE, *, seconds: float = 180) -> dict[str, Any]:
    """Wait for a pod that is ready and stays: one that is being deleted may be ready, and soon answers nobody.

    Raises:
        TimeoutError: There is none within that time.
    """
    found: list[dict[str, Any]] = []

    def look() -> bool:
        found[:] = [pod for pod in pods(labels, namespace) if is_ready(pod)]
        return bool(found)

    until(look, f"a pod of {labels} is ready", seconds)
    return found[0]


@contextmanager
def forwarded_pod(labels: str, port: int, namespace: str = NAMESPACE) -> Iterator[str]:
    """Where a port of a ready pod, found by its labels, is reached: `address:port`.

    Where the node is this machine that is the pod's own. Elsewhere it is forwarded to loopback, and everything that is under way
    goes with the first connection that breaks.
    """
    pod = ready_pod(labels, namespace)
    if session.recorded_provider(LAYOUT) == "local":
        yield f"{pod['status']['podIP']}:{port}"
        return
    with forwarded(f"pod/{pod['metadata']['name']}", port, namespace) as address:
        yield address


def forwarded(target: str, port: int, namespace: str = NAMESPACE) -> AbstractContextManager[str]:
    """Forward a port of a pod or Service to a free port on loopback; yields `127.0.0.1:port`."""
    return forwarding.kept([_binary(), f"--kubeconfig={KUBECONFIG}", f"--namespace={namespace}"], target, port)


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether a pod is ready and stays."""
    if "deletionTimestamp" in pod["metadata"]:
        return False
    return any(item["type"] == "Ready" and item["status"] == "True" for item in pod["status"].get("conditions") or [])


def _listed(manifests: Sequence[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})


def _binary() -> str:
    return LAYOUT.program("kubectl")
