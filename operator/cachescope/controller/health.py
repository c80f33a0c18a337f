"""Health of the operator's process, for the kubelet and for whoever is on call.

- `/healthz` fails when a watch has not been current for too long: the process is then made anew. A standby is alive.
- `/readyz` says that the process does its part: leading with everything loaded, or waiting for the Lease. A standby is ready, or a
  Deployment could not roll: the new pod would wait for the Lease of the old one, and the old one for the new one to be ready.
  What is wrong with the mounted settings is said too; with the last good ones in force the process does its part all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from aiohttp import web
from prometheus_client import CollectorRegistry

from cachescope.health_port import serve

MAX_AGE_SECONDS: Final = 900.0


@dataclass
class Health:
    """What a process says of itself.

    Attributes:
        role: What it does now.
        ages: Seconds since each kind's watch was known to be current.
        settings_fault: What is wrong with the mounted settings; empty when nothing is.
    """

    role: Literal["Starting", "Standby", "Loading", "Leading"] = "Starting"
    ages: Callable[[], Mapping[str, float]] = field(default=dict)
    settings_fault: Callable[[], str] = field(default=str)

    def stale(self) -> dict[str, float]:
        """Kinds whose watch is too old, and how old it is."""
        return {kind: round(age, 1) for kind, age in self.ages().items() if age > MAX_AGE_SECONDS}

    def alive(self) -> tuple[bool, dict[str, object]]:
        """Whether the process is worth keeping."""
        stale = self.stale()
        return not stale, {"alive": not stale, "role": self.role, "stale": stale}

    def ready(self) -> tuple[bool, dict[str, object]]:
        """Whether it does its part."""
        ready = self.role in ("Standby", "Leading")
        oldest = max(self.ages().values(), default=0.0)
        found: dict[str, object] = {"ready": ready, "role": self.role, "oldest_watch_seconds": round(oldest, 1)}
        fault = self.settings_fault()
        return ready, {**found, "settings_fault": fault} if fault else found


async def serve_health(health: Health, registry: CollectorRegistry, port: int) -> web.AppRunner:
    """Serve `/healthz`, `/readyz` and `/metrics`; clean the returned runner up to stop."""
    return await serve(health.alive, health.ready, registry, port)
