"""Pods whose cache belongs to another identity than is asked for: their Deployment makes new ones in their place.

Rules:

- pods go only where gateways want an identity of the pool, and none of its pods is free, or bound to one that a gateway wants;
- a pod is bound for its whole life: what the last lease of its guard said holds, also while that guard is silent; one of which
  nothing is known is free, or will be;
- a pod that was bound a moment ago is left: whoever wanted another identity did not know yet;
- so is one that was used since the other identity was first asked for, be it by another compartment or principal of the tenant; who
  was not heard of since may have been, unless its lease has lapsed. After a rollback nobody asks for what was before;
- of one pool they go at most every few seconds; no log, Event or metric shows an identity.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from cachescope.api.pools import ServingPool
from cachescope.controller.installation import Installation
from cachescope.controller.lease_book import Life, Process
from cachescope.controller.store import Key, key_of
from cachescope.controller.wanted_identities import named, wanted
from cachescope.core.labels import POOL_LABEL
from cachescope.core.types import NO_CACHE, CacheIdentity
from cachescope.kube.events import post
from cachescope.kube.kinds import collection_of
from cachescope.kube.rest import ConflictError, Document

log = logging.getLogger(__name__)

BOUND_SECONDS: Final = 5.0
"""For how long a pod that was just bound is left."""
PAUSE_SECONDS: Final = 5.0
"""Between two times that pods of one pool are deleted."""


@dataclass
class _Seen:
    """What is remembered of one pool.

    Attributes:
        since: Since when each pod is bound, by its UID.
        asked: Since when each identity is asked for.
        deleted: When pods were deleted last.
    """

    since: Mapping[str, float]
    asked: Mapping[CacheIdentity, float] = field(default_factory=dict)
    deleted: float | None = None


def outdated(
    bound: Mapping[str, CacheIdentity], asked: frozenset[CacheIdentity], spoken: frozenset[CacheIdentity]
) -> frozenset[str]:
    """UIDs of the pods that stand in the way of what is asked for.

    Args:
        bound: The identity of each pod of a pool, by its UID; `NO_CACHE` of one that is free.
        asked: Identities that gateways find no pod for.
        spoken: Those, and the ones that gateways speak of who may not know better.
    """
    if not asked or any(identity == NO_CACHE or identity in spoken for identity in bound.values()):
        return frozenset()
    return frozenset(bound)


class NewIdentities:
    """Makes room for new identities.

    Args:
        site: The installation.
    """

    def __init__(self, site: Installation) -> None:
        self._site = site
        self._seen: dict[Key, _Seen] = {}

    def forget(self, key: Key) -> None:
        """A pool is gone."""
        self._seen.pop(key, None)

    async def make_room(self, document: Document, pool: ServingPool) -> None:
        """Delete the pods of a pool of one tenant that stand in the way of what is asked for.

        Raises:
            ClusterError: One could not be deleted.
        """
        leases, now = self._site.leases, self._site.leases.now_ms() / 1000
        pods, guards, gateways = self._pods(pool), leases.guards(pool.uid), leases.gateways()
        bound = {uid: _bound(uid, guards) for uid in pods}
        asked = wanted(gateways, pool.uid)
        seen = self._look(key_of(pool.KIND, document), bound, asked, now)
        due = outdated(bound, asked, named(gateways, pool.uid))
        if not due:
            return
        first = min(seen.asked.values())
        ripe = [uid for uid in due if now - seen.since[uid] >= BOUND_SECONDS and not used_since(uid, guards, first)]
        if not ripe or (seen.deleted is not None and now - seen.deleted < PAUSE_SECONDS):
            self._site.again(key_of(pool.KIND, document), PAUSE_SECONDS)
            return
        seen.deleted = now
        await self._delete(document, [pods[uid] for uid in sorted(ripe)])

    def _pods(self, pool: ServingPool) -> dict[str, Document]:
        """The pods of a pool that stay, by UID."""
        found = self._site.store.all("Pod", pool.namespace)
        mine = (item for item in found if (item["metadata"].get("labels") or {}).get(POOL_LABEL) == pool.name)
        return {item["metadata"]["uid"]: item for item in mine if "deletionTimestamp" not in item["metadata"]}

    def _look(self, key: Key, bound: Mapping[str, CacheIdentity], asked: Iterable[CacheIdentity], now: float) -> _Seen:
        known = self._seen.get(key, _Seen({}))
        known.asked = {identity: known.asked.get(identity, now) for identity in asked}
        known.since = {uid: known.since.get(uid, now) for uid, identity in bound.items() if identity != NO_CACHE}
        self._seen[key] = known
        return known

    async def _delete(self, document: Document, pods: Iterable[Document]) -> None:
        names = []
        for pod in pods:
            metadata = pod["metadata"]
            path = f"{collection_of('Pod', metadata['namespace'])}/{metadata['name']}"
            try:
                await self._site.rest.delete(path, uid=metadata["uid"])
            except ConflictError:
                continue  # another pod of that name is there already
            names.append(metadata["name"])
        self._site.renewed(len(names))
        where = {"namespace": document["metadata"]["namespace"], "pool": document["metadata"]["name"]}
        log.info("engine pods make room for a new cache identity", extra={**where, "pods": names})
        message = "engine pods are made anew: what their cache belongs to is not what requests ask for any more"
        await post(self._site.rest, document, type="Normal", reason="NewIdentity", message=message, action="DeletePods")


def used_since(uid: str, guards: Iterable[Process], moment: float) -> bool:
    """Whether a pod was used since a moment, or may have been, as far as its guard says.

    Args:
        uid: UID of the pod.
        guards: Guards of its pool.
        moment: Seconds, on the clock of leases.
    """
    found = next((item for item in guards if item.statement is not None and item.statement.pod_uid == uid), None)
    if found is None or found.life is not Life.LIVE:
        return False
    return found.moved_at < moment or found.used_at >= moment


def _bound(uid: str, guards: Iterable[Process]) -> CacheIdentity:
    statements = (item.statement for item in guards if item.statement is not None)
    return next((item.cache for item in statements if item.pod_uid == uid), NO_CACHE)
