"""vLLM: which versions enforce a salt, and every route that clients may reach.

Every other route of the engine is answered 404 by the gateway: those that have no salt field and reach the cache (Cohere's
`/v2/chat` and `/v2/embed`, audio, realtime), those that return the salt (`…/render`), those by which an engine is steered, and
those that are new.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from packaging.version import Version

from cachescope.engines import vllm_generation, vllm_pooling, vllm_tokens
from cachescope.engines.catalogue import facts
from cachescope.engines.facts import EngineType
from cachescope.engines.releases import first_enforced, read_release, step_at
from cachescope.engines.routes import Capability, Route

_FACTS = facts(EngineType.VLLM)
FIRST_ENFORCED = Version(first_enforced(_FACTS.floor) or "")
"""The first release that pools may run; what is known of it is in the catalogue."""
SERVED = f"a release from {FIRST_ENFORCED} to {_FACTS.reading.last if _FACTS.reading else ''}"
"""What pools may run, for people."""

ROUTES: Mapping[tuple[str, str], Route] = MappingProxyType(
    {(route.method, route.path): route for route in (*vllm_generation.ROUTES, *vllm_pooling.ROUTES, *vllm_tokens.ROUTES)}
)
"""Every route that enforces a salt or reaches no cache, by method and path.

The floor of each salt is at or below `FIRST_ENFORCED`, the floor of all pools: so a pool that is served at all serves each of them.
"""


FIRST_WITH_SALT = str(min(Version(route.salt.since) for route in ROUTES.values() if route.salt))
"""The first release that takes a salt on any route; older ones ignore it and answer 200."""


def capability(version: str, since: str = FIRST_WITH_SALT) -> Capability:
    """What a version of vLLM does with a salt.

    Args:
        version: The engine's version as it reports it, e.g. `0.32.0`.
        since: First version whose salt reaches the cache on the route that is asked for; by default, on any.

    Returns:
        What the catalogue says of the release; `UNKNOWN` for later ones than were read, and for what is no release: builds from
        source, release candidates, builds with a local suffix, and text that is no version, such as `latest`.
    """
    found = read_release(_FACTS.reading, version)
    if found is None:
        return Capability.UNKNOWN
    if found < Version(since):
        return Capability.UNSUPPORTED
    step = step_at(_FACTS.floor, found)
    return step.capability if step else Capability.UNSUPPORTED
