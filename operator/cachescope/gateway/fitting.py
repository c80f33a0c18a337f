"""Which endpoints fit a request, by what their guards say of themselves.

Rules:

- a body is made for one engine: an endpoint of another one never gets it, also while a pool's engine is replaced;
- a pool of one tenant is served by pods that have one cache each: by those that belong to the asker's identity, else by one that is
  nobody's yet, never by another's;
- where a request is not to reuse anything, and its engine knows neither salts nor a field for that, it is not sent;
- any other pool is served by pods that need a salt or reuse nothing, never by one that has one cache;
- a process that needs salts, and of which the probe has shown nothing yet, serves where no other does, or not at all;
- the operator's probe asks one process, and no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cachescope.api.pools import ServingPool
from cachescope.core.caches import Caching
from cachescope.core.statements import Statement
from cachescope.core.types import NO_CACHE, CacheIdentity, Reuse
from cachescope.engines.facts import EngineType
from cachescope.engines.routes import Route
from cachescope.gateway.proofs import Proofs
from cachescope.gateway.snapshot import Snapshot

_OLDEST: Final = EngineType.VLLM.value
"""What a guard is beside that says nothing of it."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What a request needs of an endpoint.

    Attributes:
        engine: Which engine its body is for.
        cache: Identity of the cache that it may use; nobody's in pools that are shared.
        boot_id: The one process that may serve it; any by default.
        proofs: What the probe has shown of the pool's processes; `None` where that does not matter.
        refuses: Whether processes of which it has shown nothing serve nothing.
    """

    engine: str = _OLDEST
    cache: CacheIdentity = NO_CACHE
    boot_id: str = ""
    proofs: Proofs | None = None
    refuses: bool = False

    def rank(self, statement: Statement, bound: CacheIdentity) -> int | None:
        """How well an endpoint fits, 0 best; `None` where it does not.

        Args:
            statement: The latest of its guard.
            bound: Identity that its cache belongs to, by all that is known.
        """
        one_cache = statement.caching == Caching.ONE_CACHE.value
        if (statement.engine_type or _OLDEST) != self.engine or one_cache != (self.cache != NO_CACHE):
            return None
        if self.boot_id not in {"", statement.boot_id}:
            return None
        if not one_cache:
            return self._rank_of_salted(statement)
        if bound == self.cache:
            return 0
        return 1 if bound == NO_CACHE else None

    def _rank_of_salted(self, statement: Statement) -> int | None:
        if self.proofs is None or self.proofs.know(statement):
            return 0
        return None if self.refuses else 1


def may_be_sent(snapshot: Snapshot, route: Route, pool: ServingPool, statement: Statement) -> bool:
    """Whether a route of a pool may be routed to an endpoint: where salts keep requests apart, each has one."""
    allowed = snapshot.policy.routes.get(pool.uid)
    if statement.caching or not route.cached:
        return True
    return route.salt is not None and (allowed is None or route.path in allowed)


def may_be_fresh(route: Route, statement: Statement, reuse: Reuse) -> bool:
    """Whether what a request may reuse can be said to an endpoint that has one cache."""
    if reuse is not Reuse.FRESH or statement.caching != Caching.ONE_CACHE.value:
        return True
    return route.unsalted is not None and bool(route.unsalted.bypass)
