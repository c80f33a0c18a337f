"""Pools of any engine, as the tests of verdicts describe them, and what their verdict says."""

from __future__ import annotations

from collections.abc import Mapping

from cachescope.engines.catalogue import facts
from cachescope.engines.descriptions import ConnectorUse, Description
from cachescope.engines.facts import EngineType
from cachescope.engines.routes import Capability
from cachescope.engines.verdicts import Verdict, verdict

CHAT = "/v1/chat/completions"
BROKEN, ENFORCED, UNKNOWN, UNSUPPORTED = Capability.BROKEN, Capability.ENFORCED, Capability.UNKNOWN, Capability.UNSUPPORTED


def judged(
    engine: str,
    version: str,
    *args: str,
    env: Mapping[str, str] | None = None,
    connectors: tuple[str, ...] = (),
    hashed: str | None = None,
    routes: tuple[str, ...] | None = None,
    reported: str | None = None,
) -> Verdict:
    """The verdict on a pool. A connector is written `name` or `name@version of its package`."""
    pool = Description(version, args, env or {}, tuple(map(_use, connectors)), hashed, routes)
    return verdict(facts(EngineType(engine)), pool, reported)


def capability(found: Verdict, path: str) -> Capability:
    """What a verdict says of a route."""
    (route,) = (route for route in found.routes if route.path == path)
    return route.capability


def _use(written: str) -> ConnectorUse:
    name, _, version = written.partition("@")
    return ConnectorUse(name, version or None)
