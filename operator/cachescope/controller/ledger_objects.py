"""Ledgers in the API: verified when they are read, sealed when they are written, and never written but over what was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cachescope.api.documents import API_VERSION
from cachescope.api.ledgers import EpochLedger
from cachescope.controller.root_keys import RootKeys
from cachescope.controller.store import Store
from cachescope.core.errors import SpecError
from cachescope.core.labels import HEAD, LEDGER_LABEL, MANAGED_BY_LABEL, PART_OF_LABEL, SHARD
from cachescope.core.ledger_seals import seal_keys, sealed, verified
from cachescope.core.ledgers import Ledger, Role
from cachescope.kube.ledgers import create_ledger, read_ledger, replace_ledger
from cachescope.kube.rest import Document, Rest


@dataclass(frozen=True, slots=True)
class Place:
    """Where a ledger is, and by what it is named elsewhere.

    Attributes:
        namespace: Its namespace.
        name: Name of the object.
        key: What its seal is bound to, and how leases name it: a pool's UID, or `authorization_key`; of a shard that and its name.
    """

    namespace: str
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class Stored:
    """What was read of a ledger.

    Attributes:
        document: The object; `None` when there is none.
        ledger: What it says; `None` when it says nothing that can be relied on.
        fault: Why not.
        written: Whether it is the answer to a write of this process.
        outdated: Whether its seal is of an older key, which may be dropped one day.
    """

    document: Document | None = None
    ledger: Ledger | None = None
    fault: str = ""
    written: bool = False
    outdated: bool = False

    @property
    def version(self) -> int:
        """Version of the object."""
        return int(self.document["metadata"]["resourceVersion"]) if self.document else 0

    @property
    def generation(self) -> int:
        """Generation of its lineage, also where nothing else in it can be relied on: the next one must be above it."""
        lineage = ((self.document or {}).get("spec") or {}).get("lineage")
        found = lineage.get("generation") if isinstance(lineage, dict) else None
        return found if isinstance(found, int) else 0


class LedgerObjects:
    """Reads and writes ledgers.

    Args:
        rest: The API.
        store: Objects as last seen.
        keys: The root keys.
    """

    def __init__(self, rest: Rest, store: Store, keys: RootKeys) -> None:
        self._rest = rest
        self._store = store
        self._keys = keys

    def seen(self, place: Place) -> Stored:
        """A ledger as it was last seen; enough to find that nothing is to be done."""
        return self._stored(place, self._store.get(EpochLedger.KIND, place.namespace, place.name))

    async def read(self, place: Place) -> Stored:
        """A ledger as it is committed now.

        Raises:
            ClusterError: It cannot be read.
        """
        return self._stored(place, await read_ledger(self._rest, place.namespace, place.name))

    async def write(self, place: Place, ledger: Ledger, over: Stored) -> Stored:
        """Write a ledger over what was read.

        Raises:
            ConflictError: Somebody wrote it since; read it and decide anew.
            ClusterError: It cannot be written, or nobody knows whether it was.
        """
        spec = sealed(seal_keys(self._keys.ring), place.key, ledger)
        if over.document is None:
            written = await create_ledger(self._rest, _object(place, ledger.role, spec))
        else:
            written = await replace_ledger(self._rest, {**over.document, "spec": spec})
        return Stored(written, ledger, written=True)

    def witnessed(self, place: Place, witnesses: list[Mapping[str, Any]]) -> tuple[list[Ledger], list[Mapping[str, Any]]]:
        """Copies of a ledger that processes hold: those that carry our seal, and the others."""
        good, bad = [], []
        for item in witnesses:
            try:
                good.append(verified(seal_keys(self._keys.ring), place.key, item))
            except SpecError:
                bad.append(item)
        return good, bad

    def _stored(self, place: Place, document: Document | None) -> Stored:
        if document is None:
            return Stored()
        keys = seal_keys(self._keys.ring)
        try:
            ledger = verified(keys, place.key, document.get("spec"))
        except SpecError as error:
            return Stored(document, None, str(error))
        return Stored(document, ledger, outdated=document["spec"]["mac"]["key"] != keys.current.id)


def _object(place: Place, role: Role, spec: Mapping[str, Any]) -> Document:
    """An `EpochLedger`. It has no owner: what stands outlives pools and tenants."""
    kind = SHARD if role is Role.SHARD else HEAD
    labels = {PART_OF_LABEL: "cachescope", MANAGED_BY_LABEL: "cachescope", LEDGER_LABEL: kind}
    return {
        "apiVersion": API_VERSION,
        "kind": EpochLedger.KIND,
        "metadata": {"name": place.name, "namespace": place.namespace, "labels": labels},
        "spec": spec,
    }
