"""The heads of all pools, from their ledgers, as they may be used.

Rules:

- what this process has seen never falls, whatever a ledger says later, and whether a watch or a list brought it;
- a later lineage is taken over whole; an earlier one, and a ledger that cannot be read, leave the pool without a head: it is not
  routable, since nobody knows what stands;
- a ledger that vanished leaves its pool without a head; what was seen of it is remembered for when it comes back.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from cachescope.core.errors import SpecError
from cachescope.core.heads import Head
from cachescope.core.log_lines import fault_of
from cachescope.gateway.readings import Reading
from cachescope.kube.watched import Name

log = logging.getLogger(__name__)

Ledgers = Mapping[Name, Reading[Head]]
"""What was read of all ledgers, by namespace and name of their pools."""


class LedgerHeads:
    """Heads by namespace and name of the pool.

    Attributes:
        current: The heads that may be used.
        faults: What is wrong with the others.
    """

    def __init__(self) -> None:
        self.current: Mapping[Name, Head] = {}
        self.faults: Mapping[Name, str] = {}
        self._seen: dict[Name, Head] = {}
        self._read: Ledgers = {}

    def take(self, ledgers: Ledgers) -> bool:
        """Take over what was read; whether the heads in use changed."""
        current: dict[Name, Head] = {}
        faults: dict[Name, str] = {}
        for name, reading in ledgers.items():
            try:
                current[name] = self._follow(name, reading)
            except SpecError as error:
                faults[name] = str(error)
            except Exception as error:  # a pool without a head is not routable; the others go on
                faults[name] = f"its ledger cannot be followed ({fault_of(error)['error']}); report this with the object"
        changed = current != self.current
        self.current, self.faults, self._read = current, faults, ledgers
        return changed

    def _follow(self, name: Name, reading: Reading[Head]) -> Head:
        if reading.value is None:
            raise SpecError(reading.fault)
        known, before = self._seen.get(name), self._read.get(name)
        if known is None or (before is not None and before.value is reading.value and name in self.current):
            return self._seen.setdefault(name, reading.value)
        head, rollbacks = known.followed_by(reading.value)
        for rollback in rollbacks if reading.value.sequence > known.sequence else ():
            # Below a sequence that was seen it may be an answer that was overtaken by another, which is nothing to report.
            log.warning("floor held", extra={"pool": "/".join(name), "rollback": str(rollback)})
        self._seen[name] = head
        return head
