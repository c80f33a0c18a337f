"""vLLM: which versions enforce a salt, and every route that clients may reach.

Every other route of the engine is answered 404 by the gateway: those that have no salt field and reach the cache (Cohere's
`/v2/chat` and `/v2/embed`, audio, realtime), those that return the salt (`…/render`), those by which an engine is steered, and
those that are new.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from packaging.version import InvalidVersion, Version

from cachescope.engines import vllm_generation, vllm_pooling, vllm_tokens
from cachescope.engines.routes import Capability, Route

# The field came to chat in 0.9.0 (vllm-project/vllm#17045); older versions ignore it and answer 200.
FIRST_WITH_SALT = "0.9.0"
# Extra keys of a block's hash carry their type since 0.31.0 (`v1/core/kv_cache_utils.py`); before, a salt equal to a LoRA
# adapter's name hit that adapter's blocks (vllm-project/vllm#44701). 0.30.0 brought the check of a salt's length and characters.
FIRST_ENFORCED = Version("0.31.0")
# Sources were read up to and including the 0.33 releases; what comes later is unknown until somebody has read it.
_FIRST_UNREAD = Version("0.34.0")

ROUTES: Mapping[tuple[str, str], Route] = MappingProxyType(
    {(route.method, route.path): route for route in (*vllm_generation.ROUTES, *vllm_pooling.ROUTES, *vllm_tokens.ROUTES)}
)
"""Every route that enforces a salt or reaches no cache, by method and path.

The floor of each salt is at or below `FIRST_ENFORCED`, the floor of all pools: so a pool that is served at all serves each of them.
"""


def capability(version: str, since: str = FIRST_WITH_SALT) -> Capability:
    """What a version of vLLM does with a salt.

    Args:
        version: The engine's version as it reports it, e.g. `0.32.0`.
        since: First version whose salt reaches the cache on the route that is asked for; by default, on any.

    Returns:
        `ENFORCED` for the releases 0.31 to 0.33; `UNKNOWN` for later ones, and for what is no release: builds from source,
        release candidates, builds with a local suffix, and text that is no version, such as `latest`.
    """
    try:
        parsed = Version(version)
    except InvalidVersion:
        return Capability.UNKNOWN
    if parsed.is_prerelease or parsed.local or parsed.epoch:
        return Capability.UNKNOWN
    if parsed >= _FIRST_UNREAD:
        return Capability.UNKNOWN
    if parsed < Version(since):
        return Capability.UNSUPPORTED
    return Capability.ENFORCED if parsed >= FIRST_ENFORCED else Capability.BROKEN
