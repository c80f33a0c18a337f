"""The children of a pool: what they may do, whom they hear, and what is refused before it becomes one."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from cachescope.api.documents import parse as read_pool
from cachescope.api.pools import ServingPool
from cachescope.core.errors import SpecError
from cachescope.core.front_doors import forbidden
from cachescope.core.permits import permit_keys
from cachescope.gateway.strict_json import parse
from cachescope.guard.settings import read_settings
from cachescope.manifests.engine import STARTUP_SECONDS
from cachescope.manifests.engine_command import GUARD_FOLDER
from cachescope.manifests.guard import STATE_FOLDER, guard_body_bytes
from cachescope.manifests.pool import ACCOUNT_ANNOTATION, bound_to, pool_objects
from cachescope.manifests.revisions import build_revision
from tests.unit.pools import FULL, HUB, PLATFORM, ROOT, TARGET, UID, engine, environment, objects, pod, pool

EXAMPLES = Path(__file__).parents[2] / "examples"
CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
"""Variables that every container gets from its node."""
SYSTEM = {"kubernetes.io/metadata.name": "cachescope-system"}
TCP = [{"port": 443, "protocol": "TCP"}, {"port": 6443, "protocol": "TCP"}]


def test_building_twice_gives_the_same() -> None:
    assert json.dumps(objects(FULL)) == json.dumps(objects(FULL))


def test_the_order_of_variables_and_labels_does_not_matter() -> None:
    env = {"B": "1", "A": "2"}
    labels = {"b": "1", "a": "2"}
    one = objects({"engine.env": env, "podTemplate": {"labels": labels}})
    other = objects({"engine.env": dict(reversed(env.items())), "podTemplate": {"labels": dict(reversed(labels.items()))}})
    assert json.dumps(one) == json.dumps(other)


def test_every_pool_of_the_examples_can_be_built() -> None:
    documents = [item for path in EXAMPLES.glob("*.yaml") for item in yaml.safe_load_all(path.read_text())]
    found = [item for item in documents if item and item.get("kind") == "ServingPool"]
    assert len(found) >= 3
    for item in found:
        item["metadata"].update(uid=UID, namespace="models")
        assert build_revision(PLATFORM, read_pool(ServingPool, item, "examples"), TARGET).template


@pytest.mark.parametrize("changes", [None, FULL], ids=["small", "full"])
def test_the_guard_finds_no_open_door_in_what_is_rendered(changes: dict[str, Any] | None) -> None:
    """Also options of the platform's own must be none that the guard refuses, or takes for the beginning of one."""
    container = engine(changes)
    assert forbidden(container["command"][3:], environment(container), python_path=GUARD_FOLDER) == ()
    assert forbidden(["--middl"], {}), "control: beginnings are refused"


def test_what_pods_need_is_applied_before_them() -> None:
    revision = build_revision(PLATFORM, pool(), TARGET)
    assert [item["kind"] for item in pool_objects(PLATFORM, pool(), keys=ROOT, revision=revision)] == [
        *("ServiceAccount", "Role", "RoleBinding", "Secret", "NetworkPolicy", "Service", "PodDisruptionBudget"),
        *("ControllerRevision", "Deployment"),
    ]


def test_every_child_goes_with_its_pool_and_says_whose_it_is() -> None:
    owner = {"apiVersion": "cachescope.dev/v1alpha1", "kind": "ServingPool", "name": "tiny", "uid": UID}
    for item in objects().values():
        assert item["metadata"]["ownerReferences"] == [{**owner, "controller": True, "blockOwnerDeletion": False}]
        assert item["metadata"]["namespace"] == "models"
        assert item["metadata"]["labels"] == {
            "app.kubernetes.io/name": "tiny",
            "app.kubernetes.io/component": "engine",
            "app.kubernetes.io/managed-by": "cachescope",
            "app.kubernetes.io/part-of": "cachescope",
            "cachescope.dev/pool": "tiny",
        }


