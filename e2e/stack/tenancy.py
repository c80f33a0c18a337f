"""Small resources for tests beside the demo's: pools without engines, tenants with a key, approved texts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from cachescope.core.digests import sha256

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
    return object_of("ServingPool", name, spec)


def tenant(name: str, *secret_names: str) -> dict[str, Any]:
    """A Tenant that is known by API keys."""
    spec = {"identities": {"apiKeys": [{"secretName": secret} for secret in secret_names]}}
    return object_of("Tenant", name, spec)


def public_source(name: str, text: str, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of any kind
    """A text that somebody approved for a day; `changes` are other fields of its spec."""
    now = datetime.now(UTC)
    approval = {
        "by": "end-to-end",
        "at": (now - timedelta(minutes=1)).isoformat(),
        "expires": (now + timedelta(days=1)).isoformat(),
    }
    return object_of("PublicSource", name, {"digest": sha256(text.encode()), "approval": approval, **changes})


def object_of(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """An object of one of our kinds."""
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}
