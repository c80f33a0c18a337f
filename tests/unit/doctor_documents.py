"""An installation as `doctor` sees it, in which nothing is at fault, and what its documents are made of."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cachescope.api.conditions import Reason
from cachescope.api.crds import definitions
from cachescope.api.kinds import KINDS
from cachescope.cli.doctor.examination import examine
from cachescope.cli.doctor.findings import Finding, Verdict
from cachescope.cli.doctor.observed import OPERATOR_LEASE, ROOT_KEYS, Observed
from cachescope.core.keys import Key
from cachescope.core.labels import API_KEYS_LABEL, COMPONENT_LABEL
from cachescope.core.ledgers import AUTHORIZATION_HEAD, authorization_key
from cachescope.core.signed import sign

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


HEX = base64.b64encode(b"ab" * 32).decode()


Document = dict[str, Any]


RENEWED = {"renewTime": (NOW - timedelta(seconds=5)).isoformat()}


def named(name: str, **metadata: Any) -> Document:
    return {"metadata": {"name": name, "namespace": "ns", **metadata}}


def deployment(component: str, ready: int = 2) -> Document:
    return named(component, labels={COMPONENT_LABEL: component}) | {"spec": {"replicas": 2}, "status": {"readyReplicas": ready}}


def condition(kind: str, status: str, reason: Reason, generation: int = 1) -> Document:
    stamp = {"lastTransitionTime": "t", "observedGeneration": generation}
    return {"type": kind, "status": status, "reason": reason.value, "message": "said", **stamp}


def with_conditions(name: str, *conditions: Document, generation: int = 1) -> Document:
    return named(name, generation=generation) | {"spec": {}, "status": {"conditions": list(conditions)}}


def fence_lease(name: str, age: float) -> Document:
    written = (NOW - timedelta(seconds=age)).isoformat()
    spec = {"holder": "Guard", "leaseSeconds": 60, "renewTime": written}
    return named(name, creationTimestamp="2029-01-01T00:00:00Z") | {"spec": spec}


def statement(**marks: tuple[int, int]) -> str:
    """What a guard of pool `pool-uid` acknowledges, as generation and sequence by ledger; signed by nobody."""
    names = {"pool": "pool-uid", "authorization": authorization_key("ns")}
    found = {names[key]: {"lineage": lineage(item[0]), "sequence": item[1]} for key, item in marks.items()}
    return sign(Key("k1", b"k" * 32), "lease", {"pool_uid": "pool-uid", "acknowledged": found}, deflated=True)


def lineage(generation: int) -> Document:
    return {"generation": generation, "id": "a" * 32}


def acknowledging(age: float = 10, **marks: tuple[int, int]) -> Document:
    lease = fence_lease("p1.boot2", age)
    return {**lease, "spec": {**lease["spec"], "pod": "tiny-0", "pool": "tiny", "statement": statement(**marks)}}


def ledger(name: str, sequence: int, age: float, generation: int = 1, **spec: Any) -> Document:
    written = (NOW - timedelta(seconds=age)).isoformat()
    role = "Pool" if name == "tiny" else "Authorization"
    fields = {"role": role, "lineage": lineage(generation), "sequence": sequence, "restored": 0, "confirmed": 0, **spec}
    return named(name, creationTimestamp="2029-01-01T00:00:00Z", managedFields=[{"time": written}]) | {"spec": fields}


HEAD = ledger(AUTHORIZATION_HEAD, 5, 900)


STANDS = [ledger("tiny", 7, 900), HEAD]


def unfenced(minutes: float, reason: Reason = Reason.WAITING_FOR_PROCESSES) -> Document:
    since = (NOW - timedelta(minutes=minutes)).isoformat()
    waiting = {**condition("Fenced", "False", reason), "lastTransitionTime": since}
    return with_conditions("e", condition("Accepted", "True", Reason.ACCEPTED), waiting)


def binding(role: str, *subjects: Document, namespace: str | None = "ns", kind: str = "ClusterRole") -> Document:
    return {"metadata": {"name": "b", "namespace": namespace}, "roleRef": {"kind": kind, "name": role}, "subjects": list(subjects)}


def subject(kind: str, name: str, namespace: str | None = None) -> Document:
    return {"kind": kind, "name": name, **({"namespace": namespace} if namespace else {})}


def role(name: str, *rules: tuple[str, str, str], names: tuple[str, ...] = ()) -> Document:
    extra = {"resourceNames": list(names)} if names else {}
    return {
        "metadata": {"name": name},
        "rules": [{"apiGroups": [group], "resources": [resource], "verbs": [verb], **extra} for group, resource, verb in rules],
    }


ROLES = [role("cluster-admin", ("*", "*", "*")), role("see", ("", "pods", "list")), role("read", ("", "secrets", "get"))]


ADMINS = binding("cluster-admin", subject("Group", "system:masters"), subject("Group", "kubeadm:cluster-admins"), namespace=None)


SOUND = Observed(
    "ns",
    NOW,
    kinds=frozenset(kind.model.PLURAL for kind in KINDS),
    documents={
        "customresourcedefinitions": list(definitions()),
        "deployments": [deployment("operator"), deployment("gateway")],
        OPERATOR_LEASE: [{"spec": {**RENEWED, "holderIdentity": "operator-1", "leaseDurationSeconds": 15}}],
        ROOT_KEYS: [{"data": {"k1": HEX, "targets": HEX}}],
        "rolebindings": [binding("see", subject("Group", "devs"))],
        "roles": [],
        "clusterrolebindings": [ADMINS],
        "clusterroles": ROLES,
        "servingpools": [with_conditions("tiny", condition("Ready", "True", Reason.ROUTABLE))],
        "tenants": [with_conditions("red", condition("Accepted", "True", Reason.ACCEPTED))],
        "cachescopes": [],
        "publicsources": [],
        "cacheepochs": [],
        "epochledgers": STANDS,
        "fenceleases": [acknowledging(pool=(1, 7), authorization=(1, 6)), fence_lease("p1.boot1", 9000)],
        "pods": [named("tiny-0", uid="p1") | {"status": {"phase": "Running"}}],
    },
    key_secrets={("ns", "red-alice"): [named("red-alice", labels={API_KEYS_LABEL: "true"})]},
)


def changed(**documents: Any) -> Observed:
    names = {"lease": OPERATOR_LEASE, "root_keys": ROOT_KEYS}
    return replace(SOUND, documents={**SOUND.documents, **{names.get(key, key): value for key, value in documents.items()}})


def worst(observed: Observed, trusted: tuple[str, ...] = ()) -> list[Finding]:
    return [item for item in examine(observed, trusted) if item.verdict is not Verdict.PASS and item.check != "network policies"]
