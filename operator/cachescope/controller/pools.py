"""One pass over a pool, as named steps: each one level-triggered, and silent when nothing changed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from cachescope.api.documents import parse
from cachescope.api.pools import ServingPool
from cachescope.controller.epochs import declarations_of, epochs_of, report_epochs
from cachescope.controller.installation import Installation
from cachescope.controller.pool_status import Observed, elder_of, invalid, pool_conditions, pool_status
from cachescope.controller.store import Key
from cachescope.controller.verdicts import report
from cachescope.core.epochs import target_name
from cachescope.core.errors import ClusterError, SpecError
from cachescope.core.labels import POOL_LABEL
from cachescope.core.ledger_rules import Decision
from cachescope.core.types import TargetKind, TargetName
from cachescope.kube.kinds import path_of
from cachescope.kube.rest import ConflictError, Document
from cachescope.manifests.pool import pool_objects
from cachescope.manifests.revisions import Revision, build_revision, chosen, read_revision

log = logging.getLogger(__name__)

Found = TypeVar("Found")

KEPT_REVISIONS: Final = 2
PATIENCE: Final = 2
"""Failures of the cluster in a row, after which the pool says so."""


@dataclass
class Pass:
    """What one pass has found out so far.

    Attributes:
        key: Of the pool.
        document: The pool, as last seen.
        target: Name of its epoch target.
        decision: What stands in its ledger.
        pool: The pool, parsed.
        revision: The pod template in use.
        invalid: Why its spec cannot be obeyed.
        fault: What is in the way of a child.
    """

    key: Key
    document: Document
    target: TargetName
    decision: Decision | None = None
    pool: ServingPool | None = None
    revision: Revision | None = None
    invalid: str = ""
    fault: str = ""


@dataclass
class Pools:
    """Reconciles pools.

    Attributes:
        site: The installation.
    """

    site: Installation
    _revisions: dict[str, Revision] = field(default_factory=dict)

    async def reconcile(self, key: Key, failures: int) -> None:
        """Make the cluster what a pool says.

        Args:
            key: Of the pool.
            failures: Attempts that failed before this one.

        Raises:
            ClusterError: The cluster did not do it; try again later.
        """
        document = self.site.store.get(*key)
        if document is None or "deletionTimestamp" in document["metadata"]:
            return await self._without_pool(key)
        target = target_name(self.site.keys.targets, TargetKind.POOL, document["metadata"]["uid"])
        this = Pass(key, document, target)
        failed: ClusterError | None = None
        try:
            for step in self._steps():
                await step(this)
        except SpecError as error:
            this.invalid = str(error)
        except ClusterError as error:
            failed = error
            if failures >= PATIENCE and not isinstance(error, ConflictError):
                this.fault = f"{error}"
        await self._status(this)
        if failed or this.fault:
            raise failed or ClusterError(this.fault)
        return None

    def _steps(self) -> Sequence[Callable[[Pass], Awaitable[None]]]:
        return (self._ledger, self._spec, self._revision, self._children, self._obsolete_revisions)

    async def _without_pool(self, key: Key) -> None:
        documents = epochs_of(self.site.store.all("CacheEpoch", key.namespace), key.name)
        _, faults = declarations_of(documents)
        await report_epochs(self.site.rest, documents, None, faults)

    async def _ledger(self, this: Pass) -> None:
        """Incidents first: nobody's typo in a pool's spec holds them up."""
        documents = epochs_of(self.site.store.all("CacheEpoch", this.key.namespace), this.key.name)
        declared, faults = declarations_of(documents)
        generation = self.site.leases.generation(this.document["metadata"]["uid"])
        this.decision = await self.site.ledgers.stand(this.document, this.target, declared, generation=generation)
        await report_epochs(self.site.rest, documents, this.decision, faults)

    async def _spec(self, this: Pass) -> None:
        this.pool = parse(ServingPool, this.document, f"ServingPool {this.key.name}")

    async def _revision(self, this: Pass) -> None:
        pool = _known(this.pool)
        fresh = build_revision(self.site.platform, pool, this.target)
        found = self._found_revisions(pool)
        existing = max(found, key=lambda item: item.number) if found else self._revisions.get(pool.uid)
        this.revision = self._revisions[pool.uid] = chosen(pool, existing, fresh)

    async def _children(self, this: Pass) -> None:
        pool, revision = _known(this.pool), _known(this.revision)
        for manifest in pool_objects(self.site.platform, pool, keys=self.site.keys.ring, revision=revision):
            kind, name = manifest["kind"], manifest["metadata"]["name"]
            try:
                outcome = await self.site.applier.apply(manifest, self.site.store.get(kind, pool.namespace, name))
            except SpecError as error:
                this.fault = str(error)  # something of that name is not ours: the others are made all the same
                continue
            if outcome.change != "Unchanged":
                where = {"namespace": pool.namespace, "pool": pool.name}
                log.info("child written", extra={**where, "kind": kind, "child": name, "change": outcome.change})

    async def _obsolete_revisions(self, this: Pass) -> None:
        pool = _known(this.pool)
        documents = sorted(self._revision_documents(pool), key=lambda item: int(item.get("revision", 0)))
        for document in documents[:-KEPT_REVISIONS]:
            await self.site.rest.delete(path_of(document), uid=document["metadata"]["uid"])

    async def _status(self, this: Pass) -> None:
        live = self.site.store.get(*this.key)
        if live is None or live["metadata"]["uid"] != this.document["metadata"]["uid"]:
            return
        if this.invalid or this.pool is None:
            fields = {name: value for name, value in (live.get("status") or {}).items() if name != "conditions"}
            if this.decision:
                fields["epoch"] = this.decision.epoch
            if this.invalid:
                await report(self.site.rest, this.document, fields, invalid(this.invalid))
            return
        seen = self._observed(this, this.pool)
        await report(self.site.rest, this.document, pool_status(seen), pool_conditions(seen))

    def _observed(self, this: Pass, pool: ServingPool) -> Observed:
        store, leases = self.site.store, self.site.leases
        return Observed(
            pool=pool,
            deployment=store.get("Deployment", pool.namespace, pool.name),
            pods=[item for item in store.all("Pod", pool.namespace) if _label(item) == pool.name],
            guards=leases.guards(pool.uid),
            routed=leases.routable(pool.uid),
            epoch=this.decision.epoch if this.decision else None,
            revision=this.revision,
            guard_version=self.site.platform.guard_version,
            elder=elder_of(pool, store.all("ServingPool", pool.namespace)),
            fault=this.fault,
        )

    def _found_revisions(self, pool: ServingPool) -> list[Revision]:
        found = []
        for document in self._revision_documents(pool):
            try:
                found.append(read_revision(document))
            except SpecError as error:
                log.warning("revision not read", extra={"namespace": pool.namespace, "pool": pool.name, "fault": str(error)})
        return found

    def _revision_documents(self, pool: ServingPool) -> list[Document]:
        documents = self.site.store.all("ControllerRevision", pool.namespace)
        return [
            item for item in documents if any(owner["uid"] == pool.uid for owner in item["metadata"].get("ownerReferences") or ())
        ]


def _known(value: Found | None) -> Found:
    if value is None:
        raise RuntimeError("a step needs what an earlier one finds; keep their order")
    return value


def _label(document: Document) -> str:
    return str((document["metadata"].get("labels") or {}).get(POOL_LABEL, ""))
