"""Small resources for tests beside the demo's: pools without engines, tenants with a key."""

from __future__ import annotations

from typing import Any

API_VERSION = "cachescope.dev/v1alpha1"


def pool(name: str, *, model: str | None = None, allowed: dict[str, Any] | None = None, lease_seconds: int = 60) -> dict[str, Any]:
    """A ServingPool without engines: everything of it exists, and nothing needs memory."""
    spec: dict[str, Any] = {
        "model": {"name": model or name, "source": {"imagePath": "/models/tiny"}},
        "engine": {"type": "vLLM", "version": "0.32.0", "image": "localhost/cachescope/none:none"},
        "replicas": 0,
        "fence": {"leaseSeconds": lease_seconds},
    }
    if allowed:
        spec["allowedTenants"] = {"namespaces": {"from": "Selector", "matchLabels": allowed}}
    return {"apiVersion": API_VERSION, "kind": "ServingPool", "metadata": {"name": name}, "spec": spec}


def tenant(name: str, *secret_names: str) -> dict[str, Any]:
    """A Tenant that is known by API keys."""
    spec = {"identities": {"apiKeys": [{"secretName": secret} for secret in secret_names]}}
    return {"apiVersion": API_VERSION, "kind": "Tenant", "metadata": {"name": name}, "spec": spec}
