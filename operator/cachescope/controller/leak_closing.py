"""Closes what leaked: keeps the record that gateways read, and declares the incident, however often that has to be tried."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from cachescope.api.statuses import IsolationStatus
from cachescope.controller.isolation_memory import IsolationMemory
from cachescope.controller.leak_incidents import declare, leak_incident
from cachescope.controller.store import Key, key_of
from cachescope.core.errors import ClusterError
from cachescope.kube.rest import Document, Rest

log = logging.getLogger(__name__)
audit = logging.getLogger("cachescope.audit")

DECLARE_SECONDS: Final = 0.25


@dataclass
class LeakClosing:
    """Leaks that are being closed.

    Attributes:
        rest: The API.
        memory: The records.
    """

    rest: Rest
    memory: IsolationMemory
    _open: Counter[str] = field(default_factory=Counter)

    def under_way(self, uid: str) -> bool:
        """Whether a leak of a pool is being closed."""
        return self._open[uid] > 0

    async def close(self, pool: Document, record: IsolationStatus, incident: str) -> None:
        """Close a leak; with the pool goes what leaked.

        The record is kept first, so that what other runs find meanwhile is added to it. It names the incident once that is
        declared, so that an operator that starts anew knows whether it is.

        Args:
            pool: The pool.
            record: What is kept; with an incident if an earlier one has closed the pool.
            incident: Id of the incident that it becomes otherwise.
        """
        key, uid = key_of("ServingPool", pool), pool["metadata"]["uid"]
        self.memory.keep(key, uid, record)
        self._open[uid] += 1
        try:
            done = bool(record.incident)
            while not done and self.memory.is_there(key, uid):
                done = await self._declared(key, uid, record.leak, incident)
        finally:
            self._open[uid] -= 1
            self._open += Counter()  # without those that are over

    async def _declared(self, key: Key, uid: str, leak: str, incident: str) -> bool:
        """Whether it could be declared now; the record names it, unless another leak was found since, whose own comes."""
        try:
            await declare(self.rest, leak_incident(key, uid, incident, leak))
        except ClusterError as error:
            log.error("incident not declared", extra={"namespace": key.namespace, "pool": key.name, "fault": str(error)})
            await asyncio.sleep(DECLARE_SECONDS)
            return False
        audit.error("incident of a leak", extra={"namespace": key.namespace, "pool": key.name, "incident": incident})
        record = self.memory.known(uid)
        if record.leak == leak and self.memory.is_there(key, uid):
            self.memory.keep(key, uid, record.model_copy(update={"incident": incident}))
        return True
