"""What is known of a pool at one moment: values, and what follows from them without asking anybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packaging.version import InvalidVersion, Version

from cachescope.api.conditions import ConditionType, Reason
from cachescope.api.pools import ServingPool
from cachescope.api.statuses import IsolationStatus
from cachescope.controller import pod_faults
from cachescope.controller.fences import Fence
from cachescope.controller.lease_book import Life, Process
from cachescope.controller.origins import dedicated_to
from cachescope.core.adapters import served_names
from cachescope.core.leases import LeaseStatement
from cachescope.core.ledgers import Flags
from cachescope.engines.releases import difference
from cachescope.kube.rest import Document
from cachescope.manifests.revisions import Revision


@dataclass(frozen=True)
class Fault:
    """What is in the way of a pool.

    Attributes:
        reason: Of which kind it is.
        message: What, and what to do.
    """

    reason: Reason
    message: str


@dataclass(frozen=True)
class Elder:
    """Another pool of the namespace that serves the model's name first, for its model or for an adapter.

    Attributes:
        name: Its name.
        everywhere: Whether it gets the requests of every tenant that may use the younger one.
    """

    name: str
    everywhere: bool = True


@dataclass(frozen=True)
class Observed:
    """What is known of a pool.

    Attributes:
        pool: The pool; of an invalid one what can be relied on.
        deployment: Its Deployment.
        pods: Its engine pods.
        guards: Guards that say that they are of it, one a pod.
        gateways: Gateways of the installation whose leases did not lapse.
        epoch: The epoch that stands.
        lineage: Generation of the lineage that it stands in.
        flags: What incidents switched off.
        latest_incident: Id of the latest one.
        fence: Who has to be heard of before nothing older than that is used; `None` while nobody asked.
        fences_of_tenants: The same of each pool that was made of it.
        revision: The pod template in use.
        guard_version: The installation's guard.
        minimum_guard: Guards below it get no requests; `None` for any.
        home: The installation's namespace.
        elder: Who serves the model's name first.
        elders_of_adapters: Name of the pool that serves an adapter's name first, by that name.
        shared: Whether pools of its namespace may serve tenants of others.
        invalid: Why the spec cannot be obeyed.
        readable: Whether the spec could be read, be it obeyed or not.
        fault: What else is in the way.
        isolation: What the probe has shown; `None` where there is nothing to show.
        before: The pool's status so far.
    """

    pool: ServingPool
    deployment: Document | None = None
    pods: Sequence[Document] = ()
    guards: Sequence[Process] = ()
    gateways: Sequence[Process] = ()
    epoch: int | None = None
    lineage: int | None = None
    flags: Flags = field(default_factory=Flags)
    latest_incident: str = ""
    fence: Fence | None = None
    fences_of_tenants: Sequence[Fence | None] = ()
    revision: Revision | None = None
    guard_version: str = ""
    minimum_guard: str | None = None
    home: str = ""
    elder: Elder | None = None
    elders_of_adapters: Mapping[str, str] = field(default_factory=dict)
    shared: bool = True
    invalid: str = ""
    readable: bool = True
    fault: Fault | None = None
    isolation: IsolationStatus | None = None
    before: Mapping[str, Any] = field(default_factory=dict)
    _ready: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Find the ready pods once, and leave out guards of pods that are gone."""
        object.__setattr__(self, "_ready", frozenset(pod["metadata"]["uid"] for pod in self.pods if pod_faults.ready(pod)))
        there = {pod["metadata"]["uid"] for pod in self.pods}
        kept = tuple(guard for guard in self.guards if guard.statement and guard.statement.pod_uid in there)
        object.__setattr__(self, "guards", kept)

    @property
    def ready(self) -> int:
        """Number of ready pods."""
        return len(self._ready)

    @property
    def routable(self) -> int:
        """Number of ready pods that a gateway routes to."""
        statements = (item.statement for item in self.gateways if item.statement and self._routes(item))
        return len({uid for item in statements for uid in item.routable.get(self.pool.uid, ())} & self._ready)

    @property
    def unsettled(self) -> bool:
        """Whether there are gateways, and none of them has moved yet: what they say may be old."""
        return bool(self.gateways) and not any(item.life is Life.LIVE for item in self.gateways)

    @property
    def live_guards(self) -> list[Process]:
        """Guards that live; of those that have not moved yet, what was said before is kept."""
        return [item for item in self.guards if self.lives(item)]

    @property
    def ready_guards(self) -> list[Process]:
        """Guards that live, of ready pods."""
        return [item for item in self.live_guards if item.statement and item.statement.pod_uid in self._ready]

    @property
    def other_version(self) -> str:
        """What is wrong with the version that an engine says it has, and in which pod; empty where all say what is declared."""
        for item in self.live_guards:
            if item.statement and (why := differs(self.pool, item.statement)):
                return f"{why} (pod {item.pod})"
        return ""

    def lives(self, guard: Process) -> bool:
        """Whether a guard lives."""
        return guard.life is Life.LIVE or (guard.life is Life.UNSEEN and guard.pod in self._lived)

    def count(self, name: str) -> int:
        """A number of the Deployment's status."""
        return int(((self.deployment or {}).get("status") or {}).get(name) or 0)

    @property
    def asked(self) -> int:
        """Pods that are asked for."""
        found = ((self.deployment or {}).get("spec") or {}).get("replicas")
        return self.pool.spec.replicas if found is None else int(found)

    def said(self, kind: ConditionType) -> Mapping[str, Any]:
        """A condition of the status so far; empty when there is none."""
        return next((item for item in self.before.get("conditions") or () if item.get("type") == kind.value), {})

    @property
    def _lived(self) -> set[str]:
        return {str(item.get("pod")) for item in self.before.get("guards") or () if item.get("live")}

    def _routes(self, gateway: Process) -> bool:
        was_ready = self.said(ConditionType.READY).get("status") == "True"
        return gateway.life is Life.LIVE or (gateway.life is Life.UNSEEN and was_ready)


