"""What may be declared: tables of objects that the API server takes and refuses, each with the message that people read."""

from __future__ import annotations

from typing import Any

import pytest

from cachescope.api.documents import parse
from cachescope.api.kinds import KINDS
from tests.integration.crd_objects import BOOT_ID, HEAD, MISSING, POD_UID, Changes, Server, document

TOKENS = {"provider": "north", "audience": "llm"}
MODELS = {kind.model.KIND: kind.model for kind in KINDS}
SOURCE = "spec.model.source"
ADAPTERS = "spec.engine.adapters"
IN_IMAGE = {"name": "x", "source": {"imagePath": "/x"}}
CLAIM = {"claimName": "models"}
HUB = {"repository": "owner/name", "revision": "0" * 40}
FROM, LABELS = "spec.allowedTenants.namespaces.from", "spec.allowedTenants.namespaces.matchLabels"
LONG_PATH = "spec.model.source.persistentVolumeClaim"
INCIDENT: Changes = {"spec.floor": MISSING, "spec.incident": {"id": "leak-1"}}
DRAIN = {"mode": "Drain", "drainSeconds": 30}
API_KEY = {"kind": "api-key", "subject": "ci"}
WORKLOAD = {"kind": "mtls", "subject": "spiffe://corp/ns/a/sa/b"}
ACCOUNT = {"kind": "service-account", "subject": "system:serviceaccount:jobs:app"}
TOKEN = {"kind": "jwt", "issuer": "https://issuer.example", "subject": "ci"}
OF_TENANT: Changes = {"spec.target": {"kind": "Tenant", "name": "red"}}
OF_PRINCIPAL: Changes = {"spec.target": {"kind": "Principal", "name": "red", "principal": TOKEN}}
OF_COMPARTMENT: Changes = {"spec.target": {"kind": "Compartment", "name": "red", "compartment": "m-1"}}
OF_NAMESPACE: Changes = {"spec.target": {"kind": "Namespace"}, "spec.restored": {}}

TAKEN: list[tuple[str, Changes]] = [
    *((kind, {}) for kind in MODELS),
    ("ServingPool", {"metadata.name": "p" * 40}),
    ("ServingPool", {"metadata.name": "p"}),
    ("ServingPool", {"metadata.name": "a-1"}),
    ("ServingPool", {SOURCE: {"persistentVolumeClaim": CLAIM}}),
    ("ServingPool", {SOURCE: {"persistentVolumeClaim": {**CLAIM, "path": "a/b"}}}),
    ("ServingPool", {SOURCE: {"huggingFace": HUB}}),
    ("ServingPool", {ADAPTERS: []}),
    ("ServingPool", {ADAPTERS: [{"name": "x", "source": {"imagePath": "/x"}}, {"name": "y.z-1", "source": {"huggingFace": HUB}}]}),
    (
        "ServingPool",
        {ADAPTERS: [{"name": f"x{at}".ljust(63, "x"), "source": {"persistentVolumeClaim": CLAIM}} for at in range(32)]},
    ),
    ("ServingPool", {FROM: "Selector", LABELS: {"team": "red"}}),
    ("ServingPool", {FROM: "Same"}),
    ("ServingPool", {"spec.replicas": 0}),
    ("ServingPool", {"spec.resources": {"requests": {"cpu": 2, "memory": "1.5Gi"}, "limits": {"cpu": "500m"}}}),
    ("ServingPool", {"spec.podTemplate": {"tolerations": [{"key": "gpu", "operator": "Exists"}], "affinity": {"podAffinity": {}}}}),
    ("ServingPool", {"spec.gpus": {"count": 8}, "spec.sharedMemory": "8Gi"}),
    ("Tenant", {"spec": {}}),
    ("Tenant", {"spec.identities": {"apiKeys": [{"secretName": "keys"}]}}),
    ("Tenant", {"spec.identities": {"jwt": [{**TOKENS, "claims": {"n" * 128: "v" * 512}}, TOKENS]}}),
    ("Tenant", {"spec.identities": {"mtls": [{"spiffeId": "spiffe://corp/ns/a/sa/..b"}]}}),
    ("Tenant", {"spec.identities": {"serviceAccounts": [{"name": "app"}, {"name": "app.x", "namespace": "jobs"}]}}),
    ("ServingPool", {"spec.engine.args": ["a" * 4096], "spec.engine.env": {"A": "a" * 8192}}),
    *(("CacheScope", {"spec.class": name}) for name in ("Public", "Tenant", "Compartment", "Principal", "Request")),
    (
        "CacheScope",
        {"spec.classification": {"personal": "Principal", "secret": "Request", "public": "Tenant", "internal": "Tenant"}},
    ),
    ("CacheScope", {"spec.applications": [{**API_KEY, "tenant": "red"}, {**TOKEN, "tenant": "red"}]}),
    (
        "CacheScope",
        {"spec.applications": [{**WORKLOAD, "tenant": "red"}, {**ACCOUNT, "tenant": "red"}]},
    ),
    ("PublicSource", {"spec.approval": MISSING}),
    ("Tenant", {"spec.compartments": {"members": [{"name": "m-1", "principals": [WORKLOAD, ACCOUNT]}]}}),
    ("Tenant", {"spec.compartments": {"claim": "matters", "members": [{"name": "m-1", "principals": [API_KEY, TOKEN]}]}}),
    ("CacheEpoch", {**INCIDENT, **OF_COMPARTMENT, "spec.deny": True}),
    ("CacheEpoch", INCIDENT),
    ("CacheEpoch", {"spec.incident": {"id": "leak-1", "reason": "keys were published"}}),
    ("CacheEpoch", {"spec.incident": {"id": "leak-1", "stopPublicSharing": True, "bypassReuse": True, "inFlight": DRAIN}}),
    ("CacheEpoch", {**INCIDENT, "spec.incident.inFlight": {"mode": "Abort"}}),
    ("CacheEpoch", {**INCIDENT, "spec.incident.inFlight": {}}),
    ("CacheEpoch", {**INCIDENT, "spec.target.kind": "CacheScope"}),
    ("CacheEpoch", {**INCIDENT, **OF_TENANT, "spec.deny": True, "spec.credentialsIssuedBefore": "2030-01-01T00:00:00Z"}),
    ("CacheEpoch", {**INCIDENT, **OF_PRINCIPAL, "spec.readmit": True}),
    *(
        ("CacheEpoch", {**INCIDENT, "spec.target": {"kind": "Principal", "name": "red", "principal": principal}})
        for principal in (API_KEY, WORKLOAD, ACCOUNT)
    ),
    ("CacheEpoch", {**INCIDENT, **OF_NAMESPACE}),
    ("CacheEpoch", {**INCIDENT, **OF_NAMESPACE, "spec.restored": {"confirmed": True}}),
    ("EpochLedger", HEAD),
    ("FenceLease", {"spec.holder": "Gateway", "spec.pool": ""}),
    ("FenceLease", {"spec.holder": "Gateway", "spec.pool": MISSING}),
]

