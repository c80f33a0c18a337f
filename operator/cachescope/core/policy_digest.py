"""Digests of policy: one for all objects of a kind, whatever their order, that follows each change at the cost of one object.

The operator computes it from a list and writes it into the authorization heads; a gateway keeps it while it follows the objects,
and so knows whether what it loaded is at least as new as what a head was written for.

Rules:

- of an object counts what gateways compile of it (`policy_items`), and what tells two times of the same words apart: the generation
  of what people alone write, and the version of a Secret. Pools have neither: each step of an autoscaler would change it;
- the digest of a set is a sum modulo 2**2048 of a hash of each object (a multiset hash: Bellare and Micciancio, "A New Paradigm for
  Collision-Free Hashing", 1997). The modulus is that wide since whoever may create many objects could otherwise find two sets of
  one sum (Wagner, "A Generalized Birthday Problem", 2002): with 2048 bits that takes about 2**90 steps.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from cachescope.core.digests import sha256
from cachescope.core.types import Digest

BITS: Final = 2048
_MODULUS: Final = 1 << BITS
_BYTES: Final = BITS // 8

Document = Mapping[str, Any]


def policy_items(kind: str, document: Document) -> bytes:
    """What gateways compile of one object, as bytes that operator and gateway make alike from what the API server sends.

    Args:
        kind: One of `POLICY_KINDS`.
        document: The object.

    Raises:
        KeyError: It is of another kind, or without metadata.
    """
    metadata = document["metadata"]
    named = {name: metadata.get(name) for name in ("uid", "namespace", "name")}
    try:
        return _canonical({"kind": kind, **named, **_PARTS[kind](document)})
    except (AttributeError, TypeError, ValueError, RecursionError):  # nobody compiles it; that there is one still counts
        return _canonical({"kind": kind, **named, "unreadable": metadata.get("resourceVersion")})


def element(items: bytes) -> int:
    """What one object adds to the sum."""
    return int.from_bytes(hashlib.shake_256(items).digest(_BYTES), "big")


class PolicyDigest:
    """The digest of a set of objects; it begins with none."""

    def __init__(self) -> None:
        self._sum = 0

    def add(self, part: int) -> None:
        """Add an object, by its `element`."""
        self._sum = (self._sum + part) % _MODULUS

    def remove(self, part: int) -> None:
        """Take an object away that was added."""
        self._sum = (self._sum - part) % _MODULUS

    def digest(self) -> Digest:
        """Names the set as it is now."""
        return sha256(b"cachescope/policy/v1" + self._sum.to_bytes(_BYTES, "big"))


def policy_digest(kind: str, documents: Iterable[Document]) -> Digest:
    """The digest of all objects of a kind."""
    found = PolicyDigest()
    for document in documents:
        found.add(element(policy_items(kind, document)))
    return found.digest()


def _canonical(value: Mapping[str, Any]) -> bytes:
    """Sorted and compact. Both sides are Python, so fractions and characters need no more than one spelling of it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _tenant(document: Document) -> Document:
    accepted = (document.get("status") or {}).get("accepted")
    return {**_declared(document), "accepted": accepted or []}


def _declared(document: Document) -> Document:
    return {"spec": document.get("spec"), "generation": document["metadata"].get("generation")}


def _pool(document: Document) -> Document:
    spec = document["spec"]
    model, engine = spec.get("model") or {}, spec.get("engine") or {}
    # A pool that says nothing of these counts as it did before there were any.
    added = {
        "adapters": [adapter.get("name") for adapter in engine.get("adapters") or []],
        "isolation": spec.get("isolation"),
        "dedicatedTo": spec.get("dedicatedTo"),
        "engine": _engine(engine),
    }
    said = {name: value for name, value in added.items() if value}
    return {"allowedTenants": spec.get("allowedTenants"), "model": model.get("name"), "sharing": spec.get("sharing"), **said}


def _engine(engine: Mapping[str, Any]) -> Mapping[str, Any]:
    """What decides how tenants are kept apart, and on which routes. Of vLLM every route that is served is alike in that."""
    if engine.get("type", "vLLM") == "vLLM":
        return {}
    return {name: engine.get(name) for name in ("type", "version", "args", "env")}


def _secret(document: Document) -> Document:
    return {"data": document.get("data") or {}, "version": document["metadata"].get("resourceVersion")}


def _namespace(document: Document) -> Document:
    return {"labels": document["metadata"].get("labels") or {}}


_PARTS: Final[Mapping[str, Callable[[Document], Document]]] = {
    "Tenant": _tenant,
    "CacheScope": _declared,
    "PublicSource": _declared,
    "ServingPool": _pool,
    "Secret": _secret,
    "Namespace": _namespace,
}
POLICY_KINDS: Final = tuple(_PARTS)
"""The kinds that policy is compiled from. `Secret`: those labelled as API keys. `Namespace`: where all of them are served."""
