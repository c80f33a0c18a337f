"""What an engine does with the salts of a pool, route by route: pure.

Rules:

- what nobody read is `Unknown`, and `Unknown` is never `Enforced`;
- a route is as good as the worst of its version, its hash, each connector and itself;
- a running engine that says it is another version makes every route `Unknown`, and is said in a field of its own;
- every sentence ends with the remedy, where there is something to remedy.

Which mode follows is left to `modes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from packaging.version import Version

from cachescope.engines import settings_of
from cachescope.engines.facts import Basis, Connector, EngineType, Facts, Package, RouteFact, Step, Tier
from cachescope.engines.releases import difference, first_enforced, read_release, release, step_at
from cachescope.engines.routes import Capability
from cachescope.engines.settings_of import Problem, Set

_ROUTED_ALONE = "it is not routed in a shared pool; serve it from pools of one tenant, with isolation PerTenant"
_WORST = (Capability.UNSUPPORTED, Capability.BROKEN, Capability.UNKNOWN, Capability.ENFORCED)


@dataclass(frozen=True, slots=True)
class ConnectorUse:
    """A connector that a pool declares, and the version of its package where it has one."""

    name: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """What a pool says of its engine.

    Attributes:
        version: Version of the engine.
        args: Its arguments, without the program.
        env: Its environment.
        connectors: What keeps or moves blocks beside its cache; those that arguments name come to these.
        hash_algorithm: How it shall hash blocks; without one as the platform sets it.
        routes: Paths that the pool must serve; without any, those that can be.
    """

    version: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    connectors: tuple[ConnectorUse, ...] = ()
    hash_algorithm: str | None = None
    routes: tuple[str, ...] | None = None


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
        can_be_off: Whether reuse can be switched off, as far as anybody read.
        mismatch: Why the version that the engine reports is not the declared one.
    """

    engine: EngineType
    version: str
    routes: tuple[RouteVerdict, ...]
    without_cache: tuple[str, ...]
    asked: bool
    problems: tuple[Problem, ...]
    overrides: tuple[Set, ...]
    kept: tuple[str, ...]
    connected: tuple[str, ...]
    can_be_off: bool
    mismatch: str | None

    @property
    def enforced(self) -> tuple[str, ...]:
        """Routes whose salts are kept apart."""
        return tuple(route.path for route in self.routes if route.capability is Capability.ENFORCED)

    @property
    def routable(self) -> tuple[str, ...]:
        """Routes that a shared pool may serve."""
        return (*self.enforced, *self.without_cache)


@dataclass(frozen=True, slots=True)
class _Finding:
    capability: Capability
    why: str


def verdict(facts: Facts, pool: Description, reported: str | None = None) -> Verdict:
    """Judge what a pool says of its engine.

    Args:
        facts: What the catalogue knows of the engine.
        pool: What the pool says.
        reported: The version that the running engine says it has, once it does.
    """
    said = settings_of.given(facts, pool.args, pool.env)
    used = _used(pool.connectors, settings_of.connectors(facts, said))
    mismatch = difference(pool.version, reported)
    common = (*_of_engine(facts, pool.version, mismatch), *_of_hash(facts, pool, said), *_of_connectors(facts, pool.version, used))
    return Verdict(
        engine=facts.engine,
        version=pool.version,
        routes=tuple(_of_routes(facts, pool, common)),
        without_cache=_without_cache(facts, pool, mismatch),
        asked=pool.routes is not None,
        problems=settings_of.problems(facts, pool.args, pool.env),
        overrides=settings_of.overrides(facts, said, _hash_that_is_set(facts, pool)),
        kept=tuple(use.name for use in used if _tier(facts, use) is not Tier.HOST),
        connected=tuple(use.name for use in used),
        can_be_off=facts.off is not None and facts.off.basis in {Basis.READ, Basis.TRIED},
        mismatch=mismatch,
    )


def _of_engine(facts: Facts, version: str, mismatch: str | None) -> Iterator[_Finding]:
    """What is said of all routes at once: the version, and what it does whatever the route."""
    found = read_release(facts.reading, version)
    if mismatch:
        yield _Finding(Capability.UNKNOWN, mismatch)
    step = step_at(facts.floor, found)
    if step is None:
        yield _Finding(Capability.UNKNOWN, _unread(facts, version))
    else:
        yield _Finding(
            step.capability, _sentence(f"{facts.engine.value} {version}", step, _engine_remedy(facts.engine, facts.floor, found))
        )


def _unread(facts: Facts, version: str) -> str:
    last = facts.reading.last if facts.reading else None
    first = first_enforced(facts.floor)
    reason = f"{version} names no release" if release(version) is None else f"{version} is later than what was read"
    return f"{facts.engine.value} {reason}; declare a release from {first} to {last}"


def _of_hash(facts: Facts, pool: Description, said: Sequence[settings_of.Given]) -> Iterator[_Finding]:
    if facts.hashes is None:
        if pool.hash_algorithm is not None:
            yield _Finding(Capability.UNKNOWN, f"{facts.engine.value} has no choice of hashes; leave hashAlgorithm out")
        return
    for name in dict.fromkeys([*_declared(pool), *settings_of.values(said, facts.hashes.option)]):
        known = next((item for item in facts.hashes.algorithms if item.name == name), None)
        good = ", ".join(_enforcing_hashes(facts))
        if known is None:
            yield _Finding(Capability.UNKNOWN, f"the hash {name or 'without a name'} is not in the catalogue; use {good}")
        else:
            remedy = "" if known.capability is Capability.ENFORCED else f"; use {good}"
            yield _Finding(known.capability, f"the hash {name} {known.why}{remedy}")