REFUSED: list[tuple[str, Changes, str]] = [
    *((kind, {"spec": MISSING}, "spec: Required value") for kind in MODELS),
    *((kind, {"spec": None}, "spec: ") for kind in MODELS),
    *((kind, {"spec.surprise": 1}, 'unknown field "spec.surprise"') for kind in MODELS),
    ("ServingPool", {"metadata.name": "p" * 41}, "at most 40 characters"),
    ("ServingPool", {"metadata.name": "1p"}, "start it with a letter"),
    ("ServingPool", {"metadata.name": "a.b"}, "DNS-1035"),
    ("ServingPool", {SOURCE: {}}, "set exactly one of imagePath, persistentVolumeClaim and huggingFace"),
    ("ServingPool", {f"{SOURCE}.huggingFace": HUB}, "set exactly one of"),
    ("ServingPool", {f"{SOURCE}.huggingFace": HUB, LONG_PATH: CLAIM}, "set exactly one of"),
    ("ServingPool", {f"{SOURCE}.imagePath": "models"}, "imagePath"),
    ("ServingPool", {SOURCE: {"persistentVolumeClaim": {**CLAIM, "path": "/a"}}}, "path"),
    ("ServingPool", {SOURCE: {"huggingFace": {**HUB, "revision": "main"}}}, "revision"),
    ("ServingPool", {"spec.model.name": ""}, "spec.model.name"),
    ("ServingPool", {ADAPTERS: [IN_IMAGE, IN_IMAGE]}, "give each another name"),
    ("ServingPool", {ADAPTERS: [IN_IMAGE], "spec.model.name": "x"}, "rename one of the two"),
    ("ServingPool", {ADAPTERS: [{**IN_IMAGE, "name": "text"}]}, "takes for types of a message's parts; rename it"),
    ("ServingPool", {ADAPTERS: [{**IN_IMAGE, "name": "X"}]}, "spec.engine.adapters[0].name"),
    ("ServingPool", {ADAPTERS: [{**IN_IMAGE, "name": "x" * 64}]}, "spec.engine.adapters[0].name"),
    ("ServingPool", {ADAPTERS: [{**IN_IMAGE, "source": {}}]}, "an adapter has one source; set exactly one of imagePath"),
    ("ServingPool", {ADAPTERS: [{"name": "x"}]}, "spec.engine.adapters[0].source: Required value"),
    ("ServingPool", {ADAPTERS: [{**IN_IMAGE, "name": f"x{at}"} for at in range(33)]}, "must have at most 32 items"),
    ("ServingPool", {"spec.engine.type": "sglang"}, 'supported values: "vLLM", "SGLang"'),
    ("ServingPool", {"spec.engine.version": "0.32 or so"}, "spec.engine.version"),
    ("ServingPool", {"spec.isolation.mode": "Salted"}, 'supported values: "Auto", "Shared"'),
    ("ServingPool", {"spec.isolation.idleSeconds": 5}, "spec.isolation.idleSeconds"),
    ("ServingPool", {"spec.dedicatedTo": {"poolName": "tiny"}}, "Required value"),
    ("ServingPool", {"spec.engine.image": MISSING}, "spec.engine.image: Required value"),
    ("ServingPool", {FROM: "Selector"}, "set them, not empty, with `from: Selector`"),
    ("ServingPool", {FROM: "Selector", LABELS: {}}, "set them, not empty, with `from: Selector`"),
    ("ServingPool", {LABELS: {"team": "red"}}, "set them, not empty, with `from: Selector`"),
    ("ServingPool", {FROM: "All"}, 'supported values: "Same", "Selector"'),
    ("ServingPool", {"spec.replicas": -1}, "spec.replicas"),
    ("ServingPool", {"spec.resources": {"limits": {"memory": "much"}}}, "spec.resources.limits"),
    ("ServingPool", {"spec.fence": {"leaseSeconds": 2}}, "spec.fence.leaseSeconds"),
    ("Tenant", {"spec.identities": {"jwt": [{"provider": "north"}]}}, "audience: Required value"),
    ("Tenant", {"spec.identities": {"apiKeys": [{"secretName": "No"}]}}, "secretName"),
    ("Tenant", {"spec.identities": {"jwt": [{**TOKENS, "claims": {"n" * 129: "v"}}]}}, "at most 128 characters"),
    ("Tenant", {"spec.identities": {"jwt": [{**TOKENS, "claims": {"n": "v" * 513}}]}}, "spec.identities.jwt[0].claims.n"),
    *(
        ("Tenant", {"spec.identities": {"mtls": [{"spiffeId": text}]}}, "spec.identities.mtls[0].spiffeId")
        for text in ("spiffe://corp", "spiffe://corp/../a", "spiffe://corp/a\n", "spiffe://Corp/a", "spiffe://corp/" + "a" * 2048)
    ),
    ("Tenant", {"spec.identities": {"serviceAccounts": [{"name": "app", "namespace": "a.b"}]}}, "serviceAccounts[0].namespace"),
    ("ServingPool", {"spec.engine.args": ["a" * 4097]}, "spec.engine.args[0]"),
    ("ServingPool", {"spec.engine.env": {"A": "a" * 8193}}, "spec.engine.env.A"),
    ("CacheScope", {"spec.pools": []}, "spec.pools"),
    ("CacheScope", {"spec.tenants": MISSING}, "spec.tenants: Required value"),
    ("CacheScope", {"spec.class": "Everyone"}, 'supported values: "Public", "Tenant", "Compartment", "Principal", "Request"'),
    (
        "CacheScope",
        {"spec.classification": {"personal": "Tenant"}},
        "Tenant is wider than Principal, the widest class of personal data",
    ),
    (
        "CacheScope",
        {"spec.classification": {"secret": "Principal"}},
        "Principal is wider than Request, the widest class of secret data",
    ),
    ("CacheScope", {"spec.applications": [{"kind": "jwt", "subject": "ci", "tenant": "red"}]}, "set issuer with `kind: jwt`"),
    (
        "CacheScope",
        {"spec.applications": [{**WORKLOAD, "subject": "spiffe://Corp/a", "tenant": "red"}]},
        "its whole SPIFFE id",
    ),
    ("CacheScope", {"spec.applications": [{**ACCOUNT, "subject": "jobs:app", "tenant": "red"}]}, "write system:service"),
    ("CacheScope", {"spec.toolsets": ["sha256:0"]}, "spec.toolsets[0]"),
    *(
        ("Tenant", {"spec.compartments": {"members": [{"name": "m", "principals": [{**who, "subject": subject}]}]}}, said)
        for who, subject, said in (
            (WORKLOAD, "corp/a", "write it as its certificate has it"),
            (WORKLOAD, "spiffe://Corp/a", "should match '^spiffe://"),
            (ACCOUNT, "jobs:app", "write system:service"),
            (ACCOUNT, "system:serviceaccount:Jobs:app", "should match '^system:serviceaccount:"),
        )
    ),
    ("PublicSource", {"spec.digest": "1" * 64}, "spec.digest"),
    ("PublicSource", {"spec.approval.expires": "2030-01-01T00:00:00Z"}, "set expires to a time after at"),
    ("Tenant", {"spec.compartments": {"members": [{"name": "m", "principals": [{"kind": "jwt", "subject": "a"}]}]}}, "set issuer"),
    ("CacheEpoch", {**INCIDENT, **OF_COMPARTMENT, "spec.target.compartment": MISSING}, "set compartment with `kind: Compartment`"),
    ("CacheEpoch", {**INCIDENT, **OF_TENANT, "spec.target.compartment": "m-1"}, "set compartment with `kind: Compartment`"),
    ("CacheEpoch", {"spec.floor": MISSING}, "set floor, or incident, or both"),
    ("CacheEpoch", {"spec.floor": 0}, "spec.floor"),
    ("CacheEpoch", {"spec.floor": 2**53}, "spec.floor"),
    ("CacheEpoch", {"spec.target.name": MISSING}, "set name, except with `kind: Namespace`"),
    ("CacheEpoch", {"spec.target.kind": "Pod"}, 'supported values: "ServingPool"'),
    ("CacheEpoch", {**INCIDENT, **OF_NAMESPACE, "spec.target.name": "red"}, "set name, except with `kind: Namespace`"),
    ("CacheEpoch", {**INCIDENT, **OF_TENANT, "spec.target.principal": API_KEY}, "set principal with `kind: Principal`"),
    ("CacheEpoch", {**INCIDENT, "spec.target.kind": "Principal"}, "set principal with `kind: Principal`"),
    ("CacheEpoch", {**INCIDENT, **OF_PRINCIPAL, "spec.target.principal.issuer": MISSING}, "set issuer with `kind: jwt`"),
    ("CacheEpoch", {**INCIDENT, **OF_PRINCIPAL, "spec.target.principal.kind": "api-key"}, "set issuer with `kind: jwt`"),
    (
        "CacheEpoch",
        {**INCIDENT, **OF_PRINCIPAL, "spec.target.principal": {**WORKLOAD, "issuer": "corp"}},
        "set issuer with `kind: jwt`",
    ),
    ("CacheEpoch", {**INCIDENT, **OF_PRINCIPAL, "spec.target.principal": {**WORKLOAD, "subject": "corp/a"}}, "its whole SPIFFE id"),
    (
        "CacheEpoch",
        {**INCIDENT, **OF_PRINCIPAL, "spec.target.principal": {**ACCOUNT, "subject": "jobs:app"}},
        "write system:service",
    ),
    ("CacheEpoch", {**INCIDENT, "spec.restored": {}}, "set restored with a target of `kind: Namespace`"),
    ("CacheEpoch", {**INCIDENT, "spec.target": {"kind": "Namespace"}}, "set restored with a target of `kind: Namespace`"),
    ("CacheEpoch", {**INCIDENT, **OF_NAMESPACE, "spec.floor": 3}, "set incident, and remove floor"),
    ("CacheEpoch", {**OF_NAMESPACE}, "set incident, and remove floor"),
    ("CacheEpoch", {**INCIDENT, "spec.deny": True}, "belong to an incident of a Tenant, Principal or Compartment"),
    ("CacheEpoch", {**OF_TENANT, "spec.deny": True}, "belong to an incident of a Tenant, Principal or Compartment"),
    ("CacheEpoch", {**OF_TENANT, "spec.readmit": True}, "belong to an incident of a Tenant, Principal or Compartment"),
    ("CacheEpoch", {**INCIDENT, "spec.readmit": True}, "belong to an incident of a Tenant, Principal or Compartment"),
    (
        "CacheEpoch",
        {"spec.credentialsIssuedBefore": "2030-01-01T00:00:00Z"},
        "belong to an incident of a Tenant, Principal or Compartment",
    ),
    ("CacheEpoch", {**INCIDENT, **OF_TENANT, "spec.credentialsIssuedBefore": "yesterday"}, "spec.credentialsIssuedBefore"),
    ("CacheEpoch", {**INCIDENT, **OF_TENANT, "spec.deny": True, "spec.readmit": True}, "contradict each other"),
    ("CacheEpoch", {**INCIDENT, **OF_TENANT, "spec.incident.bypassReuse": True}, "belong to a pool"),
    ("CacheEpoch", {**INCIDENT, **OF_TENANT, "spec.incident.stopPublicSharing": True}, "belong to a pool"),
    ("CacheEpoch", {**INCIDENT, **OF_TENANT, "spec.incident.inFlight": DRAIN}, "only what a pool holds can drain"),
    ("CacheEpoch", {**INCIDENT, "spec.incident.inFlight": {"drainSeconds": 30}}, "set drainSeconds with `mode: Drain`"),
    ("CacheEpoch", {**INCIDENT, "spec.incident.inFlight": {"mode": "Drain"}}, "set drainSeconds with `mode: Drain`"),
    ("CacheEpoch", {**INCIDENT, "spec.incident.inFlight": {**DRAIN, "drainSeconds": 601}}, "drainSeconds"),
    ("CacheEpoch", {"spec.incident": {"id": "-"}}, "spec.incident.id"),
    *(
        ("EpochLedger", {f"spec.{field}": MISSING}, f"spec.{field}: Required value")
        for field in ("role", "lineage", "sequence", "digest", "mac", "history", "base", "floors", "denied", "flags", "incidents")
    ),
    ("EpochLedger", {"spec.lineage": {"id": "1" * 32}}, "spec.lineage.generation: Required value"),
    ("EpochLedger", {"spec.lineage.id": "1" * 31}, "spec.lineage.id"),
    *(("EpochLedger", {f"spec.floors.{name}": 1}, "64 lower-case hexadecimal digits") for name in ("a" * 63, "A" * 64, "a" * 65)),
    ("EpochLedger", {"spec.floors": {"a" * 64: -1}}, "spec.floors"),
    ("EpochLedger", {"spec.floors": {"a" * 64: 2**53}}, "spec.floors"),
    *(
        ("EpochLedger", {f"spec.{field}.{'d' * 64}": 1}, f"{field} holds for targets with a floor")
        for field in ("abortBelow", "drainSeconds", "denied", "readmitted", "issuedBefore", "changed")
    ),
    ("EpochLedger", {"spec.role": "Tenant"}, 'supported values: "Pool", "Authorization", "Shard"'),
    ("EpochLedger", {"spec.history": []}, "spec.history"),
    ("EpochLedger", {"spec.history": ["3" * 32]}, "ends with its own digest"),
    ("EpochLedger", {"spec.previousDigest": f"sha256:{'1' * 64}"}, "a ledger begins with sequence 1"),
    ("EpochLedger", {"spec.confirmed": 3}, "set restored first"),
    ("EpochLedger", {"spec.incidents": {"c" * 64: -1}}, "spec.incidents"),
    ("EpochLedger", {"spec.sequence": 2}, "a ledger begins with sequence 1"),
    ("FenceLease", {"metadata.name": f"{POD_UID}.{BOOT_ID[1:]}"}, "32 hexadecimal digits"),
    ("FenceLease", {"metadata.name": f"{POD_UID}-{BOOT_ID}"}, "32 hexadecimal digits"),
    ("FenceLease", {"metadata.name": f"tiny-0.{BOOT_ID}"}, "32 hexadecimal digits"),
    ("FenceLease", {"metadata.name": f"{POD_UID}.{BOOT_ID}.x"}, "32 hexadecimal digits"),
    ("FenceLease", {"spec.holder": "Operator"}, 'supported values: "Guard", "Gateway"'),
    ("FenceLease", {"spec.holder": "Gateway"}, "set pool with `holder: Guard` and only then"),
    ("FenceLease", {"spec.pool": ""}, "set pool with `holder: Guard` and only then"),
    ("FenceLease", {"spec.tick": -1}, "spec.tick"),
    ("FenceLease", {"spec.statement": ""}, "spec.statement"),
]


def rows(table: list[tuple[Any, ...]]) -> list[Any]:
    return [pytest.param(*row, id=f"{row[0]}-{'-'.join(row[1]) or 'plain'}-{number}") for number, row in enumerate(table)]


@pytest.mark.parametrize(("kind", "changes"), rows(TAKEN))
async def test_a_valid_object_is_taken_and_its_model_reads_what_is_stored(server: Server, kind: str, changes: Changes) -> None:
    stored = await server.try_create(document(kind, changes))
    assert parse(MODELS[kind], stored, "the API server").name == stored["metadata"]["name"]


@pytest.mark.parametrize(("kind", "changes", "message"), rows(REFUSED))
async def test_an_invalid_object_is_refused_with_what_to_do(server: Server, kind: str, changes: Changes, message: str) -> None:
    assert await server.refusal(document(kind), create=True) is None
    refusal = await server.refusal(document(kind, changes), create=True)
    assert message in (refusal or "it was taken")
