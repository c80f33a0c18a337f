"""The incident that a leak becomes: a CacheEpoch as people make it, so that the fence closes what leaked, whatever comes after.

Rules:

- each leak that is found is an incident of its own: one id advances an epoch once, however often it is declared;
- it goes with the pool: what one pool's engines leaked is no incident of another one that is made under its name later;
- it switches all reuse of the pool off until somebody resumes after it, who has looked.
"""

from __future__ import annotations

from typing import Final

from cachescope.api.documents import API_VERSION
from cachescope.api.epochs import CacheEpoch
from cachescope.api.pools import ServingPool
from cachescope.controller.store import Key, Store
from cachescope.core.labels import FIELD_MANAGER
from cachescope.kube.kinds import collection_of
from cachescope.kube.rest import ConflictError, Document, Rest

_LONGEST_REASON: Final = 1024


def incident_of(seed: str) -> str:
    """Id of the incident of a run that found a leak."""
    return f"isolation-{seed}"


def name_of(pool: str, incident: str) -> str:
    """Name of its CacheEpoch."""
    return f"{pool}-{incident}"


def leak_incident(pool: Key, pool_uid: str, incident: str, leak: str) -> Document:
    """The CacheEpoch.

    Args:
        pool: Key of the pool.
        pool_uid: Its UID.
        incident: Id of the incident.
        leak: What leaked.
    """
    reason = f"the isolation probe found a leak: {leak}"[:_LONGEST_REASON]
    owner = {"apiVersion": API_VERSION, "kind": ServingPool.KIND, "name": pool.name, "uid": pool_uid}
    wanted = {"id": incident, "reason": reason, "bypassReuse": True, "stopPublicSharing": True}
    return {
        "apiVersion": API_VERSION,
        "kind": CacheEpoch.KIND,
        "metadata": {"name": name_of(pool.name, incident), "namespace": pool.namespace, "ownerReferences": [owner]},
        "spec": {"target": {"kind": "ServingPool", "name": pool.name}, "incident": wanted},
    }


def has_leaked(store: Store, pool: Key) -> bool:
    """Whether there is an incident of a leak of a pool, as long as nobody deletes it."""
    names = (str(item["metadata"]["name"]) for item in store.all(CacheEpoch.KIND, pool.namespace))
    return any(name.startswith(name_of(pool.name, incident_of(""))) for name in names)


async def declare(rest: Rest, document: Document) -> None:
    """Create it; one that is there already is the same.

    Raises:
        ClusterError: The cluster did not do it; try again.
    """
    try:
        await rest.create(collection_of(CacheEpoch.KIND, document["metadata"]["namespace"]), document, fieldManager=FIELD_MANAGER)
    except ConflictError:
        return
