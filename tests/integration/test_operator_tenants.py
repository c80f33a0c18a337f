"""The operator on a real API server, with engines for each tenant: made, healed and deleted, and silent when nothing changed."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.stack import kubectl
from e2e.stack.kubectl import KubectlError
from tests.integration import namespaces
from tests.integration.operator_process import Operator, condition, pool, resource, running, until

FULL: dict[str, Any] = {
    "isolation": {"mode": "PerTenant"},
    "resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "8Gi"}},
    "sharing": {"stage": "Tenant"},
    "fence": {"leaseSeconds": 30},
    "gpus": {"count": 1},
}
KINDS = "servingpools,epochledgers,serviceaccounts,roles,rolebindings,secrets,networkpolicies,services,deployments"


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    with namespaces.made("tenants") as name:
        yield name


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("operator") / "log"


@pytest.fixture(scope="module")
def operator(namespace: str, log: Path) -> Iterator[Operator]:
    with running(namespace, log) as process:
        kubectl.apply([tenant("red"), tenant("blue"), pool(**FULL)], namespace=namespace)
        until(lambda: set(made(namespace)) == {"red", "blue"}, why=log.read_text)
        yield process


@pytest.fixture
def settled(operator: Operator, namespace: str, log: Path) -> str:
    """A namespace in which every tenant's pool says what its pod suffers from."""
    if operator.process.poll() is None:
        until(lambda: all(suffers(name, namespace) for name in made(namespace).values()), why=log.read_text)
    return namespace


def tenant(name: str) -> dict[str, Any]:
    return resource("Tenant", name, {})


def made(namespace: str) -> dict[str, str]:
    """Names of the pools of single tenants, by tenant."""
    items = kubectl.get("servingpools", namespace=namespace)["items"]
    whose = {item["metadata"]["name"]: item["spec"].get("dedicatedTo") for item in items}
    return {said["tenantName"]: name for name, said in whose.items() if said}


def suffers(name: str, namespace: str) -> bool:
    return condition("servingpool", name, "Degraded", namespace) == "True Unschedulable"


def versions(namespace: str) -> dict[str, str]:
    items = kubectl.get(KINDS, namespace=namespace)["items"]
    return {f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for item in items}


def spec_of(name: str, namespace: str) -> Any:
    return kubectl.get("servingpool", name, namespace=namespace)["spec"]


def test_each_tenant_has_engines_and_the_template_has_none(settled: str) -> None:
    uid = kubectl.get("servingpool", "tiny", namespace=settled)["metadata"]["uid"]
    assert not kubectl.exists("deployment", "tiny", settled)
    assert kubectl.exists("epochledger", "tiny", settled)
    for name in made(settled).values():
        assert kubectl.exists("deployment", name, settled)
        owner = kubectl.get("servingpool", name, namespace=settled)["metadata"]["ownerReferences"][0]
        assert (owner["uid"], owner["controller"]) == (uid, True)
    assert condition("servingpool", "tiny", "Ready", settled) == "False TenantsNotReady"
    assert kubectl.get("servingpool", "tiny", namespace=settled)["status"]["mode"] == "PerTenant"


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 5},
        {"fence": {"leaseSeconds": 3}},
        {"resources": {"limits": {"cpu": "4"}}},
        {"engine": {"args": ["--enforce-eager"]}},
        {"isolation": {"idleSeconds": 60}},
        {"allowedTenants": {"namespaces": {"from": "Same"}}},
    ],
)
def test_an_edit_of_a_tenants_pool_is_taken_back(settled: str, log: Path, change: dict[str, Any]) -> None:
    name = made(settled)["red"]
    before = spec_of(name, settled)
    kubectl.run("patch", "servingpool", name, "--type=merge", "-p", json.dumps({"spec": change}), namespace=settled)
    until(lambda: spec_of(name, settled) == before, why=log.read_text)


