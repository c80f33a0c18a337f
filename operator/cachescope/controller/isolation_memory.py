"""What was shown of each pool, as long as the operator works: begun from statuses, and told to whoever writes them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from cachescope.api.statuses import IsolationStatus
from cachescope.controller.isolation_records import read_record
from cachescope.controller.store import Key, Store
from cachescope.kube.rest import Document

_NOTHING = IsolationStatus()


@dataclass
class IsolationMemory:
    """The records.

    Attributes:
        store: Objects as last seen.
        again: Asks for a pool to be reconciled, which writes its status.
    """

    store: Store
    again: Callable[[Key], None]
    _records: dict[str, IsolationStatus] = field(default_factory=dict)

    def of(self, document: Document) -> IsolationStatus:
        """The record of a pool."""
        uid = document["metadata"]["uid"]
        if uid not in self._records:
            self._records[uid] = read_record(document.get("status"))
        return self._records[uid]

    def known(self, uid: str) -> IsolationStatus:
        """The record of a pool that was asked for before; an empty one of any other."""
        return self._records.get(uid, _NOTHING)

    def keep(self, key: Key, uid: str, record: IsolationStatus) -> None:
        """Another record of a pool."""
        if record != self._records.get(uid):
            self._records[uid] = record
            self.again(key)

    def forget(self, uid: str) -> None:
        """There is nothing to show of a pool any more."""
        self._records.pop(uid, None)

    def is_there(self, key: Key, uid: str) -> bool:
        """Whether a pool is there, and is no other one of its name."""
        found = self.store.get(*key)
        return found is not None and found["metadata"]["uid"] == uid

    def leaking(self) -> int:
        """Pools with a leak that is not over."""
        return sum(bool(record.leak) for record in self._records.values())

    def undeclared(self, documents: Collection[Document]) -> list[Document]:
        """Those of some pools whose leak nobody has declared: an operator ended before it did."""
        return [item for item in documents if (record := self.of(item)).leak and not record.incident]
