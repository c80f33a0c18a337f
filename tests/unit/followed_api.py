"""An API server in memory that can be followed: lists by label and watches of one namespace, and an end of all answers."""

from __future__ import annotations

import asyncio
import base64
import copy
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

from cachescope.kube.rest import Document
from tests.unit.fake_api import FakeApi


class FollowedApi(FakeApi):
    """What a gateway of one namespace needs of `Rest`.

    Attributes:
        stalled: Plural names of kinds whose watches say nothing, as one that stalled does.
        entered: Whether it is used as a context now.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stalled: set[str] = set()
        self.entered = False
        self._events: list[Document] = []
        self._news = asyncio.Event()

    async def __aenter__(self) -> FollowedApi:
        self.entered = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.entered = False

    async def get(self, path: str, **query: str) -> Document:
        if not _is_list(path):
            return await super().get(path)
        found = [item for name, item in self.objects.items() if name.rpartition("/")[0] == path]
        items = [item for item in found if _has_labels(item, query.get("labelSelector"))]
        return copy.deepcopy({"metadata": {"resourceVersion": str(self._version)}, "items": items})

    async def watch(self, path: str, *, resource_version: str, seconds: int, **query: str) -> AsyncIterator[Document]:
        del seconds
        seen = int(resource_version)
        while True:
            for event in [item for item in self._events if item["version"] > seen]:
                seen = event["version"]
                if event["path"] == path and path.rpartition("/")[2] not in self.stalled:
                    gone = event["gone"] or not _has_labels(event["object"], query.get("labelSelector"))
                    yield {"type": "DELETED" if gone else "MODIFIED", "object": copy.deepcopy(event["object"])}
            self._news.clear()
            await self._news.wait()

    async def create(self, path: str, document: Mapping[str, Any], **query: str) -> Document:
        metadata = {**document["metadata"], "namespace": path.split("/")[-2], "uid": str(uuid.uuid4())}
        made = {**document, "metadata": metadata}
        if texts := made.pop("stringData", None):
            made["data"] = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
        return await super().create(path, made, **query)

    async def merge(self, path: str, document: Mapping[str, Any], **query: str) -> Document:
        return await self.replace(path, _merged(await self.get(path.removesuffix("/status")), document), **query)

    async def delete(self, path: str, **conditions: Any) -> None:
        gone = self.objects.get(path)
        await super().delete(path, **conditions)
        self._version += 1
        if gone:
            self._tell(path, {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self._version)}}, gone=True)

    def _store(self, path: str, document: Document) -> Document:
        stored = super()._store(path, document)
        self._tell(path, stored, gone=False)
        return stored

    def _tell(self, path: str, document: Document, *, gone: bool) -> None:
        self._events.append({"version": self._version, "path": path.rpartition("/")[0], "object": document, "gone": gone})
        self._news.set()


def _is_list(path: str) -> bool:
    return path.partition("/namespaces/")[2].count("/") == 1


def _has_labels(item: Mapping[str, Any], selector: str | None) -> bool:
    labels = item["metadata"].get("labels") or {}
    terms = [term.partition("=") for term in (selector or "").split(",") if term]
    return all(name in labels and (not value or labels[name] == value) for name, _, value in terms)


def _merged(there: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, Mapping):
        return patch
    found = dict(there) if isinstance(there, dict) else {}
    for name, value in patch.items():
        found[name] = _merged(found.get(name), value)
    return {name: value for name, value in found.items() if value is not None}
