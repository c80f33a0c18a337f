"""Who can read the keys of an installation: whoever may read its Secrets, or run a pod beside them.

The namespace of the keys belongs to the platform. System components, CacheScope's own and those that are named as trusted are left
out; everybody else is a finding, whatever the name of his role.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import NamedTuple

from cachescope.cli.doctor.findings import Document, Finding, Unseen, failed, passed, unseen
from cachescope.cli.doctor.observed import Observed
from cachescope.core.labels import ROOT_KEYS_SECRET

NAME = "key namespace"
TRUSTED = ("Group:kubeadm:cluster-admins",)
"""Who administers clusters by the convention of a tool that makes them."""
OWN = ("cachescope-operator", "cachescope-gateway")
EVERYBODY = ("system:authenticated", "system:unauthenticated", "system:anonymous", "system:serviceaccounts")
"""Subjects whose name begins like those of system components, and who are everybody."""


class Power(NamedTuple):
    """Rights that lead to the keys."""

    what: str
    groups: Collection[str]
    resources: Collection[str]
    verbs: Collection[str]


_WRITE = ("create", "update", "patch")
_WORKLOADS = ("daemonsets", "deployments", "replicasets", "statefulsets")
POWERS = (
    Power("read Secrets", ("",), ("secrets",), ("get", "list", "watch")),
    Power("run pods", ("",), ("pods", "replicationcontrollers", "podtemplates", "pods/ephemeralcontainers"), _WRITE),
    Power("enter pods", ("",), ("pods/exec", "pods/attach"), ("create", "get")),
    Power("run pods", ("apps",), _WORKLOADS, _WRITE),
    Power("run pods", ("batch",), ("jobs", "cronjobs"), _WRITE),
    Power("act as its ServiceAccounts", ("",), ("serviceaccounts/token",), ("create",)),
    Power("act as its ServiceAccounts", ("",), ("serviceaccounts", "users", "groups"), ("impersonate",)),
    Power("grant more than they have", ("rbac.authorization.k8s.io",), ("roles", "clusterroles"), ("bind", "escalate")),
)
_LOOKED_AT = ("rolebindings", "roles", "clusterrolebindings", "clusterroles")


def check(observed: Observed, trusted: Collection[str] = ()) -> Iterator[Finding]:
    """Every check of this file.

    Args:
        observed: What was gathered.
        trusted: The platform's own, each as `User:name`, `Group:name` or `ServiceAccount:namespace/name`.
    """
    hidden = [part for part in map(observed.of, _LOOKED_AT) if isinstance(part, Unseen)]
    yield from (unseen(NAME, part) for part in hidden)
    found = powers(observed, {*TRUSTED, *trusted})
    for subject, (can, by) in sorted(found.items()):
        yield failed(
            NAME,
            f"{subject} can {', '.join(sorted(can))} in {observed.namespace}, and so has its root keys ({', '.join(sorted(by))})",
            f"remove these bindings; if they are the platform's own: doctor --trusted {subject}",
        )
    if not found and not hidden:
        yield passed(NAME, "only the platform can read the keys")


def powers(observed: Observed, trusted: Collection[str]) -> dict[str, tuple[set[str], set[str]]]:
    """Powers, and the bindings that give them, by subject."""
    rules = _rules(observed)
    found: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for binding in [*observed.seen("rolebindings"), *observed.seen("clusterrolebindings")]:
        role = (binding["roleRef"]["kind"], binding["roleRef"]["name"])
        can = {power.what for rule in rules.get(role, _unknown(role)) for power in POWERS if _grants(rule, power)}
        for subject in binding.get("subjects") or [] if can else []:
            name = subject_name(subject, observed.namespace)
            if name not in trusted and not _systems(subject, observed.namespace):
                found[name][0].update(can)
                kind = "RoleBinding" if binding["metadata"].get("namespace") else "ClusterRoleBinding"
                found[name][1].add(f"{kind} {binding['metadata']['name']} to {role[0]} {role[1]}")
    return dict(found)


def subject_name(subject: Document, namespace: str) -> str:
    """A subject as `--trusted` takes it; a ServiceAccount without a namespace is of the binding's."""
    place = f"{subject.get('namespace') or namespace}/" if subject["kind"] == "ServiceAccount" else ""
    return f"{subject['kind']}:{place}{subject['name']}"


def _systems(subject: Document, namespace: str) -> bool:
    name = str(subject["name"])
    if subject["kind"] == "ServiceAccount":
        place = subject.get("namespace") or namespace
        return place == "kube-system" or (place == namespace and name in OWN)
    if name.startswith("system:serviceaccount"):
        return name.startswith(("system:serviceaccount:kube-system:", "system:serviceaccounts:kube-system"))
    return name.startswith("system:") and name not in EVERYBODY


def _rules(observed: Observed) -> dict[tuple[str, str], list[Document]]:
    rules = {("Role", item["metadata"]["name"]): item.get("rules") or [] for item in observed.seen("roles")}
    rules |= {("ClusterRole", item["metadata"]["name"]): item.get("rules") or [] for item in observed.seen("clusterroles")}
    return rules


def _unknown(role: tuple[str, str]) -> list[Document]:
    """What a role that could not be read grants: those that every cluster has are known."""
    known = role[0] == "ClusterRole" and role[1] in {"admin", "cluster-admin", "edit"}
    return [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}] if known else []


def _grants(rule: Document, power: Power) -> bool:
    if names := rule.get("resourceNames"):
        return power.resources == ("secrets",) and ROOT_KEYS_SECRET in names and _overlaps(rule.get("verbs"), power.verbs)
    parts = (("apiGroups", power.groups), ("resources", power.resources), ("verbs", power.verbs))
    return all(_overlaps(rule.get(field), wanted) for field, wanted in parts)


def _overlaps(given: list[str] | None, wanted: Collection[str]) -> bool:
    return "*" in (given or []) or not set(wanted).isdisjoint(given or [])