@pytest.mark.parametrize("changes", [{}, FULL], ids=["plain", "full"])
def test_every_container_meets_the_restricted_profile_with_a_read_only_root(changes: dict[str, Any]) -> None:
    spec = pod(changes)
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    for container in [*spec["containers"], *spec["initContainers"]]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_no_pod_runs_as_a_fixed_user_unless_the_installation_says_so() -> None:
    assert "runAsUser" not in json.dumps(objects(FULL))
    context = pod(platform=replace(PLATFORM, run_as_user=1234))["securityContext"]
    assert (context["runAsUser"], context["fsGroup"], context["runAsNonRoot"]) == (1234, 1234, True)


def test_an_engine_pod_holds_its_own_permit_keys_and_no_root_key() -> None:
    data = objects()["Secret"]["data"]
    expected = {key_id: key.secret.hex() for key_id, key in permit_keys(ROOT, UID).others.items()}
    assert {key_id: base64.b64decode(value).decode() for key_id, value in data.items()} == expected
    secrets = [volume["secret"]["secretName"] for volume in pod()["volumes"] if "secret" in volume]
    assert secrets == [objects()["Secret"]["metadata"]["name"]] == ["tiny-permit-keys"]
    for key in ROOT.others.values():
        assert base64.b64encode(key.secret.hex().encode()).decode() not in json.dumps(objects())
        assert key.secret.hex() not in json.dumps(objects())


def test_only_the_engine_has_a_token_and_it_expires() -> None:
    spec = pod(FULL)
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("tiny-engine", False)
    assert objects()["ServiceAccount"]["automountServiceAccountToken"] is False
    (volume,) = [volume for volume in spec["volumes"] if "projected" in volume]
    token, root, namespace = volume["projected"]["sources"]
    assert token == {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}
    assert root["configMap"] == {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    assert namespace["downwardAPI"]["items"][0]["path"] == "namespace"
    holders = [
        container["name"]
        for container in [*spec["containers"], *spec["initContainers"]]
        for mount in container["volumeMounts"]
        if mount["name"] == volume["name"] or mount["mountPath"].startswith("/var/run/secrets")
    ]
    assert holders == ["engine"]


def test_pods_are_of_one_account_and_the_frozen_template_is_not() -> None:
    before = objects(FULL)["Deployment"]
    bound = bound_to(before, "account-1")
    assert bound["spec"]["template"]["metadata"].pop("annotations") == {
        **before["spec"]["template"]["metadata"].get("annotations", {}),
        ACCOUNT_ANNOTATION: "account-1",
    }
    before["spec"]["template"]["metadata"].pop("annotations", None)
    assert bound == before, "and nothing else changes"
    assert ACCOUNT_ANNOTATION not in json.dumps(objects(FULL))
    assert bound_to(before, "") is before


def test_an_engine_may_write_leases_and_read_the_heads_of_its_pool_and_namespace() -> None:
    heads = ["tiny", "authorization.head"]
    assert objects()["Role"]["rules"] == [
        {"apiGroups": ["cachescope.dev"], "resources": ["fenceleases"], "verbs": ["create", "get", "update"]},
        {
            "apiGroups": ["cachescope.dev"],
            "resources": ["epochledgers"],
            "resourceNames": heads,
            "verbs": ["get", "list", "watch"],
        },
    ]
    binding = objects()["RoleBinding"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "tiny-engine", "namespace": "models"}]
    assert binding["roleRef"]["name"] == objects()["Role"]["metadata"]["name"]


