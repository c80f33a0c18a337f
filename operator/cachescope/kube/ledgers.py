"""Epoch ledgers in the API: read by quorum, created once, replaced by compare-and-swap. What they say is decided elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachescope.core.labels import FIELD_MANAGER
from cachescope.kube.kinds import collection_of, path_of
from cachescope.kube.rest import Document, NotFoundError, Rest


async def read_ledger(rest: Rest, namespace: str, name: str) -> Document | None:
    """The ledger as it is committed now, or `None` when there is none.

    Raises:
        ApiError: The API server refused, or did not answer: that says nothing about the ledger.
    """
    try:
        # Without a version in the query the API server reads by quorum, not from its cache.
        return await rest.get(f"{collection_of('EpochLedger', namespace)}/{name}")
    except NotFoundError:
        return None


async def create_ledger(rest: Rest, document: Mapping[str, Any]) -> Document:
    """Create a ledger.

    Raises:
        ConflictError: There is one by now; read it.
        ApiError: The API server refused, or did not answer: read it to know whether it was created.
    """
    path = collection_of("EpochLedger", document["metadata"]["namespace"])
    return await rest.create(path, document, fieldManager=FIELD_MANAGER)


async def replace_ledger(rest: Rest, document: Mapping[str, Any]) -> Document:
    """Replace a ledger, if it is still the one that was read.

    Args:
        rest: The API.
        document: What was read, with another `spec`.

    Raises:
        ConflictError: Somebody wrote it since, or a lost answer was sent twice; read it and decide anew.
        NotFoundError: It was deleted.
        RuntimeError: The document does not say what was read.
    """
    if not document["metadata"].get("resourceVersion") or not document["metadata"].get("uid"):
        raise RuntimeError("a ledger is replaced under the UID and resourceVersion that were read; read it first")
    return await rest.replace(path_of(document), document, fieldManager=FIELD_MANAGER)
