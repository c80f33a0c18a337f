"""The watch of FenceLeases: it knows whether it missed anything, which kopf does not say, and fences depend on.

It goes on from the version of the last event for as long as the API server still has that version: then nothing was missed,
however often the connection broke. Otherwise everything is listed anew, and the roster is told to settle. Each time it is looked
whether the API server went back: one that was restored would let a watch wait for a version that comes much later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from cachescope.controller.lease_book import LeaseBook
from cachescope.controller.store import Store, version_of
from cachescope.controller.watched_kinds import LEASES
from cachescope.core.errors import ClusterError
from cachescope.kube.rest import Document, ExpiredError, Rest
from cachescope.kube.watched import pages

log = logging.getLogger(__name__)

WATCH_SECONDS = 240
RETRY_SECONDS = 0.5


class VersionsWentBack(Exception):  # noqa: N818 - it says what happened; no error that passes, so no `ClusterError`
    """The API server's versions are lower than before: it was restored. What is kept in memory is worth nothing."""


class LeaseWatch:
    """Feeds store and roster.

    Args:
        rest: The API.
        store: Where leases go; the book listens to it.
        book: Whose roster is kept.
        namespace: The one namespace that is watched, or `None` for all.
        heard: Told of every event.
        changed: Called after every event: a fence may be complete.
    """

    def __init__(
        self,
        rest: Rest,
        store: Store,
        book: LeaseBook,
        *,
        namespace: str | None,
        heard: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        self._rest = rest
        self._store = store
        self._book = book
        self._path = LEASES.path(namespace)
        self._heard = heard
        self._changed = changed
        self._from = 0
        self._highest = 0
        self._fault = ""

    async def load(self) -> None:
        """List all leases, after a start or a gap: nothing is known of what came and went before.

        Raises:
            ClusterError: They cannot be listed.
        """
        version = await self.refresh()
        self._book.roster.settle(self._book.now_ms())
        self._from = version
        self._book.roster.reached(version)

    async def refresh(self) -> int:
        """List all leases by quorum, and take over what the watch has not brought yet; the version of the list.

        Raises:
            ClusterError: They cannot be listed.
            VersionsWentBack: The API server was restored.
        """
        items: list[Document] = []
        version, seen = 0, self._seen()
        async for page in pages(self._rest, self._path):
            common = {"apiVersion": LEASES.api_version, "kind": LEASES.api_kind}  # items of a list come without
            items += [{**common, **item} for item in page["items"]]
            version = version_of(page)
        self._reached(version, seen)
        self._store.settle(LEASES.kind, items, version)
        return version

    def _seen(self) -> int:
        """The highest version that there was; taken before a list is asked for, since the watch goes on meanwhile."""
        return max(self._highest, self._from)

    def _reached(self, version: int, seen: int) -> None:
        if version < seen:
            raise VersionsWentBack(f"version {version} after {seen}: the API server was restored; the process is started anew")
        self._highest = max(self._highest, version)

    async def run(self) -> None:
        """Follow leases until cancelled."""
        while True:
            try:
                await self._follow()
                self._fault = ""
            except ExpiredError:
                log.warning("leases were missed; fences wait until it does not matter any more")
                self._from = 0
            except ClusterError as error:
                self._say(str(error))
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self) -> None:
        if not self._from:
            await self.load()
        else:
            seen = self._seen()
            self._reached(version_of(await self._rest.get(self._path, limit="1")), seen)
        async for event in self._rest.watch(self._path, resource_version=str(self._from), seconds=WATCH_SECONDS):
            self._take(event["type"], event["object"])

    def _take(self, kind: str, item: Document) -> None:
        if kind == "DELETED":
            self._store.remove(LEASES.kind, item)
        elif kind != "BOOKMARK":
            self._store.put(LEASES.kind, item)
        self._from = version_of(item)
        self._book.roster.reached(self._from)
        self._heard(LEASES.kind)
        self._changed()

    def _say(self, fault: str) -> None:
        if fault != self._fault:
            log.warning("leases not followed", extra={"fault": fault})
        self._fault = fault
