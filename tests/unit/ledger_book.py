"""Both ledgers that decide about a pool's requests, as an operator writes them and a restore of the cluster brings them back."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from cachescope.core.keys import Key, KeyRing
from cachescope.core.ledger_seals import seal_keys, sealed
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Floor, Ledger, Lineage, Role, advanced, authorization_key, reborn
from cachescope.core.lineages import united
from cachescope.core.restores import merged
from cachescope.core.types import Epoch, TargetName

SEALS = seal_keys(KeyRing.of(Key("root", b"o" * 32)))


class LedgerBook:
    """The ledgers of one pool and of its namespace.

    Args:
        pool: Name of the pool's ledger.
        pool_uid: UID of the pool.
        namespace: Its namespace.
        lineage: Id of both lineages.

    Attributes:
        pool: Ledger of the pool.
        authorization: Head of the namespace.
    """

    def __init__(self, pool: str, pool_uid: str, *, namespace: str, lineage: str = "lineage") -> None:
        self._name = pool
        self._places = {pool: pool_uid, AUTHORIZATION_HEAD: authorization_key(namespace)}
        self.pool = Ledger(Role.POOL, Lineage(1, lineage), 1)
        self.authorization = Ledger(Role.AUTHORIZATION, Lineage(1, lineage), 1)

    def roll(self, target: TargetName, epoch: int) -> None:
        """Roll a target of the pool's ledger; what is in flight below is closed at once."""
        self.pool = advanced(self.pool, floors={**self.pool.floors, target: _at_once(epoch)})

    def revoke(self, target: TargetName, epoch: int) -> None:
        """Roll a target of the authorization head."""
        head = self.authorization
        changed = {**head.changed, target: head.sequence + 1}
        self.authorization = advanced(head, floors={**head.floors, target: _at_once(epoch)}, changed=changed)

    def rebirth(self, lineage: str, *witnesses: LedgerBook) -> None:
        """Both ledgers in a new lineage, as after a restore that was noticed, by these witnesses and no others."""
        self.pool = merged(self.pool, [item.pool for item in witnesses], fresh=Lineage(1, lineage))
        later = Lineage(self.authorization.lineage.generation + 1, lineage)
        heads = (self.authorization, *(item.authorization for item in witnesses))
        self.authorization = reborn(self.authorization, later, ancestors=united(*heads))

    def snapshot(self) -> LedgerBook:
        """What a backup of the cluster holds now."""
        return copy.copy(self)

    def forked(self) -> LedgerBook:
        """Another history with the same numbers."""
        other = self.snapshot()
        other.pool = replace(self.pool, history=(), base=Epoch(self.pool.base + 1))
        return other

    def spec(self, name: str) -> dict[str, Any]:
        """The spec of an `EpochLedger`."""
        return sealed(SEALS, self._places[name], self.pool if name == self._name else self.authorization)


def _at_once(epoch: int) -> Floor:
    return Floor(Epoch(epoch), abort_below=Epoch(epoch))
