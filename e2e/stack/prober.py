"""A pod that asks without pause: what must be refused, and what must be served; it goes on while anything else is broken.

It runs inside the cluster, so that it needs neither the API server nor a forwarded port. A NetworkPolicy of its own lets it reach
the engine's port, which only gateways may: what it must never get there is then refused by the guard alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cachescope.core.labels import ENGINE_PORT, POOL_LABEL
from e2e.stack import kubectl
from e2e.stack.attacker import BODY, PATH
from e2e.stack.install import GATEWAY, POOL, Stack
from e2e.stack.waiting import until

NAME = "end-to-end-prober"
LABELS = {"app.kubernetes.io/name": NAME}
DIRECT, ANONYMOUS, AUTHORISED = "engine without a permit", "gateway without a key", "gateway with a key"
# Every address that the pool ever had is asked, ready or not. A line for each answer: what was asked, the status, and when.
SCRIPT = """
import http.client, json, os, socket, sys, time
what = json.load(open("/etc/prober/probes.json"))
known = {}
def ask(host, port, headers):
    link = http.client.HTTPConnection(host, port, timeout=3)
    try:
        link.request("POST", what["path"], what["body"], {"content-type": "application/json", **headers})
        return link.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        link.close()
def engines():
    try:
        found = socket.getaddrinfo(what["engines"], None, socket.AF_INET, socket.SOCK_STREAM)
        known.update((item[4][0], time.monotonic()) for item in found)
    except OSError:
        pass
    return [address for address, seen in known.items() if time.monotonic() - seen < 120]
while True:
    probes = [(what["names"][0], address, what["engine_port"], {}) for address in engines()]
    probes += [(what["names"][1], what["gateway"], 80, {}), (what["names"][2], what["gateway"], 80, what["key"])]
    for name, host, port, headers in probes:
        print(json.dumps({"asked": time.time(), "probe": name, "status": ask(host, port, headers)}), flush=True)
    time.sleep(0.3)
"""


def answers(tail: int = -1) -> Iterator[dict[str, Any]]:
    """The prober's last answers, or all: `asked` (seconds, its clock), `probe`, `status` (0 where there was no answer)."""
    for line in kubectl.run("logs", NAME, f"--tail={tail}").splitlines():
        yield json.loads(line)


def counts() -> dict[str, Counter[int]]:
    """How often each probe was answered with each status."""
    found: dict[str, Counter[int]] = {name: Counter() for name in (DIRECT, ANONYMOUS, AUTHORISED)}
    for answer in answers():
        found[answer["probe"]][answer["status"]] += 1
    return found


def served_since(moment: float) -> bool:
    """Whether a request with a key, sent after that moment of the prober's clock, was answered."""
    return any(answer["probe"] == AUTHORISED and answer["status"] == 200 and answer["asked"] > moment for answer in answers(12))


def now() -> float:
    """The present by the prober's clock: when it asked last."""
    return max((answer["asked"] for answer in answers(3)), default=0.0)


@contextmanager
def probing(stack: Stack) -> Iterator[None]:
    """A prober, until the end of the block."""
    kubectl.run("delete", "pod", NAME, "--ignore-not-found", "--grace-period=1")
    kubectl.apply([_policy(), _probes(stack), _pod(stack)])
    until(lambda: _runs() and served_since(0), "the prober is served")
    try:
        yield
    finally:
        kubectl.run("delete", "pod,secret,networkpolicy", NAME, "--grace-period=1", "--ignore-not-found")


def _runs() -> bool:
    return bool(kubectl.get("pod", NAME)["status"].get("phase") == "Running")


def _probes(stack: Stack) -> dict[str, Any]:
    domain = f"{kubectl.NAMESPACE}.svc"
    probes = {
        "names": [DIRECT, ANONYMOUS, AUTHORISED],
        "path": PATH,
        "body": BODY.decode(),
        "engines": f"{POOL}.{domain}",
        "engine_port": ENGINE_PORT,
        "gateway": f"{GATEWAY}.{domain}",
        "key": {"authorization": f"Bearer {stack.credentials.api_keys['blue-carol']}"},
    }
    return {"apiVersion": "v1", "kind": "Secret", "metadata": _metadata(), "stringData": {"probes.json": json.dumps(probes)}}


def _policy() -> dict[str, Any]:
    spec = {
        "podSelector": {"matchLabels": {POOL_LABEL: POOL}},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": {"matchLabels": LABELS}}], "ports": [{"port": ENGINE_PORT, "protocol": "TCP"}]}],
    }
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": _metadata(), "spec": spec}


def _pod(stack: Stack) -> dict[str, Any]:
    container = {
        "name": "prober",
        "image": stack.images["gateway"],
        "imagePullPolicy": "IfNotPresent",
        "command": ["/opt/cachescope/bin/python", "-c", SCRIPT],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "probes", "mountPath": "/etc/prober"}],
    }
    spec = {
        "containers": [container],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "probes", "secret": {"secretName": NAME}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(), "spec": spec}


def _metadata() -> dict[str, Any]:
    return {"name": NAME, "labels": LABELS}
