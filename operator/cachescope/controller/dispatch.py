"""Which work a change makes: from an object that changed to the keys that must be looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from cachescope.controller.epochs import target_of
from cachescope.controller.store import Key, Store
from cachescope.controller.watched_kinds import API_KEYS, CHILDREN, WATCHED
from cachescope.core.labels import POOL_LABEL
from cachescope.kube.rest import Document

_CHILDREN: Final = frozenset(kind.kind for kind in WATCHED if kind.selector == CHILDREN)


class Dispatch:
    """Puts work into a queue.

    Args:
        store: Where neighbours are found.
        add: Makes a key due.
    """

    def __init__(self, store: Store, add: Callable[[Key], None]) -> None:
        self._store = store
        self._add = add

    def hear(self, key: Key, old: Document | None, new: Document | None) -> None:
        """Take a change of the store over."""
        for item in affected(self._store, key, [document for document in (old, new) if document is not None]):
            self._add(item)

    def pools(self, uids: set[str]) -> None:
        """Something that a pool's status shows has changed."""
        for document in self._store.all("ServingPool"):
            if document["metadata"]["uid"] in uids:
                self._add(_key("ServingPool", document))


def affected(store: Store, key: Key, documents: Iterable[Document]) -> Iterator[Key]:
    """Keys that a change touches.

    Args:
        store: Where neighbours are found.
        key: What changed.
        documents: It before and after, as far as there is one.
    """
    kind, namespace = key.kind, key.namespace
    if kind == "EpochLedger":
        yield Key("ServingPool", namespace, key.name)
    elif kind == "CacheEpoch":
        yield from (Key("ServingPool", namespace, target_of(item)) for item in documents)
    elif kind in _CHILDREN:
        yield from (Key("ServingPool", namespace, name) for name in _owners(documents))
    elif kind == API_KEYS:
        yield from (_key("Tenant", item) for item in store.all("Tenant", namespace) if key.name in _secret_names(item))
    elif kind in ("ServingPool", "Tenant", "CacheScope"):
        yield key
        yield from _neighbours(store, key, list(documents))


def _neighbours(store: Store, key: Key, documents: list[Document]) -> Iterator[Key]:
    """Others whose verdict depends on whether a pool or tenant exists, or on which model it serves."""
    if key.kind != "CacheScope" and len(documents) == 1:
        yield from (_key("CacheScope", item) for item in store.all("CacheScope", key.namespace))
    if key.kind == "ServingPool":
        models = {_model(item) for item in documents}
        if len(documents) == 1 or len(models) > 1:
            pools = store.all("ServingPool", key.namespace)
            yield from (
                _key("ServingPool", item) for item in pools if _model(item) in models and item["metadata"]["name"] != key.name
            )


def _owners(documents: Iterable[Document]) -> set[str]:
    """Pools that children belong to: by the owner reference, which nobody edits by accident, and by the label."""
    owners = {
        str(owner["name"])
        for item in documents
        for owner in item["metadata"].get("ownerReferences") or ()
        if owner.get("kind") == "ServingPool"
    }
    labels = {str((item["metadata"].get("labels") or {}).get(POOL_LABEL, "")) for item in documents}
    return (owners | labels) - {""}


def _secret_names(tenant: Document) -> set[str]:
    identities = (tenant.get("spec") or {}).get("identities") or {}
    return {str(item.get("secretName")) for item in identities.get("apiKeys") or ()}


def _model(document: Document) -> str:
    return str(((document.get("spec") or {}).get("model") or {}).get("name", ""))


def _key(kind: str, document: Document) -> Key:
    return Key(kind, document["metadata"].get("namespace", ""), document["metadata"]["name"])
