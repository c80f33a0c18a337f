"""Guards and gateways of the bench of controllers: leases as processes write them, and the watch that brings them without a gap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cachescope.core.keys import KeyRing
from cachescope.core.leases import GATEWAY, GUARD, LeaseStatement, lease_keys, lease_name, write_lease
from cachescope.core.ledger_documents import parse_ledger
from cachescope.core.ledger_seals import witness
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Ledger, Mark, authorization_key
from cachescope.core.permits import permit_keys
from cachescope.kube.kinds import collection_of
from cachescope.kube.rest import Document
from tests.unit.controller_bench import POOL, Bench

POOL_UID = str(POOL["metadata"]["uid"])
PEOPLE = authorization_key("ns")
LEASE_MS, FRESH_MS = 3000, 5000


@dataclass
class LeasedProcess:
    """One process, as its lease shows it.

    Attributes:
        bench: Where it is.
        holder: `Guard` or `Gateway`.
        name: UID of its pod.
        fresh_ms: How long it may go on without a right.
        acknowledged: What it acknowledged.
        witnesses: What it read last.
        root: The root keys that it has, or has its keys of; `None` for those in force.
        pool: Name of its pool, of a guard.
        pool_uid: UID of its pool, of a guard.
    """

    bench: Bench
    holder: str = GUARD
    name: str = "g"
    fresh_ms: int = FRESH_MS
    acknowledged: dict[str, Mark] = field(default_factory=dict)
    witnesses: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    tick: int = 0
    root: KeyRing | None = None
    pool: str = "tiny"
    pool_uid: str = POOL_UID

    @property
    def lease(self) -> str:
        return lease_name(self.name, "boot")

    def acknowledge(self, *names: str) -> None:
        """Everything that stands now, or some of it, is applied and published."""
        for name, spec in standing(self.bench, self.pool, self.pool_uid).items():
            if not names or name in names:
                self.acknowledged[name] = parse_ledger(spec).mark
                self.witnesses[name] = witness(spec)
        self.write()

    def write(self, **changes: Any) -> None:
        """Write the lease, and let the watch bring it."""
        self.tick += 1
        statement = LeaseStatement(
            **{
                "holder": self.holder,
                "pod_uid": self.name,
                "boot_id": "boot",
                "tick": self.tick,
                "lease_ms": LEASE_MS,
                "version": "0.1.0",
                "acknowledged": dict(self.acknowledged),
                "witnesses": dict(self.witnesses),
                "pool_uid": self.pool_uid if self.holder == GUARD else "",
                "fresh_ms": self.fresh_ms,
                **changes,
            }
        )
        root = self.root or self.bench.keys.ring
        ring = permit_keys(root, self.pool_uid) if self.holder == GUARD else lease_keys(root)
        spec = {"holder": self.holder, "pod": self.name, "pool": self.pool if self.holder == GUARD else "", "tick": self.tick}
        signed = {**spec, "leaseSeconds": LEASE_MS // 1000, "statement": write_lease(ring.current, statement)}
        metadata = {"name": self.lease, "namespace": "ns", "uid": f"uid-{self.lease}"}
        document = {"apiVersion": "cachescope.dev/v1alpha1", "kind": "FenceLease", "metadata": metadata, "spec": signed}
        written = self.bench.api._store(f"{collection_of('FenceLease', 'ns')}/{self.lease}", document)
        self.bench.book.roster.reached(int(written["metadata"]["resourceVersion"]))

    def spoil(self, namespace: str = "ns", **spec: Any) -> None:
        """Somebody who may write leases there writes this one; nobody can verify what is in it."""
        self.tick += 1
        spoilt = {"holder": self.holder, "pod": "p", "pool": "", "leaseSeconds": 1, "tick": self.tick, "statement": "x", **spec}
        metadata = {"name": self.lease, "namespace": namespace, "uid": f"uid-{self.lease}"}
        document = {"apiVersion": "cachescope.dev/v1alpha1", "kind": "FenceLease", "metadata": metadata, "spec": spoilt}
        written = self.bench.api._store(f"{collection_of('FenceLease', namespace)}/{self.lease}", document)
        self.bench.book.roster.reached(int(written["metadata"]["resourceVersion"]))


def gateway(bench: Bench, name: str = "w") -> LeasedProcess:
    """A gateway."""
    return LeasedProcess(bench, GATEWAY, name)


def standing(bench: Bench, pool: str = "tiny", pool_uid: str = POOL_UID) -> dict[str, Document]:
    """Specs of the ledgers that processes read, by what leases name them by."""
    names = {pool: pool_uid, AUTHORIZATION_HEAD: PEOPLE}
    path = collection_of("EpochLedger", "ns")
    return {
        key: bench.api.objects[f"{path}/{name}"]["spec"] for name, key in names.items() if f"{path}/{name}" in bench.api.objects
    }


def ledger(bench: Bench, name: str = "tiny") -> Ledger:
    """A ledger as it stands."""
    return parse_ledger(bench.found("EpochLedger", name)["spec"])


def wait(bench: Bench, milliseconds: int) -> None:
    """Time passes, on the operator's clock."""
    bench.now += milliseconds / 1000


async def begun(*documents: Document) -> Bench:
    """A bench whose ledgers stand."""
    bench = Bench()
    await bench.start()
    for document in (POOL, *documents):
        bench.declare(document)
    await bench.pass_over()
    await bench.authorize()
    return bench
