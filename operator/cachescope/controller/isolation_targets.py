"""Which processes are to be probed: what is known of them, and when each is due.

Rules:

- only processes that share a cache between tenants are: the others keep tenants apart by what they are;
- a process that nothing is known of is due at once, any other after the pool's `verifySeconds`;
- one that leaked is never probed again: there is nothing that would let it serve;
- one whose engine says another version than the declared one is not: what the catalogue says is not of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cachescope.api.documents import parse
from cachescope.api.pools import ServingPool
from cachescope.controller import pod_faults
from cachescope.controller.lease_book import Life, Process
from cachescope.controller.observed_pools import differs
from cachescope.controller.store import Key, key_of
from cachescope.core.errors import SpecError
from cachescope.core.labels import GUARD_METRICS_PORT
from cachescope.engines.facts import EngineType, Mode
from cachescope.engines.pool_modes import choice_of
from cachescope.engines.routes import Route
from cachescope.engines.tables import TABLES
from cachescope.kube.rest import Document

_ENGINE: Final = "engine"
"""Name of the engine's container."""


@dataclass(frozen=True, slots=True)
class Target:
    """One process of a pool.

    Attributes:
        pool: Key of the pool.
        pool_uid: UID of the pool.
        model: Name of its model.
        routes: Routes that clients may reach.
        verify_seconds: How often it is to be verified.
        boot_id: Of its guard.
        pod: Name of its pod.
        metrics: URL of its guard's metrics.
        restarts: How often the engine's container began anew in its pod: beside a sidecar that stays it is another process.
    """

    pool: Key
    pool_uid: str
    model: str
    routes: tuple[Route, ...]
    verify_seconds: int
    boot_id: str
    pod: str
    metrics: str
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Shared:
    """A pool whose engines share a cache between tenants.

    Attributes:
        pool: The pool.
        routes: Routes that clients may reach.
    """

    pool: ServingPool
    routes: tuple[Route, ...]


def shared_pool(document: Document) -> Shared | None:
    """A pool whose engines share a cache between tenants, as far as its spec can be obeyed; `None` for any other."""
    try:
        wanted = {name: value for name, value in document.items() if name != "status"}
        pool = parse(ServingPool, wanted, f"ServingPool {document['metadata']['name']}")
    except SpecError:
        return None
    choice = choice_of(pool)
    if choice.mode is not Mode.SHARED:
        return None
    routes = TABLES[EngineType(pool.spec.engine.type)].values()
    return Shared(pool, tuple(route for route in routes if choice.routes is None or route.path in choice.routes))


def targets(document: Document, shared: Shared, guards: Iterable[Process], pods: Mapping[str, Document]) -> Iterator[Target]:
    """The processes of a pool that serve.

    Args:
        document: The pool.
        shared: What it asks for.
        guards: Its guards.
        pods: Pods by UID, its own among them.
    """
    for guard in guards:
        said = guard.statement
        pod = pods.get(said.pod_uid) if said else None
        if said is None or not _serves(guard, pod) or differs(shared.pool, said):
            continue
        yield Target(
            pool=key_of("ServingPool", document),
            pool_uid=shared.pool.uid,
            model=shared.pool.spec.model.name,
            routes=shared.routes,
            verify_seconds=shared.pool.spec.isolation.verify_seconds,
            boot_id=said.boot_id,
            pod=guard.pod,
            metrics=_metrics(pod or {}),
            restarts=_restarts(pod or {}),
        )


def _serves(guard: Process, pod: Document | None) -> bool:
    """Whether a process serves, by all that is known; its pod's watch may be behind."""
    going = guard.statement is None or guard.statement.released
    return not going and guard.life is Life.LIVE and (pod is None or pod_faults.ready(pod))


def _restarts(pod: Mapping[str, Any]) -> int:
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((int(item.get("restartCount") or 0) for item in containers if item.get("name") == _ENGINE), 0)


def _metrics(pod: Mapping[str, Any]) -> str:
    address = str((pod.get("status") or {}).get("podIP") or "")
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{GUARD_METRICS_PORT}/metrics" if address else ""
