"""The pools of single tenants that a template has: made, healed, started, stopped and deleted, by nobody but the template's pass.

Rules:

- a pool that goes is deleted by its UID before others are made, so that its GPUs are free;
- while the pool is no template any more, what there is stays as it is until the pool's own engines serve (`InPlace`: goes at once);
- whatever is wrong with the pool, those of tenants that are gone go;
- what is in the way of one pool holds up no other.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cachescope.api.isolation import DedicatedTo
from cachescope.api.pools import ServingPool
from cachescope.controller.installation import Installation
from cachescope.controller.isolation_plans import Plan, plan, without_tenant
from cachescope.controller.mode_changes import gives_way, takes_over
from cachescope.controller.origins import made_of
from cachescope.controller.pod_faults import ready
from cachescope.controller.store import Key, key_of
from cachescope.controller.wanted_identities import wanted
from cachescope.controller.warmth import Signs, Warmth, last_used
from cachescope.core.errors import ClusterError, SpecError
from cachescope.core.labels import POOL_LABEL
from cachescope.kube.kinds import collection_of
from cachescope.kube.rest import ConflictError, Document
from cachescope.manifests.dedicated import dedicated_pool

log = logging.getLogger(__name__)


@dataclass
class DedicatedPools:
    """Makes the pools of templates.

    Attributes:
        site: The installation.
    """

    site: Installation
    _warmth: dict[Key, tuple[str, Warmth]] = field(default_factory=dict)

    def forget(self, key: Key) -> None:
        """A template is gone."""
        self._warmth.pop(key, None)

    def plan(self, document: Document, template: ServingPool) -> Plan:
        """Which pools a template is to have."""
        tenants = self.site.store.all("Tenant", template.namespace)
        return plan(template, tenants, made_of(self.site.store, document), self.site.keys.targets)

    async def of_template(self, document: Document, template: ServingPool, planned: Plan) -> list[str]:
        """Make the pools of a template what they are to be.

        Args:
            document: The template.
            template: The same, read.
            planned: What they are to be.

        Returns:
            What is in the way, a sentence each.

        Raises:
            ClusterError: Some of it was not done; all else was.
        """
        await self._delete(planned.obsolete, "its tenant is not served any more")
        warmth = self._of(key_of(template.KIND, document), template.uid)
        faults: list[str] = []
        failed: list[ClusterError] = []
        for name, whose in planned.served.items():
            try:
                await self._apply(template, name, whose, warmth)
            except SpecError as error:
                faults.append(str(error))
            except ClusterError as error:
                failed.append(error)
        self._come_back(document, template, warmth)
        if failed:
            raise next((error for error in failed if not isinstance(error, ConflictError)), failed[0])
        return faults

    async def of_another(self, document: Document, pool: ServingPool | None) -> None:
        """What was made of a pool that is no template any more, or one whose spec is refused.

        Args:
            document: The pool.
            pool: The same, read; `None` while its spec is refused.

        Raises:
            ClusterError: One could not be deleted.
        """
        store = self.site.store
        existing = made_of(store, document)
        gone = without_tenant(store.all("Tenant", document["metadata"]["namespace"]), existing)
        await self._delete(gone, "its tenant is gone")
        if pool is not None and (gives_way(pool) or takes_over(self.site, document)):
            await self._delete((item for item in existing if item not in gone), "tenants share engines, or reuse nothing")

    async def _delete(self, pools: Iterable[Document], why: str) -> None:
        for item in pools:
            metadata = item["metadata"]
            if "deletionTimestamp" in metadata:
                continue
            path = f"{collection_of('ServingPool', metadata['namespace'])}/{metadata['name']}"
            await self.site.rest.delete(path, uid=metadata["uid"])
            log.info("pool deleted", extra={"namespace": metadata["namespace"], "pool": metadata["name"], "why": why})

    async def _apply(self, template: ServingPool, name: str, whose: DedicatedTo, warmth: Warmth) -> None:
        live = self.site.store.get(template.KIND, template.namespace, name)
        replicas = self._replicas(template, live, warmth)
        manifest = dedicated_pool(template, whose, self.site.keys.targets, replicas=replicas)
        outcome = await self.site.applier.apply(manifest, live)
        if outcome.change != "Unchanged":
            where = {"namespace": template.namespace, "template": template.name, "pool": name}
            log.info("pool of one tenant written", extra={**where, "change": outcome.change, "replicas": replicas})

    def _replicas(self, template: ServingPool, live: Document | None, warmth: Warmth) -> int:
        """How many engine pods; a pool that is new runs at first."""
        if live is None:
            return template.spec.replicas
        runs = warmth.runs(self._signs(live), template.spec.isolation, self._now())
        return template.spec.replicas if runs else 0

    def _signs(self, live: Document) -> Signs:
        uid, gateways = live["metadata"]["uid"], self.site.leases.gateways()
        runs = (live.get("spec") or {}).get("replicas", 1) > 0
        return Signs(uid, runs, bool(wanted(gateways, uid)), lambda: self._used(live))

    def _used(self, live: Document) -> float:
        metadata = live["metadata"]
        pods = (item for item in self.site.store.all("Pod", metadata["namespace"]) if _label(item) == metadata["name"])
        mine = [item["metadata"]["uid"] for item in pods if ready(item)]
        return last_used(self.site.leases.guards(metadata["uid"]), mine, self._now())

    def _come_back(self, document: Document, template: ServingPool, warmth: Warmth) -> None:
        """Look again once the first of them may be idle: nobody tells that nothing happens."""
        uids = [item["metadata"]["uid"] for item in made_of(self.site.store, document)]
        warmth.keep(frozenset(uids))
        left = [warmth.left(uid, template.spec.isolation, self._now()) for uid in uids]
        if soonest := min((item for item in left if item is not None), default=None):
            self.site.again(key_of(template.KIND, document), max(1.0, soonest))

    def _of(self, key: Key, uid: str) -> Warmth:
        known = self._warmth.get(key)
        if known is None or known[0] != uid:
            self._warmth[key] = known = uid, Warmth()
        return known[1]

    def _now(self) -> float:
        return self.site.leases.now_ms() / 1000


def unfinished(pools: Sequence[Document], names: Iterable[str]) -> list[str]:
    """Names of the pools that are to be there, and neither serve nor rest."""
    done = {item["metadata"]["name"] for item in pools if serves(item) or rests(item)}
    return [name for name in names if name not in done]


def serves(pool: Document) -> bool:
    """Whether a pool says of its present spec that it is ready."""
    said = (pool.get("status") or {}).get("conditions") or ()
    generation = pool["metadata"].get("generation", 0)
    return any(
        item.get("type") == "Ready" and item.get("status") == "True" and item.get("observedGeneration", 0) >= generation
        for item in said
    )


def rests(pool: Document) -> bool:
    """Whether a pool has no engines because nobody asks it."""
    return bool((pool.get("spec") or {}).get("replicas", 1) == 0)


def _label(document: Document) -> str:
    return str((document["metadata"].get("labels") or {}).get(POOL_LABEL, ""))
