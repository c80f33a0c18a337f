"""The operator on a real API server: it makes, heals and says, and is silent when nothing changed."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.stack import kubectl
from tests.integration import namespaces
from tests.integration.operator_process import Operator, condition, pool, resource, running, until

CHILDREN = [
    ("serviceaccount", "tiny-engine"),
    ("role", "tiny-engine"),
    ("rolebinding", "tiny-engine"),
    ("secret", "tiny-permit-keys"),
    ("networkpolicy", "tiny"),
    ("service", "tiny"),
    ("poddisruptionbudget", "tiny"),
    ("deployment", "tiny"),
    ("epochledger", "tiny"),
]
EDITS = [
    ("role", "tiny-engine", [{"op": "add", "path": "/rules/0/verbs/-", "value": "delete"}]),
    ("rolebinding", "tiny-engine", [{"op": "replace", "path": "/subjects/0/name", "value": "evil"}]),
    ("secret", "tiny-permit-keys", [{"op": "add", "path": "/data/evil", "value": "ZXZpbA=="}]),
    ("networkpolicy", "tiny", [{"op": "add", "path": "/spec/ingress/-", "value": {}}]),
    ("networkpolicy", "tiny", [{"op": "add", "path": "/spec/podSelector/matchLabels/evil", "value": "true"}]),
    ("service", "tiny", [{"op": "replace", "path": "/spec/ports/0/port", "value": 1}]),
    ("service", "tiny", [{"op": "add", "path": "/spec/selector/evil", "value": "true"}]),
    ("poddisruptionbudget", "tiny", [{"op": "replace", "path": "/spec/maxUnavailable", "value": 5}]),
    ("deployment", "tiny", [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "evil"}]),
    ("deployment", "tiny", [{"op": "remove", "path": "/metadata/labels/app.kubernetes.io~1managed-by"}]),
]
KINDS = (
    "servingpools,tenants,cachescopes,publicsources,cacheepochs,epochledgers,serviceaccounts,roles,rolebindings,secrets,"
    "networkpolicies,services"
)
WATCHED = f"{KINDS},poddisruptionbudgets,controllerrevisions,deployments"
SALES = {"provider": "corp", "audience": "llm", "claims": {"team": "sales"}}


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    with namespaces.made("operator") as name:
        yield name


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("operator") / "log"


@pytest.fixture(scope="module")
def operator(namespace: str, log: Path) -> Iterator[Operator]:
    with running(namespace, log) as process:
        kubectl.apply([pool()], namespace=namespace)
        until(lambda: condition("servingpool", "tiny", "Ready", namespace), why=log.read_text)
        yield process


@pytest.fixture(scope="module")
def settled(operator: Operator, namespace: str, log: Path) -> str:
    """A namespace in which the pool says what its pod suffers from: nothing more is going to happen."""
    until(lambda: condition("servingpool", "tiny", "Degraded", namespace) == "True Unschedulable", why=log.read_text)
    assert operator.leads()
    return namespace


def versions(namespace: str) -> dict[str, str]:
    items = kubectl.get(WATCHED, namespace=namespace)["items"]
    return {f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for item in items}


def test_everything_is_made_and_the_pool_owns_it(settled: str) -> None:
    uid = kubectl.get("servingpool", "tiny", namespace=settled)["metadata"]["uid"]
    for kind, name in CHILDREN[:-1]:
        owner = kubectl.get(kind, name, namespace=settled)["metadata"]["ownerReferences"][0]
        assert (owner["uid"], owner["controller"]) == (uid, True)
    for kind, name in (("epochledger", "tiny"), ("secret", "cachescope-root-keys")):
        assert "ownerReferences" not in kubectl.get(kind, name, namespace=settled)["metadata"]
    status = kubectl.get("servingpool", "tiny", namespace=settled)["status"]
    assert (status["epoch"], status["mode"], status["replicas"]) == (1, "Shared", 1)


def test_nothing_of_kopf_is_on_any_object(settled: str) -> None:
    assert "cachescope.dev/pool" in kubectl.run("get", WATCHED, "-o", "yaml", namespace=settled)
    assert "kopf" not in kubectl.run("get", f"{WATCHED},events", "-o", "yaml", namespace=settled)


@pytest.mark.parametrize(("kind", "name"), CHILDREN, ids=[kind for kind, _ in CHILDREN])
def test_a_child_that_is_deleted_comes_back(settled: str, log: Path, kind: str, name: str) -> None:
    before = kubectl.get(kind, name, namespace=settled)["metadata"]["uid"]
    kubectl.run("delete", kind, name, "--wait=false", namespace=settled)
    until(lambda: kubectl.exists(kind, name, settled) and _uid(kind, name, settled) not in (before, ""), why=log.read_text)


@pytest.mark.parametrize(("kind", "name", "patch"), EDITS, ids=[f"{kind}{number}" for number, (kind, *_) in enumerate(EDITS)])
def test_a_child_that_is_edited_is_put_right(settled: str, log: Path, kind: str, name: str, patch: list[dict[str, Any]]) -> None:
    before = _content(kind, name, settled)
    kubectl.run("patch", kind, name, "--type=json", "-p", json.dumps(patch), namespace=settled)
    until(lambda: _content(kind, name, settled) == before, why=log.read_text)


def test_pods_follow_the_account_that_their_tokens_are_of(operator: Operator, settled: str, log: Path) -> None:
    first = _uid("serviceaccount", "tiny-engine", settled)
    until(lambda: _made_for(settled) == first, why=log.read_text)
    revisions = _content_of_revisions(settled)
    kubectl.run("delete", "serviceaccount", "tiny-engine", namespace=settled)
    until(lambda: _made_for(settled) not in (first, ""), why=log.read_text)
    assert _made_for(settled) == _uid("serviceaccount", "tiny-engine", settled)
    assert _content_of_revisions(settled) == revisions, "it is no part of the frozen template"
    until(lambda: _rolled(settled), why=log.read_text)
    until(lambda: _quiet(operator), why=log.read_text)
    before = kubectl.get("deployment", "tiny", namespace=settled)["metadata"]["generation"]
    kubectl.run("annotate", "serviceaccount", "tiny-engine", "theirs=1", namespace=settled)
    kubectl.run("delete", "service", "tiny", namespace=settled)
    until(lambda: kubectl.exists("service", "tiny", settled), why=log.read_text)
    assert kubectl.get("deployment", "tiny", namespace=settled)["metadata"]["generation"] == before


def test_a_new_pool_is_rolled_out_once(settled: str, log: Path) -> None:
    kubectl.apply([pool("once")], namespace=settled)
    until(lambda: condition("servingpool", "once", "Degraded", settled) == "True Unschedulable", why=log.read_text)
    made = kubectl.get("deployment", "once", namespace=settled)
    assert made["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
    assert _made_for(settled, "once") == _uid("serviceaccount", "once-engine", settled)
    kubectl.run("delete", "servingpool", "once", namespace=settled)


def test_an_invalid_spec_is_said_at_once_and_children_stay(settled: str, log: Path) -> None:
    kubectl.apply([pool("wrong", engine={"version": "0.32.0", "image": "x", "args": ["--headless"]})], namespace=settled)
    until(lambda: condition("servingpool", "wrong", "Ready", settled) == "False InvalidSpec", why=log.read_text)
    assert not kubectl.exists("deployment", "wrong", settled)
    kubectl.apply([pool("wrong", replicas=0)], namespace=settled)
    until(lambda: condition("servingpool", "wrong", "Ready", settled) == "False ScaledToZero", why=log.read_text)


def test_epochs_rise_are_held_and_count_incidents_once(settled: str, log: Path) -> None:
    def declare(**spec: Any) -> None:
        kubectl.apply([resource("CacheEpoch", "e", {"target": {"name": "tiny"}, **spec})], namespace=settled)

    def says(held: str, epoch: int) -> None:
        until(lambda: condition("cacheepoch", "e", "Held", settled) == held, why=log.read_text)
        until(lambda: kubectl.get("servingpool", "tiny", namespace=settled)["status"]["epoch"] == epoch, why=log.read_text)

    declare(floor=5)
    says("False NotHeld", 5)
    declare(floor=3)
    says("True SpecBehindLedger", 5)
    declare(floor=9000)
    says("True JumpTooLarge", 5)
    for _ in range(2):
        kubectl.run("delete", "cacheepoch", "e", namespace=settled)
        declare(incident={"id": "leak-1"})
        says("False NotHeld", 6)
    declare(incident={"id": "leak-2"})
    says("False NotHeld", 7)


def test_of_two_tenants_the_first_accepted_keeps_the_identity(settled: str, log: Path) -> None:
    def declare(name: str) -> None:
        kubectl.apply([resource("Tenant", name, {"identities": {"apiKeys": [{"secretName": "keys"}]}})], namespace=settled)

    declare("first")
    until(lambda: condition("tenant", "first", "Accepted", settled) == "False SecretNotFound", why=log.read_text)
    before = kubectl.get("tenant", "first", namespace=settled)
    declare("second")
    until(lambda: condition("tenant", "second", "Accepted", settled) == "False IdentityTaken", why=log.read_text)
    assert kubectl.get("tenant", "first", namespace=settled) == before
    kubectl.run("create", "secret", "generic", "keys", namespace=settled)
    kubectl.run("label", "secret", "keys", "cachescope.dev/api-keys=true", namespace=settled)
    until(lambda: condition("tenant", "first", "Accepted", settled) == "True Accepted", why=log.read_text)
    kubectl.run("delete", "tenant", "first", namespace=settled)
    declare("first")
    until(lambda: condition("tenant", "first", "Accepted", settled) == "True Accepted", why=log.read_text)
    assert condition("tenant", "second", "Accepted", settled) == "False IdentityTaken", "who is made anew comes before who waits"
    kubectl.apply([resource("Tenant", "first", {"identities": {"apiKeys": []}})], namespace=settled)
    until(lambda: condition("tenant", "second", "Accepted", settled) == "True Accepted", why=log.read_text)


def test_a_scope_that_names_nothing_is_said(settled: str, log: Path) -> None:
    kubectl.apply([resource("CacheScope", "s", {"pools": ["tiny"], "tenants": ["nobody"]})], namespace=settled)
    until(lambda: condition("cachescopes", "s", "Accepted", settled) == "False ReferenceNotFound", why=log.read_text)


def test_a_steady_state_writes_nothing_and_killing_the_operator_changes_nothing(
    operator: Operator, settled: str, log: Path
) -> None:
    until(lambda: _quiet(operator), why=log.read_text)
    before = versions(settled)
    operator.stop(signal.SIGKILL)
    with running(settled, log) as again:
        until(lambda: again.count("cachescope_operator_reconciles_total") >= 4, why=log.read_text)
        until(lambda: again.count("cachescope_operator_queue_depth") == 0, why=log.read_text)
        assert again.count("cachescope_operator_writes_total") == 0, again.ask("/metrics")[1]
        assert versions(settled) == before
        # Two pools, a tenant and a scope. The positive control: the same process writes when there is something to write.
        kubectl.run("delete", "service", "tiny", namespace=settled)
        until(lambda: again.count("cachescope_operator_writes_total") > 0, why=log.read_text)
        assert again.ask("/healthz")[0] == 200
        assert again.stop() == 0
    lease = kubectl.get("lease", "cachescope-operator", namespace=settled)
    assert not lease["spec"].get("holderIdentity")


def _quiet(operator: Operator) -> bool:
    """Whether no pass ran between two looks, and nothing is due."""
    one = operator.count("cachescope_operator_reconciles_total")
    return operator.count("cachescope_operator_queue_depth") == 0 and operator.count("cachescope_operator_reconciles_total") == one


def _made_for(namespace: str, name: str = "tiny") -> str:
    """UID of the account that the pods of a pool are made for."""
    template = kubectl.get("deployment", name, namespace=namespace)["spec"]["template"]["metadata"]
    return str(template.get("annotations", {}).get("cachescope.dev/service-account", ""))


def _rolled(namespace: str) -> bool:
    """Whether there is a pod for the account that there is."""
    pods = kubectl.get("pods", namespace=namespace)["items"]
    return _made_for(namespace) in [
        pod["metadata"].get("annotations", {}).get("cachescope.dev/service-account") for pod in pods if _is_of("tiny", pod)
    ]


def _is_of(name: str, pod: dict[str, Any]) -> bool:
    return bool(pod["metadata"]["labels"].get("cachescope.dev/pool") == name)


def _content_of_revisions(namespace: str) -> list[Any]:
    return [item["data"] for item in kubectl.get("controllerrevisions", namespace=namespace)["items"]]


def _uid(kind: str, name: str, namespace: str) -> str:
    found = kubectl.get(kind, name, namespace=namespace)["metadata"]
    return "" if "deletionTimestamp" in found else str(found["uid"])


def _content(kind: str, name: str, namespace: str) -> dict[str, Any]:
    found = kubectl.get(kind, name, namespace=namespace)
    kept = {part: value for part, value in found.items() if part not in ("metadata", "status")}
    return {**kept, "labels": found["metadata"]["labels"]}
