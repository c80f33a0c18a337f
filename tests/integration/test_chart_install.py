"""The chart `cachescope` on a real API server: install, upgrade, rollback and uninstall in both modes, without its pods."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from cachescope.cli.doctor.examination import examine
from cachescope.cli.doctor.findings import Finding, Verdict
from cachescope.cli.doctor.gather import gather
from cachescope.kube.rest import Rest
from e2e.stack import helm, kubectl
from e2e.stack.kubectl import KubectlError
from e2e.stack.paths import KUBECONFIG
from tests.integration import namespaces, operator_process
from tests.integration.operator_process import condition, pool, resource, running
from tests.integration.operator_process import until as wait_until
from tests.integration.test_charts import CHART, HELM

RELEASE = "release"
INSTALLER = "installer"
SECONDS = 60
# Objects alone: images of a version that was never built are not pulled, and the cluster's two cores are left to others.
NO_PODS = ("--set", "operator.replicas=0,gateway.replicas=0")
MADE = "deployments,services,serviceaccounts,configmaps,networkpolicies,poddisruptionbudgets,roles,rolebindings"
ENGINE_ROLE = [
    {"apiGroups": ["cachescope.dev"], "resources": ["fenceleases"], "verbs": ["create", "get", "update"]},
    {
        "apiGroups": ["cachescope.dev"],
        "resources": ["epochledgers"],
        "resourceNames": ["tiny", "authorization.head"],
        "verbs": ["get", "list", "watch"],
    },
]


@pytest.fixture
def namespace() -> Iterator[str]:
    with namespaces.made("chart") as name:
        kubectl.run("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted", namespace=name)
        yield name


@pytest.fixture
def installer(namespace: str) -> str:
    """A ServiceAccount with the rights of `rbac/installer.yaml` and no others; its name as a user."""
    kubectl.run("create", "serviceaccount", INSTALLER, namespace=namespace)
    kubectl.run("apply", "-f", str(CHART / "rbac" / "installer.yaml"), namespace=namespace)
    bind(namespace, INSTALLER, "cachescope-installer", f"--serviceaccount={namespace}:{INSTALLER}")
    return f"system:serviceaccount:{namespace}:{INSTALLER}"


def bind(namespace: str, name: str, role: str, subject: str) -> None:
    kubectl.run("create", "rolebinding", name, f"--role={role}", subject, namespace=namespace)


def install(namespace: str, *options: str) -> None:
    helm.upgrade(RELEASE, CHART, *NO_PODS, *options, namespace=namespace)


def made(namespace: str) -> set[str]:
    """Objects of the release, as `kind/name`."""
    items = kubectl.get(MADE, "-l", f"app.kubernetes.io/instance={RELEASE}", namespace=namespace)["items"]
    return {f"{item['kind']}/{item['metadata']['name']}" for item in items}


def cluster_roles(namespace: str) -> list[str]:
    found = kubectl.run("get", "clusterroles,clusterrolebindings", "-o", "name", namespace=namespace)
    return [line for line in found.split() if namespace in line]


def can(user: str, verb: str, resource: str, namespace: str, *options: str) -> bool:
    try:
        return kubectl.run("auth", "can-i", verb, resource, "--as", user, *options, namespace=namespace).strip() == "yes"
    except KubectlError:
        return False


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end, f"{what} did not come within {SECONDS} s"
        time.sleep(0.1)


def root_keys(namespace: str) -> None:
    """The Secret, as the operator makes it."""
    kubectl.run("create", "secret", "generic", "cachescope-root-keys", "--from-literal=k1=none", namespace=namespace)


def test_namespaced_mode_needs_no_cluster_rights_from_install_to_uninstall(namespace: str, installer: str) -> None:
    as_installer = ("--kube-as-user", installer)
    install(namespace, *as_installer)
    assert {"Deployment/cachescope-operator", "Deployment/cachescope-gateway", "Role/cachescope-edit"} <= made(namespace)
    assert cluster_roles(namespace) == []
    root_keys(namespace)
    install(namespace, *as_installer, "--set", "settings.maxRequestBytes=2048")
    assert "2048" in settings(namespace)
    helm.run("rollback", RELEASE, "1", *as_installer, namespace=namespace)
    assert "2048" not in settings(namespace)
    helm.run("uninstall", RELEASE, *as_installer, namespace=namespace)
    until(lambda: made(namespace) == set(), "the end of every object of the release")
    assert kubectl.get("secret", "cachescope-root-keys", namespace=namespace)["data"]


def settings(namespace: str) -> str:
    return str(kubectl.get("configmap", "cachescope-settings", namespace=namespace)["data"]["settings.yaml"])


def test_an_installer_without_cluster_rights_cannot_install_cluster_mode(namespace: str, installer: str) -> None:
    with pytest.raises(helm.HelmError, match="forbidden"):
        install(namespace, "--kube-as-user", installer, "--set", "scope=Cluster")


def test_cluster_mode_leaves_nothing_when_it_is_uninstalled(namespace: str) -> None:
    install(namespace, "--set", "scope=Cluster")
    assert len(cluster_roles(namespace)) == 9
    until(lambda: any("servingpools" in rule["resources"] for rule in writes("edit")), "aggregation to edit")
    assert not [rule for rule in writes("edit") if {"epochledgers", "fenceleases"} & set(rule["resources"])]
    install(namespace, "--set", "scope=Cluster,aggregatedRoles.create=false")
    assert len(cluster_roles(namespace)) == 4
    helm.run("rollback", RELEASE, "1", namespace=namespace)
    helm.run("uninstall", RELEASE, namespace=namespace)
    until(lambda: not cluster_roles(namespace) and made(namespace) == set(), "the end of every object of the release")


def writes(role: str) -> list[dict[str, Any]]:
    """Rules of a ClusterRole that let somebody write our kinds."""
    rules = kubectl.get("clusterrole", role)["rules"]
    return [rule for rule in rules if "cachescope.dev" in rule["apiGroups"] and "create" in rule["verbs"]]


def test_a_release_whose_namespace_was_deleted_first_does_not_hang(namespace: str) -> None:
    install(namespace)
    kubectl.run("delete", "namespace", namespace, "--timeout=60s", namespace=namespace)
    kubectl.run("create", "namespace", namespace, namespace=namespace)
    install(namespace)
    assert "Deployment/cachescope-operator" in made(namespace)


def test_a_second_release_in_the_namespace_is_refused(namespace: str) -> None:
    install(namespace)
    with pytest.raises(helm.HelmError, match="invalid ownership metadata"):
        helm.upgrade("second", CHART, *NO_PODS, namespace=namespace)


def test_the_operator_may_grant_what_engines_need_and_no_more(namespace: str) -> None:
    install(namespace)
    operator = f"system:serviceaccount:{namespace}:cachescope-operator"
    until(lambda: can(operator, "create", "roles", namespace), "the operator's rights, which the authorizer learns by a watch")
    create_role(namespace, operator, ENGINE_ROLE)
    with pytest.raises(KubectlError, match="not currently held"):
        create_role(namespace, operator, [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}])
    assert can(operator, "update", "servingpools", namespace, "--subresource=status")
    assert not can(operator, "update", "servingpools", namespace)
    assert can(operator, "delete", "servingpools", namespace)
    assert can(operator, "delete", "pods", namespace)
    assert not can(operator, "create", "pods", namespace)
    assert not can(operator, "list", "servingpools", "default")


def create_role(namespace: str, user: str, rules: list[dict[str, Any]]) -> None:
    document = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "engine"}, "rules": rules}
    kubectl.run("create", "--dry-run=server", "--as", user, "-f", "-", stdin=json.dumps(document), namespace=namespace)


def test_the_operator_does_all_its_work_with_the_rights_that_the_chart_gives_it(
    namespace: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(namespace)
    monkeypatch.setattr(operator_process, "KUBECONFIG", kubeconfig_of("cachescope-operator", namespace, tmp_path))
    log = tmp_path / "log"
    with running(namespace, log):
        incident = {"target": {"name": "tiny"}, "incident": {"id": "leak-1", "reason": "a drill"}}
        kubectl.apply([pool(), resource("CacheEpoch", "e", incident)], namespace=namespace)
        wait_until(lambda: condition("servingpool", "tiny", "Degraded", namespace) == "True Unschedulable", why=log.read_text)
        wait_until(lambda: condition("cacheepoch", "e", "Accepted", namespace) == "True Accepted", why=log.read_text)
        labels = kubectl.get("service", "tiny", namespace=namespace)["metadata"]["labels"]
        kubectl.run("label", "service", "tiny", "app.kubernetes.io/name=evil", "--overwrite", namespace=namespace)
        kubectl.run("delete", "secret", "tiny-permit-keys", namespace=namespace)
        wait_until(lambda: kubectl.exists("secret", "tiny-permit-keys", namespace), why=log.read_text)
        wait_until(lambda: kubectl.get("service", "tiny", namespace=namespace)["metadata"]["labels"] == labels, why=log.read_text)
        for size in ("1Gi", "2Gi", "3Gi"):
            kubectl.apply([pool(sharedMemory=size)], namespace=namespace)
            wait_until(partial(has_shared_memory, namespace, size), why=log.read_text)
        events = kubectl.run("get", "events.events.k8s.io", "-o", "jsonpath={.items[*].note}", namespace=namespace)
        assert "incident leak-1: epoch 2, a drill" in events
        wait_until(lambda: len(kubectl.get("controllerrevisions", namespace=namespace)["items"]) == 2, why=log.read_text)
    assert "answered 403" not in log.read_text()
    assert "forbidden" not in log.read_text()


def has_shared_memory(namespace: str, size: str) -> bool:
    return size in str(kubectl.get("deployment", "tiny", namespace=namespace)["spec"])


PEOPLE = [
    ("view", ("get", "servingpools"), ("create", "servingpools")),
    ("edit", ("create", "servingpools"), ("update", "epochledgers")),
    ("tenant-admin", ("create", "tenants"), ("create", "servingpools")),
    ("source-approver", ("create", "publicsources"), ("create", "cachescopes")),
    ("incident-responder", ("create", "cacheepochs"), ("delete", "cacheepochs")),
]


def test_a_role_for_people_gives_what_it_says_and_no_more(namespace: str) -> None:
    install(namespace)
    for role, may, may_not in PEOPLE:
        bind(namespace, role, f"cachescope-{role}", f"--user={role}")
        until(partial(can, role, *may, namespace), f"the rights of {role}, which the authorizer learns by a watch")
        assert not can(role, *may_not, namespace), role
        assert not can(role, "create", "fenceleases", namespace), role


async def test_doctor_sees_what_is_there_and_says_what_it_may_not_see(
    namespace: str, installer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(namespace)
    kubectl.run("create", "rolebinding", "team", "--clusterrole=edit", "--group=team", namespace=namespace)
    monkeypatch.setenv("KUBECONFIG", str(KUBECONFIG))
    findings = await examined(namespace, f"ServiceAccount:{namespace}/{INSTALLER}")
    assert findings["root keys"].verdict is Verdict.FAIL
    assert "Group:team can" in findings["key namespace"].message
    root_keys(namespace)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig_of(installer, namespace, tmp_path)))
    findings = await examined(namespace)
    assert "k1" in findings["root keys"].message
    assert findings["kinds' version"].verdict is Verdict.UNSEEN
    assert "forbidden" in findings["kinds' version"].message


async def examined(namespace: str, *trusted: str) -> dict[str, Finding]:
    """The last finding of each check."""
    async with Rest() as rest:
        return {finding.check: finding for finding in examine(await gather(rest, namespace), trusted)}


def kubeconfig_of(user: str, namespace: str, folder: Path) -> Path:
    """A kubeconfig with a token of a ServiceAccount."""
    token = kubectl.run("create", "token", user.rpartition(":")[2], namespace=namespace).strip()
    document = yaml.safe_load(kubectl.run("config", "view", "--raw", "--minify", namespace=namespace))
    document["users"][0]["user"] = {"token": token}
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize("scope", ["Namespaced", "Cluster"])
def test_the_api_server_takes_every_object_and_every_pod_is_restricted(namespace: str, scope: str) -> None:
    command = [HELM, "template", RELEASE, str(CHART), "--namespace", namespace, "--set", f"scope={scope}"]
    rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    kubectl.run("apply", "--dry-run=server", "-f", "-", stdin=rendered, namespace=namespace)
    deployments = [item for item in yaml.safe_load_all(rendered) if item and item["kind"] == "Deployment"]
    assert len(deployments) == 2
    for item in deployments:
        spec = item["spec"]["template"]["spec"] | {"serviceAccountName": "default"}
        create_pod(namespace, spec)
        with pytest.raises(KubectlError, match="PodSecurity"):
            create_pod(namespace, spec | {"hostNetwork": True})


def create_pod(namespace: str, spec: dict[str, Any]) -> None:
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec}
    kubectl.run("create", "--dry-run=server", "-f", "-", stdin=json.dumps(document), namespace=namespace)