def differs(pool: ServingPool, said: LeaseStatement) -> str:
    """Why the version that an engine says it has is not the declared one; empty where it is, or it does not say."""
    return difference(pool.spec.engine.version, said.engine_version or None) or ""


def older(version: str, than: str) -> bool:
    """Whether a version is older than another one; one that cannot be read is, unless it is the same."""
    try:
        return Version(version) < Version(than)
    except InvalidVersion:
        return version != than


def elder_of(pool: ServingPool, others: Sequence[Mapping[str, Any]], *, shared: bool = True) -> Elder | None:
    """The pool of the namespace that serves the name of a pool's model first; `None` when it is this one.

    As gateways choose it: also a pool that cannot be read keeps its model name, and of pools of single tenants the ones that they
    were made of are compared.

    Args:
        pool: The pool.
        others: All pools of its namespace.
        shared: Whether pools of that namespace may serve tenants of others.
    """
    older_ones = _older_ones(pool, others, pool.spec.model.name)
    if not older_ones:
        return None
    everywhere = not shared or any(_admits_all_of(item, pool) for item in older_ones)
    return Elder(str(older_ones[0]["metadata"]["name"]), everywhere)


def elders_of_adapters(pool: ServingPool, others: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The pool of the namespace that serves the name of an adapter first, by that name, where it is not this one.

    Args:
        pool: The pool.
        others: All pools of its namespace.
    """
    found = {adapter.name: _older_ones(pool, others, adapter.name) for adapter in pool.spec.engine.adapters}
    return {name: str(older_ones[0]["metadata"]["name"]) for name, older_ones in found.items() if older_ones}


def _older_ones(pool: ServingPool, others: Sequence[Mapping[str, Any]], served: str) -> list[Mapping[str, Any]]:
    """Older pools that serve a name, the oldest first."""

    def age(document: Mapping[str, Any]) -> tuple[str, str]:
        return document["metadata"].get("creationTimestamp", ""), document["metadata"]["uid"]

    mine = (pool.metadata.creation_timestamp, pool.uid)
    compared = () if pool.spec.dedicated_to else [item for item in others if dedicated_to(item) is None]
    return sorted((item for item in compared if age(item) < mine and served in served_names(item)), key=age)


def _admits_all_of(other: Mapping[str, Any], pool: ServingPool) -> bool:
    """Whether another pool of the namespace admits every tenant that a pool admits."""
    mine = pool.spec.allowed_tenants.namespaces.match_labels
    if mine is None:
        return True  # its own namespace alone, which every pool of it admits
    namespaces = ((other.get("spec") or {}).get("allowedTenants") or {}).get("namespaces") or {}
    theirs = namespaces.get("matchLabels")
    return isinstance(theirs, Mapping) and bool(theirs) and theirs.items() <= mine.items()
