"""Drift: what is contained, what is foreign, what cannot be changed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from cachescope.core.labels import FIELD_MANAGER
from cachescope.kube.drift import as_applied, contains, drifted, foreign, unchangeable
from cachescope.kube.ownership import scaled, taken_over
from tests.unit.fake_api import managed, owned_by_us

ENGINE = 'k:{"name":"engine"}'
RESTARTED = "kubectl.kubernetes.io/restartedAt"


def deployment(**spec: Any) -> dict[str, Any]:
    container = {"name": "engine", "image": "a", "env": [{"name": "A", "value": "1"}], "resources": {"limits": {"cpu": "500m"}}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    meta = {"name": "p", "namespace": "n", "labels": {"x": "y"}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": {"replicas": 2, "template": template, **spec}}


@pytest.mark.parametrize(
    ("live", "wanted", "field"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, ""),
        ({}, {"a": "", "b": [], "c": {}, "d": None}, ""),
        (None, {"a": {"b": []}}, ""),
        ([{"name": "x", "v": 1, "d": 0}, {"name": "y"}], [{"name": "x", "v": 1}], "env"),
        ([{"name": "y"}, {"name": "x"}], [{"name": "x"}, {"name": "y"}], "volumes"),
        ([{"port": 1, "protocol": "TCP"}], [{"port": 1}], "ports"),
        ({"cpu": "500m", "memory": "1Gi", "gpu": "1"}, {"cpu": 0.5, "memory": 1073741824, "gpu": 1}, "limits"),
        ("2500m", "2.5", "sizeLimit"),
        ("1k", "1000", "storage"),
    ],
)
def test_what_is_contained_is_no_drift(live: Any, wanted: Any, field: str) -> None:
    assert contains(live, wanted, field)


@pytest.mark.parametrize(
    ("live", "wanted", "field"),
    [
        ({"a": 1}, {"a": 2}, ""),
        ({}, {"a": False}, ""),
        ({}, {"a": 0}, ""),
        ({"a": 1}, {"a": True}, ""),
        ({"a": "x"}, {"a": ""}, ""),
        ({"a": [1]}, {"a": []}, ""),
        ([{"name": "y"}], [{"name": "x"}], "env"),
        ([{"name": "x", "v": 1}, {"name": "x", "v": 2}], [{"name": "x", "v": 2}], "env"),
        ([{"name": "x"}, {"name": "y"}], [{"name": "x"}], "subjects"),
        ([1, 2], [2, 1], "args"),
        ({"cpu": "500m"}, {"cpu": "0.6"}, "limits"),
        ({"cpu": "nonsense"}, {"cpu": "1"}, "limits"),
        ({"value": "500m"}, {"value": "0.5"}, "env"),
    ],
)
def test_what_is_not_contained_is_drift(live: Any, wanted: Any, field: str) -> None:
    assert not contains(live, wanted, field)


def test_an_object_that_we_applied_and_the_server_completed_is_no_drift() -> None:
    live = owned_by_us(deployment())
    live["spec"]["strategy"] = {"type": "RollingUpdate"}
    live["spec"]["template"]["spec"]["containers"][0]["terminationMessagePath"] = "/dev/termination-log"
    live["status"] = {"replicas": 2}
    assert not drifted(live, deployment())
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "b"
    assert drifted(live, deployment())


def test_an_object_whose_record_of_owners_was_emptied_is_drift() -> None:
    live = owned_by_us(deployment())
    del live["metadata"]["managedFields"]
    assert drifted(live, deployment())


def test_what_api_server_or_list_leave_out_is_no_drift() -> None:
    live = owned_by_us(deployment())
    del live["apiVersion"], live["kind"]
    assert not drifted(live, deployment())


def test_what_we_applied_and_no_longer_want_is_drift_also_in_the_metadata() -> None:
    before = deployment(strategy={"type": "Recreate"})
    assert drifted(owned_by_us(before), deployment())
    before = deployment()
    before["metadata"]["labels"]["old"] = "1"
    assert drifted(owned_by_us(before), deployment())
    added_by_somebody = owned_by_us(deployment())
    added_by_somebody["metadata"]["labels"]["new"] = "1"
    assert not drifted(added_by_somebody, deployment())


def test_replicas_that_we_no_longer_name_are_neither_drift_nor_dropped() -> None:
    live, wanted = owned_by_us(deployment(replicas=5)), deployment()
    del wanted["spec"]["replicas"]
    assert not drifted(live, wanted)
    assert as_applied(live, wanted)["spec"]["replicas"] == 5
    theirs = owned_by_us(wanted, managed("kubectl", {"f:spec": {"f:replicas": {}}}, subresource="scale"))
    theirs["spec"]["replicas"] = 5
    assert "replicas" not in as_applied(theirs, wanted)["spec"]


def container(**fields: Any) -> dict[str, Any]:
    return {"f:spec": {"f:template": {"f:spec": {"f:containers": {ENGINE: fields}}}}}


def annotation(*names: str) -> dict[str, Any]:
    return {"f:spec": {"f:template": {"f:metadata": {"f:annotations": {".": {}, **{f"f:{name}": {} for name in names}}}}}}


@pytest.mark.parametrize(
    "fields",
    [
        container(**{"f:env": {'k:{"name":"B"}': {".": {}, "f:name": {}, "f:value": {}}}}),
        container(**{"f:command": {}}),
        {"f:spec": {"f:paused": {}}},
        annotation("x"),
        annotation(RESTARTED, "x"),
        {"f:data": {"f:x": {}}},
        {"f:rules": {}},
        {"f:immutable": {}},
    ],
)
def test_what_somebody_else_added_is_foreign(fields: dict[str, Any]) -> None:
    live = owned_by_us(deployment(), managed("kubectl-edit", fields))
    assert foreign(live, FIELD_MANAGER, deployment())
    assert drifted(live, deployment())


@pytest.mark.parametrize(
    "entry",
    [
        managed("kubectl-rollout", annotation(RESTARTED)),
        managed("kubectl-rollout", annotation()),
        managed("kubectl", {"f:spec": {"f:replicas": {}}}),
        managed("kubectl", {"f:metadata": {"f:annotations": {"f:x": {}}, "f:finalizers": {}}}),
        managed("kube-controller-manager", {"f:status": {}, "f:spec": {"f:odd": {}}}, subresource="status"),
        managed("kube-controller-manager", {"f:spec": {"f:replicas": {}}}, subresource="scale"),
        managed("argocd", container(**{".": {}, "f:name": {}, "f:image": {}}), "Apply"),
        managed("helm", {"f:spec": {"f:replicas": {}, "f:template": {"f:metadata": {"f:labels": {"f:a": {}}}}}}),
        managed("openshift", {"f:imagePullSecrets": {}, "f:secrets": {}}),
    ],
)
def test_what_others_may_or_share_is_not_foreign(entry: dict[str, Any]) -> None:
    assert not foreign(owned_by_us(deployment(), entry), FIELD_MANAGER, deployment())


def test_what_is_under_our_name_and_was_not_applied_is_foreign() -> None:
    assert foreign(owned_by_us(deployment(), managed(FIELD_MANAGER, {"f:spec": {"f:paused": {}}})), FIELD_MANAGER, deployment())
    assert not foreign(
        owned_by_us(deployment(), managed(FIELD_MANAGER, {"f:spec": {"f:replicas": {}}})), FIELD_MANAGER, deployment()
    )


def test_taking_over_moves_foreign_fields_and_leaves_the_others() -> None:
    added: dict[str, Any] = {".": {}, "f:name": {}}
    theirs = container(**{"f:env": {'k:{"name":"B"}': added}})
    theirs["f:spec"]["f:template"]["f:metadata"] = annotation(RESTARTED)["f:spec"]["f:template"]["f:metadata"]
    theirs["f:metadata"] = {"f:labels": {"f:mine": {}}}
    status = managed("kcm", {"f:status": {}}, subresource="status")
    gone = managed("gone", {"f:spec": {"f:paused": {}}})
    ours, kept, left = taken_over(owned_by_us(deployment(), managed("edit", theirs), status, gone), FIELD_MANAGER, deployment())
    assert (ours["manager"], ours["operation"], ours["apiVersion"]) == (FIELD_MANAGER, "Apply", "apps/v1")
    env = ours["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"][ENGINE]["f:env"]
    assert set(env) == {'k:{"name":"A"}', 'k:{"name":"B"}'}
    assert env['k:{"name":"B"}'] == added
    assert ours["fieldsV1"]["f:spec"]["f:paused"] == {}
    assert kept["fieldsV1"] == {"f:metadata": {"f:labels": {"f:mine": {}}}, **annotation(RESTARTED)}
    assert left == status


LABELS = {"app.kubernetes.io/name": "tiny"}
META = {"name": "tiny", "namespace": "n"}
UID_VARIABLE = 'k:{"name":"UID"}'


def service() -> dict[str, Any]:
    spec = {"selector": LABELS, "ports": [{"name": "http", "port": 8000}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": META, "spec": copy.deepcopy(spec)}


def policy() -> dict[str, Any]:
    rule = {"from": [{"podSelector": {"matchLabels": LABELS}}], "ports": [{"port": 8000}]}
    spec = {"podSelector": {"matchLabels": LABELS}, "policyTypes": ["Ingress"], "ingress": [rule]}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": META, "spec": copy.deepcopy(spec)}


def engines() -> dict[str, Any]:
    variable = {"name": "UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    engine = {"name": "engine", "image": "a", "env": [variable], "resources": {"limits": {"cpu": "1"}}}
    spec = {"template": {"spec": {"nodeSelector": {"a": "b"}, "containers": [engine]}}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": META, "spec": spec}


def pod_fields(*, container: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"f:spec": {"f:template": {"f:spec": {"f:containers": {ENGINE: container}, **fields}}}}


def written_by(somebody: dict[str, Any] | None, document: dict[str, Any], left: dict[str, Any]) -> dict[str, Any]:
    """An object as the API server has it: with its defaults, somebody's entry, and ours with what is left to us."""
    live = copy.deepcopy(document)
    ours = managed(FIELD_MANAGER, left, "Apply")
    live["metadata"] = {**META, "managedFields": [ours, somebody] if somebody else [ours]}
    if document["kind"] == "NetworkPolicy":
        live["spec"]["ingress"][0]["ports"][0]["protocol"] = "TCP"
    if document["kind"] == "Deployment":
        engine_of(live)["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] = "v1"
    return live


def engine_of(document: dict[str, Any]) -> Any:
    return document["spec"]["template"]["spec"]["containers"][0]


Fields = dict[str, Any]
Lost = tuple[Fields, Fields, Fields]
LEFT_OF_SERVICE: Fields = {"f:spec": {"f:ports": {'k:{"port":8000,"protocol":"TCP"}': {".": {}, "f:name": {}, "f:port": {}}}}}
LEFT_OF_POLICY: Fields = {"f:spec": {"f:policyTypes": {}}}
LEFT_OF_ENGINES: Fields = pod_fields(
    container={
        ".": {},
        "f:env": {UID_VARIABLE: {".": {}, "f:name": {}}},
        "f:image": {},
        "f:name": {},
        "f:resources": {"f:limits": {"f:cpu": {}}},
    }
)
THEIRS_OF_POLICY: Fields = {"f:spec": {"f:podSelector": {}, "f:ingress": {}}}
THEIRS_CONTAINER: Fields = {"f:env": {UID_VARIABLE: {"f:valueFrom": {"f:fieldRef": {}}}}}
THEIRS_OF_ENGINES: Fields = pod_fields(container=THEIRS_CONTAINER, **{"f:nodeSelector": {}})
SERVICE: Lost = (service(), LEFT_OF_SERVICE, {"f:spec": {"f:selector": {}}})
POLICY = (policy(), LEFT_OF_POLICY, THEIRS_OF_POLICY)
ENGINES = (engines(), LEFT_OF_ENGINES, THEIRS_OF_ENGINES)


@pytest.mark.parametrize(
    ("lost", "widen"),
    [
        (SERVICE, lambda spec: spec["selector"].update(evil="x")),
        (SERVICE, lambda spec: spec["selector"].update(protocol="TCP")),
        (POLICY, lambda spec: spec["podSelector"]["matchLabels"].update(evil="x")),
        (POLICY, lambda spec: spec["podSelector"].update(matchExpressions=[{"key": "evil", "operator": "Exists"}])),
        (POLICY, lambda spec: spec["ingress"][0]["ports"][0].update(endPort=65535)),
        (POLICY, lambda spec: spec["ingress"][0]["from"][0].update(namespaceSelector={})),
        (POLICY, lambda spec: spec["ingress"][0]["from"][0]["podSelector"]["matchLabels"].update(evil="x")),
        (ENGINES, lambda spec: spec["template"]["spec"]["nodeSelector"].update(evil="x")),
    ],
)
def test_one_value_that_somebody_widened_is_drift_and_one_that_he_made_the_same_is_none(
    lost: Lost, widen: Callable[[Any], None]
) -> None:
    desired, left, theirs = lost
    for entry in (managed("kubectl-patch", theirs), managed("argocd-controller", theirs, "Apply")):
        live = written_by(entry, desired, left)
        assert not drifted(live, desired), "the API server's defaults are no addition"
        widen(live["spec"])
        assert contains(live["spec"], desired["spec"])
        assert not foreign(live, FIELD_MANAGER, desired)
        assert drifted(live, desired)


def test_one_value_that_nobody_owns_is_compared_whole_as_well() -> None:
    live = written_by(None, service(), LEFT_OF_SERVICE)
    assert not drifted(live, service())
    live["spec"]["selector"]["evil"] = "x"
    assert drifted(live, service())


def test_one_value_that_is_ours_may_hold_defaults_that_we_do_not_know() -> None:
    left = {"f:spec": {**LEFT_OF_POLICY["f:spec"], **THEIRS_OF_POLICY["f:spec"]}}
    for expected, live in (
        (False, written_by(None, policy(), left)),
        (True, written_by(managed("kubectl-edit", THEIRS_OF_POLICY), policy(), LEFT_OF_POLICY)),
    ):
        live["spec"]["ingress"][0]["ports"][0]["future"] = "default"
        assert drifted(live, policy()) is expected


def test_a_map_of_several_owners_is_not_compared_whole_when_all_our_parts_were_taken_over() -> None:
    left = copy.deepcopy(LEFT_OF_ENGINES)
    del left["f:spec"]["f:template"]["f:spec"]["f:containers"][ENGINE]["f:resources"]
    left["f:spec"]["f:template"]["f:spec"]["f:nodeSelector"] = {}
    theirs = pod_fields(container={**THEIRS_CONTAINER, "f:resources": {"f:limits": {"f:cpu": {}}}})
    live = written_by(managed("argocd-controller", theirs, "Apply"), engines(), left)
    engine_of(live)["resources"] = {"limits": {"cpu": "1000m"}, "requests": {"cpu": "1"}}
    assert not drifted(live, engines())
    engine_of(live)["resources"]["limits"]["cpu"] = "2"
    assert drifted(live, engines())


def test_replicas_of_an_autoscaler_are_left_to_it() -> None:
    live = owned_by_us(deployment(), managed("kube-controller-manager", {"f:spec": {"f:replicas": {}}}, subresource="scale"))
    live["spec"]["replicas"] = 5
    assert scaled(live)
    assert not drifted(live, deployment())
    by_hand = owned_by_us(deployment(), managed("kubectl", {"f:spec": {"f:replicas": {}}}, subresource="scale"))
    by_hand["spec"]["replicas"] = 5
    assert not scaled(by_hand)
    assert drifted(by_hand, deployment())


def secret(**fields: Any) -> dict[str, Any]:
    return {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s", "namespace": "n"}, "data": {"a": "eA=="}, **fields}


REVISION = {"kind": "ControllerRevision", "apiVersion": "apps/v1", "metadata": {"name": "r", "namespace": "n"}, "revision": 1}
BINDING = {"kind": "RoleBinding", "apiVersion": "x", "metadata": {"name": "r", "namespace": "n"}}


@pytest.mark.parametrize(
    ("live", "desired", "expected"),
    [
        (secret(immutable=True), secret(immutable=True), False),
        (secret(immutable=True), secret(), True),
        (secret(immutable=True), secret(immutable=True, data={"a": "eQ=="}), True),
        (secret(), secret(data={"a": "eQ=="}), False),
        (secret(type="Opaque"), secret(), False),
        (secret(type="Other"), secret(), True),
        ({**REVISION, "data": {"a": 1}}, {**REVISION, "data": {"a": 1}}, False),
        ({**REVISION, "data": {"a": 1, "left": 2}}, {**REVISION, "data": {"a": 1}}, True),
        ({**BINDING, "roleRef": {"name": "a", "apiGroup": "g"}}, {**BINDING, "roleRef": {"name": "a"}}, False),
        ({**BINDING, "roleRef": {"name": "b"}}, {**BINDING, "roleRef": {"name": "a"}}, True),
    ],
)
def test_what_cannot_be_changed_is_known(live: dict[str, Any], desired: dict[str, Any], *, expected: bool) -> None:
    assert unchangeable(live, desired) is expected
    if expected:
        assert drifted(owned_by_us(live), desired)


def test_text_of_a_secret_is_compared_as_data() -> None:
    wanted = {**secret(stringData={"b": "y"}), "data": {}}
    assert not drifted(owned_by_us(secret(data={"b": "eQ=="})), wanted)
    assert drifted(owned_by_us(secret(data={"b": "eA=="})), wanted)
