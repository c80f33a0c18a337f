"""Cache identities that no pod was found for a moment ago: by them the operator starts engines, and replaces those of before.

What is wanted is forgotten some seconds after the last request that wanted it, and bounded: a storm of requests is one entry.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from cachescope.core.types import CacheIdentity

KEPT_MS: Final = 15_000
MOST: Final = 256
MOST_OF_A_POOL: Final = 4


class Wanted:
    """What one gateway wants.

    Args:
        clock: Milliseconds of a clock that only rises.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._seen: OrderedDict[tuple[str, CacheIdentity], int] = OrderedDict()

    def note(self, pool_uid: str, cache: CacheIdentity) -> None:
        """A request found no pod of that pool for its identity."""
        self._seen[pool_uid, cache] = self._clock()
        self._seen.move_to_end((pool_uid, cache))
        while len(self._seen) > MOST:
            self._seen.popitem(last=False)

    def now(self) -> Mapping[str, tuple[CacheIdentity, ...]]:
        """Identities by UID of the pool, the latest few of each; in one order, so that equal ones compare equal."""
        oldest = self._clock() - KEPT_MS
        while self._seen and next(iter(self._seen.values())) < oldest:
            self._seen.popitem(last=False)
        found: defaultdict[str, list[CacheIdentity]] = defaultdict(list)
        for pool_uid, cache in reversed(self._seen):
            if len(found[pool_uid]) < MOST_OF_A_POOL:
                found[pool_uid].append(cache)
        return {pool_uid: tuple(sorted(caches)) for pool_uid, caches in sorted(found.items())}
