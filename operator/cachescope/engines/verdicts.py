"""What an engine does with the salts of a pool, route by route: pure.

Rules:

- what nobody read is `Unknown`, and `Unknown` is never `Enforced`;
- a route is as good as the worst of its version, its hash, each connector and itself;
- a running engine that says it is another version makes every route `Unknown`, and is said in a field of its own;
- every sentence ends with the remedy, where there is something to remedy.

Which mode follows is left to `modes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cachescope.engines import connectors_of, settings_of
from cachescope.engines.connector_findings import joined, of_connectors, tier
from cachescope.engines.descriptions import Description
from cachescope.engines.facts import EngineType, Facts, Tier
from cachescope.engines.findings import Finding, enforcing_hashes, of_engine, of_hash, of_route
from cachescope.engines.releases import difference, read_release
from cachescope.engines.routes import Capability
from cachescope.engines.settings_of import PlatformSetting, Problem

_WORST = (Capability.UNSUPPORTED, Capability.BROKEN, Capability.UNKNOWN, Capability.ENFORCED)


@dataclass(frozen=True, slots=True)
class RouteVerdict:
    """What the engine does with a salt on one route, and one sentence why."""

    path: str
    capability: Capability
    why: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of a pool's engine.

    Attributes:
        engine: Which one.
        version: As declared.
        routes: Every route that reaches the cache, by path.
        without_cache: Routes that reach no cache, so that they may be routed anyway.
        asked: Whether the pool said which routes it must serve.
        problems: Settings that are refused.
        overrides: Settings that the platform gives, whatever anybody says.
        kept: Connectors that keep blocks outside the engine's processes.
        connected: All connectors.
        stays_on: Why reuse cannot be switched off; `None` where it can.
        mismatch: Why the version that the engine reports is not the declared one.
    """

    engine: EngineType
    version: str
    routes: tuple[RouteVerdict, ...]
    without_cache: tuple[str, ...]
    asked: bool
    problems: tuple[Problem, ...]
    overrides: tuple[PlatformSetting, ...]
    kept: tuple[str, ...]
    connected: tuple[str, ...]
    stays_on: str | None
    mismatch: str | None

    @property
    def enforced(self) -> tuple[str, ...]:
        """Routes whose salts are kept apart."""
        return tuple(route.path for route in self.routes if route.capability is Capability.ENFORCED)

    @property
    def routable(self) -> tuple[str, ...]:
        """Routes that a shared pool may serve."""
        return (*self.enforced, *self.without_cache)


def verdict(facts: Facts, pool: Description, reported: str | None = None) -> Verdict:
    """Judge what a pool says of its engine.

    Args:
        facts: What the catalogue knows of the engine.
        pool: What the pool says.
        reported: The version that the running engine says it has, once it does.
    """
    said = settings_of.given(facts, pool.args, pool.env)
    used = joined(pool.connectors, connectors_of.connectors(facts, said))
    mismatch = difference(pool.version, reported)
    common = (*of_engine(facts, pool.version, mismatch), *of_hash(facts, pool, said), *of_connectors(facts, pool.version, used))
    return Verdict(
        engine=facts.engine,
        version=pool.version,
        routes=tuple(_of_routes(facts, pool, common)),
        without_cache=_without_cache(facts, pool, mismatch),
        asked=pool.routes is not None,
        problems=settings_of.problems(facts, pool.args, pool.env),
        overrides=settings_of.overrides(facts, said, _hash_that_is_set(facts, pool)),
        kept=tuple(use.name for use in used if tier(facts, use) is not Tier.HOST),
        connected=tuple(use.name for use in used),
        stays_on=facts.stays_on,
        mismatch=mismatch,
    )


def _of_routes(facts: Facts, pool: Description, common: Sequence[Finding]) -> Iterator[RouteVerdict]:
    found = read_release(facts.reading, pool.version)
    known = {path: route for route in facts.routes for path in route.paths}
    for path in dict.fromkeys(known if pool.routes is None else pool.routes):
        route = known.get(path)
        if route is None or route.steps:
            own = of_route(facts, path, route, found)
            worst = min((*common, own), key=lambda finding: _WORST.index(finding.capability))
            good = worst.capability is Capability.ENFORCED
            yield RouteVerdict(path, worst.capability, f"{own.why}, and {worst.why}" if good else worst.why)


def _hash_that_is_set(facts: Facts, pool: Description) -> dict[str, str]:
    """The declared hash, where it keeps salts apart, in the place of the one that the catalogue sets."""
    if facts.hashes is None or pool.hash_algorithm not in enforcing_hashes(facts):
        return {}
    return {facts.hashes.option: pool.hash_algorithm or ""}


def _without_cache(facts: Facts, pool: Description, mismatch: str | None) -> tuple[str, ...]:
    if mismatch or read_release(facts.reading, pool.version) is None:
        return ()
    paths = [path for route in facts.routes if route.without_cache is not None for path in route.paths]
    return tuple(path for path in paths if pool.routes is None or path in pool.routes)
