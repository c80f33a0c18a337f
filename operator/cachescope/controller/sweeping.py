"""Leases of processes that are gone are removed: by the operator alone, and only what surely nobody writes any more."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from cachescope.controller.lease_book import LeaseBook
from cachescope.controller.store import Key, Store
from cachescope.kube.kinds import collection_of
from cachescope.kube.rest import ConflictError, NotFoundError, Rest

log = logging.getLogger(__name__)

FACTOR: Final = 10.0
AT_LEAST_SECONDS: Final = 600.0


@dataclass(frozen=True)
class Sweeper:
    """Deletes leases.

    Attributes:
        rest: The API.
        store: Leases as last seen.
        leases: How long each did not move.
    """

    rest: Rest
    store: Store
    leases: LeaseBook

    async def sweep(self, *, at_least: float = AT_LEAST_SECONDS) -> None:
        """Delete what did not move for ten of its lengths and belongs to no pod that exists.

        Args:
            at_least: Seconds that it must not have moved in any case.

        Raises:
            ClusterError: The API server did not answer.
        """
        for key in self.leases.unmoved(factor=FACTOR, at_least=at_least):
            document = self.store.get(*key)
            if document is None or await self._pod_exists(key, str(document["spec"].get("pod", ""))):
                continue
            metadata = document["metadata"]
            path = f"{collection_of('FenceLease', key.namespace)}/{key.name}"
            try:
                await self.rest.delete(path, uid=metadata["uid"], resource_version=metadata["resourceVersion"])
            except ConflictError:
                continue  # it moved after all
            log.info("lease removed", extra={"namespace": key.namespace, "lease": key.name})

    async def _pod_exists(self, key: Key, pod: str) -> bool:
        try:
            found = await self.rest.get(f"{collection_of('Pod', key.namespace)}/{pod}")
        except NotFoundError:
            return False
        return bool(found["metadata"]["uid"] == key.name.partition(".")[0])
