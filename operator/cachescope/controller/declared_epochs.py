"""From CacheEpochs to declarations: which ledger each concerns, and under which target. Somebody's typo holds up nobody's incident.

Rules:

- a CacheEpoch speaks of objects of its own namespace, and names them; what is kept is named by their UIDs, so that an object that
  was deleted and made anew is another target;
- of a pool the ledgers are its own and, under its own target, those of the pools that were made of it for single tenants: nobody
  names one of them;
- of a scope they are those of every pool of the namespace, since one that the scope names no more may still answer what it was
  asked under it; of a tenant, principal or compartment they are the authorization ledgers of its own namespace and of every
  namespace whose pools may admit it;
- a namespace has authorization ledgers from its first pool on and for ever: that its last pool was deleted ends no pod.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from cachescope.api.documents import parse
from cachescope.api.epochs import OF_PEOPLE, CacheEpoch
from cachescope.controller.origins import epoch_uid, named_by, template_uid
from cachescope.controller.outcomes import Version
from cachescope.controller.store import Key, Store, key_of
from cachescope.core.declarations import Declaration, Hold, Restoration, Superseded
from cachescope.core.epochs import target_name
from cachescope.core.errors import SpecError
from cachescope.core.keys import Key as SecretKey
from cachescope.core.ledgers import AUTHORIZATION_HEAD, authorization_key
from cachescope.core.types import Epoch, TargetKind, TargetName
from cachescope.kube.rest import Document


@dataclass(frozen=True)
class Declared:
    """One CacheEpoch that asks something of one ledger.

    Attributes:
        key: Of the CacheEpoch.
        epoch: It.
        declaration: What it asks.
    """

    key: Key
    epoch: CacheEpoch
    declaration: Declaration

    @property
    def version(self) -> Version:
        """Names what is asked."""
        return version_of(self.epoch, self.declaration.target)

    def stands(self, given: Epoch | None, hold: Hold | None) -> bool:
        """Whether a ledger holds all of it: what something later took the place of asks for nothing."""
        given_all = given is not None or self.declaration.incident is None
        return given_all and (hold is None or isinstance(hold, Superseded))


def read_epoch(document: Document) -> CacheEpoch:
    """A CacheEpoch.

    Raises:
        SpecError: It is not valid.
    """
    wanted = {name: value for name, value in document.items() if name != "status"}
    return parse(CacheEpoch, wanted, f"CacheEpoch {document['metadata']['name']}")


def version_of(epoch: CacheEpoch, target: str) -> Version:
    """Names what a CacheEpoch asks."""
    return Version(epoch.metadata.uid, epoch.metadata.generation, target)


def of_pool(store: Store, targets: SecretKey, pool: Document) -> Iterator[Declared]:
    """What is declared for the ledger of a pool: for itself, and for the CacheScopes of its namespace."""
    metadata = pool["metadata"]
    names = {"ServingPool": {named_by(pool): epoch_uid(pool)}, "CacheScope": _scopes(store, metadata["namespace"])}
    kinds = {"ServingPool": TargetKind.POOL, "CacheScope": TargetKind.SCOPE}
    for key, epoch in _readable(store.all("CacheEpoch", metadata["namespace"])):
        kind = epoch.spec.target.kind
        uid = names.get(kind, {}).get(epoch.spec.target.name)
        if uid is not None:
            yield Declared(key, epoch, _declaration(key, epoch, target_name(targets, kinds[kind], uid)))


def of_people(store: Store, targets: SecretKey, namespaces: Iterable[str | None]) -> Iterator[Declared]:
    """What is declared for tenants, principals and compartments of some namespaces (`None` for all)."""
    documents = [item for namespace in namespaces for item in store.all("CacheEpoch", namespace)]
    for key, epoch in _readable(documents):
        if epoch.spec.target.kind in OF_PEOPLE and (target := _person(store, targets, key.namespace, epoch)):
            yield Declared(key, epoch, _declaration(key, epoch, target))


def of_restores(store: Store, namespace: str) -> Iterator[tuple[CacheEpoch, Restoration]]:
    """What is said of restores of a namespace."""
    for key, epoch in _readable(store.all("CacheEpoch", namespace)):
        if epoch.spec.restored is not None and epoch.spec.incident is not None:
            restored, name = epoch.spec.restored, f"{key.namespace}/{key.name}"
            yield epoch, Restoration(name, epoch.spec.incident.id, restored.confirmed, restored.lineage)


def ledgers_of(store: Store, rulers: Collection[str], key: Key, epoch: CacheEpoch) -> frozenset[str]:
    """Names of the ledgers that have to speak before a CacheEpoch is answered.

    Args:
        store: Where objects are found.
        rulers: Namespaces whose authorization ledgers hold for the tenants of all.
        key: Of the CacheEpoch.
        epoch: It.
    """
    kind, name, pools = epoch.spec.target.kind, epoch.spec.target.name, store.all("ServingPool", key.namespace)
    if kind == "ServingPool":
        return frozenset(pool["metadata"]["uid"] for pool in pools if named_by(pool) == name and _current(store, pool))
    if kind == "CacheScope":
        return frozenset(pool["metadata"]["uid"] for pool in pools if name in _scopes(store, key.namespace))
    own = {key.namespace} if key.namespace in rulers or has_authorization(store, key.namespace) else set()
    return frozenset(map(authorization_key, own if kind == "Namespace" else own | set(rulers)))


def has_authorization(store: Store, namespace: str) -> bool:
    """Whether a namespace has authorization ledgers of its own, or is to have them."""
    return bool(store.all("ServingPool", namespace)) or store.get("EpochLedger", namespace, AUTHORIZATION_HEAD) is not None


def missing(store: Store, key: Key, epoch: CacheEpoch) -> str:
    """What a CacheEpoch names and nobody made, for people; empty when all of it is there."""
    target = epoch.spec.target
    kind = {"Principal": "Tenant", "Compartment": "Tenant"}.get(target.kind, target.kind)
    found = None if kind == "Namespace" else store.get(kind, key.namespace, target.name)
    if found is not None and kind == "ServingPool" and template_uid(found):
        return f"this pool is the pool {named_by(found)} of one tenant; name the pool that it was made of in spec.target.name"
    if kind == "Namespace" or found is not None:
        return ""
    return f"there is no such {kind} in this namespace; create it, or correct spec.target.name"


def _current(store: Store, pool: Document) -> bool:
    """Whether a pool was made of none, or of one that is there: the cluster is about to delete the others."""
    found = store.get("ServingPool", pool["metadata"]["namespace"], named_by(pool))
    return found is not None and found["metadata"]["uid"] == epoch_uid(pool)


def _scopes(store: Store, namespace: str) -> dict[str, str]:
    """UIDs of the CacheScopes of a namespace, by name."""
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in store.all("CacheScope", namespace)}


def _person(store: Store, targets: SecretKey, namespace: str, epoch: CacheEpoch) -> TargetName | None:
    tenant, who = store.get("Tenant", namespace, epoch.spec.target.name), epoch.spec.target.principal
    if tenant is None:
        return None  # its epochs stand where they stood; another tenant of that name is another target
    uid = str(tenant["metadata"]["uid"])
    if epoch.spec.target.compartment:
        return target_name(targets, TargetKind.COMPARTMENT, uid, epoch.spec.target.compartment)
    if who is None:
        return target_name(targets, TargetKind.TENANT, uid)
    return target_name(targets, TargetKind.PRINCIPAL, uid, who.kind, who.issuer, who.subject)


def _declaration(key: Key, epoch: CacheEpoch, target: TargetName) -> Declaration:
    spec, incident = epoch.spec, epoch.spec.incident
    return Declaration(
        name=f"{key.namespace}/{key.name}",
        target=target,
        floor=None if spec.floor is None else Epoch(spec.floor),
        incident=incident.id if incident else None,
        stop_public=bool(incident and incident.stop_public_sharing),
        bypass=bool(incident and incident.bypass_reuse),
        drain_seconds=incident.in_flight.drain_seconds if incident else 0,
        deny=spec.deny,
        readmit=spec.readmit,
        issued_before=spec.issued_before,
    )


def _readable(documents: Iterable[Document]) -> Iterator[tuple[Key, CacheEpoch]]:
    for document in documents:
        try:
            yield key_of("CacheEpoch", document), read_epoch(document)
        except SpecError:
            continue  # its own status says so
