"""A template with tenants, and passes over it and over the pools that are made of it."""

from __future__ import annotations

import copy
from typing import Any

from cachescope.controller.origins import dedicated_to
from cachescope.controller.store import Key, key_of
from cachescope.core.labels import POOL_LABEL
from cachescope.core.leases import GUARD
from cachescope.kube.kinds import collection_of
from cachescope.kube.rest import Document
from tests.unit.bench_leases import LeasedProcess
from tests.unit.controller_bench import POOL, POOL_KEY, Bench, tenant

PER_TENANT: Document = {"mode": "PerTenant"}
LATER = "2026-01-0{}T00:00:00Z"


class TemplateBench(Bench):
    """An operator with one template in the namespace `ns`, and the controllers of the cluster as far as pools need them."""

    async def begin(self, *tenants: str, **spec: Any) -> None:
        """Declare the template and its tenants, the oldest first, and pass over all."""
        await self.start()
        self.book.judge()  # what comes from now on has moved
        for number, name in enumerate(tenants, 1):
            self.declare(tenant(name, created=LATER.format(number)))
        self.declare(POOL, **{"isolation": PER_TENANT, **spec})
        await self.settle()

    async def settle(self, passes: int = 3) -> None:
        """Passes over the template and all that was made of it."""
        for _ in range(passes):
            await self.pass_over()
            for document in self.dedicated():
                await self.pools.reconcile(key_of("ServingPool", document), 0)
            await self.tell()

    def dedicated(self) -> list[Document]:
        """The pools that are for one tenant, by name."""
        found = [item for item in self.api.objects.values() if item.get("kind") == "ServingPool" and dedicated_to(item)]
        return sorted(found, key=lambda item: str(item["metadata"]["name"]))

    def pool_of(self, name: str) -> Document:
        """The pool of a tenant."""
        (found,) = (item for item in self.dedicated() if item["spec"]["dedicatedTo"]["tenantName"] == name)
        return copy.deepcopy(found)

    def served(self) -> set[str]:
        """For whom there are pools."""
        return {item["spec"]["dedicatedTo"]["tenantName"] for item in self.dedicated()}

    def key_of(self, name: str) -> Key:
        """Key of the pool of a tenant."""
        return key_of("ServingPool", self.pool_of(name))

    def say(self, document: Document, status: str = "True", *, kind: str = "Ready", reason: str = "Routable", **more: Any) -> None:
        """A pool says something of itself, as its own pass writes it."""
        live = copy.deepcopy(self.api.objects[f"{collection_of('ServingPool', 'ns')}/{document['metadata']['name']}"])
        said = live.setdefault("status", {})
        generation = live["metadata"].get("generation", 0)
        condition = {
            "type": kind,
            "status": status,
            "reason": reason,
            "observedGeneration": generation,
            "message": "as it is",
            **more,
        }
        others = [item for item in said.get("conditions", ()) if item["type"] != kind]
        said["conditions"] = [condition, *others]
        self.api._store(f"{collection_of('ServingPool', 'ns')}/{document['metadata']['name']}", live)

    def run_pod(self, pool: str, name: str, *, ready: bool = True) -> Document:
        """A pod of a pool, as its Deployment makes it."""
        metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": {POOL_LABEL: pool}}
        status = {"conditions": [{"type": "Ready", "status": str(ready)}]}
        return self.api._store(f"{collection_of('Pod', 'ns')}/{name}", {"kind": "Pod", "metadata": metadata, "status": status})

    def delete_pool(self, name: str) -> None:
        """Somebody deletes a pool, and the cluster what it owns."""
        uid = self.found("ServingPool", name)["metadata"]["uid"]
        self.remove("ServingPool", name)
        owned = [
            item
            for item in self.api.objects.values()
            if any(owner["uid"] == uid for owner in item["metadata"].get("ownerReferences") or ())
        ]
        for item in owned:
            self.remove(item["kind"], item["metadata"]["name"])

    def guard_of(self, name: str, pod: str = "") -> LeasedProcess:
        """A guard of a tenant's engines, in a pod of that name."""
        metadata = self.pool_of(name)["metadata"]
        return LeasedProcess(self, GUARD, f"uid-{pod or name}", pool=metadata["name"], pool_uid=metadata["uid"])

    def has_engines(self, pool: str = POOL_KEY.name) -> bool:
        """Whether there is a Deployment of a pool."""
        return f"{collection_of('Deployment', 'ns')}/{pool}" in self.api.objects
