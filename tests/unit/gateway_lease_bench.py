"""A gateway with its lease: rounds against leases and ledgers in memory, and decisions under their right."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from cachescope.api.documents import API_VERSION, parse
from cachescope.api.ledgers import FenceLease
from cachescope.core.leases import LeaseStatement, Right, lease_keys, read_lease
from cachescope.core.permits import PERMIT_HEADER, read_permit
from cachescope.gateway.audit import Audit
from cachescope.gateway.decision import Decision
from cachescope.gateway.exchange import Forward
from cachescope.gateway.lease import GatewayLease, Pod, Tells, Times, ledgers_path
from cachescope.gateway.lease_store import RestLeases
from cachescope.gateway.standing import Standing
from cachescope.gateway.wanted import Wanted
from cachescope.kube.rest import ApiError, ConflictError, Document, NotFoundError
from cachescope.kube.watched import Name
from cachescope.leases.rounds import Rounds
from tests.unit.whole_path import NAMESPACE, POOL_UID, WholePath

CHAT = b'{"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}'
PATH = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/fenceleases"


class Api:
    """Leases and ledgers in memory; `fail` is raised by the next request."""

    def __init__(self, path: WholePath) -> None:
        self.path = path
        self.leases: dict[str, Document] = {}
        self.fail: ApiError | None = None
        self.version = 0
        self.read: list[str] = []

    async def get(self, path: str, **query: str) -> Document:
        self._may_fail()
        self.read.append(path)
        ledgers = self.path.cluster.ledgers.documents
        if path == ledgers_path(NAMESPACE):
            name, _, value = query["labelSelector"].partition("=")
            items = [item for item in ledgers.values() if item["metadata"]["labels"].get(name) == value]
            return {"metadata": {"resourceVersion": "1"}, "items": items}
        if path.startswith(ledgers_path(NAMESPACE)):
            found = ledgers.get(Name(NAMESPACE, path.rpartition("/")[2]))
            if found is None:
                raise NotFoundError(404, "it is not there; create it")
            return found
        if path not in self.leases:
            raise NotFoundError(404, "it is not there; create it")
        return self.leases[path]

    def watch(self, *_: object, **__: object) -> Any:
        raise NotImplementedError

    async def create(self, path: str, document: Mapping[str, Any], **_: str) -> Document:
        self._may_fail()
        path = f"{path}/{document['metadata']['name']}"
        if path in self.leases:
            raise ConflictError(409, "it is there; read it")
        return self._store(path, document)

    async def replace(self, path: str, document: Mapping[str, Any], **_: str) -> Document:
        self._may_fail()
        if path not in self.leases:
            raise NotFoundError(404, "it is not there; create it")
        if self.leases[path]["metadata"]["resourceVersion"] != document["metadata"]["resourceVersion"]:
            raise ConflictError(409, "it changed; read it")
        return self._store(path, document)

    def _store(self, path: str, document: Mapping[str, Any]) -> Document:
        self.version += 1
        metadata = {**document["metadata"], "resourceVersion": str(self.version), "uid": f"uid-of-lease-{path}"[:64]}
        self.leases[path] = {**document, "metadata": metadata}
        return self.leases[path]

    def _may_fail(self) -> None:
        failure, self.fail = self.fail, None
        if failure:
            raise failure


class World:
    """A gateway with its lease."""

    def __init__(self, folder: Path) -> None:
        self.path = WholePath(folder)
        self.api = Api(self.path)
        self.now = 0
        self.right = Right()
        self.wanted = Wanted(lambda: self.now)
        self.ages: dict[str, float | None] = {"Tenant": 0.0}
        self.holder = GatewayLease(
            Pod(NAMESPACE, "gateway-0", "gateway-pod-uid"),
            api=self.api,
            ledgers=ledgers_path(NAMESPACE),
            configuration=self.path.configuration,
            tells=Tells(lambda: self.path.fleet.routable(self.path.snapshot().trusts), self.wanted.now),
            times=Times(60_000, 600_000),
        )
        store = RestLeases(self.api, NAMESPACE)
        self.rounds = Rounds(store, self.holder, right=self.right, clock=lambda: self.now, lease_ms=60_000)
        self.standing = Standing(
            self.path.configuration,
            self.right,
            lambda: self.now,
            lambda: self.ages,
            fresh_ms=lambda: 600_000,
            lease_ms=lambda: 60_000,
        )
        self.path.gate = Decision(self.standing.in_force, self.path.fleet, Audit(CollectorRegistry()), lambda: self.path.seconds)

    @property
    def lease(self) -> FenceLease:
        (document,) = self.api.leases.values()
        return parse(FenceLease, document, "the API")

    @property
    def statement(self) -> LeaseStatement:
        return read_lease(lease_keys(self.path.snapshot().keys.root), self.lease.spec.statement, name=self.lease.name)

    async def status(self, who: str = "blue-carol") -> tuple[int, str]:
        found = await self.path.decide(self.path.credentials.api_keys[who], CHAT)
        if not isinstance(found, Forward):
            return found.status, found.reason
        self.path.gate.finished(found)
        permit = read_permit(self.path.snapshot().permits[POOL_UID], found.set_headers[PERMIT_HEADER])
        return 200, permit.reuse.value
