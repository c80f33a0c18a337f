"""How the tenants of a pool are kept apart, by its spec alone. Operator and gateways ask the same."""

from __future__ import annotations

from cachescope.api.pools import ServingPool
from cachescope.core.caches import Caching
from cachescope.engines.catalogue import facts
from cachescope.engines.descriptions import Description
from cachescope.engines.facts import EngineType, Facts, Mode
from cachescope.engines.modes import Choice, Isolation, choose
from cachescope.engines.verdicts import Verdict, verdict


def facts_of(pool: ServingPool) -> Facts:
    """What the catalogue knows of a pool's engine."""
    return facts(EngineType(pool.spec.engine.type))


def verdict_of(pool: ServingPool, reported: str | None = None) -> Verdict:
    """What its engine does with salts.

    Args:
        pool: The pool.
        reported: The version that the running engine says it has, once it does.
    """
    engine = pool.spec.engine
    return verdict(facts_of(pool), Description(engine.version, engine.args, engine.env), reported)


def choice_of(pool: ServingPool, reported: str | None = None) -> Choice:
    """The mode of a pool. One that is dedicated to a tenant is `PerTenant`: what it was made of may be another by now."""
    wished = Isolation.PER_TENANT if pool.spec.dedicated_to else Isolation(pool.spec.isolation.mode)
    return choose(verdict_of(pool, reported), wished)


def caching_of(pool: ServingPool) -> Caching:
    """What keeps requests apart in the engines that are made of a pool."""
    mode = choice_of(pool).mode
    if mode is Mode.DISABLED:
        return Caching.OFF
    return Caching.ONE_CACHE if mode is Mode.PER_TENANT else Caching.SALTED


def is_template(pool: ServingPool) -> bool:
    """Whether it has no engines of its own, but pools of single tenants."""
    return pool.spec.dedicated_to is None and choice_of(pool).mode is Mode.PER_TENANT
