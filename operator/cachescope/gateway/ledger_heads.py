"""The ledgers that the gateway holds: heads as a round read them, raised by what the watch shows meanwhile, and shards.

Rules:

- what this process has seen never falls, whatever a ledger says later (`core.ledgers.followed`);
- a round's read decides: it alone brings a ledger that was not known and takes over a new lineage. What does not follow from what
  was known (a fork, or a lineage that lacks some of it), or cannot be read, is not in use: nothing is issued by it, and it is not
  acknowledged;
- a shard that does not follow from what this process used is told in its lease: no head may show that it was taken back;
- the watch is a hint: it raises a head within its lineage, at once. Whatever else it shows is left to the next round, and asks for
  one. It brings shards too, which count only by the marks of a head; one of another lineage waits for a head that names it;
- a ledger that vanished is not in use; what was seen of it is remembered for when it comes back, and denies who was denied.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cachescope.core.authorization_rules import awaits_head
from cachescope.core.errors import SpecError
from cachescope.core.leases import shard_key
from cachescope.core.ledgers import (
    AUTHORIZATION_HEAD,
    Ledger,
    LedgerFork,
    Lineage,
    Mark,
    Role,
    authorization_key,
    followed,
    is_shard,
)
from cachescope.core.lineages import shard_taken, taken
from cachescope.core.log_lines import fault_of
from cachescope.gateway.authorizations import Authorization, PoolState
from cachescope.gateway.readings import KnownLedger, Reading, role_of
from cachescope.kube.watched import Name

log = logging.getLogger(__name__)

Readings = Mapping[Name, Reading[KnownLedger]]
Known = Mapping[Name, KnownLedger]


@dataclass(frozen=True)
class LedgerRead:
    """What one round read.

    Attributes:
        before: What was known when the read began.
        heads: All heads there are.
        shards: The shards that were asked for.
    """

    before: Known
    heads: Readings
    shards: Readings = field(default_factory=dict)


@dataclass(frozen=True)
class Standings:
    """What the ledgers say that are in use, and a memory of the others.

    Attributes:
        pools: Ledgers of pools, by the pools' names.
        authorizations: By namespace; all of their shards are there.
        unclear: Namespaces with an authorization head that cannot be used now, and why.
        remembered: By namespace, what was seen last of every authorization head, also of those that vanished.
    """

    pools: Mapping[Name, Ledger] = field(default_factory=dict)
    authorizations: Mapping[str, Authorization] = field(default_factory=dict)
    unclear: Mapping[str, str] = field(default_factory=dict)
    remembered: Mapping[str, Authorization] = field(default_factory=dict)

    def pool(self, name: Name) -> PoolState | None:
        """What stands for a pool; `None` when one of its ledgers is not in use."""
        own, authorization = self.pools.get(name), self.authorizations.get(name.namespace)
        return PoolState(own, authorization) if own and authorization else None


class LedgerHeads:
    """The ledgers by namespace and name.

    Attributes:
        standings: What they say.
        faults: What is wrong with those that are not in use.
    """

    def __init__(self) -> None:
        self.standings = Standings()
        self.faults: Mapping[Name, str] = {}
        self._known: dict[Name, KnownLedger] = {}
        self._shards: defaultdict[str, dict[str, Ledger]] = defaultdict(dict)
        self._used: dict[str, Lineage] = {}
        self._forked: set[Name] = set()
        self._in_use: set[Name] = set()
        self._unread: dict[Name, str] = {}
        self._hints: Readings = {}

    @property
    def known(self) -> Known:
        """Everything that was seen, as it is now."""
        return dict(self._known)

    def witnesses(self) -> dict[str, Mapping[str, Any]]:
        """The authorization heads that were read last, whole, as leases name them."""
        found = ((name, known.witness) for name, known in self._known.items())
        return {authorization_key(name.namespace): witness for name, witness in found if witness is not None}

    def forks(self) -> dict[str, Mark]:
        """The shards that this process holds and that were taken back, as leases name them."""
        return {shard_key(*name): self._known[name].ledger.mark for name in sorted(self._forked)}

    def missing(self, heads: Readings) -> list[Name]:
        """The shards that these heads announce above what is known."""
        found = []
        for name, reading in heads.items():
            if reading.value and reading.value.ledger.role is Role.AUTHORIZATION:
                state = Authorization(reading.value.ledger, self._shards[name.namespace])
                found += [Name(name.namespace, shard) for shard in state.missing]
        return found

    def read(self, read: LedgerRead) -> bool:
        """Take over what a round read; whether what stands changed."""
        self._in_use, self._unread = set(), {}
        for name, reading in {**read.heads, **read.shards}.items():
            try:
                if not self._awaits_head(name, reading.value):
                    self._keep(name, self._after_read(name, read.before.get(name), reading))
                self._in_use.add(name)
            except SpecError as error:
                self._unread[name] = str(error)
                if isinstance(error, LedgerFork) and is_shard(name.name):
                    self._forked.add(name)
            except Exception as error:  # this ledger is not in use; the others go on
                self._unread[name] = f"its ledger cannot be followed ({fault_of(error)['error']}); report this with the object"
        return self._changed()

    def _awaits_head(self, name: Name, newer: KnownLedger | None) -> bool:
        """Whether what is known of a shard stays, until a head names the lineage of the newer one."""
        known, head = self._known.get(name), self._known.get(Name(name.namespace, AUTHORIZATION_HEAD))
        if known is None or head is None or newer is None or newer.ledger.role is not Role.SHARD:
            return False
        return awaits_head(head.ledger, name.name, known.ledger, newer.ledger)

    def _after_read(self, name: Name, before: KnownLedger | None, reading: Reading[KnownLedger]) -> KnownLedger:
        """What is known after a read that began when `before` was known; meanwhile a hint may have raised it.

        Raises:
            SpecError: The ledger cannot be read, or does not follow from what was known.
        """
        newer, known = reading.value, self._known.get(name)
        if newer is None:
            raise SpecError(reading.fault)
        self._take(name, before, newer)
        if known is None or known is before:
            return newer if before is None or before.ledger.mark != newer.ledger.mark else before
        if newer.ledger.lineage == known.ledger.lineage and newer.ledger.sequence < known.ledger.sequence:
            followed(newer.ledger, known.ledger)
            return known
        self._take(name, known, newer)
        return newer

    def _take(self, name: Name, known: KnownLedger | None, newer: KnownLedger) -> None:
        """See that a ledger follows from what was known. Of a pool every later lineage does: its guards see to that."""
        before, after = known.ledger if known else None, newer.ledger
        if after.role is Role.AUTHORIZATION:
            taken(before, after)
        elif after.role is Role.SHARD:
            shard_taken(before, after, used=self._used_with(name.namespace))
        else:
            followed(before, after)

    def _used_with(self, namespace: str) -> bool:
        """Whether this process issued under the lineage of the authorization head that it knows."""
        head = self._known.get(Name(namespace, AUTHORIZATION_HEAD))
        return head is not None and self._used.get(namespace) == head.ledger.lineage

    def hint(self, ledgers: Readings) -> tuple[bool, bool]:
        """Take over what the watch shows, as far as it may; whether what stands changed, and whether to read."""
        ask = False
        for name, reading in ledgers.items():
            before = self._hints.get(name)
            if reading.value is not None and (before is None or before.value is not reading.value):
                ask = not self._raised(name, reading.value) or ask
        self._hints = ledgers
        return self._changed(), ask or bool(self.standings.unclear)

    def _raised(self, name: Name, hint: KnownLedger) -> bool:
        """Whether a hint is dealt with: taken over, or old."""
        known, newer = self._known.get(name), hint.ledger
        if newer.role is Role.SHARD and known is None:
            self._keep(name, hint)
            return True
        if known is None or (newer.role is not Role.SHARD and name not in self._in_use):
            return False
        if newer.lineage != known.ledger.lineage:
            return newer.lineage.generation < known.ledger.lineage.generation
        if newer.sequence > known.ledger.sequence:
            try:
                followed(known.ledger, newer)
            except LedgerFork as error:
                log.warning("a watch shows a ledger that does not follow", extra={"ledger": "/".join(name), "fault": str(error)})
                return False
            self._keep(name, hint)
        return True

    def _keep(self, name: Name, known: KnownLedger) -> None:
        self._known[name] = known
        self._forked.discard(name)
        if known.ledger.role is Role.SHARD:
            self._shards[name.namespace][name.name] = known.ledger

    def _changed(self) -> bool:
        remembered = {
            name.namespace: Authorization(known.ledger, dict(self._shards[name.namespace]))
            for name, known in self._known.items()
            if known.ledger.role is Role.AUTHORIZATION
        }
        self.faults = {**self._unread, **self._behind(remembered)}
        unclear = {name.namespace: fault for name, fault in self.faults.items() if role_of(name.name) is Role.AUTHORIZATION}
        in_use = {name.namespace for name in self._in_use if name.name == AUTHORIZATION_HEAD} - unclear.keys()
        self._used |= {namespace: remembered[namespace].head.lineage for namespace in in_use}
        standings = Standings(
            pools={name: known.ledger for name, known in self._known.items() if self._is_pool_in_use(name, known)},
            authorizations={namespace: remembered[namespace] for namespace in in_use},
            unclear=unclear,
            remembered=remembered,
        )
        changed = standings != self.standings
        self.standings = standings
        return changed

    def _is_pool_in_use(self, name: Name, known: KnownLedger) -> bool:
        return known.ledger.role is Role.POOL and name in self._in_use

    def _behind(self, remembered: Mapping[str, Authorization]) -> dict[Name, str]:
        heads = {Name(namespace, AUTHORIZATION_HEAD): state.missing for namespace, state in remembered.items()}
        return {
            head: f"shards are missing or behind: {', '.join(missing)}; the operator deals with it"
            for head, missing in heads.items()
            if missing and head in self._in_use
        }
