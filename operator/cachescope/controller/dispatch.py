"""Which work a change makes: from an object that changed to the keys that must be looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from cachescope.controller.origins import dedicated_to, named_by, template_uid
from cachescope.controller.policy_inputs import INPUTS
from cachescope.controller.store import Key, Store
from cachescope.controller.watched_kinds import API_KEYS, CHILDREN, WATCHED
from cachescope.core.adapters import served_names
from cachescope.core.labels import POOL_LABEL
from cachescope.core.leases import namespace_of
from cachescope.core.ledgers import AUTHORIZATION, AUTHORIZATION_HEAD
from cachescope.kube.rest import Document

AUTHORIZATIONS: Final = "Authorization"
"""Work on the authorization ledgers of a namespace; no kind of the API."""
POLICY_SECONDS: Final = 1.0
HELD_SECONDS: Final = 1.0
_CHILDREN: Final = frozenset(kind.kind for kind in WATCHED if kind.selector == CHILDREN)


class Dispatch:
    """Puts work into a queue.

    Args:
        store: Where neighbours are found.
        add: Makes a key due, in some seconds.
        rulers: Namespaces whose authorization ledgers hold for the tenants of all: the installation's, which comes first, and those
            of shared pools.
    """

    def __init__(self, store: Store, add: Callable[[Key, float], None], rulers: Sequence[str]) -> None:
        self._store = store
        self._add = add
        self._rulers = rulers

    def hear(self, key: Key, old: Document | None, new: Document | None) -> None:
        """Take a change of the store over."""
        documents = [document for document in (old, new) if document is not None]
        for item in affected(self._store, key, documents):
            self._add(item, 0)
        if key.kind == "CacheEpoch":
            for namespace in {key.namespace, *self._rulers}:
                self._add(authorization(namespace), 0)
        if key.kind in INPUTS:
            # Edits come in groups, and each digest is a step that everybody acknowledges.
            self._add(authorization(self._rulers[0]), POLICY_SECONDS)

    def ledgers(self, names: set[str], urgent: bool) -> None:
        """Something has changed that a status shows, or that a witness tells, by the names that leases give ledgers."""
        seconds = 0.0 if urgent else HELD_SECONDS
        for document in self._store.all("ServingPool"):
            if document["metadata"]["uid"] in names:
                for key in (_key("ServingPool", document), *_templates([document])):
                    self._add(key, seconds)
        for name in names:
            if name.startswith(AUTHORIZATION):
                self._add(authorization(namespace_of(name)), seconds)


def authorization(namespace: str) -> Key:
    """The key of the work on a namespace's authorization ledgers."""
    return Key(AUTHORIZATIONS, namespace, AUTHORIZATION_HEAD)


def affected(store: Store, key: Key, documents: Iterable[Document]) -> Iterator[Key]:
    """Keys that a change touches, but for `Dispatch.hear`'s own.

    Args:
        store: Where neighbours are found.
        key: What changed.
        documents: It before and after, as far as there is one.
    """
    kind, namespace = key.kind, key.namespace
    if kind == "EpochLedger":
        yield authorization(namespace) if "." in key.name else Key("ServingPool", namespace, key.name)
    elif kind == "CacheEpoch":
        yield key
        yield from _pools_of_epoch(store, namespace, documents)
    elif kind in _CHILDREN:
        yield from (Key("ServingPool", namespace, name) for name in _owners(documents))
    elif kind == API_KEYS:
        yield from (_key("Tenant", item) for item in store.all("Tenant", namespace) if key.name in _secret_names(item))
    elif kind == "PublicSource":
        yield key
        yield from (_key("CacheScope", item) for item in store.all("CacheScope", namespace))
    elif kind in ("ServingPool", "Tenant", "CacheScope"):
        yield key
        yield from _neighbours(store, key, list(documents))


def _pools_of_epoch(store: Store, namespace: str, documents: Iterable[Document]) -> Iterator[Key]:
    """The pool that a CacheEpoch names, and what was made of it; of a scope or the namespace all of them; none for people."""
    for document in documents:
        target = (document.get("spec") or {}).get("target")
        target = target if isinstance(target, dict) else {}
        if target.get("kind", "ServingPool") == "ServingPool":
            name = str(target.get("name", ""))
            yield Key("ServingPool", namespace, name)
            yield from (_key("ServingPool", item) for item in store.all("ServingPool", namespace) if named_by(item) == name)
        elif target.get("kind") in ("CacheScope", "Namespace"):
            yield from (_key("ServingPool", item) for item in store.all("ServingPool", namespace))


def _neighbours(store: Store, key: Key, documents: list[Document]) -> Iterator[Key]:
    """Others whose verdict depends on whether a pool or tenant exists, or on which names it serves."""
    if len(documents) == 1:
        if key.kind != "CacheScope":
            yield from (_key("CacheScope", item) for item in store.all("CacheScope", key.namespace))
        yield from (_key("CacheEpoch", item) for item in store.all("CacheEpoch", key.namespace))
        yield authorization(key.namespace)
    if key.kind == "CacheScope":
        # Also those that it names no more, or never did: each holds the incidents of every scope of the namespace.
        yield from (_key("ServingPool", item) for item in store.all("ServingPool", key.namespace))
    if key.kind == "Tenant" and (len(documents) == 1 or _selected_by(documents[0]) != _selected_by(documents[1])):
        # A template has a pool for each tenant that it selects.
        yield from (_key("ServingPool", item) for item in store.all("ServingPool", key.namespace) if dedicated_to(item) is None)
    if key.kind == "ServingPool":
        yield from _templates(documents)
        served = [set(served_names(item)) for item in documents]
        if len(documents) == 1 or served[0] != served[-1]:
            names = set().union(*served)
            pools = [item for item in store.all("ServingPool", key.namespace) if item["metadata"]["name"] != key.name]
            yield from (_key("ServingPool", item) for item in pools if names.intersection(served_names(item)))


def _templates(pools: Iterable[Document]) -> Iterator[Key]:
    """What pools were made of: that makes, starts and stops them, and tells how they are."""
    yield from (Key("ServingPool", item["metadata"]["namespace"], named_by(item)) for item in pools if template_uid(item))


def _selected_by(tenant: Document) -> tuple[object, ...]:
    """What decides whether a template selects a tenant."""
    metadata = tenant.get("metadata", {})
    return tuple(metadata.get(name) for name in ("uid", "labels", "deletionTimestamp"))


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


def _key(kind: str, document: Document) -> Key:
    return Key(kind, document["metadata"].get("namespace", ""), document["metadata"]["name"])
