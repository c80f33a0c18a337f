"""What policy is made of, as digests by kind: from lists that are read by quorum, never from what is kept in memory.

A leader that was paused, and goes on with what it knew, would otherwise announce a policy that was withdrawn meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from cachescope.controller.store import Key, Store
from cachescope.controller.watched_kinds import API_KEYS, watched
from cachescope.core.policy_digest import policy_digest
from cachescope.core.types import Digest
from cachescope.kube.rest import Document, Rest
from cachescope.kube.watched import pages

INPUTS: Final = frozenset({"ServingPool", "Tenant", "CacheScope", "PublicSource", API_KEYS, "Namespace"})
"""Kinds that policy is made of, as far as they are watched."""


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
        self._kinds = tuple(kind for kind in watched(namespace) if kind.kind in INPUTS)
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
        found = {kind.api_kind: await self._digest(kind.api_kind, kind.path(self._namespace), kind.query) for kind in self._kinds}
        self._read_at = changes
        return found

    async def _digest(self, kind: str, path: str, query: Mapping[str, str]) -> Digest:
        items: list[Document] = [item async for page in pages(self._rest, path, **query) for item in page["items"]]
        return await asyncio.to_thread(policy_digest, kind, items)

    def _hear(self, key: Key, _old: Document | None, _new: Document | None) -> None:
        self._changes += int(key.kind in INPUTS)