def _declared(pool: Description) -> tuple[str, ...]:
    return () if pool.hash_algorithm is None else (pool.hash_algorithm,)


def _enforcing_hashes(facts: Facts) -> tuple[str, ...]:
    found = facts.hashes.algorithms if facts.hashes else ()
    return tuple(item.name for item in found if item.capability is Capability.ENFORCED)


def _hash_that_is_set(facts: Facts, pool: Description) -> dict[str, str]:
    """The declared hash, where it keeps salts apart, in the place of the one that the catalogue sets."""
    if facts.hashes is None or pool.hash_algorithm not in _enforcing_hashes(facts):
        return {}
    return {facts.hashes.option: pool.hash_algorithm or ""}


def _used(declared: Sequence[ConnectorUse], named: Iterable[str]) -> tuple[ConnectorUse, ...]:
    said = {use.name.casefold() for use in declared}
    return (*declared, *(ConnectorUse(name) for name in named if name.casefold() not in said))


def _of_connectors(facts: Facts, version: str, used: Iterable[ConnectorUse]) -> Iterator[_Finding]:
    found = read_release(facts.reading, version)
    for use in used:
        known = _connector(facts, use)
        if known is None:
            yield _Finding(Capability.UNKNOWN, f"the connector {use.name} is not in the catalogue; remove it")
            continue
        yield _of_steps(f"the connector {use.name}", known.steps, found, f"{facts.engine.value} {{}} or later, or remove it")
        if known.package is not None:
            yield _of_package(known.package, use)


def _connector(facts: Facts, use: ConnectorUse) -> Connector | None:
    name = use.name.casefold()
    return next((item for item in facts.connectors if name in {each.casefold() for each in (item.name, *item.also)}), None)


def _tier(facts: Facts, use: ConnectorUse) -> Tier:
    """Where it keeps blocks; one that nobody knows is believed to keep them anywhere."""
    known = _connector(facts, use)
    return known.tier if known else Tier.EXTERNAL


def _of_package(package: Package, use: ConnectorUse) -> _Finding:
    if use.version is None:
        return _Finding(
            Capability.UNKNOWN, f"the version of {package.name} is not declared; declare it with the connector {use.name}"
        )
    found = release(use.version)
    if found is None or found > Version(package.last_read):
        first = first_enforced(package.steps)
        why = f"{package.name} {use.version} was not read; declare a release from {first} to {package.last_read}"
        return _Finding(Capability.UNKNOWN, why)
    return _of_steps(f"{package.name} {use.version}", package.steps, found, f"{package.name} {{}} or later")


def _of_steps(subject: str, steps: Sequence[Step], found: Version | None, later: str) -> _Finding:
    """What steps say of a release that was read, or of none."""
    step = step_at(steps, found)
    first = first_enforced(steps)
    remedy = f"use {later.format(first)}" if first else "remove it"
    if step is None:
        return _Finding(Capability.UNKNOWN, f"{subject} was not read for this version; {remedy}")
    return _Finding(step.capability, _sentence(subject, step, remedy))


def _of_routes(facts: Facts, pool: Description, common: Sequence[_Finding]) -> Iterator[RouteVerdict]:
    found = read_release(facts.reading, pool.version)
    known = {path: route for route in facts.routes for path in route.paths}
    for path in dict.fromkeys(known if pool.routes is None else pool.routes):
        route = known.get(path)
        if route is None or route.steps:
            own = _of_route(facts, path, route, found)
            worst = min((own, *common), key=lambda finding: _WORST.index(finding.capability))
            yield RouteVerdict(path, worst.capability, worst.why)


def _of_route(facts: Facts, path: str, route: RouteFact | None, found: Version | None) -> _Finding:
    if route is None:
        return _Finding(Capability.UNKNOWN, f"{path} is not in the catalogue of {facts.engine.value}; {_ROUTED_ALONE}")
    first = first_enforced(route.steps)
    remedy = f"use {facts.engine.value} {first} or later" if first else _ROUTED_ALONE
    step = step_at(route.steps, found)
    if step is not None:
        return _Finding(step.capability, _sentence(path, step, remedy))
    if found is None:
        return _Finding(Capability.UNKNOWN, f"{path} was not read for this version; {remedy}")
    return _Finding(Capability.UNSUPPORTED, f"{path} takes no salt yet; {remedy}")


def _engine_remedy(engine: EngineType, steps: Sequence[Step], found: Version | None) -> str:
    first = first_enforced(steps)
    return f"use {engine.value} {first} or later" if first and found else "use isolation PerTenant"


def _sentence(subject: str, step: Step, remedy: str) -> str:
    return f"{subject} {step.why}" if step.capability is Capability.ENFORCED else f"{subject} {step.why}; {remedy}"


def _without_cache(facts: Facts, pool: Description, mismatch: str | None) -> tuple[str, ...]:
    if mismatch or read_release(facts.reading, pool.version) is None:
        return ()
    paths = [path for route in facts.routes if route.without_cache is not None for path in route.paths]
    return tuple(path for path in paths if pool.routes is None or path in pool.routes)