def test_nobody_but_the_installations_gateways_reaches_an_engine_and_its_metrics_monitoring_and_the_operator() -> None:
    policy = objects()["NetworkPolicy"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    gateways, monitoring, operators = policy["ingress"]
    (peer,) = gateways["from"]
    assert peer["namespaceSelector"] == {"matchLabels": SYSTEM}
    assert peer["podSelector"]["matchLabels"] == {
        "app.kubernetes.io/component": "gateway",
        "app.kubernetes.io/part-of": "cachescope",
    }
    assert gateways["ports"] == [{"port": 8000, "protocol": "TCP"}]
    assert monitoring["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    assert monitoring["ports"] == operators["ports"] == [{"port": 9400, "protocol": "TCP"}]
    (peer,) = operators["from"]
    assert peer["namespaceSelector"] == {"matchLabels": SYSTEM}
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "operator"


def test_an_engine_calls_the_api_server_alone() -> None:
    assert objects()["NetworkPolicy"]["spec"]["egress"] == [{"ports": TCP}]
    known = replace(PLATFORM, api_servers=("10.0.0.1/32", "fd00::1/128"))
    (rule,) = objects(platform=known)["NetworkPolicy"]["spec"]["egress"]
    assert rule == {"ports": TCP, "to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}, {"ipBlock": {"cidr": "fd00::1/128"}}]}
    other = replace(PLATFORM, api_server_ports=(16443,))
    assert objects(platform=other)["NetworkPolicy"]["spec"]["egress"] == [{"ports": [{"port": 16443, "protocol": "TCP"}]}]


def test_only_a_pool_of_the_hub_also_calls_out_and_looks_up_names() -> None:
    known = replace(PLATFORM, api_servers=("10.0.0.1/32",))
    _, web, names = objects({"model.source": HUB}, known)["NetworkPolicy"]["spec"]["egress"]
    assert web == {"ports": [{"port": 443, "protocol": "TCP"}]}
    assert names == {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}


def test_service_budget_and_policy_select_the_pods_of_the_deployment() -> None:
    found = objects(FULL)
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        found["Deployment"]["spec"]["selector"]["matchLabels"],
        found["Service"]["spec"]["selector"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ]
    assert all(selector.items() <= labels.items() and selector["cachescope.dev/pool"] == "tiny" for selector in selectors)
    assert found["Service"]["spec"]["clusterIP"] == "None"
    assert found["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


def test_the_guard_is_the_last_middleware_and_users_arguments_come_first() -> None:
    command = engine()["command"]
    assert command[-4:-2] == ["--middleware", "cachescope.guard.asgi.Guard"]
    assert command.index("--enforce-eager") < command.index("--model")


def test_the_guard_can_read_all_that_the_pod_tells_it() -> None:
    container = engine({"fence": {"leaseSeconds": 30}})
    fields = {item["name"]: item["valueFrom"]["fieldRef"]["fieldPath"] for item in container["env"] if "valueFrom" in item}
    assert fields == {
        "CACHESCOPE_NAMESPACE": "metadata.namespace",
        "CACHESCOPE_POD_NAME": "metadata.name",
        "CACHESCOPE_POD_UID": "metadata.uid",
    }
    values = environment(container)
    assert values["CACHESCOPE_POOL"] == "tiny"
    assert "CACHESCOPE_HEADS_FILE" not in values
    settings = read_settings({**values, **fields, **CLUSTER})
    assert (settings.pool_uid, settings.pool_target, settings.lease_ms) == (UID, TARGET, 30_000)
    assert (settings.fresh_ms, settings.state_folder) == (120_000, Path(STATE_FOLDER))
    assert settings.max_body_bytes == guard_body_bytes(16 * 2**20)


@pytest.mark.parametrize(
    ("fence", "fresh_ms"), [({"onLoss": "Deny"}, 0), ({"freshSeconds": 7}, 7000), ({"onLoss": "Deny", "freshSeconds": 7}, 0)]
)
def test_what_a_guard_does_without_a_right_is_what_the_pool_says(fence: dict[str, Any], fresh_ms: int) -> None:
    container = engine({"fence": fence})
    fields = {item["name"]: "x" for item in container["env"] if "valueFrom" in item}
    assert read_settings({**environment(container), **fields, **CLUSTER}).fresh_ms == fresh_ms


@pytest.mark.parametrize(("fence", "resets"), [({}, False), ({"cleanup": "None"}, False), ({"cleanup": "Reset"}, True)])
def test_an_engine_is_cleaned_up_where_the_pool_says_so(fence: dict[str, Any], resets: bool) -> None:
    container = engine({"fence": fence})
    fields = {item["name"]: "x" for item in container["env"] if "valueFrom" in item}
    assert read_settings({**environment(container), **fields, **CLUSTER}).resets_cache is resets


def test_witnesses_have_a_folder_that_outlives_the_process_and_not_the_pod() -> None:
    (mount,) = [mount for mount in engine()["volumeMounts"] if mount["mountPath"] == STATE_FOLDER]
    assert "readOnly" not in mount
    (volume,) = [volume for volume in pod()["volumes"] if volume["name"] == mount["name"]]
    assert volume == {"name": mount["name"], "emptyDir": {}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"engine.version": "0.30.0", "isolation": {"mode": "Shared"}}, "isolation Shared is refused: .*use vLLM"),
        ({"engine.version": "0.8.5", "isolation": {"mode": "Shared"}}, "isolation Shared is refused: .*use vLLM"),
        ({"engine.version": "0.34.0", "isolation": {"mode": "Shared"}}, "isolation Shared is refused: .*later than what was read"),
        ({"engine.args": ["--grpc"]}, "grpc"),
        ({"engine.args": ["--api-server-count=2"]}, "api-server-count"),
        ({"engine.env": {"VLLM_SERVER_DEV_MODE": "1"}}, "VLLM_SERVER_DEV_MODE"),
        ({"engine.env": {"PYTHONPATH": "/elsewhere"}}, "PYTHONPATH.*remove it"),
        ({"engine.env": {"HF_HUB_OFFLINE": "0"}}, "HF_HUB_OFFLINE.*remove it"),
        ({"engine.env": {"CACHESCOPE_POD_UID": "x"}}, "CACHESCOPE_POD_UID.*remove it"),
        ({"engine.env": {"KUBERNETES_SERVICE_HOST": "10.6.6.6"}}, "KUBERNETES_SERVICE_HOST.*remove it"),
        ({"model.name": "--grpc"}, "model.name"),
        ({"gpus": {"count": 2}, "resources": {"limits": {"nvidia.com/gpu": 1}}}, "gpus.count is 2"),
        ({"gpus": {"count": 2}, "resources": {"requests": {"nvidia.com/gpu": "4"}}}, "gpus.count is 2"),
        ({"resources": {"limit": {"memory": "8Gi"}}}, "requests and limits only"),
        ({"resources": {"limits": ["memory"]}}, "no mapping"),
        ({"resources": {"limits": {"memory": "much"}}}, "no quantity"),
        ({"resources": {"limits": {"cpu": True}}}, "no quantity"),
        ({"podTemplate": {"labels": {"app.kubernetes.io/name": "mine"}}}, "label app.kubernetes.io/name.*remove it"),
        ({"podTemplate": {"labels": {"app.kubernetes.io/component": "gateway"}}}, "remove it"),
        ({"podTemplate": {"labels": {"app.kubernetes.io/part-of": "cachescope"}}}, "remove it"),
        ({"podTemplate": {"labels": {"cachescope.dev/other": "x"}}}, "remove it"),
        ({"podTemplate": {"labels": {"pod-template-hash": "x"}}}, "remove it"),
        ({"podTemplate": {"annotations": {"cachescope.dev/spec": "x"}}}, "annotation cachescope.dev/spec"),
    ],
)
def test_a_pool_that_cannot_be_built_is_refused_with_the_reason(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said) as caught:
        objects(changes)
    assert "'tiny'" in str(caught.value)


def test_every_fault_of_an_engine_is_said_at_once() -> None:
    with pytest.raises(SpecError, match=r"--grpc .*HF_HUB_OFFLINE .*0\.30\.0"):
        objects({"engine.version": "0.30.0", "engine.args": ["--grpc"], "engine.env": {"HF_HUB_OFFLINE": "0"}})


def test_kubernetes_replaces_nothing_after_the_arguments_were_checked() -> None:
    container = engine({"engine.env": {"DOOR": "--grpc", "OTHER": "$(DOOR)"}, "engine.args": ["$(DOOR)"], "model.name": "$(DOOR)"})
    assert "$$(DOOR)" in container["command"]
    assert "$(DOOR)" not in [*container["command"], *environment(container).values()]
    assert environment(container)["OTHER"] == "$$(DOOR)"


def test_gpus_are_requested_and_limited() -> None:
    assert engine({"gpus": {"count": 2}})["resources"] == {
        "requests": {"cpu": "500m", "memory": "3Gi", "nvidia.com/gpu": "2"},
        "limits": {"memory": "8Gi", "nvidia.com/gpu": "2"},
    }
    other = engine({"gpus": {"count": 1, "resourceName": "amd.com/gpu"}, "resources": {"limits": {"amd.com/gpu": 1, "cpu": 0.5}}})
    assert other["resources"] == {"requests": {"amd.com/gpu": "1"}, "limits": {"amd.com/gpu": "1", "cpu": "0.5"}}
    assert engine({"resources": {}})["resources"] == {}


def test_shared_memory_is_limited_when_asked() -> None:
    def shm(changes: dict[str, Any]) -> object:
        return next(volume["emptyDir"] for volume in pod(changes)["volumes"] if volume["name"] == "shm")

    assert shm({}) == {"medium": "Memory"}
    assert shm({"sharedMemory": "1.5Gi"}) == {"medium": "Memory", "sizeLimit": "1.5Gi"}


def test_what_the_platform_adds_to_pods_arrives() -> None:
    template = objects(FULL)["Deployment"]["spec"]["template"]
    asked = FULL["podTemplate"]
    assert asked["labels"].items() <= template["metadata"]["labels"].items()
    assert template["metadata"]["annotations"] == asked["annotations"]
    for name in ("nodeSelector", "tolerations", "affinity", "priorityClassName", "runtimeClassName"):
        assert template["spec"][name] == asked[name]
    assert template["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert not asked.keys() & pod().keys()
    assert "annotations" not in objects()["Deployment"]["spec"]["template"]["metadata"]


@pytest.mark.parametrize("replicas", [0, 1, 5])
def test_the_number_of_pods_is_the_pools_unless_somebody_else_decides(replicas: int) -> None:
    made = pool({"replicas": replicas})
    revision = build_revision(PLATFORM, made, TARGET)
    mine = pool_objects(PLATFORM, made, keys=ROOT, revision=revision)[-1]
    omitted = pool_objects(PLATFORM, made, keys=ROOT, revision=revision, omit_replicas=True)[-1]
    assert mine["spec"].pop("replicas") == replicas
    assert omitted == mine


@pytest.mark.parametrize(
    ("strategy", "surge", "unavailable"), [("SpareFirst", 1, 0), ("InPlace", 0, 1)], ids=["SpareFirst", "InPlace"]
)
def test_a_rollout_keeps_what_its_strategy_promises(strategy: str, surge: int, unavailable: int) -> None:
    spec = objects({"rollout": {"strategy": strategy}})["Deployment"]["spec"]
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    assert spec["revisionHistoryLimit"] == 2


def test_a_rollout_is_not_called_failed_while_a_model_may_still_load() -> None:
    probe = engine()["startupProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] == STARTUP_SECONDS
    plain, hub = (objects(changes)["Deployment"]["spec"]["progressDeadlineSeconds"] for changes in ({}, FULL))
    assert STARTUP_SECONDS < plain < hub


def test_a_container_that_hangs_is_not_drained_before_its_restart() -> None:
    assert engine()["livenessProbe"]["terminationGracePeriodSeconds"] == 10


def test_an_engines_running_requests_may_end_within_the_grace() -> None:
    container = engine()
    drain = int(container["command"][container["command"].index("--shutdown-timeout") + 1])
    assert drain >= 60
    assert pod()["terminationGracePeriodSeconds"] > container["lifecycle"]["preStop"]["sleep"]["seconds"] + drain


def test_the_guards_limit_follows_the_gateways() -> None:
    limited = engine(platform=replace(PLATFORM, max_request_bytes=2048))
    assert environment(limited)["CACHESCOPE_MAX_BODY_BYTES"] == str(guard_body_bytes(2048))


def test_a_guard_takes_the_limit_of_the_largest_setting() -> None:
    container = engine(platform=replace(PLATFORM, max_request_bytes=256 * 2**20))
    fields = {item["name"]: "x" for item in container["env"] if "valueFrom" in item}
    assert read_settings({**environment(container), **fields, **CLUSTER}).max_body_bytes == guard_body_bytes(256 * 2**20)


@pytest.mark.parametrize(
    "element",
    [*(f"{sign}{digit}e{power}" for sign in ("", "-") for digit in ("9", "99", "1.5") for power in range(-30, 31)),
     "0.0", "-0", '"\\u0001"', '"\\u00e9"', '"\\/"', '"\u00e9"', '"\x7f"', "null", "[]", "{}"],
)  # fmt: skip
def test_what_the_gateway_makes_of_a_body_passes_the_guards_limit(element: str) -> None:
    body = f"[{','.join([element] * 1000)}]".encode()
    assert len(orjson.dumps(parse(body))) <= guard_body_bytes(len(body)) - guard_body_bytes(0)
