"""Objects of one kind as the API server has them: list, watch from the list's version, list again after every gap.

Rules:

- what is gone from a new list is gone, also when nobody saw its deletion;
- a watch that ended in time is resumed from the last version that was seen, a bookmark's included; after anything else (410, a lost
  connection, an error event) everything is listed anew;
- a watch can stall without an error, and miss an event without knowing: each one is bounded in time on both sides, and every ten
  minutes there is a list in any case;
- an object is parsed once for each version of it, so that a new list of what is known costs little;
- the age of the API server's last answer is visible: readiness and metrics show it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from cachescope.core.errors import ClusterError
from cachescope.kube.rest import Document, ExpiredError

log = logging.getLogger(__name__)

WATCH_SECONDS = 20
RETRY_SECONDS = 1.0
RELIST_SECONDS = 600.0
PAGE = "250"
"""Objects in one answer: reading thousands at once would hold up every request of the process."""

T = TypeVar("T")


class Name(NamedTuple):
    """Names an object of a kind; the namespace is empty where there is none."""

    namespace: str
    name: str


class Api(Protocol):
    """What is needed of `kube.rest.Rest`."""

    async def get(self, path: str, **query: str) -> Document:
        """Read a list."""

    def watch(self, path: str, *, resource_version: str, seconds: int, **query: str) -> AsyncIterator[Document]:
        """Events from a version on."""


class _Known(NamedTuple, Generic[T]):
    version: str
    value: T


class Watched(Generic[T]):
    """All objects below one path.

    Args:
        api: The API server.
        path: Path of the list.
        label_selector: Which of them, by label.
        field_selector: Which of them, by field.
        parse: From a document to what is kept of it. It must not raise: what cannot be read is a value too.
        changed: Called after each change.
        replaced: Called for each object of a change, before `changed`, with what was kept of it and what is; `None` is none.
    """

    def __init__(
        self,
        api: Api,
        path: str,
        *,
        parse: Callable[[Document], T],
        label_selector: str | None = None,
        field_selector: str | None = None,
        changed: Callable[[], None] = lambda: None,
        replaced: Callable[[T | None, T | None], None] = lambda _before, _after: None,
    ) -> None:
        self._api = api
        self._path = path
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._query = {name: value for name, value in selectors.items() if value}
        self._parse = parse
        self._changed = changed
        self._replaced = replaced
        self._known: dict[Name, _Known[T]] = {}
        self._answered: float | None = None
        self._from: str | None = None
        self._listed_at = 0.0
        self._renewals = self._renewed = 0
        self._list_taken = asyncio.Event()
        self._patience: asyncio.Timeout | None = None
        self.version = 0
        """Rises with each change."""
        self.fault = ""
        """Why it does not follow the API server now."""

    def items(self) -> dict[Name, T]:
        """What there is, by namespace and name; the dict is the caller's."""
        return {name: known.value for name, known in self._known.items()}

    def get(self, namespace: str, name: str) -> T | None:
        """One object, or `None`."""
        known = self._known.get(Name(namespace, name))
        return known.value if known else None

    def age(self) -> float | None:
        """Seconds since the API server last answered, or `None` before the first list."""
        return None if self._answered is None else time.monotonic() - self._answered

    async def renew(self) -> None:
        """Have everything listed anew, by a list that begins after this call, and wait until it was taken over.

        For who knows that there is something newer than what a watch, which may have stalled, has shown. `run` does the work.
        """
        self._renewals += 1
        mine = self._renewals
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time())
        while self._renewed < mine:
            await self._list_taken.wait()

    async def run(self) -> None:
        """Follow the API server until cancelled; a fault is logged once and retried."""
        while True:
            started = time.monotonic()
            try:
                await self._follow()
            except (ExpiredError, TimeoutError):  # the version is gone, or somebody wants a new list
                self._from = None
            except ClusterError as error:
                self._from = None
                self._say(str(error))
            # A server that ends every watch, or refuses every list, at once is not asked without a pause.
            await asyncio.sleep(max(0.0, RETRY_SECONDS - (time.monotonic() - started)))

    async def _follow(self) -> None:
        if self._from is None or time.monotonic() - self._listed_at > RELIST_SECONDS:
            await self._list()
        while self._renewed < self._renewals:
            await self._list()
        try:
            async with asyncio.timeout(None) as self._patience:
                await self._watch()
        finally:
            self._patience = None

    async def _watch(self) -> None:
        watch = self._api.watch(self._path, resource_version=self._from or "", seconds=WATCH_SECONDS, **self._query)
        # Closed here, whatever happens: a watch that is left to the garbage collector keeps its connection.
        async with contextlib.aclosing(cast("AsyncGenerator[Document]", watch)) as events:
            async for event in events:
                self._take(event["type"], event["object"])
        self._heard()
        self.fault = ""

    async def _list(self) -> None:
        found: dict[Name, _Known[T]] = {}
        asked = self._renewals
        async for page in pages(self._api, self._path, **self._query):
            self._keep(page, found)
            self._from = page["metadata"]["resourceVersion"]
        self._listed_at = time.monotonic()
        first = self._answered is None
        self._heard()
        before, self._known = self._known, found
        different = [name for name in before.keys() | found.keys() if before.get(name) is not found.get(name)]
        for name in different:
            self._replace(before.get(name), found.get(name))
        if first or different:
            self._tell()
        self._renewed = asked
        self._list_taken.set()
        self._list_taken = asyncio.Event()

    def _keep(self, page: Document, found: dict[Name, _Known[T]]) -> None:
        for item in page["items"]:
            name, version = name_of(item), item["metadata"]["resourceVersion"]
            known = self._known.get(name)
            found[name] = known if known and known.version == version else _Known(version, self._parse(item))

    def _take(self, kind: str, item: Document) -> None:
        self._heard()
        self.fault = ""
        name, self._from = name_of(item), item["metadata"]["resourceVersion"]
        if kind == "BOOKMARK":
            return
        after = None if kind == "DELETED" else _Known(item["metadata"]["resourceVersion"], self._parse(item))
        self._replace(self._known.pop(name, None), after)
        if after:
            self._known[name] = after
        self._tell()

    def _replace(self, before: _Known[T] | None, after: _Known[T] | None) -> None:
        self._replaced(before.value if before else None, after.value if after else None)

    def _heard(self) -> None:
        self._answered = time.monotonic()

    def _tell(self) -> None:
        self.version += 1
        self._changed()

    def _say(self, fault: str) -> None:
        if fault != self.fault:
            log.warning("not followed", extra={"path": self._path, "fault": fault})
        self.fault = fault


def name_of(item: Mapping[str, Any]) -> Name:
    """The name of an object."""
    metadata = item["metadata"]
    return Name(metadata.get("namespace", ""), metadata.get("name", ""))


async def pages(api: Api, path: str, **query: str) -> AsyncIterator[Document]:
    """A list as it is now, read by quorum, in pages that all show one version of it.

    Raises:
        ExpiredError: It took so long that the version is gone: list again.
        ClusterError: The API server refused or did not answer.
    """
    page = await api.get(path, limit=PAGE, **query)
    yield page
    while token := page["metadata"].get("continue"):
        page = await api.get(path, **{**query, "limit": PAGE, "continue": token})
        yield page
