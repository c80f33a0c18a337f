"""Releases of the chart `cachescope-policies` that hold in the test's own namespaces, and requests in everybody's name.

Everybody has all rights by RBAC, so that a refusal is the policies' own. They are objects of the whole cluster: a release has a
random name and holds only where a random label is.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.stack import helm, kubectl
from e2e.stack.kubectl import KubectlError
from e2e.stack.paths import CHARTS
from e2e.stack.waiting import until
from tests.integration.crd_objects import BOOT_ID, NEXT, changed, document

CHART = CHARTS / "cachescope-policies"
POLICIES = "validatingadmissionpolicies,validatingadmissionpolicybindings"
SECONDS = 60
LABEL = "cachescope-test"
STRANGER_UID = "3f2504e0-4f89-11d3-9a0c-0305e82c3302"
WRITERS, DELETERS, HOLDER = "only an operator writes ledgers", "only an operator deletes leases", "only the pod with the UID"
POOL_STAYS, AUTHORIZATION_STAYS = "the pool tiny exists", "holds the authorization of the namespace"

Account = tuple[str, ...]
"""Options of kubectl that make a request somebody's."""
ADMIN: Account = ()


@dataclass(frozen=True)
class Release:
    """A release of the chart.

    Attributes:
        name: Its name.
        mark: Value of the label of the namespaces in which it holds.
        home: The namespace whose operator it lists.
    """

    name: str
    mark: str
    home: str

    @property
    def operator(self) -> Account:
        return account(self.home)


@dataclass(frozen=True)
class Engine:
    """A pod that no node takes, and its token.

    Attributes:
        uid: Of the pod.
        account: Requests with a token that is bound to the pod.
    """

    uid: str
    account: Account


@dataclass(frozen=True)
class Kinds:
    """Kinds of the test's own, whose schemas have no rules. Their names are like nobody's: kubectl finds kinds without a group."""

    token: str

    @property
    def group(self) -> str:
        return f"{self.token}.example.com"

    def instead_of_ours(self, text: str) -> str:
        """A manifest with these kinds in it."""
        text = text.replace("cachescope.dev", self.group).replace("kind: ServingPool", f"kind: {self.kind('Pool')}")
        return text.replace("epochledgers", f"{self.token}ledgers").replace("fenceleases", f"{self.token}leases")

    def kind(self, name: str) -> str:
        return f"{self.token.capitalize()}{name}"

    def like(self, item: dict[str, Any], name: str) -> dict[str, Any]:
        """An object of ours as one of these."""
        return {**item, "apiVersion": f"{self.group}/v1alpha1", "kind": self.kind(name)}

    def definition(self, name: str) -> dict[str, Any]:
        names = {"kind": self.kind(name), "singular": self.kind(name).lower(), "plural": f"{self.kind(name).lower()}s"}
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        version = {"name": "v1alpha1", "served": True, "storage": True, "schema": schema}
        spec = {"group": self.group, "scope": "Namespaced", "names": names, "versions": [version]}
        metadata = {"name": f"{names['plural']}.{self.group}"}
        return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata, "spec": spec}


@contextmanager
def kinds_without_rules(*names: str) -> Iterator[Kinds]:
    """Kinds of the test's own, served; they go with all their objects."""
    kinds = Kinds(f"x{secrets.token_hex(4)}")
    definitions = json.dumps({"apiVersion": "v1", "kind": "List", "items": [kinds.definition(name) for name in names]})
    kubectl.run("create", "-f", "-", stdin=definitions)
    try:
        kubectl.run("wait", "--for=condition=Established", "--timeout=30s", "-f", "-", stdin=definitions)
        yield kinds
    finally:
        kubectl.run("delete", "-f", "-", stdin=definitions)


def account(namespace: str, name: str = "cachescope-operator") -> Account:
    """A ServiceAccount that may do everything."""
    return (f"--as=system:serviceaccount:{namespace}:{name}", "--as-group=system:masters")


def values(mark: str, *installations: str) -> tuple[str, ...]:
    """Values of a release that holds in namespaces with this mark, as options of Helm."""
    listed = json.dumps([{"namespace": name} for name in installations])
    return ("--set-string", f"namespaceSelector.matchLabels.{LABEL}={mark}", "--set-json", f"installations={listed}")


@contextmanager
def made_namespace(mark: str = "none") -> Iterator[str]:
    """A namespace of its own, where the policies with this mark hold."""
    name = f"cachescope-policies-{secrets.token_hex(4)}"
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {LABEL: mark}}}
    kubectl.apply([made], namespace=name)
    try:
        yield name
    finally:
        kubectl.run("delete", "namespace", name, "--wait=false", "--ignore-not-found", namespace=name)


