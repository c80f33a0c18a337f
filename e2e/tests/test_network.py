"""Who can open a connection to an engine at all: gateways alone."""

from __future__ import annotations

from typing import Any

from e2e.stack import kubectl
from e2e.stack.install import GATEWAY, POOL, Stack
from e2e.stack.waiting import until

ATTACKER = "cachescope-attacker"
TRIES = 10
# Exit status 0: connected; 1: refused or timed out.
CONNECT = "import socket,sys\ntry: socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)\nexcept OSError: sys.exit(1)"


def test_a_pod_of_another_namespace_cannot_reach_an_engine(stack: Stack, gateway: str) -> None:  # noqa: ARG001 - it must serve
    engine = kubectl.get("pods", "-l", f"app.kubernetes.io/name={POOL}")["items"][0]["status"]["podIP"]
    door = kubectl.get("pods", "-l", f"app.kubernetes.io/name={GATEWAY}")["items"][0]["status"]["podIP"]
    kubectl.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ATTACKER}}])
    kubectl.apply([_pod(stack.site.gateway_image)], namespace=ATTACKER)
    try:
        kubectl.run("wait", "pod/attacker", "--for=condition=Ready", "--timeout=60s", namespace=ATTACKER)
        until(lambda: _connects(door, 8080), "the attacker reaches the gateway's public port")
        assert not any(_connects(engine, port) for port in (8000, 9400) for _ in range(TRIES))
        assert not any(_connects(door, 9090) for _ in range(TRIES))
    finally:
        kubectl.run("delete", "namespace", ATTACKER, "--wait=false", namespace=ATTACKER)


def _connects(address: str, port: int) -> bool:
    command = ("/opt/cachescope/bin/python", "-c", CONNECT, address, str(port))
    try:
        kubectl.run("exec", "attacker", "--", *command, namespace=ATTACKER)
    except kubectl.KubectlError:
        return False
    return True


def _pod(image: str) -> dict[str, Any]:
    sleep = ["/opt/cachescope/bin/python", "-c", "import signal; signal.pause()"]
    container = {"name": "attacker", "image": image, "imagePullPolicy": "IfNotPresent", "command": sleep}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "attacker", "namespace": ATTACKER}, "spec": spec}
