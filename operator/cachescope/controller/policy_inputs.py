"""What policy is made of, as digests by kind: from lists that are read by quorum, never from what is kept in memory.

A leader that was paused, and goes on with what it knew, would otherwise announce a policy that was withdrawn meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from cachescope.controller.store import Key, Store
from cachescope.controller.watched_kinds import API_KEYS, WATCHED
from cachescope.core.policy_digest import policy_digest
from cachescope.core.types import Digest
from cachescope.kube.rest import Document, Rest
from cachescope.kube.watched import pages

_INPUTS: Final = tuple(kind for kind in WATCHED if kind.kind in {"ServingPool", "Tenant", "CacheScope", "PublicSource", API_KEYS})
_KINDS: Final = frozenset(kind.kind for kind in _INPUTS)


class PolicyInputs:
    """The inputs of an installation.

    Args:
        rest: The API.
        store: Tells when one of them changed.
        namespace: The one namespace that is watched, or `None` for all.
    """

    def __init__(self, rest: Rest, store: Store, *, namespace: str | None) -> None:
        self._rest = rest
        self._namespace = namespace
        self._changes = 0
        self._read_at = -1
        store.listen(self._hear)

    def current(self) -> bool:
        """Whether nothing is known to have changed since the last reading."""
        return self._read_at == self._changes

    async def read(self) -> Mapping[str, Digest]:
        """The digests now.

        Raises:
            ClusterError: A kind cannot be listed.
        """
        changes = self._changes
        found = {kind.api_kind: await self._digest(kind.api_kind, kind.path(self._namespace), kind.query) for kind in _INPUTS}
        self._read_at = changes
        return found

    async def _digest(self, kind: str, path: str, query: Mapping[str, str]) -> Digest:
        items: list[Document] = [item async for page in pages(self._rest, path, **query) for item in page["items"]]
        return await asyncio.to_thread(policy_digest, kind, items)

    def _hear(self, key: Key, _old: Document | None, _new: Document | None) -> None:
        self._changes += int(key.kind in _KINDS)
