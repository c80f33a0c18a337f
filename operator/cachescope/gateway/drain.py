"""How a gateway's pod ends: Envoy lets its requests end before it goes, and the processor outlives Envoy.

Kubernetes runs the hooks of both containers at once, from the same moment:

- Envoy's serves on until no load balancer sends to the pod any more, then asks clients to leave their connections, then waits for
  the requests under way;
- the processor's waits until Envoy is gone, since Envoy answers 503 for every request without it.

Both end early when there is nothing to wait for, and at their limit in any case. Endings are asked for by a health check that is
made to fail: it closes each connection with its next answer, and leaves the listener open for who still comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.error import HTTPError
from urllib.request import Request, urlopen

ADMIN = "http://127.0.0.1:9901"
REMOVAL_SECONDS = 5.0
PERIOD_SECONDS = 0.5
_ACTIVE = "http.clients.downstream_rq_active"
"""Of the clients' listener alone: the admin interface counts the very request that asks."""


class Admin(Protocol):
    """Envoy's admin interface."""

    def ask(self, method: str, path: str) -> str | None:
        """What it answers, nothing when it does not in time, or `None` when Envoy is gone."""


@dataclass(frozen=True, slots=True)
class HttpAdmin:
    """Implements `Admin` over HTTP.

    Attributes:
        url: Where it listens.
    """

    url: str = ADMIN

    def ask(self, method: str, path: str) -> str | None:
        """What it answers, nothing when it does not in time, or `None` when Envoy is gone."""
        request = Request(self.url + path, method=method)  # noqa: S310 - the pod's own loopback
        try:
            with urlopen(request, timeout=5) as answer:  # noqa: S310 - the same
                return str(answer.read().decode())
        except HTTPError as error:  # it is there: a failed health check is a 503
            return str(error.read().decode())
        except OSError as error:
            return None if isinstance(getattr(error, "reason", error), ConnectionRefusedError) else ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A wait with an end.

    Attributes:
        limit: Seconds after which it ends in any case.
        clock: Seconds that only rise.
        pause: Lets seconds pass.
    """

    limit: float
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    def until(self, condition: Callable[[], bool]) -> bool:
        """Whether the condition held before the limit."""
        end = self.clock() + self.limit
        while not condition():
            if self.clock() >= end:
                return False
            self.pause(PERIOD_SECONDS)
        return True


def drain(admin: Admin, waiting: Waiting) -> bool:
    """Envoy's hook: let the requests under way end; whether they did before the limit."""
    # Nothing in the pod can see when the last load balancer has left it out: this is time, not a condition.
    waiting.pause(REMOVAL_SECONDS)
    admin.ask("POST", "/healthcheck/fail")
    return waiting.until(lambda: active(admin.ask("GET", f"/stats?filter=^{_ACTIVE.replace('.', '%5C.')}$")) == 0)


def outlive(admin: Admin, waiting: Waiting) -> bool:
    """The processor's hook: wait until Envoy is gone; whether it was before the limit."""
    return waiting.until(lambda: admin.ask("GET", "/ready") is None)


def active(stats: str | None) -> int | None:
    """Clients' requests under way: 0 without Envoy, `None` when it does not say."""
    if stats is None:
        return 0
    name, _, count = stats.strip().partition(": ")
    return int(count) if name == _ACTIVE and count.isdigit() else None
