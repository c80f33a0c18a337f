"""What the catalogue says of the parts of a pool's engine, each with its remedy: pure.

A part that nobody read is `Unknown`. How the parts make a verdict is left to `verdicts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.version import Version

from cachescope.engines.descriptions import Description
from cachescope.engines.evidence import Step
from cachescope.engines.facts import EngineType, Facts, RouteFact
from cachescope.engines.releases import first_enforced, read_release, release, step_at
from cachescope.engines.routes import Capability
from cachescope.engines.settings_of import Given, values

_ROUTED_ALONE = "serve it from a pool with isolation PerTenant"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one part of an engine does with a salt, and one sentence why."""

    capability: Capability
    why: str


def of_engine(facts: Facts, version: str, mismatch: str | None) -> Iterator[Finding]:
    """What is said of all routes at once: the version, and what it does whatever the route."""
    found = read_release(facts.reading, version)
    if mismatch:
        yield Finding(Capability.UNKNOWN, mismatch)
    step = step_at(facts.floor, found)
    if step is None:
        yield Finding(Capability.UNKNOWN, _unread(facts, version))
    else:
        yield Finding(
            step.capability, sentence(f"{facts.engine.value} {version}", step, _engine_remedy(facts.engine, facts.floor, found))
        )


def _unread(facts: Facts, version: str) -> str:
    last = facts.reading.last if facts.reading else None
    first = first_enforced(facts.floor)
    reason = f"{version} names no release" if release(version) is None else f"{version} is later than what was read"
    return f"{facts.engine.value} {reason}; declare a release from {first} to {last}"


def of_hash(facts: Facts, pool: Description, said: Sequence[Given]) -> Iterator[Finding]:
    """What is said of every hash that the pool declares or its settings name; the platform's own is left out."""
    if facts.hashes is None:
        if pool.hash_algorithm is not None:
            yield Finding(Capability.UNKNOWN, f"{facts.engine.value} has no choice of hashes; leave hashAlgorithm out")
        return
    for name in dict.fromkeys([*_declared(pool), *values(said, facts.hashes.option)]):
        known = next((item for item in facts.hashes.algorithms if item.name == name), None)
        good = ", ".join(enforcing_hashes(facts))
        if known is None:
            yield Finding(Capability.UNKNOWN, f"the hash {name or 'without a name'} is not in the catalogue; use {good}")
        else:
            remedy = "" if known.capability is Capability.ENFORCED else f"; use {good}"
            yield Finding(known.capability, f"the hash {name} {known.why}{remedy}")


def _declared(pool: Description) -> tuple[str, ...]:
    return () if pool.hash_algorithm is None else (pool.hash_algorithm,)


def enforcing_hashes(facts: Facts) -> tuple[str, ...]:
    """The hashes that keep salts apart, by name."""
    found = facts.hashes.algorithms if facts.hashes else ()
    return tuple(item.name for item in found if item.capability is Capability.ENFORCED)


def of_route(facts: Facts, path: str, route: RouteFact | None, found: Version | None) -> Finding:
    """What is said of a route itself.

    Args:
        facts: Of the engine.
        path: The route's path.
        route: What the catalogue has on it, if anything.
        found: The engine's release; `None` where it was not read.
    """
    if route is None:
        return Finding(Capability.UNKNOWN, f"{path} is not in the catalogue of {facts.engine.value}; {_ROUTED_ALONE}")
    first = _first_enforced(facts, route)
    remedy = f"use {facts.engine.value} {first} or later" if first else _ROUTED_ALONE
    step = step_at(route.steps, found)
    if step is not None:
        return Finding(step.capability, sentence(path, step, remedy))
    if found is None:
        return Finding(Capability.UNKNOWN, f"{path} was not read for this version; {remedy}")
    return Finding(Capability.UNSUPPORTED, f"{path} takes no salt yet; {remedy}")


def _first_enforced(facts: Facts, route: RouteFact) -> str | None:
    """The first release in which the engine and the route enforce; `None` where one of them never does."""
    found = [first_enforced(steps) for steps in (facts.floor, route.steps)]
    return max(filter(None, found), key=Version) if all(found) else None


def _engine_remedy(engine: EngineType, steps: Sequence[Step], found: Version | None) -> str:
    first = first_enforced(steps)
    return f"use {engine.value} {first} or later" if first and found else "use isolation PerTenant"


def sentence(subject: str, step: Step, remedy: str) -> str:
    """What a step says of a subject, with the remedy where there is something to remedy."""
    return f"{subject} {step.why}" if step.capability is Capability.ENFORCED else f"{subject} {step.why}; {remedy}"
