"""The objects that the operator watches, as last seen, and what is left of them in memory.

Rules:

- a version never replaces a later one, whoever brings it: a watch, a list, or the answer to our own write;
- an object that was deleted does not come back by a late answer;
- a list decides what is gone: what it lacks, and what is not newer than it, was deleted.

Versions (`resourceVersion`) are compared as numbers: they are etcd's revisions, and KEP-5504 makes that a promise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from cachescope.controller.watched_kinds import API_KEYS
from cachescope.kube.rest import Document

_BURIED = 20_000


class Key(NamedTuple):
    """Names an object, or work on it."""

    kind: str
    namespace: str
    name: str


Listener = Callable[[Key, Document | None, Document | None], None]
"""Told of each change: the key, what was there, and what is there now."""


def key_of(kind: str, document: Mapping[str, Any]) -> Key:
    """The key of an object."""
    metadata = document["metadata"]
    return Key(kind, metadata.get("namespace", ""), metadata["name"])


def version_of(document: Mapping[str, Any] | None) -> int:
    """The version of an object or list as a number; 0 for none."""
    return int((document or {}).get("metadata", {}).get("resourceVersion") or 0)


class Store:
    """Objects by kind, namespace and name."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, dict[str, Document]]] = {}
        self._buried: dict[Key, int] = {}
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Tell a listener of every change from now on."""
        self._listeners.append(listener)

    def put(self, kind: str, document: Mapping[str, Any]) -> bool:
        """Take an object over; whether it is newer than what is known."""
        key = key_of(kind, document)
        old = self.get(*key)
        if version_of(document) <= max(version_of(old), self._buried.get(key, 0)):
            return False
        new = reduced(kind, document)
        self._objects.setdefault(kind, {}).setdefault(key.namespace, {})[key.name] = new
        self._tell(key, old, new)
        return True

    def remove(self, kind: str, document: Mapping[str, Any]) -> bool:
        """Forget an object that was deleted at the version that it shows; whether it was known."""
        return self._bury(key_of(kind, document), version_of(document))

    def settle(self, kind: str, items: Iterable[Document], version: int) -> int:
        """Take over a list made at a version; how much of it was not known.

        Args:
            kind: Its kind.
            items: Everything that there is.
            version: The version of the list.
        """
        listed = {key_of(kind, item): item for item in items}
        gone = [key for key, item in self._every(kind) if key not in listed and version_of(item) <= version]
        return sum(self._bury(key, version) for key in gone) + sum(self.put(kind, item) for item in listed.values())

    def get(self, kind: str, namespace: str, name: str) -> Document | None:
        """One object, or `None`. Do not change it."""
        return self._objects.get(kind, {}).get(namespace, {}).get(name)

    def staying(self, key: Key) -> Document | None:
        """An object that is there and is not being deleted, or `None`. Do not change it."""
        document = self.get(*key)
        return None if document is None or "deletionTimestamp" in document["metadata"] else document

    def all(self, kind: str, namespace: str | None = None) -> list[Document]:
        """All objects of a kind, in one namespace or in all. Do not change them."""
        spaces = self._objects.get(kind, {})
        chosen = spaces.values() if namespace is None else [spaces.get(namespace, {})]
        return [item for space in chosen for item in space.values()]

    def _every(self, kind: str) -> list[tuple[Key, Document]]:
        return [(key_of(kind, item), item) for item in self.all(kind)]

    def _bury(self, key: Key, version: int) -> bool:
        old = self.get(*key)
        if old is not None and version_of(old) > version:
            return False
        self._buried[key] = max(version, self._buried.pop(key, 0))
        if len(self._buried) > _BURIED:
            del self._buried[next(iter(self._buried))]
        if old is None:
            return False
        del self._objects[key.kind][key.namespace][key.name]
        self._tell(key, old, None)
        return True

    def _tell(self, key: Key, old: Document | None, new: Document | None) -> None:
        for listener in self._listeners:
            listener(key, old, new)


def reduced(kind: str, document: Mapping[str, Any]) -> Document:
    """What is kept of an object: no content of Secrets that are not ours, no specs of pods, of namespaces their labels."""
    if kind == API_KEYS:
        return {"metadata": _identity(document)}
    if kind == "Namespace":
        return {"metadata": _identity(document)}
    if kind == "Pod":
        return {"metadata": _identity(document), "status": document.get("status", {})}
    return dict(document)


def _identity(document: Mapping[str, Any]) -> Document:
    names = ("name", "namespace", "uid", "resourceVersion", "labels", "creationTimestamp", "deletionTimestamp", "ownerReferences")
    return {name: document["metadata"][name] for name in names if name in document["metadata"]}
