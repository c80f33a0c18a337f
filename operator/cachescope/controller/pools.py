"""One pass over a pool, as named steps: each one level-triggered, and silent when nothing changed.

What is wrong with a part holds up no other: an incident stands whatever the spec says, and children are healed whatever is wrong
with spec or ledger, as long as it is known what they were.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from cachescope.api.conditions import ConditionType, Reason
from cachescope.api.pools import Fence, ServingPool
from cachescope.controller.declared_epochs import of_pool
from cachescope.controller.dedicated_pools import DedicatedPools, unfinished
from cachescope.controller.held_pools import declared, held
from cachescope.controller.installation import Installation
from cachescope.controller.isolation_plans import Plan
from cachescope.controller.mode_changes import gives_way, own_deployment, retire, takes_over
from cachescope.controller.new_identities import NewIdentities
from cachescope.controller.observed_pools import Fault, Observed, elder_of, elders_of_adapters
from cachescope.controller.origins import epoch_uid, fault_of_origin, made_of
from cachescope.controller.pool_status import pool_conditions
from cachescope.controller.store import Key
from cachescope.controller.template_fences import fences_of_tenants
from cachescope.controller.template_status import Members, template_conditions, template_status
from cachescope.controller.verdicts import Verdict, fields_of, report
from cachescope.core.epochs import target_name
from cachescope.core.errors import ClusterError, SpecError
from cachescope.core.keys import KeyRing, handed_out
from cachescope.core.labels import POOL_LABEL
from cachescope.core.ledgers import Flags, Ledger
from cachescope.core.pool_rules import resumable_incident
from cachescope.core.rights import Rights, read_rights
from cachescope.core.types import TargetKind, TargetName
from cachescope.engines.pool_modes import is_template
from cachescope.kube.kinds import path_of
from cachescope.kube.rest import ConflictError, Document
from cachescope.manifests.children import permit_secret
from cachescope.manifests.pool import ACCOUNT_ANNOTATION, bound_to, pool_objects
from cachescope.manifests.revisions import Revision, build_revision, chosen, read_revision

log = logging.getLogger(__name__)

KEPT_REVISIONS: Final = 2
PATIENCE: Final = 2
"""Failures of the cluster in a row, after which the pool says so. One that never said anything says so at once."""
TAKEN_SECONDS: Final = 30.0
"""After which it is looked whether what was in the way of a child is gone: nobody tells, it is none of ours."""


@dataclass
class Pass:
    """What one pass has found out so far.

    Attributes:
        key: Of the pool.
        document: The pool, as last seen.
        pool: The pool; of an invalid one what can be relied on, if anything.
        invalid: Why its spec cannot be obeyed.
        target: Name of its epoch target.
        ledger: What stands.
        revision: The pod template in use.
        readable: Whether the spec could be read.
        tenants: Which pools it has for single tenants; `None` where its own engines serve all.
        fault: What else is in the way; the first one counts.
    """

    key: Key
    document: Document
    pool: ServingPool | None = None
    invalid: str = ""
    target: TargetName | None = None
    ledger: Ledger | None = None
    revision: Revision | None = None
    readable: bool = True
    tenants: Plan | None = None
    fault: Fault | None = None

    @property
    def uid(self) -> str:
        """UID of the pool."""
        return str(self.document["metadata"]["uid"])


@dataclass
class Pools:
    """Reconciles pools.

    Attributes:
        site: The installation.
    """

    site: Installation
    _revisions: dict[str, Revision] = field(default_factory=dict)
    _logged: dict[Key, dict[str, Sequence[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with no memory of pools of single tenants."""
        self._dedicated = DedicatedPools(self.site)
        self._identities = NewIdentities(self.site)

    async def reconcile(self, key: Key, failures: int) -> None:
        """Make the cluster what a pool says.

        Args:
            key: Of the pool.
            failures: Attempts that failed before this one.

        Raises:
            ClusterError: The cluster did not do it; try again later.
        """
        document = self.site.store.staying(key)
        if document is None:
            return await self._without_pool(key)
        this = Pass(key, document)
        failed: ClusterError | None = None
        try:
            for step in self._steps():
                await step(this)
        except ClusterError as error:
            failed = error
            if not isinstance(error, ConflictError) and (failures >= PATIENCE or _says_so_or_nothing(document)):
                this.fault = this.fault or Fault(Reason.CLUSTER_ERROR, str(error))
        await self._status(this)
        if failed:
            raise failed
        return None

    def _steps(self) -> Sequence[Callable[[Pass], Awaitable[None]]]:
        return (
            *(self._spec, self._target, self._revision, self._ledger, self._pools_of_tenants, self._children),
            *(self._pools_of_no_template, self._new_identities, self._obsolete_revisions),
        )

    async def _without_pool(self, key: Key) -> None:
        self._logged.pop(key, None)
        self._dedicated.forget(key)
        self._identities.forget(key)

    async def _spec(self, this: Pass) -> None:
        this.pool, this.invalid = declared(this.document)
        this.readable = not this.invalid
        found = self._found_revisions(this)
        this.revision = max(found, key=lambda item: item.number) if found else self._revisions.get(this.uid)

    async def _target(self, this: Pass) -> None:
        try:
            this.target = target_name(self.site.keys.targets, TargetKind.POOL, epoch_uid(this.document))
        except ClusterError as error:
            this.fault = Fault(Reason.ROOT_KEYS_MISSING, str(error))
            raise

    async def _revision(self, this: Pass) -> None:
        if this.pool is None or this.target is None or this.invalid:
            return
        this.invalid = fault_of_origin(self.site.store, self.site.keys.targets, this.document)
        if this.invalid:
            return
        try:
            fresh = build_revision(self.site.platform, this.pool, this.target)
        except SpecError as error:
            this.invalid = str(error)
            return
        if is_template(this.pool):  # what was built of it has shown that its tenants' pools can be built
            this.tenants = self._dedicated.plan(this.document, this.pool)
            return
        this.revision = self._revisions[this.uid] = chosen(this.pool, this.revision, fresh)

    async def _ledger(self, this: Pass) -> None:
        """Nobody's typo in a pool's spec holds up an incident."""
        if this.target is None:
            return
        fence = this.pool.spec.fence if this.pool else Fence()
        rights = _rights(fence)
        pool = this.key.namespace, this.key.name
        self.site.leases.roster.allow(pool, rights.lease * 1000, rights.fresh * 1000)
        rights = rights.joined(self.site.leases.roster.most(pool=pool))
        resume_after = this.pool.spec.sharing.resume_after if this.pool else None
        try:
            this.ledger = await self.site.ledgers.stand(
                this.document, this.target, resume_after=resume_after, rights=rights, lowers=self._knows_all(this)
            )
        except SpecError as error:
            this.fault = Fault(Reason.LEDGER_UNUSABLE, str(error))
            self._log(this.key, "ledger not usable", [str(error)])
            return
        self._log(this.key, "ledger not usable", [])

    def _knows_all(self, this: Pass) -> bool:
        """Whether no guard can be given a longer right than its pool declares: none is unknown, or of an older template."""
        namespace, name = this.key.namespace, this.key.name
        deployment = self.site.store.get("Deployment", namespace, name)
        known = self.site.leases.roster.knows_all(self.site.leases.now_ms(), pool=(namespace, name))
        if deployment is None or this.invalid or not known:
            return False
        status = deployment.get("status") or {}
        pods = [item for item in self.site.store.all("Pod", namespace) if _label(item) == name]
        updated = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
        return bool(updated) and len(pods) == status.get("replicas", 0) == status.get("updatedReplicas", 0)

    def _may_have_rights(self, this: Pass, fence: Fence) -> bool:
        """Whether a ledger tells of rights as long as these: before that nobody is given one, whatever is wrong with the ledger."""
        known = read_rights((self.site.store.get("EpochLedger", this.key.namespace, this.key.name) or {}).get("spec"))
        return this.ledger is not None or known == known.joined(_rights(fence))

    async def _pools_of_tenants(self, this: Pass) -> None:
        if this.pool is not None and this.tenants is not None:
            faults = await self._dedicated.of_template(this.document, this.pool, this.tenants)
            self._taken(this, faults, "pool of a tenant not written")

    async def _pools_of_no_template(self, this: Pass) -> None:
        """Once its own engines serve, what was made of the pool while it was a template goes."""
        if this.tenants is None and made_of(self.site.store, this.document):
            await self._dedicated.of_another(this.document, None if this.invalid else this.pool)

    async def _new_identities(self, this: Pass) -> None:
        if this.pool is not None and this.pool.spec.dedicated_to is not None and not this.invalid:
            await self._identities.make_room(this.document, this.pool)

    def _retires(self, this: Pass) -> bool:
        """Whether the pool's own engines are to go, or gone: its tenants have theirs."""
        if this.pool is None or this.tenants is None:
            return False
        if gives_way(this.pool) or own_deployment(self.site, this.document) is None:
            return True
        made = made_of(self.site.store, this.document)
        return not unfinished(made, this.tenants.served) and all(takes_over(self.site, item) for item in made)

    async def _children(self, this: Pass) -> None:
        if self._retires(this):
            await retire(self.site, this.document)
            this.revision = None
            self._revisions.pop(this.uid, None)
            return
        if this.pool is None or this.revision is None or not self._may_have_rights(this, this.pool.spec.fence):
            return
        pool, taken = this.pool, []
        deployment = self.site.store.get("Deployment", pool.namespace, pool.name)
        if this.invalid or this.tenants is not None:
            pool = held(pool, this.revision, deployment["spec"].get("replicas") if deployment else None)
        account_uid = _account_uid(deployment)
        for manifest in pool_objects(self.site.platform, pool, keys=self._keys_of_guards(pool), revision=this.revision):
            kind, name = manifest["kind"], manifest["metadata"]["name"]
            wanted = bound_to(manifest, account_uid) if kind == "Deployment" else manifest
            try:
                outcome = await self.site.applier.apply(wanted, self.site.store.get(kind, pool.namespace, name))
            except SpecError as error:
                taken.append(str(error))  # something of that name is not ours: the others are made all the same
                continue
            if kind == "ServiceAccount":
                account_uid = str(outcome.live["metadata"]["uid"])
            if outcome.change != "Unchanged":
                where = {"namespace": pool.namespace, "pool": pool.name}
                log.info("child written", extra={**where, "kind": kind, "child": name, "change": outcome.change})
        self._taken(this, taken)

    def _keys_of_guards(self, pool: ServingPool) -> KeyRing:
        """The root keys of which guards get theirs: a new one once every gateway has it."""
        found = self.site.store.get("Secret", pool.namespace, permit_secret(pool)) or {}
        return handed_out(self.site.keys.ring, oldest=self.site.leases.oldest_key(), given=found.get("data") or {})

    def _taken(self, this: Pass, taken: Sequence[str], event: str = "child not written") -> None:
        self._log(this.key, event, taken)
        if taken:
            this.fault = this.fault or Fault(Reason.NAME_TAKEN, taken[0])
            self.site.again(this.key, TAKEN_SECONDS)

    async def _obsolete_revisions(self, this: Pass) -> None:
        documents = sorted(self._revision_documents(this), key=lambda item: int(item.get("revision", 0)))
        for document in documents[:-KEPT_REVISIONS]:
            await self.site.rest.delete(path_of(document), uid=document["metadata"]["uid"])

    async def _status(self, this: Pass) -> None:
        live = self.site.store.get(*this.key)
        if live is None or live["metadata"]["uid"] != this.uid:
            return
        if this.pool is None:
            verdict = Verdict(ConditionType.READY, "False", Reason.INVALID_SPEC, this.invalid)
            await report(self.site.rest, this.document, fields_of(this.document), [verdict])
            return
        seen, made = self._observed(this, this.pool), made_of(self.site.store, this.document)
        verdicts = pool_conditions(seen) if this.tenants is None else template_conditions(seen, Members(this.tenants, made))
        await report(self.site.rest, this.document, template_status(seen, made), verdicts)

    def _observed(self, this: Pass, pool: ServingPool) -> Observed:
        store, site = self.site.store, self.site
        shared = pool.namespace in {site.platform.namespace, *site.settings.shared_pool_namespaces}
        return Observed(
            pool=pool,
            deployment=store.get("Deployment", pool.namespace, pool.name),
            pods=[item for item in store.all("Pod", pool.namespace) if _label(item) == pool.name],
            guards=site.leases.guards(pool.uid),
            gateways=site.leases.gateways(),
            epoch=this.ledger.epoch(this.target) if this.ledger and this.target else None,
            lineage=this.ledger.lineage.generation if this.ledger else None,
            flags=this.ledger.flags if this.ledger else Flags(),
            fence=site.fences.of(this.uid, this.ledger.lineage, this.ledger.sequence) if this.ledger else None,
            fences_of_tenants=fences_of_tenants(site, this.document, this.target) if this.target else (),
            latest_incident=self._latest_incident(this),
            revision=this.revision,
            guard_version=site.platform.guard_version,
            minimum_guard=site.settings.minimum_guard_version,
            home=site.platform.namespace,
            elder=elder_of(pool, store.all("ServingPool", pool.namespace), shared=shared),
            elders_of_adapters=elders_of_adapters(pool, store.all("ServingPool", pool.namespace)),
            shared=shared,
            invalid=this.invalid,
            readable=this.readable,
            fault=this.fault,
            isolation=site.isolation(this.document),
            before=this.document.get("status") or {},
        )

    def _latest_incident(self, this: Pass) -> str:
        """The id of the pool's latest incident, as far as its CacheEpoch is still there and people can resume after it."""
        latest = resumable_incident(this.ledger, this.target) if this.ledger and this.target else None
        if this.ledger is None or latest is None:
            return ""
        declared = of_pool(self.site.store, self.site.keys.targets, this.document)
        found = (item.declaration for item in declared if item.declaration.target == this.target)
        return next((item.incident for item in found if item.incident and this.ledger.incidents.get(item.key or "") == latest), "")

    def _found_revisions(self, this: Pass) -> list[Revision]:
        found, faults = [], []
        for document in self._revision_documents(this):
            try:
                found.append(read_revision(document))
            except SpecError as error:
                faults.append(str(error))
        self._log(this.key, "revision not read", faults)
        return found

    def _revision_documents(self, this: Pass) -> list[Document]:
        documents = self.site.store.all("ControllerRevision", this.key.namespace)
        return [item for item in documents if any(it["uid"] == this.uid for it in item["metadata"].get("ownerReferences") or ())]

    def _log(self, key: Key, event: str, faults: Sequence[str]) -> None:
        """Log each fault once, for as long as it is there."""
        logged = self._logged.setdefault(key, {})
        for fault in faults:
            if fault not in logged.get(event, ()):
                log.warning(event, extra={"namespace": key.namespace, "pool": key.name, "fault": fault})
        logged[event] = faults


def _rights(fence: Fence) -> Rights:
    """The longest rights that a pool's guards are given by what it declares."""
    return Rights(fence.lease_seconds, fence.fresh_seconds if fence.on_loss == "Fresh" else 0)


def _says_so_or_nothing(document: Document) -> bool:
    """Whether a pool says already that the cluster fails, or has never said anything."""
    said = (document.get("status") or {}).get("conditions") or ()
    return not said or any(item.get("reason") == Reason.CLUSTER_ERROR for item in said)


def _account_uid(deployment: Document | None) -> str:
    """UID of the account that the pods were made for: it stays while the account that should be there is in the way."""
    template = ((deployment or {}).get("spec") or {}).get("template") or {}
    return str(((template.get("metadata") or {}).get("annotations") or {}).get(ACCOUNT_ANNOTATION, ""))


def _label(document: Document) -> str:
    return str((document["metadata"].get("labels") or {}).get(POOL_LABEL, ""))
