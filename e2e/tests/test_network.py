"""Who can open a connection to whom: clients the gateway's public port, monitoring the metrics, engines the API; nobody more."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from cachescope.core.labels import ENGINE_PORT, GUARD_METRICS_PORT
from e2e.stack import kubectl
from e2e.stack.install import ENGINE_PODS, GATEWAY_METRICS_PORT, GATEWAY_PODS, GATEWAY_PORT, MONITORING, Stack
from e2e.stack.node_firewall import undisturbed
from e2e.stack.waiting import until

TRIES = 10
NEVER = [False] * TRIES
CONNECTED, REFUSED = "connected", "refused"
API_SERVER = ("$KUBERNETES_SERVICE_HOST", 443)
# It prints what it found; whatever else happens (no pod, no Python, a wrong argument) prints neither word and is no result.
CONNECT = f"""
import os, socket, sys
try:
    socket.create_connection((os.path.expandvars(sys.argv[1]), int(sys.argv[2])), 2).close()
except (ConnectionRefusedError, TimeoutError):
    print("{REFUSED}")
else:
    print("{CONNECTED}")
"""


@dataclass(frozen=True)
class Visitor:
    """A pod that tries to connect.

    Attributes:
        namespace: Where it runs.
        name: Its name.
    """

    namespace: str
    name: str

    def connects(self, address: str, port: int) -> bool:
        """Whether a connection is accepted, instead of refused or dropped."""
        command = ("/opt/cachescope/bin/python", "-c", CONNECT, address, str(port))
        said = kubectl.run("exec", self.name, "--", *command, namespace=self.namespace).strip()
        assert said in {CONNECTED, REFUSED}, said
        return said == CONNECTED


@pytest.fixture
def addresses(gateway: str) -> tuple[str, str]:  # noqa: ARG001 - everything serves before anything is refused
    """Pod addresses of an engine and of a gateway."""
    engine, door = (kubectl.ready_pod(name)["status"]["podIP"] for name in (ENGINE_PODS, GATEWAY_PODS))
    return engine, door


def test_a_pod_of_another_namespace_reaches_the_public_port_alone(stack: Stack, addresses: tuple[str, str]) -> None:
    engine, door = addresses
    with _namespace(f"cachescope-stranger-{secrets.token_hex(4)}") as name, _visitor(stack, name) as stranger:
        until(lambda: stranger.connects(door, GATEWAY_PORT), "the stranger reaches the gateway's public port")
        for port in (ENGINE_PORT, GUARD_METRICS_PORT):
            assert undisturbed(partial(stranger.connects, engine, port), TRIES) == NEVER, port
        assert undisturbed(partial(stranger.connects, door, GATEWAY_METRICS_PORT), TRIES) == NEVER
        assert stranger.connects(door, GATEWAY_PORT), "the stranger lost its network meanwhile: the refusals prove nothing"


def test_the_monitoring_namespace_reaches_the_metrics_and_no_engine(stack: Stack, addresses: tuple[str, str]) -> None:
    engine, door = addresses
    with _namespace(MONITORING) as name, _visitor(stack, name) as monitor:
        until(lambda: monitor.connects(engine, GUARD_METRICS_PORT), "monitoring reaches the guard's metrics")
        until(lambda: monitor.connects(door, GATEWAY_METRICS_PORT), "monitoring reaches the gateway's metrics")
        assert undisturbed(partial(monitor.connects, engine, ENGINE_PORT), TRIES) == NEVER
        assert monitor.connects(engine, GUARD_METRICS_PORT)


def test_an_engine_reaches_the_api_server_and_nobody_else(addresses: tuple[str, str]) -> None:
    _, door = addresses
    engine = kubectl.ready_pod(ENGINE_PODS)["metadata"]["name"]
    assert _engine_connects(engine, *API_SERVER)
    for port in (GATEWAY_PORT, GATEWAY_METRICS_PORT):
        assert undisturbed(partial(_engine_connects, engine, door, port), TRIES) == NEVER, port
    assert _engine_connects(engine, *API_SERVER), "the engine lost its network meanwhile: the refusals prove nothing"


def _engine_connects(pod: str, address: str, port: int) -> bool:
    said = kubectl.run("exec", pod, "-c", "engine", "--", "python3", "-c", CONNECT, address, str(port)).strip()
    assert said in {CONNECTED, REFUSED}, said
    return said == CONNECTED


@contextmanager
def _namespace(name: str) -> Iterator[str]:
    """A namespace; one that was there before, as monitoring may be on somebody's cluster, stays."""
    existed = bool(kubectl.run("get", "namespace", name, "--ignore-not-found", "-o", "name").strip())
    if not existed:
        kubectl.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}])
    try:
        yield name
    finally:
        if not existed:
            kubectl.run("delete", "namespace", name, "--wait=true", "--timeout=120s")


@contextmanager
def _visitor(stack: Stack, namespace: str) -> Iterator[Visitor]:
    visitor = Visitor(namespace, f"cachescope-visitor-{secrets.token_hex(4)}")
    kubectl.apply([_pod(visitor, stack.images["gateway"])], namespace=namespace)
    try:
        kubectl.run("wait", f"pod/{visitor.name}", "--for=condition=Ready", "--timeout=60s", namespace=namespace)
        yield visitor
    finally:
        kubectl.run("delete", "pod", visitor.name, "--wait=false", namespace=namespace)


def _pod(visitor: Visitor, image: str) -> dict[str, Any]:
    idle = ["/opt/cachescope/bin/python", "-c", "import signal; signal.pause()"]
    container = {"name": "visitor", "image": image, "imagePullPolicy": "IfNotPresent", "command": idle}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    meta = {"name": visitor.name, "namespace": visitor.namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
