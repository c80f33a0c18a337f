"""The gateway's own FenceLease: without a live right a gateway decides nothing.

What the rounds are is `cachescope.leases.rounds`; here is what a gateway says in them (which heads it applied, to which pods it
routes) and how it reads the ledgers: by quorum, all of them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import cachescope
from cachescope.api.documents import API_VERSION
from cachescope.api.ledgers import EpochLedger, FenceLease, FenceLeaseSpec
from cachescope.core.errors import ClusterError, SpecError
from cachescope.core.heads import Head
from cachescope.core.leases import GATEWAY, LeaseStatement, Seen, lease_name, write_lease
from cachescope.gateway.configuration import Configuration
from cachescope.gateway.ledger_heads import Ledgers
from cachescope.gateway.readings import read_ledger, whatever
from cachescope.kube.rest import ApiError, ConflictError, Document, NotFoundError, collection
from cachescope.kube.watched import Api, name_of, pages
from cachescope.leases.rounds import LeaseConflict, LeaseGone, LostAnswer, Stored, Written

Routable = Callable[[], Mapping[str, tuple[str, ...]]]
"""Gives the UIDs of the pods that are routed to, by pool UID."""


@dataclass(frozen=True)
class Pod:
    """The gateway's pod.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        uid: Its UID.
    """

    namespace: str
    name: str
    uid: str


class GatewayLease:
    """Implements `Holder`.

    Args:
        pod: The pod.
        api: The API server.
        ledgers: Path of the list of ledgers.
        configuration: The configuration, which keeps the heads.
        routable: What is routed to.
        lease_ms: Length of the right.
    """

    def __init__(
        self, pod: Pod, *, api: Api, ledgers: str, configuration: Configuration, routable: Routable, lease_ms: int
    ) -> None:
        self._pod = pod
        self._api = api
        self._ledgers = ledgers
        self._configuration = configuration
        self._routable = routable
        self._lease_ms = lease_ms
        self._boot_id = secrets.token_hex(16)
        self.said: Mapping[str, tuple[str, ...]] = {}
        """What the latest statement says of pods that are routed to."""

    def lease_name(self) -> str:
        """Name of the lease."""
        return lease_name(self._pod.uid, self._boot_id)

    def restarted(self) -> None:
        """Go on under a new name. Nothing has to be aborted here: what is in flight is judged by guards."""
        self._boot_id = secrets.token_hex(16)

    def spec(self, tick: int) -> Mapping[str, Any]:
        """The lease's spec for a tick.

        Raises:
            SpecError: There is no configuration yet, so nothing that could be said.
        """
        snapshot = self._configuration.current()
        if snapshot is None:
            raise SpecError(f"no configuration is in force ({self._configuration.fault}); see /readyz")
        self.said = self._routable()
        statement = LeaseStatement(
            holder=GATEWAY,
            pod_uid=self._pod.uid,
            boot_id=self._boot_id,
            tick=tick,
            lease_ms=self._lease_ms,
            version=cachescope.__version__,
            heads={uid: seen(head) for uid, head in snapshot.heads.items()},
            routable=self.said,
        )
        spec = FenceLeaseSpec(
            holder=GATEWAY,
            pod=self._pod.name,
            tick=tick,
            lease_seconds=self._lease_ms // 1000,
            version=cachescope.__version__,
            statement=write_lease(snapshot.keys.lease, statement),
        )
        return spec.model_dump(by_alias=True)

    async def read_heads(self) -> Ledgers:
        """Read all ledgers by quorum.

        Raises:
            ClusterError: They cannot be read.
        """
        read = whatever(read_ledger)
        return {name_of(item): read(item) async for page in pages(self._api, self._ledgers) for item in page["items"]}

    def apply(self, heads: object) -> None:
        """Take the heads over; each pool's fault is that pool's."""
        if not isinstance(heads, dict):
            raise TypeError("apply takes what read_heads returned; pass that")
        self._configuration.take_ledgers(heads)


def seen(head: Head) -> Seen:
    """A head as a lease names it."""
    return Seen(head.lineage, head.generation, head.sequence)


def ledgers_path(namespace: str | None) -> str:
    """Path of the list of ledgers, of one namespace or of all."""
    return collection(API_VERSION, EpochLedger.PLURAL, namespace)


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

    async def create(self, name: str, spec: Mapping[str, Any]) -> Written:
        """Create a lease."""
        try:
            return _stored(await self._api.create(self._path, self._document(name, spec)))
        except ApiError as error:
            raise _meaning(error) from error

    async def replace(self, name: str, spec: Mapping[str, Any], resource_version: str) -> Written:
        """Replace a lease that still has that version."""
        try:
            return _stored(await self._api.replace(f"{self._path}/{name}", self._document(name, spec, resource_version)))
        except NotFoundError as error:
            raise LeaseGone(str(error)) from error
        except ApiError as error:
            raise _meaning(error) from error

    async def get(self, name: str) -> Stored | None:
        """Read a lease by quorum."""
        try:
            return _stored(await self._api.get(f"{self._path}/{name}"))
        except NotFoundError:
            return None

    def _document(self, name: str, spec: Mapping[str, Any], resource_version: str | None = None) -> Document:
        version = {"resourceVersion": resource_version} if resource_version else {}
        metadata = {"name": name, "namespace": self._namespace, **version}
        return {"apiVersion": API_VERSION, "kind": FenceLease.KIND, "metadata": metadata, "spec": dict(spec)}


def _stored(document: Document) -> Stored:
    try:
        metadata = document["metadata"]
        return Stored(metadata["resourceVersion"], int(document["spec"]["tick"]), "deletionTimestamp" in metadata)
    except (KeyError, TypeError, ValueError) as error:
        raise LostAnswer(f"the answer shows no FenceLease ({error!r}); it is read again") from error


def _meaning(error: ApiError) -> ClusterError:
    if isinstance(error, ConflictError):
        return LeaseConflict(str(error))
    return LostAnswer(str(error)) if error.status == 0 or error.status >= 500 else error
