"""How the tenants of a pool are kept apart: pure.

Rules:

- `Auto` is `Shared` where every route that the pool must serve keeps salts apart, and else `PerTenant`; a pool that names none
  serves the routes that do, and is `PerTenant` where there are none;
- `Shared` on an engine that cannot is refused, not obeyed;
- a pool without salts keeps nothing outside its engines' processes: a new generation is new processes;
- a refused setting leaves a pool without a mode.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cachescope.engines.facts import Mode
from cachescope.engines.routes import Capability
from cachescope.engines.settings_of import PlatformSetting
from cachescope.engines.verdicts import RouteVerdict, Verdict

ALREADY: Final = "; use isolation PerTenant"
"""The remedy that needs nobody any more where it was chosen."""


class Isolation(StrEnum):
    """What a pool wishes."""

    AUTO = "Auto"
    SHARED = "Shared"
    PER_TENANT = "PerTenant"
    DISABLED = "Disabled"


@dataclass(frozen=True, slots=True)
class Choice:
    """The mode of a pool.

    Attributes:
        mode: How tenants are kept apart; `None` where the wish cannot be met as it is.
        why: One sentence: the reason, or what is wrong and the remedy.
        problems: What is wrong, a sentence each; the pool is not obeyed until they are gone.
        overrides: Settings that the platform gives in this mode.
        routes: Routes that may be routed; `None` where no cache is shared, so that any may be.
    """

    mode: Mode | None
    why: str
    problems: tuple[str, ...] = ()
    overrides: tuple[PlatformSetting, ...] = ()
    routes: tuple[str, ...] | None = None


def choose(verdict: Verdict, wished: Isolation = Isolation.AUTO) -> Choice:
    """The mode of a pool, by what is known of its engine and what it wishes."""
    if wished is Isolation.SHARED and (reason := _not_shared(verdict)):
        return Choice(None, f"isolation Shared is refused: {reason}", (f"isolation Shared is refused: {reason}",))
    mode, why = _mode(verdict, wished)
    problems = tuple(_problems(verdict, mode))
    if problems and mode is Mode.PER_TENANT and wished is Isolation.AUTO:
        problems = (f"tenants cannot share the engine: {_not_shared(verdict)}", *problems)
    if problems:
        return Choice(None, "; ".join(problems), problems)
    overrides = tuple(item for item in verdict.overrides if mode in item.modes)
    return Choice(mode, why, (), overrides, verdict.routable if mode is Mode.SHARED else None)


def _mode(verdict: Verdict, wished: Isolation) -> tuple[Mode, str]:
    if wished is Isolation.DISABLED:
        return Mode.DISABLED, "reuse is switched off, as isolation Disabled asks"
    if wished is Isolation.PER_TENANT:
        return Mode.PER_TENANT, "each tenant has engines of its own, as isolation PerTenant asks"
    reason = _not_shared(verdict)
    if reason:
        return Mode.PER_TENANT, f"each tenant has engines of its own: {reason.removesuffix(ALREADY)}"
    return Mode.SHARED, f"{verdict.engine.value} {verdict.version} keeps salts apart on {', '.join(verdict.enforced)}"


def _not_shared(verdict: Verdict) -> str | None:
    """Why tenants cannot share an engine; `None` where they can."""
    if verdict.mismatch:
        return verdict.mismatch
    short = [route for route in verdict.routes if route.capability is not Capability.ENFORCED]
    if verdict.asked and short:
        return short[0].why
    if not verdict.enforced:
        return _leading(short).why if short else f"no route of {verdict.engine.value} is in the catalogue; use isolation PerTenant"
    return None


def _leading(routes: list[RouteVerdict]) -> RouteVerdict:
    """The route that speaks for all: rather one for which something can be done than one that never took a salt."""
    return min(routes, key=lambda route: (Capability.UNKNOWN, Capability.BROKEN, Capability.UNSUPPORTED).index(route.capability))


def _problems(verdict: Verdict, mode: Mode) -> Iterator[str]:
    yield from (problem.sentence for problem in verdict.problems if mode in problem.modes)
    if mode is Mode.PER_TENANT:
        for name in verdict.kept:
            yield f"the connector {name} takes blocks out of the engine's processes, where nothing keeps tenants apart; remove it"
    if mode is Mode.DISABLED:
        for name in verdict.connected:
            yield f"the connector {name} reuses blocks, and isolation Disabled allows none; remove it"
        if verdict.stays_on:
            yield verdict.stays_on
