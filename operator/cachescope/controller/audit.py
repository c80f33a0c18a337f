"""Lists beside the watches: what a watch missed is found, and a watch that stalls shows.

kopf lists again after a gap, but says nothing of what vanished in it, and nothing of a watch that hears nothing more. So every kind
is listed from time to time by other means. What the list has, and the watch did not bring within a grace, makes the watch stale:
its age grows from there on, and liveness looks at it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cachescope.controller.store import Store, key_of, version_of
from cachescope.controller.watched_kinds import WatchedKind, watched
from cachescope.core.errors import ClusterError
from cachescope.kube.rest import Document, NotFoundError, Rest

log = logging.getLogger(__name__)

AUDIT_SECONDS = 300.0
GRACE_SECONDS = 20.0
RETRY_SECONDS = 15.0
PAGE = "500"


class Audit:
    """Keeps the store true, and knows since when each kind's watch was last seen to be current.

    Args:
        rest: The API.
        store: What is compared.
        namespace: The one namespace that is watched, or `None` for all.
        clock: Seconds of a clock that only rises.
    """

    def __init__(self, rest: Rest, store: Store, *, namespace: str | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rest = rest
        self._store = store
        self._namespace = namespace
        self._kinds = watched(namespace)
        self._clock = clock
        self._current: dict[str, float] = {}
        self._faults: dict[str, str] = {}

    def heard(self, kind: str) -> None:
        """A watch brought an event."""
        self._current[kind] = self._clock()

    def ages(self) -> dict[str, float]:
        """Seconds since each kind was last known to be current."""
        now = self._clock()
        return {kind: now - moment for kind, moment in self._current.items()}

    async def load(self) -> None:
        """List everything, once, before anything is decided.

        Raises:
            ClusterError: A kind cannot be listed.
        """
        for kind in self._kinds:
            items, version = await self._list(kind)
            self._store.settle(kind.kind, items, version)
            self.heard(kind.kind)

    async def run(self) -> None:
        """Compare every kind, again and again, until cancelled."""
        while True:
            await asyncio.sleep(AUDIT_SECONDS / len(self._kinds))
            for kind in self._kinds:
                await self.check(kind)
                await asyncio.sleep(AUDIT_SECONDS / len(self._kinds))

    async def check(self, kind: WatchedKind, *, grace: float = GRACE_SECONDS) -> None:
        """Compare one kind; what the watch did not bring is taken from the list."""
        try:
            items, version = await self._list(kind)
        except ClusterError as error:
            self._say(kind.kind, str(error))
            return
        if kind.streamed and self._missing(kind, items):
            await asyncio.sleep(grace)
        missing = self._missing(kind, items) if kind.streamed else 0
        self._store.settle(kind.kind, items, version)
        if missing:
            self._say(kind.kind, f"the watch did not bring {missing} changes within {grace:.0f} s; they were listed")
            return
        self._faults.pop(kind.kind, None)
        self.heard(kind.kind)

    def _missing(self, kind: WatchedKind, items: Sequence[Document]) -> int:
        known = (self._store.get(*key_of(kind.kind, item)) for item in items)
        return sum(version_of(old) < version_of(item) for old, item in zip(known, items, strict=True))

    async def _list(self, kind: WatchedKind) -> tuple[list[Document], int]:
        items: list[Document] = []
        query = {"limit": PAGE, **kind.query}
        while True:
            page = await self._page(kind, query)
            common = {"apiVersion": kind.api_version, "kind": kind.api_kind}  # items of a list come without
            items += [{**common, **item} for item in page["items"]]
            token = page["metadata"].get("continue")
            if not token:
                return items, version_of(page)
            query["continue"] = token

    async def _page(self, kind: WatchedKind, query: Mapping[str, Any]) -> Document:
        try:
            return await self._rest.get(kind.path(self._namespace), **query)
        except NotFoundError as error:  # a list is never empty by 404: the kind is not there
            raise ClusterError(f"the API server knows no {kind.kind}; install the chart cachescope-crds first") from error

    def _say(self, kind: str, fault: str) -> None:
        if self._faults.get(kind) != fault:
            log.warning("watch not current", extra={"kind": kind, "fault": fault})
        self._faults[kind] = fault
