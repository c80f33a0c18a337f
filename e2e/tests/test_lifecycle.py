"""Install, upgrade, roll back, uninstall: nothing is left that blocks, also when the operator is gone first."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cachescope.core.labels import ROOT_KEYS_SECRET
from e2e.stack import helm, kubectl, tenancy
from e2e.stack.install import GATEWAY, OPERATOR, RELEASE, Stack, namespace
from e2e.stack.paths import CHARTS
from e2e.stack.waiting import until

POOL = "empty"
CHILDREN = "deployment,service,networkpolicy,poddisruptionbudget,serviceaccount,role,rolebinding,controllerrevision"


@dataclass(frozen=True)
class Site:
    """A namespace with an installation of its own.

    Attributes:
        stack: The images.
        namespace: Its name.
    """

    stack: Stack
    namespace: str

    def upgrade(self, *options: str) -> None:
        """Install, or change values; the gateway has one replica, for two cores hold more than this."""
        helm.upgrade(
            RELEASE,
            CHARTS / "cachescope",
            *self.stack.values(),
            "--set",
            "gateway.replicas=1",
            *options,
            namespace=self.namespace,
        )

    def serves(self) -> None:
        """Wait until operator and gateway are there."""
        for name in (OPERATOR, GATEWAY):
            kubectl.rolled_out(name, namespace=self.namespace)

    def children(self) -> set[str]:
        """Names of what the pool owns, with their kinds."""
        items = kubectl.get(CHILDREN, namespace=self.namespace)["items"]
        return {
            f"{item['kind']}/{item['metadata']['name']}"
            for item in items
            if any(owner["kind"] == "ServingPool" for owner in item["metadata"].get("ownerReferences") or [])
        }


@pytest.fixture(scope="module")
def site(stack: Stack) -> Iterator[Site]:
    """A namespace of its own, which ends with the tests."""
    found = Site(stack, f"cachescope-lifecycle-{secrets.token_hex(4)}")
    namespace(found.namespace)
    yield found
    kubectl.run("delete", "namespace", found.namespace, "--ignore-not-found", "--wait=false")


def test_a_release_is_installed_and_tested_upgraded_and_rolled_back(site: Site) -> None:
    site.upgrade()
    kubectl.apply([tenancy.pool(POOL), tenancy.tenant("nobody")], namespace=site.namespace)
    site.serves()
    until(site.children, "the pool has its objects")
    helm.run("test", RELEASE, namespace=site.namespace)
    keys, before = _root_keys(site), _specs(site)

    site.upgrade("--set", "gateway.podAnnotations.example=two", "--set", "logLevel=DEBUG")
    site.serves()
    assert _specs(site) != before
    helm.run("test", RELEASE, namespace=site.namespace)

    helm.run("rollback", RELEASE, "1", namespace=site.namespace)
    site.serves()
    assert _specs(site) == before
    helm.run("test", RELEASE, namespace=site.namespace)
    assert _root_keys(site) == keys


def test_an_upgrade_changes_no_engine_pod_until_it_is_asked_to(site: Site) -> None:
    before = _template(site)
    site.upgrade("--set-string", "images.guard.tag=another-version")
    site.serves()
    # It heals, so it has seen the pool; and what it heals with is the template that was there.
    kubectl.run("delete", "deployment", POOL, namespace=site.namespace)
    until(lambda: kubectl.exists("deployment", POOL, site.namespace), "the new operator heals")
    assert _template(site) == before
    now = {"spec": {"rollout": {"guardUpdates": "Now"}}}
    kubectl.run("patch", "servingpool", POOL, "--type=merge", "-p", json.dumps(now), namespace=site.namespace)
    until(lambda: "another-version" in json.dumps(_template(site)), "asked to, it brings the new guard")


def test_uninstalled_without_its_pools_it_leaves_nothing_that_blocks(site: Site) -> None:
    keys = _root_keys(site)
    assert site.children()
    helm.run("uninstall", RELEASE, "--wait", namespace=site.namespace)
    assert not kubectl.exists("deployment", OPERATOR, site.namespace)
    assert _root_keys(site) == keys

    kubectl.run("delete", "servingpool", POOL, "--wait=true", "--timeout=30s", namespace=site.namespace)
    until(lambda: not site.children(), "the pool's objects went with it, without an operator")
    assert kubectl.exists("epochledger", POOL, site.namespace), "floors outlive pools"


def test_installed_again_it_goes_on_with_its_keys_and_epochs(site: Site) -> None:
    keys, ledger = _root_keys(site), kubectl.get("epochledger", POOL, namespace=site.namespace)["spec"]
    site.upgrade()
    kubectl.apply([tenancy.pool(POOL)], namespace=site.namespace)
    site.serves()
    until(site.children, "the pool has its objects again")
    assert _root_keys(site) == keys
    now = kubectl.get("epochledger", POOL, namespace=site.namespace)["spec"]
    # Another pool of the name has another UID, and nothing of the first one's caches: its ledger goes on in a later lineage.
    assert now["lineage"]["generation"] > ledger["lineage"]["generation"]


def test_a_namespace_terminates_with_everything_in_it(site: Site) -> None:
    assert site.children()
    kubectl.run("delete", "namespace", site.namespace, "--wait=true", "--timeout=180s")
    assert not kubectl.exists("namespace", site.namespace)


def _root_keys(site: Site) -> dict[str, str]:
    data: dict[str, str] = kubectl.get("secret", ROOT_KEYS_SECRET, namespace=site.namespace)["data"]
    return data


def _specs(site: Site) -> list[object]:
    return [kubectl.get("deployment", name, namespace=site.namespace)["spec"]["template"] for name in (OPERATOR, GATEWAY)]


def _template(site: Site) -> object:
    return kubectl.get("deployment", POOL, namespace=site.namespace)["spec"]["template"]
