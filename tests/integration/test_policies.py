"""The chart `cachescope-policies` on a real API server: every denial beside what is allowed, and nothing that hangs a namespace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cachescope.api.documents import API_VERSION
from e2e.stack import helm, kubectl
from e2e.stack.waiting import until
from tests.integration import operator_process
from tests.integration.crd_objects import changed
from tests.integration.operator_process import condition, pool, running
from tests.integration.policies import (
    ADMIN,
    AUTHORIZATION_STAYS,
    CHART,
    DELETERS,
    HOLDER,
    LABEL,
    POLICIES,
    POOL_STAYS,
    SECONDS,
    STRANGER_UID,
    WRITERS,
    Account,
    Engine,
    Release,
    account,
    ask,
    engine,
    installed,
    kinds_without_rules,
    lease,
    ledger,
    made_namespace,
    name_of,
    refusal,
    rendered,
    serving_pool,
    values,
    with_token,
)
from tests.integration.test_chart_install import install as install_cachescope
from tests.integration.test_chart_install import kubeconfig_of

AUTHORIZATION = ("authorization.head", "authorization.shard-0")
LEDGERS = f"/apis/{API_VERSION}/namespaces/{{}}/epochledgers"
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": STRANGER_UID}
HOLDS = ["example.com/first", "example.com/second"]
FINALIZERS, OWNERS = {"metadata.finalizers": HOLDS}, {"metadata.ownerReferences": [OWNER]}


@pytest.fixture(scope="module")
def release() -> Iterator[Release]:
    with made_namespace() as home, installed(home) as made:
        yield made


@pytest.fixture
def namespace(release: Release) -> Iterator[str]:
    with made_namespace(release.mark) as name:
        yield name


@pytest.fixture
def pod(namespace: str, tmp_path: Path) -> Engine:
    return engine(namespace, "one", tmp_path)


def test_the_chart_has_no_faults() -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHART))


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("installation=x", "installation"),
        ("installations[0].serviceAccount=x", "namespace"),
        ("installations[0].namespace=x'", "installations"),
        ("installations[0].namespace=x,installations[0].serviceAccount=X", "serviceAccount"),
        ("namespaceSelector.labels.a=b", "labels"),
        ("validationActions={Refuse}", "validationActions"),
        ("validationActions={Deny,Warn}", "validationActions"),
        ("validationActions=null", "validationActions"),
    ],
)
def test_a_value_that_is_not_valid_is_refused_by_name(option: str, said: str) -> None:
    with pytest.raises(helm.HelmError, match=said):
        render("--set", option)


def render(*options: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(helm.run("template", "release", str(CHART), *options, namespace="home")))


def test_every_value_is_in_the_schema_and_described() -> None:
    names = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(json.loads((CHART / "values.schema.json").read_text())["properties"]) - {"global"} == set(names)
    page = (CHART / "README.md").read_text()
    assert [name for name in names if f"`{name}" not in page] == []


def test_without_values_the_operator_is_that_of_the_releases_namespace() -> None:
    assert "system:serviceaccount:home:cachescope-operator" in json.dumps(render())
    listed = json.dumps(
        render("--set", "installations[0].namespace=a,installations[1].namespace=b,installations[1].serviceAccount=op")
    )
    assert '[\\"system:serviceaccount:a:cachescope-operator\\",\\"system:serviceaccount:b:op\\"]' in listed
    assert "system:serviceaccount:home" not in listed


def test_only_our_own_resources_are_matched() -> None:
    policies = [item["spec"] for item in render("--set", "global.any=1") if item["kind"] == "ValidatingAdmissionPolicy"]
    rules = [rule for spec in policies for rule in spec["matchConstraints"]["resourceRules"]]
    assert {(*rule["apiGroups"], *rule["resources"]) for rule in rules} == {
        ("cachescope.dev", "epochledgers"),
        ("cachescope.dev", "fenceleases"),
    }


def test_only_the_listed_operator_writes_ledgers(release: Release, namespace: str) -> None:
    others = (ADMIN, account(namespace), account(release.home, "cachescope-gateway"))
    for other in others:
        assert WRITERS in refusal(namespace, other, "create", item=ledger())
    ask(namespace, release.operator, "create", item=ledger())
    for other in others:
        assert WRITERS in refusal(namespace, other, "replace", item=ledger(sequence=2))
        assert WRITERS in refusal(namespace, other, "annotate", "epochledger", "tiny", "a=b")
    ask(namespace, release.operator, "replace", item=ledger(sequence=2))


def test_namespaces_that_are_not_selected_are_left_alone(namespace: str) -> None:
    with made_namespace() as other:
        ask(other, ADMIN, "create", item=changed(ledger(), FINALIZERS))
        ask(other, ADMIN, *hold("tiny"))
        ask(other, ADMIN, "create", item=lease(STRANGER_UID))
        ask(other, ADMIN, "delete", "fencelease", name_of(STRANGER_UID))
    assert WRITERS in refusal(namespace, ADMIN, "create", item=ledger())


def test_nobody_deletes_the_ledger_of_a_pool_that_exists(release: Release, namespace: str) -> None:
    ask(namespace, ADMIN, "create", item=serving_pool())
    for name in ("tiny", "gone"):
        ask(namespace, release.operator, "create", item=ledger(name))
    seen(namespace, POOL_STAYS, "tiny")
    for by in (ADMIN, release.operator):
        assert POOL_STAYS in refusal(namespace, by, "delete", "epochledger", "tiny")
        assert POOL_STAYS in refusal(namespace, by, "delete", "--raw", LEDGERS.format(namespace))
    ask(namespace, release.operator, "delete", "epochledger", "gone", "--ignore-not-found")
    ask(namespace, ADMIN, "delete", "servingpool", "tiny")
    until(lambda: not refusal(namespace, release.operator, "delete", "epochledger", "tiny"), "its ledger may go", SECONDS)


def seen(namespace: str, said: str, name: str) -> None:
    """Wait until the policy sees a pool that was just made, which it learns by a watch."""
    probe = ("delete", "epochledger", name, "--dry-run=server")
    until(lambda: said in refusal(namespace, ADMIN, *probe), "the policy sees the new pool", SECONDS)


@pytest.mark.parametrize("name", AUTHORIZATION)
def test_the_ledgers_of_a_namespace_stay_while_any_pool_exists(release: Release, namespace: str, name: str) -> None:
    ask(namespace, release.operator, "create", item=ledger(name))
    for each in ("tiny", "second"):
        ask(namespace, ADMIN, "create", item=serving_pool(each))
    seen(namespace, AUTHORIZATION_STAYS, name)
    ask(namespace, ADMIN, "delete", "servingpool", "tiny")
    for by in (ADMIN, release.operator):
        assert AUTHORIZATION_STAYS in refusal(namespace, by, "delete", "epochledger", name)
    ask(namespace, ADMIN, "delete", "servingpool", "second")
    until(lambda: not refusal(namespace, release.operator, "delete", "epochledger", name), "it may go", SECONDS)


def test_a_pod_writes_its_own_lease_and_nobody_elses(release: Release, namespace: str, pod: Engine, tmp_path: Path) -> None:
    neighbour = engine(namespace, "two", tmp_path)
    without_pod = with_token(namespace, "one", tmp_path)
    for by in (ADMIN, release.operator, neighbour.account, without_pod):
        assert f"{HOLDER} {pod.uid}" in refusal(namespace, by, "create", item=lease(pod.uid))
    ask(namespace, pod.account, "create", item=lease(pod.uid))
    for by in (ADMIN, release.operator, neighbour.account, without_pod):
        assert f"{HOLDER} {pod.uid}" in refusal(namespace, by, "replace", item=lease(pod.uid, tick=2000))
    ask(namespace, pod.account, "replace", item=lease(pod.uid, tick=2000))
    ask(namespace, neighbour.account, "create", item=lease(neighbour.uid))


def test_only_the_listed_operator_deletes_leases(release: Release, namespace: str, pod: Engine) -> None:
    ask(namespace, pod.account, "create", item=lease(pod.uid))
    for by in (ADMIN, account(namespace), pod.account):
        assert DELETERS in refusal(namespace, by, "delete", "fencelease", name_of(pod.uid))
    ask(namespace, release.operator, "delete", "fencelease", name_of(pod.uid))


@pytest.mark.parametrize(("metadata", "said"), [(FINALIZERS, "has no finalizers"), (OWNERS, "has no owner")])
def test_neither_ledgers_nor_leases_take_finalizers_or_owners(
    release: Release, namespace: str, pod: Engine, metadata: dict[str, Any], said: str
) -> None:
    for by, plain in (
        (release.operator, ledger()),
        (pod.account, lease(pod.uid)),
    ):
        held = changed(plain, metadata)
        assert said in refusal(namespace, by, "create", item=held)
        ask(namespace, by, "create", item=plain)
        assert said in refusal(namespace, by, "replace", item=held)
        ask(namespace, by, "annotate", plain["kind"], plain["metadata"]["name"], "a=b")


def test_what_was_there_before_the_policies_can_still_go(release: Release) -> None:
    with made_namespace() as namespace:
        owner = {**OWNER, "uid": owner_in(namespace)}
        for name in ("open", "ending"):
            ask(namespace, ADMIN, "create", item=changed(ledger(name), {**FINALIZERS, "metadata.ownerReferences": [owner]}))
        ask(namespace, ADMIN, "delete", "epochledger", "ending", "--wait=false")
        kubectl.run("label", "namespace", namespace, f"{LABEL}={release.mark}", "--overwrite", namespace=namespace)
        until(lambda: WRITERS in refusal(namespace, ADMIN, *hold("open"), "--dry-run=server"), "the label is seen", SECONDS)
        assert WRITERS in refusal(namespace, ADMIN, "replace", item=changed(ledger("ending", sequence=2), FINALIZERS))
        ask(namespace, release.operator, *hold("open", HOLDS[0]))
        ask(namespace, release.operator, *hold("open"))
        ask(namespace, ADMIN, *hold("ending", HOLDS[0]))
        ask(namespace, ADMIN, *hold("ending"))
        assert [item["metadata"]["name"] for item in kubectl.get("epochledgers", namespace=namespace)["items"]] == ["open"]


def owner_in(namespace: str) -> str:
    """The UID of an owner that exists: the garbage collector deletes what belongs to nobody."""
    kubectl.run("create", "configmap", "owner", namespace=namespace)
    return str(kubectl.get("configmap", "owner", namespace=namespace)["metadata"]["uid"])


def hold(name: str, *finalizers: str, kind: str = "epochledger") -> Account:
    """A patch that leaves these finalizers."""
    return ("patch", kind, name, "--type=merge", f"--patch={json.dumps({'metadata': {'finalizers': finalizers or None}})}")


def test_a_deletion_in_the_foreground_ends(release: Release, namespace: str, pod: Engine) -> None:
    ask(namespace, release.operator, "create", item=ledger("gone"))
    ask(namespace, pod.account, "create", item=lease(pod.uid))
    for kind, name in (("epochledger", "gone"), ("fencelease", name_of(pod.uid))):
        ask(namespace, release.operator, "delete", kind, name, "--cascade=foreground", "--timeout=30s")


def test_a_terminating_namespace_ends(release: Release, namespace: str, pod: Engine) -> None:
    ask(namespace, ADMIN, "create", item=changed(serving_pool(), FINALIZERS))
    for name in ("tiny", *AUTHORIZATION):
        ask(namespace, release.operator, "create", item=ledger(name))
    ask(namespace, pod.account, "create", item=lease(pod.uid))
    for name in AUTHORIZATION:
        seen(namespace, AUTHORIZATION_STAYS, name)
    assert POOL_STAYS in refusal(namespace, ADMIN, "delete", "epochledger", "tiny")
    assert DELETERS in refusal(namespace, ADMIN, "delete", "fencelease", name_of(pod.uid))
    ask(namespace, ADMIN, "delete", "namespace", namespace, "--wait=false")
    until(lambda: not kubectl.get("epochledgers,fenceleases", namespace=namespace)["items"], "all go before their pool", SECONDS)
    ask(namespace, ADMIN, *hold("tiny", kind="servingpool"))
    ask(namespace, ADMIN, "wait", "--for=delete", f"namespace/{namespace}", "--timeout=60s")


def test_the_tick_of_a_lease_never_falls_whatever_its_schema_says(release: Release, namespace: str, pod: Engine) -> None:
    with kinds_without_rules("Lease") as kinds, rendered(release.mark, release.home, kinds):

        def at(tick: int) -> dict[str, Any]:
            return kinds.like(lease(pod.uid, tick=tick), "Lease")

        until(lambda: HOLDER in refusal(namespace, ADMIN, "create", "--dry-run=server", item=at(1)), "in force", SECONDS)
        ask(namespace, pod.account, "create", item=at(1000))
        assert "at tick 1000 and 999 was written" in refusal(namespace, pod.account, "replace", item=at(999))
        ask(namespace, pod.account, "replace", item=at(1001))


def test_where_pools_cannot_be_read_nothing_is_held_back(release: Release, namespace: str) -> None:
    with kinds_without_rules("Ledger") as kinds:
        item = kinds.like(ledger(), "Ledger")
        ask(namespace, ADMIN, "create", item=item)
        delete = ("delete", kinds.kind("Ledger").lower(), "tiny", "--dry-run=server")
        with rendered(release.mark, release.home, kinds, failure_policy="Fail"):
            until(lambda: "configure policy" in refusal(namespace, ADMIN, *delete), "a policy that fails hangs it", SECONDS)
        with rendered(release.mark, release.home, kinds):
            until(lambda: not refusal(namespace, ADMIN, *delete), "the chart's does not", SECONDS)
            until(lambda: WRITERS in refusal(namespace, ADMIN, "replace", item=item), "its policies are in force", SECONDS)
            ask(namespace, ADMIN, "delete", "namespace", namespace, "--timeout=60s")


def test_the_operator_does_its_work_under_the_policies(release: Release, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = release.home
    kubectl.run("label", "namespace", home, f"{LABEL}={release.mark}", "--overwrite", namespace=home)
    install_cachescope(home)
    until(lambda: WRITERS in refusal(home, ADMIN, "create", "--dry-run=server", item=ledger()), "the label is seen", SECONDS)
    monkeypatch.setattr(operator_process, "KUBECONFIG", kubeconfig_of("cachescope-operator", home, tmp_path))
    log = tmp_path / "log"
    with running(home, log):
        kubectl.apply([pool(), operator_process.resource("CacheEpoch", "e", INCIDENT)], namespace=home)
        operator_process.until(lambda: condition("cacheepoch", "e", "Accepted", home) == "True Accepted", why=log.read_text)
    assert kubectl.exists("epochledger", "tiny", home)
    assert "only an operator" not in log.read_text()


INCIDENT = {"target": {"name": "tiny"}, "incident": {"id": "leak-1", "reason": "a drill"}}


def test_the_api_server_finds_no_fault_in_the_expressions(release: Release) -> None:
    def policies() -> list[dict[str, Any]]:
        return [item for item in made(release.name, release.home) if item["kind"] == "ValidatingAdmissionPolicy"]

    until(lambda: all("typeChecking" in item["status"] for item in policies()), "the types of all policies are checked", SECONDS)
    assert len(policies()) == 4
    assert [item["status"]["typeChecking"] for item in policies()] == [{}] * 4


def made(name: str, namespace: str) -> list[dict[str, Any]]:
    """Policies and bindings of a release."""
    found: list[dict[str, Any]] = kubectl.get(POLICIES, "-l", f"app.kubernetes.io/instance={name}", namespace=namespace)["items"]
    return found


def test_uninstalling_leaves_nothing() -> None:
    with made_namespace() as home:
        with installed(home) as release:
            assert len(made(release.name, home)) == 8
        assert made(release.name, home) == []
        with made_namespace(release.mark) as namespace:
            until(lambda: not refusal(namespace, ADMIN, "create", item=ledger()), "the policies are no longer in force", SECONDS)


def test_a_release_that_only_tells_refuses_nothing() -> None:
    with made_namespace() as home, installed(home) as release:
        tell = ("--set", "validationActions={Warn,Audit}")
        helm.upgrade(release.name, CHART, *values(release.mark, home), *tell, namespace=home)
        with made_namespace(release.mark) as namespace:
            until(lambda: not refusal(namespace, ADMIN, "create", item=ledger()), "the policies only tell", SECONDS)
