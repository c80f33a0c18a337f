"""Writes that the store hears of at once: what was decided next must not be decided on what we know to be old."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cachescope.controller.store import Store
from cachescope.controller.watched_kinds import streamed
from cachescope.kube.rest import Document, Rest

_KEPT = frozenset(kind.kind for kind in streamed(None))


class HeardRest(Rest):
    """Requests whose answers go into the store.

    Args:
        store: Where they go.
        wrote: Told the verb and kind of each write that was answered.
    """

    def __init__(self, store: Store, wrote: Callable[[str, str], None]) -> None:
        super().__init__()
        self._store = store
        self._wrote = wrote

    async def create(self, path: str, document: Mapping[str, Any], **query: str) -> Document:
        """As `Rest.create`."""
        return self._hear("create", await super().create(path, document, **query))

    async def replace(self, path: str, document: Mapping[str, Any], **query: str) -> Document:
        """As `Rest.replace`."""
        return self._hear("update", await super().replace(path, document, **query))

    async def apply(self, path: str, document: Mapping[str, Any], field_manager: str) -> Document:
        """As `Rest.apply`."""
        return self._hear("apply", await super().apply(path, document, field_manager))

    async def merge(self, path: str, document: Mapping[str, Any], **query: str) -> Document:
        """As `Rest.merge`."""
        return self._hear("patch", await super().merge(path, document, **query))

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None, **query: str) -> None:
        """As `Rest.delete`; the watch says when it is gone."""
        await super().delete(path, uid=uid, resource_version=resource_version, **query)
        self._wrote("delete", "any")

    def _hear(self, verb: str, answer: Document) -> Document:
        kind = str(answer.get("kind"))
        self._wrote(verb, kind)
        if kind in _KEPT:
            self._store.put(kind, answer)
        return answer
