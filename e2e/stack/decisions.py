"""What gateways decided, as their own audit lines say."""

from __future__ import annotations

import json
from typing import Any

from e2e.stack import kubectl
from e2e.stack.install import GATEWAY_PODS

CONTAINER = "processor"


def forwarded(pod: str) -> list[dict[str, Any]]:
    """Audit lines of the requests that a gateway has forwarded since it began, as far as its log is kept; the oldest first."""
    logged = kubectl.run("logs", pod, "-c", CONTAINER, "--tail=-1").splitlines()
    found = [json.loads(line) for line in logged if line.startswith("{")]
    return [line for line in found if line["event"] == "forwarded"]


def forwarded_by_all(pool: str) -> list[dict[str, Any]]:
    """The same of all gateways, of the requests to one pool."""
    names = [pod["metadata"]["name"] for pod in kubectl.pods(GATEWAY_PODS)]
    return [line for name in names for line in forwarded(name) if line["pool"] == f"{kubectl.NAMESPACE}/{pool}"]
