"""FenceLeases through the gateway's own client of the API server.

That client's transport may send a PUT a second time when a connection breaks. The version that each write expects makes the second
one a conflict, and after a conflict a round reads what is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from cachescope.api.documents import API_VERSION
from cachescope.api.ledgers import FenceLease
from cachescope.core.errors import ClusterError
from cachescope.kube.rest import ApiError, ConflictError, Document, NotFoundError, collection
from cachescope.leases.api import NOBODY
from cachescope.leases.ports import LeaseConflict, LeaseGone, LostAnswer, ServerBusy, Stored


class Writer(Protocol):
    """What is needed of `kube.rest.Rest`."""

    async def get(self, path: str, **query: str) -> Document:
        """Read an object."""

    async def create(self, path: str, document: Mapping[str, Any], **query: str) -> Document:
        """Create one."""

    async def replace(self, path: str, document: Mapping[str, Any], **query: str) -> Document:
        """Replace one."""


class RestLeases:
    """Implements `LeaseStore` in one namespace.

    Args:
        api: The API server.
        namespace: The namespace.
    """

    def __init__(self, api: Writer, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._path = collection(API_VERSION, FenceLease.PLURAL, namespace)

    async def create(self, name: str, spec: Mapping[str, Any]) -> Stored:
        """Create a lease."""
        try:
            return _stored(await self._api.create(self._path, self._document(name, spec)))
        except ApiError as error:
            raise meaning(error) from error

    async def replace(self, name: str, spec: Mapping[str, Any], resource_version: str) -> Stored:
        """Replace a lease that still has that version."""
        try:
            return _stored(await self._api.replace(f"{self._path}/{name}", self._document(name, spec, resource_version)))
        except NotFoundError as error:
            raise LeaseGone(str(error)) from error
        except ApiError as error:
            raise meaning(error) from error

    async def get(self, name: str) -> Stored | None:
        """Read a lease by quorum."""
        try:
            return _stored(await self._api.get(f"{self._path}/{name}"))
        except NotFoundError:
            return None
        except ApiError as error:
            raise meaning(error) from error

    def _document(self, name: str, spec: Mapping[str, Any], resource_version: str | None = None) -> Document:
        version = {"resourceVersion": resource_version, "managedFields": NOBODY} if resource_version else {}
        metadata = {"name": name, "namespace": self._namespace, **version}
        return {"apiVersion": API_VERSION, "kind": FenceLease.KIND, "metadata": metadata, "spec": dict(spec)}


def _stored(document: Document) -> Stored:
    try:
        metadata = document["metadata"]
        return Stored(metadata["resourceVersion"], int(document["spec"]["tick"]), "deletionTimestamp" in metadata)
    except (KeyError, TypeError, ValueError) as error:
        raise LostAnswer(f"the answer shows no FenceLease ({error!r}); it is read again") from error


def meaning(error: ApiError) -> ClusterError:
    """An answer of the API server as lease rounds understand it."""
    if isinstance(error, ConflictError):
        return LeaseConflict(str(error))
    if error.status == 429:
        return ServerBusy(str(error))
    return LostAnswer(str(error)) if error.status == 0 or error.status >= 500 else error
