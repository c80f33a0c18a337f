"""Whether a pool serves, and reuses: it was shown that it keeps tenants apart, and every gateway has heard of it."""

from __future__ import annotations

from typing import Any

from e2e.stack import api, kubectl

_GATEWAY_PODS = "app.kubernetes.io/component=gateway"
_READINESS_PORT = 9090


def is_ready(name: str, namespace: str) -> bool:
    """Whether a pool says that it is ready, of the spec that it has now, and may reuse, unless an incident switched that off."""
    pool = api.get("servingpools", name, namespace)
    if kubectl.condition(pool, "Ready").get("status") != "True":
        return False
    verified = kubectl.condition(pool, "IsolationVerified").get("status") == "True"
    return verified and all(_reuses(pod, f"{namespace}/{name}") for pod in _gateways())


def _gateways() -> list[dict[str, Any]]:
    return [pod for pod in api.pods_everywhere(_GATEWAY_PODS) if kubectl.is_ready(pod)]


def _reuses(gateway: dict[str, Any], pool: str) -> bool:
    """Whether a gateway lets every process of a pool reuse; one of another installation has no say."""
    try:
        states = api.asked(gateway, _READINESS_PORT, "/readyz")["pools"].get(pool, {})
    except api.UnreadError:
        return False
    return isinstance(states, dict) and all(state == "routable" for state in states.values())