@contextmanager
def installed(home: str) -> Iterator[Release]:
    """A release that is in force: the API server learns of new policies by a watch."""
    made = Release(f"policies-{secrets.token_hex(4)}", secrets.token_hex(4), home)
    with made_namespace(made.mark) as namespace:
        for item in (serving_pool(), ledger(), lease(STRANGER_UID)):
            ask(namespace, ADMIN, "create", item=item)
        helm.upgrade(made.name, CHART, *values(made.mark, home), namespace=home)
        try:
            until(lambda: in_force(namespace), "every policy refuses what it should", SECONDS)
            yield made
        finally:
            helm.run("uninstall", made.name, namespace=home)


@contextmanager
def rendered(mark: str, home: str, kinds: Kinds, *, failure_policy: str = "") -> Iterator[None]:
    """The chart's policies on other kinds, perhaps all with another failure policy."""
    text = kinds.instead_of_ours(helm.run("template", f"policies-{mark}", str(CHART), *values(mark, home)))
    if failure_policy:
        text = text.replace("failurePolicy: Ignore", f"failurePolicy: {failure_policy}")
    kubectl.run("apply", "--server-side", "-f", "-", stdin=text)
    try:
        yield
    finally:
        kubectl.run("delete", "--ignore-not-found", "-f", "-", stdin=text)


def in_force(namespace: str) -> bool:
    """Whether each of the four policies refuses something."""
    stand = "--dry-run=server"
    return (
        WRITERS in refusal(namespace, ADMIN, "create", stand, item=ledger("other"))
        and HOLDER in refusal(namespace, ADMIN, "create", stand, item=lease(STRANGER_UID, boot_id="f" * 32))
        and POOL_STAYS in refusal(namespace, ADMIN, "delete", "epochledger", "tiny", stand)
        and DELETERS in refusal(namespace, ADMIN, "delete", "fencelease", name_of(STRANGER_UID), stand)
    )


def ask(namespace: str, by: Account, *arguments: str, item: dict[str, Any] | None = None) -> str:
    """Run kubectl in somebody's name, with an object on standard input where there is one.

    Raises:
        KubectlError: It was refused.
    """
    stdin = None if item is None else json.dumps(item)
    return kubectl.run(*arguments, *by, *(("-f", "-") if stdin else ()), stdin=stdin, namespace=namespace)


def refusal(namespace: str, by: Account, *arguments: str, item: dict[str, Any] | None = None) -> str:
    """Why a request is refused; empty if it is not."""
    try:
        ask(namespace, by, *arguments, item=item)
    except KubectlError as error:
        return str(error)
    return ""


def serving_pool(name: str = "tiny") -> dict[str, Any]:
    return changed(document("ServingPool"), {"metadata.name": name})


def ledger(name: str = "tiny", *, sequence: int = 1) -> dict[str, Any]:
    later = NEXT if sequence > 1 else {}
    return changed(document("EpochLedger"), {**later, "metadata.name": name, "spec.sequence": sequence})


def lease(uid: str, *, tick: int = 1000, boot_id: str = BOOT_ID) -> dict[str, Any]:
    return changed(document("FenceLease"), {"metadata.name": name_of(uid, boot_id), "spec.tick": tick})


def name_of(uid: str, boot_id: str = BOOT_ID) -> str:
    return f"{uid}.{boot_id}"


def engine(namespace: str, name: str, folder: Path) -> Engine:
    """Make a pod with a ServiceAccount of its own that may do everything in the namespace."""
    kubectl.run("create", "serviceaccount", name, namespace=namespace)
    binding = ("create", "rolebinding", name, "--clusterrole=cluster-admin", f"--serviceaccount={namespace}:{name}")
    kubectl.run(*binding, namespace=namespace)
    container = {"name": "engine", "image": "example.invalid/engine:1"}
    spec = {"serviceAccountName": name, "nodeSelector": {"cachescope.dev/no-such-node": "true"}, "containers": [container]}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    kubectl.run("create", "-f", "-", stdin=json.dumps(made), namespace=namespace)
    uid = kubectl.get("pod", name, namespace=namespace)["metadata"]["uid"]
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={name}", f"--bound-object-uid={uid}")
    found = Engine(uid, with_token(namespace, name, folder, *bound))
    until(
        lambda: not refusal(namespace, found.account, "get", "fenceleases"),
        "the pod's rights, which are learnt by a watch",
        SECONDS,
    )
    return found


def with_token(namespace: str, name: str, folder: Path, *bound: str) -> Account:
    """Requests with a token of a ServiceAccount, and without the administrator's certificate."""
    token = kubectl.run("create", "token", name, *bound, namespace=namespace).strip()
    document = yaml.safe_load(kubectl.run("config", "view", "--raw", "--minify", namespace=namespace))
    document["users"][0]["user"] = {"token": token}
    path = folder / f"{name}-{len(bound)}"
    path.write_text(yaml.safe_dump(document))
    return (f"--kubeconfig={path}",)
