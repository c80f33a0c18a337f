"""The default installation has rights in its own namespace and nowhere else, and the demo's table holds in it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
import yaml

from e2e.demo.__main__ import all_cases, people
from e2e.stack import helm, kubectl
from e2e.stack.attacker import Insider
from e2e.stack.install import GATEWAY, OPERATOR, POOL, RELEASE, Stack, namespace

ACCOUNTS = (OPERATOR, GATEWAY, f"{POOL}-engine")
CLUSTER_KINDS = {"ClusterRole", "ClusterRoleBinding"}
OWN_RIGHTS = {
    OPERATOR: ("create", "deployments.apps"),
    GATEWAY: ("list", "servingpools.cachescope.dev"),
    f"{POOL}-engine": ("create", "fenceleases.cachescope.dev"),
}


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    """A namespace that has nothing to do with the installation."""
    name = f"cachescope-elsewhere-{secrets.token_hex(4)}"
    namespace(name)
    yield name
    kubectl.run("delete", "namespace", name, "--wait=false")


@pytest.mark.usefixtures("stack")
def test_the_release_has_nothing_of_cluster_scope() -> None:
    kinds = {item["kind"] for item in yaml.safe_load_all(helm.run("get", "manifest", RELEASE)) if item}
    assert "Role" in kinds
    assert kinds & CLUSTER_KINDS == set()
    bindings = kubectl.get("clusterrolebindings")["items"]
    subjects = {(each.get("namespace"), each["name"]) for item in bindings for each in item.get("subjects") or []}
    assert subjects & {(kubectl.NAMESPACE, name) for name in ACCOUNTS} == set()


@pytest.mark.usefixtures("stack")
@pytest.mark.parametrize("account", ACCOUNTS)
def test_an_account_may_elsewhere_what_every_account_may(elsewhere: str, account: str) -> None:
    assert _rights(account, kubectl.NAMESPACE, elsewhere) == _rights("default", elsewhere, elsewhere)
    assert _rights(account, kubectl.NAMESPACE, kubectl.NAMESPACE) > _rights("default", elsewhere, elsewhere)


@pytest.mark.usefixtures("stack")
@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize(("verb", "kind"), [("get", "nodes"), ("list", "namespaces"), ("list", "secrets"), ("create", "pods")])
def test_an_account_has_no_right_in_all_namespaces(account: str, verb: str, kind: str) -> None:
    assert not _may(account, verb, kind, "--all-namespaces")
    assert _may(account, *OWN_RIGHTS[account])


def test_the_demos_table_holds(stack: Stack, gateway: str, insider: Insider) -> None:
    found = list(all_cases(people(stack, gateway), insider))
    assert len(found) > 9
    assert [case for case in found if not case.holds] == []


def _may(account: str, verb: str, kind: str, *options: str) -> bool:
    try:
        said = kubectl.run("auth", "can-i", verb, kind, _as(account, kubectl.NAMESPACE), *options)
    except kubectl.KubectlError as refused:
        said = str(refused)
    assert said.split()[-1] in {"yes", "no"}, said
    return said.split()[-1] == "yes"


def _rights(account: str, home: str, where: str) -> set[str]:
    """What an account may in a namespace, a line each."""
    listed = kubectl.run("auth", "can-i", "--list", "--no-headers", _as(account, home), namespace=where)
    return {" ".join(line.split()) for line in listed.splitlines() if line.strip()}


def _as(account: str, home: str) -> str:
    return f"--as=system:serviceaccount:{home}:{account}"
