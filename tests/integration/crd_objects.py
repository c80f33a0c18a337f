"""Objects for the tables of the CRDs, and the API server as those tables ask it."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Mapping
from typing import Any, Final

from cachescope.api.documents import API_VERSION
from cachescope.api.kinds import KINDS
from cachescope.kube.rest import ApiError, Rest, collection

PLURALS: Final = {kind.model.KIND: kind.model.PLURAL for kind in KINDS}
MISSING: Final = object()
REFUSALS: Final = (400, 422)
TARGET, OTHER, DENIED = "a" * 64, "b" * 64, "e" * 64
LINEAGE, NEW_LINEAGE = "1" * 32, "2" * 32
BOOT_ID: Final = "0123456789abcdef0123456789abcdef"
POD_UID: Final = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"

SPECS: Final[Mapping[str, dict[str, Any]]] = {
    "ServingPool": {
        "model": {"name": "tiny", "source": {"imagePath": "/models/tiny"}},
        "engine": {"version": "0.11.0", "image": "example/vllm:0.11.0"},
    },
    "Tenant": {"identities": {"jwt": [{"provider": "north", "audience": "llm"}]}},
    "CacheScope": {"pools": ["tiny"], "tenants": ["red"]},
    "PublicSource": {
        "digest": f"sha256:{'1' * 64}",
        "title": "Terms",
        "approval": {"by": "legal", "at": "2030-01-01T00:00:00Z", "expires": "2031-01-01T00:00:00Z"},
    },
    "CacheEpoch": {"target": {"name": "tiny"}, "floor": 3},
    "EpochLedger": {
        "role": "Shard",
        "lineage": {"generation": 7, "id": LINEAGE},
        "sequence": 1,
        "previousDigest": "",
        "digest": f"sha256:{'1' * 64}",
        "mac": {"key": "root-1", "value": "0" * 64},
        "history": ["1" * 32],
        "base": 4,
        "floors": {TARGET: 9, OTHER: 5, DENIED: 6},
        "abortBelow": {TARGET: 8},
        "drainSeconds": {TARGET: 30},
        "denied": {DENIED: 6, OTHER: 3},
        "readmitted": {OTHER: 5},
        "issuedBefore": {DENIED: 1000},
        "flags": {"publicStopped": 3, "bypassed": 2, "resumed": 1},
        "reach": 1,
        "changed": {TARGET: 1, OTHER: 1, DENIED: 1},
        "shards": {},
        "policy": {},
        "restored": 2,
        "confirmed": 1,
        "incidents": {"c" * 64: 9},
    },
    "FenceLease": {
        "holder": "Guard",
        "pod": "tiny-0",
        "pool": "tiny",
        "tick": 1000,
        "leaseSeconds": 60,
        "version": "0.1.0",
        "statement": "signed",
    },
}

Changes = Mapping[str, Any]
"""Values by dotted path, `MISSING` to leave a field out."""

NEXT: Final[Changes] = {
    "spec.sequence": 2,
    "spec.previousDigest": f"sha256:{'1' * 64}",
    "spec.digest": f"sha256:{'2' * 64}",
    "spec.history": ["1" * 32, "2" * 32],
}
"""What every change of the ledger above says of itself."""

SHARD_MARK: Final = {"lineage": {"generation": 7, "id": LINEAGE}, "sequence": 3, "digest": f"sha256:{'3' * 64}"}
HEAD: Final[Changes] = {
    "spec.role": "Authorization",
    "spec.sequence": 1,
    "spec.changed": {TARGET: 1, OTHER: 1, DENIED: 1},
    "spec.reach": 0,
    "spec.shards": {"authorization.shard-a": SHARD_MARK},
    "spec.policy": {"tenants": f"sha256:{'4' * 64}"},
}
"""What makes an authorization head of it."""


def document(kind: str, changes: Changes | None = None) -> dict[str, Any]:
    """A valid object of a kind under a name of its own, with changes."""
    name = f"{POD_UID}.{secrets.token_hex(16)}" if kind == "FenceLease" else f"x{secrets.token_hex(4)}"
    made = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": SPECS[kind]}
    return changed(made, changes or {})


def changed(before: dict[str, Any], changes: Changes) -> dict[str, Any]:
    """A copy with changes."""
    made = copy.deepcopy(before)
    for path, value in changes.items():
        *parents, last = path.split(".")
        node = made
        for name in parents:
            node = node.setdefault(name, {})
        if value is MISSING:
            del node[last]
        else:
            node[last] = copy.deepcopy(value)
    return made


class Server:
    """The API server, seen from one namespace."""

    def __init__(self, rest: Rest, namespace: str) -> None:
        self.rest = rest
        self.namespace = namespace

    async def create(self, document: dict[str, Any], **query: str) -> dict[str, Any]:
        """Create an object."""
        return await self.rest.create(self.path(document["kind"]), document, **query)

    async def try_create(self, document: dict[str, Any]) -> dict[str, Any]:
        """What the API server would make of an object; unknown fields are refused, as kubectl asks for."""
        return await self.create(document, dryRun="All", fieldValidation="Strict")

    async def replace(self, document: dict[str, Any], *, subresource: str = "") -> dict[str, Any]:
        """Replace an object."""
        return await self.rest.replace(self.path(document["kind"], document["metadata"]["name"]) + subresource, document)

    async def get(self, document: dict[str, Any], *, subresource: str = "") -> dict[str, Any]:
        """Read an object."""
        return await self.rest.get(self.path(document["kind"], document["metadata"]["name"]) + subresource)

    async def refusal(self, document: dict[str, Any], *, create: bool = False) -> str | None:
        """Why the API server refuses to replace (or create) this; `None` if it takes it."""
        try:
            await (self.try_create(document) if create else self.replace(document))
        except ApiError as error:
            if error.status in REFUSALS:
                return str(error)
            raise
        return None

    def path(self, kind: str, name: str = "") -> str:
        """Path of a kind, or of one object."""
        return collection(API_VERSION, PLURALS[kind], self.namespace) + (f"/{name}" if name else "")
