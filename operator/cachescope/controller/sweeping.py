"""Leases of processes that are gone are removed: by the operator alone, and only what surely nobody writes any more.

A process is gone when its pod is, or when a later one in its pod wrote since: a container that ends over and over leaves a lease
each time, in one pod. Whoever was only cut off meets no lease when he comes back, ends everything, and begins anew under another.

Engines write leases, their neighbours' too if they want: what is in one becomes a path only when it is a name.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Final

from cachescope.api.documents import OBJECT_NAME
from cachescope.controller.lease_book import LeaseBook
from cachescope.controller.store import Key, Store
from cachescope.core.errors import ClusterError
from cachescope.kube.kinds import collection_of
from cachescope.kube.rest import ConflictError, Document, NotFoundError, Rest

log = logging.getLogger(__name__)

FACTOR: Final = 10.0
AT_LEAST_SECONDS: Final = 600.0
_NAME: Final = re.compile(OBJECT_NAME.removesuffix("$") + r"\Z")


@dataclass(frozen=True)
class Sweeper:
    """Deletes leases.

    Attributes:
        rest: The API.
        store: Leases and engine pods as last seen.
        leases: How long each did not move.
    """

    rest: Rest
    store: Store
    leases: LeaseBook

    async def sweep(self, *, at_least: float = AT_LEAST_SECONDS) -> None:
        """Delete what did not move for ten of its lengths, and belongs to no pod that exists or to an earlier process of one.

        Args:
            at_least: Seconds that it must not have moved in any case.

        Raises:
            ClusterError: One could not be judged or deleted; the others were all the same.
        """
        faults: list[ClusterError] = []
        latest = self.leases.latest()
        for key in self.leases.unmoved(factor=FACTOR, at_least=at_least):
            try:
                await self._judge(key, earlier=key not in latest)
            except ConflictError:
                continue  # it moved after all
            except ClusterError as error:
                faults.append(error)
        if faults:
            raise faults[0]

    async def _judge(self, key: Key, *, earlier: bool) -> None:
        document = self.store.get(*key)
        if document is None or (not earlier and await self._pod_exists(key, document)):
            return
        metadata = document["metadata"]
        path = f"{collection_of('FenceLease', key.namespace)}/{key.name}"
        await self.rest.delete(path, uid=metadata["uid"], resource_version=metadata["resourceVersion"])
        self.leases.roster.deleted(metadata["uid"])
        log.info("lease removed", extra={"namespace": key.namespace, "lease": key.name})

    async def _pod_exists(self, key: Key, lease: Document) -> bool:
        """Whether the pod whose UID the lease is named by is there."""
        uid = key.name.partition(".")[0]
        if any(pod["metadata"]["uid"] == uid for pod in self.store.all("Pod", key.namespace)):
            return True
        name = str((lease.get("spec") or {}).get("pod", ""))
        if not _NAME.match(name):
            return False  # no pod has such a name
        try:
            found = await self.rest.get(f"{collection_of('Pod', key.namespace)}/{name}")
        except NotFoundError:
            return False
        return (found.get("metadata") or {}).get("uid") == uid
