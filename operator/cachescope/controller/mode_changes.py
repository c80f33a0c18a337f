"""What becomes of a pool's own engines when its tenants get engines of their own.

Rules:

- a pool's own engines are made of what was built in mode `Shared` or `Disabled`; in mode `PerTenant` nothing is built: those that
  there are stay as they are until every tenant's engines serve, or rest because nobody asks them;
- engines serve once every gateway routes to as many as are asked for: so nobody is refused, and none of them is overrun;
- with `InPlace` the old engines go at once, and the pool serves nobody meanwhile: that is the remedy where GPUs are short;
- the Deployment goes first, and what its pods still need once they are gone.
"""

from __future__ import annotations

import logging

from cachescope.api.pools import ServingPool
from cachescope.controller.installation import Installation
from cachescope.controller.lease_book import Life
from cachescope.controller.watched_kinds import CHILDREN, WATCHED
from cachescope.core.labels import POOL_LABEL
from cachescope.kube.kinds import collection_of
from cachescope.kube.rest import Document

log = logging.getLogger(__name__)

_KINDS = tuple(kind.kind for kind in WATCHED if kind.selector == CHILDREN and kind.kind != "Pod")


def gives_way(pool: ServingPool) -> bool:
    """Whether old engines go before new ones serve."""
    return pool.spec.rollout.strategy == "InPlace"


def takes_over(site: Installation, pool: Document) -> bool:
    """Whether a pool's engines may serve in the place of others: every gateway routes to as many as are asked for."""
    asked = int((pool.get("spec") or {}).get("replicas", 1))
    said = [item.statement for item in site.leases.gateways() if item.life is Life.LIVE and item.statement is not None]
    live = [item for item in said if not item.released]
    return bool(live) and all(len(item.routable.get(pool["metadata"]["uid"], ())) >= asked for item in live)


def own_deployment(site: Installation, pool: Document) -> Document | None:
    """The Deployment of a pool's own engines, if there is one."""
    return next(iter(_owned(site, pool, "Deployment")), None)


async def retire(site: Installation, pool: Document) -> None:
    """Delete a pool's own engines, and once their pods are gone, all that was made for them. The ledger stays.

    Raises:
        ClusterError: Some of it could not be deleted.
    """
    metadata = pool["metadata"]
    if own_deployment(site, pool) is not None:
        log.info("the pool's own engines go: its tenants have theirs", extra=_where(pool))
        return await _delete(site, pool, "Deployment")
    if any((item["metadata"].get("labels") or {}).get(POOL_LABEL) == metadata["name"] for item in _pods(site, pool)):
        return None  # the event of the last one brings this here again
    for kind in _KINDS:
        await _delete(site, pool, kind)
    return None


async def _delete(site: Installation, pool: Document, kind: str) -> None:
    for item in _owned(site, pool, kind):
        metadata = item["metadata"]
        if "deletionTimestamp" not in metadata:
            await site.rest.delete(f"{collection_of(kind, metadata['namespace'])}/{metadata['name']}", uid=metadata["uid"])


def _owned(site: Installation, pool: Document, kind: str) -> list[Document]:
    uid, found = pool["metadata"]["uid"], site.store.all(kind, pool["metadata"]["namespace"])
    return [item for item in found if any(it["uid"] == uid for it in item["metadata"].get("ownerReferences") or ())]


def _pods(site: Installation, pool: Document) -> list[Document]:
    return site.store.all("Pod", pool["metadata"]["namespace"])


def _where(pool: Document) -> dict[str, str]:
    return {"namespace": pool["metadata"]["namespace"], "pool": pool["metadata"]["name"]}