def test_a_change_of_the_template_reaches_every_tenant(settled: str, log: Path) -> None:
    patch = {"spec": {"fence": {"leaseSeconds": 45}}}
    kubectl.run("patch", "servingpool", "tiny", "--type=merge", "-p", json.dumps(patch), namespace=settled)
    until(lambda: all(spec_of(name, settled)["fence"]["leaseSeconds"] == 45 for name in made(settled).values()), why=log.read_text)


def test_whom_a_pool_is_for_never_changes(settled: str) -> None:
    patch = {"spec": {"dedicatedTo": {"tenantUid": "another-tenant"}}}
    with pytest.raises(KubectlError, match="never become another's"):
        kubectl.run("patch", "servingpool", made(settled)["red"], "--type=merge", "-p", json.dumps(patch), namespace=settled)


def test_a_pool_that_somebody_else_made_gets_no_engines(settled: str, log: Path) -> None:
    uid = kubectl.get("servingpool", "tiny", namespace=settled)["metadata"]["uid"]
    said = spec_of(made(settled)["red"], settled)["dedicatedTo"]
    kubectl.apply([pool("forged", dedicatedTo={**said, "poolUid": uid})], namespace=settled)
    until(lambda: condition("servingpool", "forged", "Ready", settled) == "False InvalidSpec", why=log.read_text)
    assert not kubectl.exists("deployment", "forged", settled)
    kubectl.run("delete", "servingpool", "forged", namespace=settled)


def test_a_tenant_that_is_made_anew_gets_another_pool(settled: str, log: Path) -> None:
    before = made(settled)["blue"]
    kubectl.run("delete", "tenant", "blue", namespace=settled)
    kubectl.apply([tenant("blue")], namespace=settled)
    until(lambda: made(settled).get("blue", before) != before, why=log.read_text)
    until(lambda: not kubectl.exists("deployment", before, settled), why=log.read_text)


def test_one_epoch_is_in_the_ledger_of_every_tenant(settled: str, log: Path) -> None:
    epoch = resource("CacheEpoch", "e", {"target": {"name": "tiny"}, "incident": {"id": "i"}})
    kubectl.apply([epoch], namespace=settled)
    pools = ["tiny", *made(settled).values()]
    until(lambda: all(len(kubectl.get("epochledger", name, namespace=settled)["spec"]["floors"]) == 1 for name in pools))
    until(lambda: condition("cacheepoch", "e", "Fenced", settled).startswith("True"), why=log.read_text)
    until(lambda: condition("servingpool", "tiny", "Fenced", settled).startswith("True"), why=log.read_text)


def test_an_operator_that_starts_anew_writes_nothing(operator: Operator, settled: str, log: Path) -> None:
    until(lambda: quiet(operator), why=log.read_text)
    before = versions(settled)
    operator.stop(signal.SIGKILL)
    with running(settled, log) as again:
        # The template, and of each tenant the pool and the Tenant.
        until(lambda: again.count("cachescope_operator_reconciles_total") >= 1 + 2 * len(made(settled)), why=log.read_text)
        until(lambda: again.count("cachescope_operator_queue_depth") == 0, why=log.read_text)
        assert again.count("cachescope_operator_writes_total") == 0, again.ask("/metrics")[1]
        assert versions(settled) == before
        kubectl.apply([tenant("green")], namespace=settled)
        until(lambda: "green" in made(settled), why=log.read_text)


def test_what_was_made_goes_with_the_template_also_without_an_operator(settled: str) -> None:
    kubectl.run("delete", "servingpool", "tiny", namespace=settled)
    until(lambda: not made(settled))
    until(lambda: not kubectl.get("deployments", namespace=settled)["items"])


def quiet(operator: Operator) -> bool:
    """Whether no pass ran between two looks, and nothing is due."""
    one = operator.count("cachescope_operator_reconciles_total")
    return operator.count("cachescope_operator_queue_depth") == 0 and operator.count("cachescope_operator_reconciles_total") == one
