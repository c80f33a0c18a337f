"""One object of each kind that a pool owns, and what somebody might do to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cachescope.kube.rest import Document

Change = Callable[[Document], Any]

LABELS = {"app.kubernetes.io/name": "tiny", "app.kubernetes.io/component": "engine"}
RBAC = "rbac.authorization.k8s.io"


def child(owner: Document, kind: str, api_version: str, **content: Any) -> dict[str, Any]:
    """An object named `tiny` that belongs to the owner."""
    meta = owner["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"], "controller": True}
    metadata = {"name": "tiny", "namespace": meta["namespace"], "labels": LABELS, "ownerReferences": [reference]}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def children(owner: Document) -> dict[str, dict[str, Any]]:
    """One object of each kind, by kind."""
    selector = {"matchLabels": LABELS}
    rule = {"from": [{"podSelector": {"matchLabels": {"a": "b"}}}], "ports": [{"port": 8000, "protocol": "TCP"}]}
    network = {"podSelector": selector, "policyTypes": ["Ingress", "Egress"], "ingress": [rule]}
    service = {"clusterIP": "None", "selector": LABELS, "ports": [{"name": "http", "port": 8000, "targetPort": "http"}]}
    reference = {"apiGroup": RBAC, "kind": "Role", "name": "tiny"}
    subject = {"kind": "ServiceAccount", "name": "tiny", "namespace": owner["metadata"]["namespace"]}
    made = [
        child(owner, "ServiceAccount", "v1", automountServiceAccountToken=False),
        child(
            owner,
            "Role",
            f"{RBAC}/v1",
            rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["x"]}],
        ),
        child(owner, "RoleBinding", f"{RBAC}/v1", roleRef=reference, subjects=[subject]),
        child(owner, "Secret", "v1", stringData={"k1": "ab" * 32}, type="Opaque"),
        child(owner, "NetworkPolicy", "networking.k8s.io/v1", spec=network),
        child(owner, "Service", "v1", spec=service),
        child(owner, "PodDisruptionBudget", "policy/v1", spec={"maxUnavailable": 1, "selector": selector}),
        child(owner, "ControllerRevision", "apps/v1", revision=1, data={"inputs": "x", "template": {"a": [1, {"b": ""}]}}),
        child(owner, "Deployment", "apps/v1", spec={"replicas": 1, "selector": selector, "template": template()}),
    ]
    return {document["kind"]: document for document in made}


def template() -> dict[str, Any]:
    """A pod that no node takes."""
    container = {
        "name": "engine",
        "image": "example.test/engine:1",
        "args": ["--a"],
        "env": [{"name": "A", "value": "1"}, {"name": "UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
        "ports": [{"name": "http", "containerPort": 8000}],
        "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}, "requests": {"cpu": "0.25", "memory": 1073741824}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 5},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, {"name": "tmp", "mountPath": "/home"}],  # noqa: S108
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "nodeSelector": {"cachescope.dev/no-such-node": "true"},
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "keys", "secret": {"secretName": "tiny"}}],
    }
    return {"metadata": {"labels": LABELS}, "spec": spec}


def _engine(it: Document) -> dict[str, Any]:
    found: dict[str, Any] = it["spec"]["template"]["spec"]["containers"][0]
    return found


EDITS: list[tuple[str, str, Change]] = [
    ("ServiceAccount", "token", lambda it: it.update(automountServiceAccountToken=True)),
    ("Role", "verbs", lambda it: it["rules"][0].update(verbs=["*"])),
    ("RoleBinding", "subject", lambda it: it["subjects"][0].update(name="evil")),
    ("Secret", "key", lambda it: it["data"].update(k1="ZXZpbA==")),
    ("NetworkPolicy", "peers", lambda it: it["spec"]["ingress"][0].pop("from")),
    ("NetworkPolicy", "types", lambda it: it["spec"].update(policyTypes=["Ingress"])),
    ("Service", "selector", lambda it: it["spec"]["selector"].update({"app.kubernetes.io/name": "evil"})),
    ("PodDisruptionBudget", "number", lambda it: it["spec"].update(maxUnavailable="100%")),
    ("ControllerRevision", "number", lambda it: it.update(revision=7)),
    ("Deployment", "image", lambda it: _engine(it).update(image="evil")),
    ("Deployment", "env", lambda it: _engine(it)["env"].pop()),
    ("Deployment", "replicas", lambda it: it["spec"].update(replicas=0)),
    ("Deployment", "token", lambda it: it["spec"]["template"]["spec"].pop("automountServiceAccountToken")),
    ("Deployment", "labels", lambda it: it["metadata"].pop("labels")),
    ("Service", "owner", lambda it: it["metadata"].pop("ownerReferences")),
]
"""Kind, what, and how somebody changes what we applied."""

ADDITIONS: list[tuple[str, str, Change]] = [
    ("Role", "rule", lambda it: it["rules"].append({"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]})),
    ("RoleBinding", "subject", lambda it: it["subjects"].append({"kind": "User", "apiGroup": RBAC, "name": "evil"})),
    ("Secret", "key", lambda it: it["data"].update(evil="ZXZpbA==")),
    ("NetworkPolicy", "rule", lambda it: it["spec"]["ingress"].append({})),
    ("NetworkPolicy", "peer", lambda it: it["spec"]["ingress"][0]["from"].append({"ipBlock": {"cidr": "0.0.0.0/0"}})),
    ("NetworkPolicy", "egress", lambda it: it["spec"].update(egress=[{}])),
    ("Service", "port", lambda it: it["spec"]["ports"].append({"name": "evil", "port": 22})),
    ("Service", "address", lambda it: it["spec"].update(externalIPs=["192.0.2.1"])),
    ("Service", "unready", lambda it: it["spec"].update(publishNotReadyAddresses=True)),
    ("PodDisruptionBudget", "policy", lambda it: it["spec"].update(unhealthyPodEvictionPolicy="AlwaysAllow")),
    ("Deployment", "env", lambda it: _engine(it)["env"].append({"name": "VLLM_SERVER_DEV_MODE", "value": "1"})),
    ("Deployment", "container", lambda it: it["spec"]["template"]["spec"]["containers"].append({"name": "evil", "image": "evil"})),
    ("Deployment", "port", lambda it: _engine(it)["ports"].append({"containerPort": 22})),
    ("Deployment", "mount", lambda it: _engine(it)["volumeMounts"].append({"name": "keys", "mountPath": "/keys"})),
    ("Deployment", "command", lambda it: _engine(it).update(command=["sh"])),
    ("Deployment", "pause", lambda it: it["spec"].update(paused=True)),
    ("Deployment", "deadline", lambda it: it["spec"].update(progressDeadlineSeconds=7)),
    ("Deployment", "host", lambda it: it["spec"]["template"]["spec"].update(hostNetwork=True)),
    ("Deployment", "annotation", lambda it: it["spec"]["template"]["metadata"].update(annotations={"inject": "true"})),
]
"""Kind, what, and how somebody adds to what we applied."""
