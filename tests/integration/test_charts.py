"""The chart `cachescope` as Helm renders it; no cluster is asked."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cachescope.api.settings import read_settings
from cachescope.controller.watched_kinds import CHILDREN, WATCHED
from cachescope.core.labels import COMPONENT_LABEL, GATEWAY, OPERATOR, PART_OF_LABEL, ROOT_KEYS_SECRET
from cachescope.gateway.drain import REMOVAL_SECONDS
from e2e.stack.paths import LAYOUT

CHART = Path(__file__).parents[2] / "charts" / "cachescope"
HELM = LAYOUT.program("helm")
NAMESPACE = "cachescope-system"
PROVIDERS = "settings.identityProviders[0]."
FULL = {
    "scope": "Cluster",
    "images": {
        "operator": {"repository": "mirror/operator", "digest": "sha256:" + "a" * 64},
        "gateway": {"repository": "mirror/gateway", "tag": "t1"},
        "guard": {"repository": "mirror/guard", "tag": "t2"},
    },
    "imagePullSecrets": ["pull"],
    "settings": {
        "identityProviders": [{"name": "north", "issuer": "https://north.example", "jwks": {"secretName": "north.jwks"}}],
        "maxRequestBytes": 16777216,
        "tls": {"secretName": "door", "clientCa": {"secretName": "clients.ca", "trustDomains": [{"name": "corp"}]}},
        "serviceAccounts": {"audience": "cachescope"},
    },
    "priorityClassName": "high",
    "apiServers": ["10.0.0.1/32", "fd00::1/128"],
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True, "labels": {"team": "on-call"}},
    "operator": {"replicas": 2, "podLabels": {"team": "a", COMPONENT_LABEL: "taken"}},
    "gateway": {"replicas": None, "tolerations": [{"key": "gpu", "operator": "Exists"}], "nodeSelector": {"a": "b"}},
}
USER_ROLES = {"view", "edit", "tenant-admin", "source-approver", "incident-responder"}


def helm(*options: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    command = [HELM, "template", "release", str(CHART), "--namespace", NAMESPACE, "--values", "-", *options]
    return subprocess.run(command, input=json.dumps(values or {}), capture_output=True, text=True, check=False)


def render(*options: str, values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    done = helm(*options, values=values)
    assert done.returncode == 0, done.stderr
    return [item for item in yaml.safe_load_all(done.stdout) if item]


@pytest.fixture(scope="module")
def namespaced() -> list[dict[str, Any]]:
    return render()


@pytest.fixture(scope="module")
def cluster() -> list[dict[str, Any]]:
    return render(values=FULL)


@pytest.fixture(scope="module", params=[{}, FULL], ids=["defaults", "full"])
def objects(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return render(values=request.param)


def one(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    return next(item for item in objects if (item["kind"], item["metadata"]["name"]) == (kind, name))


def pod(objects: list[dict[str, Any]], component: str) -> dict[str, Any]:
    found: dict[str, Any] = one(objects, "Deployment", f"cachescope-{component}")["spec"]["template"]
    return found


def pods(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [pod(objects, OPERATOR)["spec"], pod(objects, GATEWAY)["spec"], one(objects, "Pod", "cachescope-test")["spec"]]


def container(objects: list[dict[str, Any]], component: str, name: str) -> dict[str, Any]:
    return next(item for item in pod(objects, component)["spec"]["containers"] if item["name"] == name)


def grants(objects: list[dict[str, Any]], component: str) -> Iterator[tuple[str, str, str, bool]]:
    """(group, resource, verb, whether everywhere) that the roles of a component grant."""
    for item in objects:
        if item["kind"] in {"Role", "ClusterRole"} and item["metadata"]["labels"][COMPONENT_LABEL] == component:
            for rule in item["rules"]:
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        yield from ((group, resource, verb, item["kind"] == "ClusterRole") for verb in rule["verbs"])


def test_helm_lint_finds_nothing() -> None:
    done = subprocess.run([HELM, "lint", "--strict", str(CHART)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_rendering_twice_gives_the_same(cluster: list[dict[str, Any]]) -> None:
    assert render(values=FULL) == cluster


def test_namespaced_mode_has_nothing_of_cluster_scope(namespaced: list[dict[str, Any]], cluster: list[dict[str, Any]]) -> None:
    assert {item["metadata"].get("namespace") for item in namespaced} == {NAMESPACE}
    assert not [item for item in namespaced if item["kind"].startswith("Cluster")]
    wide = [item for item in cluster if item["kind"].startswith("Cluster")]
    assert {item["kind"] for item in wide} == {"ClusterRole", "ClusterRoleBinding"}
    assert all(NAMESPACE in item["metadata"]["name"] for item in wide)


def test_every_pod_meets_the_restricted_profile_with_a_read_only_root(objects: list[dict[str, Any]]) -> None:
    for spec in pods(objects):
        assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        for item in spec["containers"]:
            assert item["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
    assert "runAsUser" not in json.dumps(objects)


def test_every_image_is_a_value(cluster: list[dict[str, Any]], namespaced: list[dict[str, Any]]) -> None:
    images = {item["name"]: item["image"] for spec in pods(cluster) for item in spec["containers"]}
    operator = "mirror/operator@sha256:" + "a" * 64
    assert images == {"operator": operator, "test": operator, "processor": "mirror/gateway:t1", "envoy": "mirror/gateway:t1"}
    assert environment(container(cluster, OPERATOR, "operator"))["CACHESCOPE_GUARD_IMAGE"] == "mirror/guard:t2"
    assert all(spec["imagePullSecrets"] == [{"name": "pull"}] for spec in pods(cluster))
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert container(namespaced, OPERATOR, "operator")["image"].endswith(f":{version}")


def environment(item: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in item["env"]}


def test_operator_and_gateway_know_their_mode_and_namespace(cluster: list[dict[str, Any]]) -> None:
    for component, name in ((OPERATOR, "operator"), (GATEWAY, "processor")):
        found = environment(container(cluster, component, name))
        assert found["CACHESCOPE_SCOPE"] == "Cluster"
        assert found["CACHESCOPE_NAMESPACE"]["fieldRef"]["fieldPath"] == "metadata.namespace"
    assert environment(container(cluster, OPERATOR, "operator"))["CACHESCOPE_API_SERVERS"] == "10.0.0.1/32,fd00::1/128"


def test_envoy_holds_neither_keys_nor_a_token(cluster: list[dict[str, Any]]) -> None:
    mounts = {item["name"] for item in container(cluster, GATEWAY, "envoy")["volumeMounts"]}
    assert mounts == {"run", "tmp-envoy", "settings", "tls", "client-ca"}
    assert pod(cluster, GATEWAY)["spec"]["automountServiceAccountToken"] is False
    assert {"root-keys", "token"} <= {item["name"] for item in container(cluster, GATEWAY, "processor")["volumeMounts"]}


def test_the_processor_finds_its_keys_and_envoy_its_certificate(cluster: list[dict[str, Any]]) -> None:
    volumes = {item["name"]: item.get("secret") for item in pod(cluster, GATEWAY)["spec"]["volumes"]}
    assert volumes["root-keys"] == {"secretName": ROOT_KEYS_SECRET}
    assert volumes["tls"] == {"secretName": "door"}
    assert volumes["client-ca"] == {"secretName": "clients.ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    assert volumes["key-set-0"]["secretName"] == "north.jwks"
    doors = {item["name"]: item["mountPath"] for item in container(cluster, GATEWAY, "envoy")["volumeMounts"]}
    assert (doors["tls"], doors["client-ca"]) == ("/etc/cachescope/tls", "/etc/cachescope/client-ca")
    paths = {item["name"]: item["mountPath"] for item in container(cluster, GATEWAY, "processor")["volumeMounts"]}
    assert paths["key-set-0"] == "/etc/cachescope/secrets/north.jwks"
    assert container(cluster, GATEWAY, "envoy")["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert one(cluster, "Service", "cachescope-gateway")["spec"]["ports"][0]["port"] == 443


def test_settings_arrive_as_they_were_written(cluster: list[dict[str, Any]]) -> None:
    settings = read_settings(one(cluster, "ConfigMap", "cachescope-settings")["data"]["settings.yaml"], "the chart")
    assert settings.max_request_bytes == 16777216
    assert settings.identity_providers[0].jwks.secret_name == "north.jwks"
    assert [domain.name for domain in settings.trust_domains] == ["corp"]
    assert settings.service_accounts is not None


@pytest.mark.parametrize(
    ("setting", "rolled"),
    [("streamIdleSeconds=5", True), ("tls.secretName=door", True), ("leaseSeconds=30", True), ("maxRequestBytes=2048", False)],
)
def test_only_settings_that_are_read_once_change_gateway_pods(
    namespaced: list[dict[str, Any]], setting: str, *, rolled: bool
) -> None:
    changed = render("--set", f"settings.{setting}")
    assert (pod(changed, GATEWAY)["metadata"] != pod(namespaced, GATEWAY)["metadata"]) is rolled


def test_a_new_chart_version_alone_changes_no_pod(namespaced: list[dict[str, Any]], tmp_path: Path) -> None:
    copy = shutil.copytree(CHART, tmp_path / "chart")
    chart = copy / "Chart.yaml"
    chart.write_text(chart.read_text().replace("\nversion: ", "\nversion: 9"))
    command = [HELM, "template", "release", str(copy), "--namespace", NAMESPACE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    newer = list(yaml.safe_load_all(done.stdout))
    label = one(newer, "Deployment", "cachescope-gateway")["metadata"]["labels"]["helm.sh/chart"]
    assert label != one(namespaced, "Deployment", "cachescope-gateway")["metadata"]["labels"]["helm.sh/chart"]
    assert [pod(newer, component) for component in (OPERATOR, GATEWAY)] == [
        pod(namespaced, component) for component in (OPERATOR, GATEWAY)
    ]


def test_a_processor_outlives_its_envoy_and_both_end_within_the_grace(namespaced: list[dict[str, Any]]) -> None:
    processor, envoy = (seconds(container(namespaced, GATEWAY, name)) for name in ("processor", "envoy"))
    assert REMOVAL_SECONDS + envoy + 5 <= processor
    assert pod(namespaced, GATEWAY)["spec"]["terminationGracePeriodSeconds"] > processor + 30


def seconds(item: dict[str, Any]) -> int:
    return int(item["lifecycle"]["preStop"]["exec"]["command"][-1])


def test_a_container_that_hangs_is_not_drained_before_its_restart(namespaced: list[dict[str, Any]]) -> None:
    probes = [item["livenessProbe"] for spec in pods(namespaced)[:2] for item in spec["containers"]]
    assert [probe["terminationGracePeriodSeconds"] for probe in probes] == [10, 10, 10]


def test_a_users_pod_labels_never_replace_those_that_select(cluster: list[dict[str, Any]]) -> None:
    labels = pod(cluster, OPERATOR)["metadata"]["labels"]
    assert labels["team"] == "a"
    assert one(cluster, "Deployment", "cachescope-operator")["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert pod(cluster, GATEWAY)["metadata"]["labels"].items() >= {COMPONENT_LABEL: GATEWAY, PART_OF_LABEL: "cachescope"}.items()


def test_replicas_are_left_out_under_an_autoscaler(namespaced: list[dict[str, Any]], cluster: list[dict[str, Any]]) -> None:
    assert one(namespaced, "Deployment", "cachescope-gateway")["spec"]["replicas"] == 2
    assert "replicas" not in one(cluster, "Deployment", "cachescope-gateway")["spec"]


def test_budgets_never_block_a_drain(cluster: list[dict[str, Any]]) -> None:
    budgets = [item["spec"] for item in cluster if item["kind"] == "PodDisruptionBudget"]
    assert [budget["maxUnavailable"] for budget in budgets] == [1, 1]


def test_metrics_are_for_the_monitoring_namespace_alone(namespaced: list[dict[str, Any]]) -> None:
    for component in (OPERATOR, GATEWAY):
        rules = one(namespaced, "NetworkPolicy", f"cachescope-{component}")["spec"]["ingress"]
        (peers,) = [rule["from"] for rule in rules if rule["ports"][0]["port"] == 9090]
        assert peers == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]


def test_kinds_of_the_prometheus_operator_come_only_when_asked_for(
    namespaced: list[dict[str, Any]], cluster: list[dict[str, Any]]
) -> None:
    assert {item["kind"] for item in cluster} - {item["kind"] for item in namespaced} >= {
        *("ServiceMonitor", "PodMonitor", "PrometheusRule")
    }
    assert "monitoring.coreos.com" not in json.dumps(namespaced)


def test_every_alert_says_how_bad_it_is_and_what_to_do(cluster: list[dict[str, Any]]) -> None:
    rule = one(cluster, "PrometheusRule", "cachescope")
    assert rule["metadata"]["labels"]["team"] == "on-call"
    alerts = [alert for group in rule["spec"]["groups"] for alert in group["rules"]]
    assert len({alert["alert"] for alert in alerts}) == len(alerts) >= 8
    for alert in alerts:
        assert alert["labels"]["severity"] in {"critical", "warning"}
        assert set(alert["annotations"]) == {"summary", "description"}


def test_a_gateway_writes_its_leases_in_its_own_namespace_and_nothing_else(objects: list[dict[str, Any]]) -> None:
    written = {item for item in grants(objects, GATEWAY) if item[2] not in {"get", "list", "watch"}}
    assert written == {("cachescope.dev", "fenceleases", verb, False) for verb in ("create", "update")}
    assert {(resource, verb) for _, resource, verb, _ in grants(objects, GATEWAY) if resource == "secrets"} == {
        ("secrets", "list"),
        ("secrets", "watch"),
    }


def test_the_operator_may_follow_every_kind_that_it_watches(objects: list[dict[str, Any]]) -> None:
    held = {item[:3] for item in grants(objects, OPERATOR)}
    wanted = {(item.api_version.rpartition("/")[0], item.plural, verb) for item in WATCHED for verb in ("list", "watch")}
    assert wanted - held == set()


def test_the_operator_may_write_no_more_than_it_writes(objects: list[dict[str, Any]]) -> None:
    children = {kind.plural for kind in WATCHED if kind.selector == CHILDREN} - {"pods"}
    writes = {item[:3] for item in grants(objects, OPERATOR) if item[2] not in {"get", "list", "watch"}}
    assert {(resource, verb) for _, resource, verb in writes} == {
        *((resource, verb) for resource in {*children, "servingpools"} for verb in ("create", "patch", "delete")),
        ("pods", "delete"),
        *((f"{plural}/status", "update") for plural in ("servingpools", "tenants", "cachescopes", "publicsources", "cacheepochs")),
        *(("fenceleases", verb) for verb in ("create", "update", "delete")),
        *((resource, verb) for resource in ("epochledgers", "leases") for verb in ("create", "update")),
        *(("cacheepochs", verb) for verb in ("create", "delete")),
        *(("events", verb) for verb in ("create", "patch")),
    }
    assert {group for group, resource, _ in writes if resource == "events"} == {"events.k8s.io"}


def test_ports_of_the_api_server_and_the_guards_version_arrive(namespaced: list[dict[str, Any]]) -> None:
    found = environment(container(namespaced, OPERATOR, "operator"))
    assert found["CACHESCOPE_API_SERVER_PORTS"] == "443,6443"
    assert "CACHESCOPE_GUARD_VERSION" not in found, "it is the operator's own"
    other = render("--set", "apiServerPorts={8443},images.guard.version=0.2.0")
    found = environment(container(other, OPERATOR, "operator"))
    assert (found["CACHESCOPE_API_SERVER_PORTS"], found["CACHESCOPE_GUARD_VERSION"]) == ("8443", "0.2.0")


def test_names_that_yaml_would_take_for_something_else_stay_texts() -> None:
    values = {
        "monitoringNamespace": "123",
        "priorityClassName": "true",
        "imagePullSecrets": ["1e3"],
        "settings": {
            "tls": {"secretName": "0x10"},
            "identityProviders": [{"name": "n", "issuer": "i", "jwks": {"secretName": "12"}}],
        },
    }
    found = render(values=values)
    for spec in pods(found)[:2]:
        assert (spec["priorityClassName"], spec["imagePullSecrets"]) == ("true", [{"name": "1e3"}])
    secrets = [item["secret"]["secretName"] for item in pod(found, GATEWAY)["spec"]["volumes"] if "secret" in item]
    assert secrets == [ROOT_KEYS_SECRET, "12", "0x10"]
    assert environment(container(found, OPERATOR, "operator"))["CACHESCOPE_MONITORING_NAMESPACE"] == "123"
    names = re.findall(r'"kubernetes.io/metadata.name": ("?\w+"?)', json.dumps(found))
    assert names == ['"123"'] * 2


def test_people_may_see_when_the_operator_was_last_there(namespaced: list[dict[str, Any]]) -> None:
    for role in USER_ROLES:
        rules = one(namespaced, "Role", f"cachescope-{role}")["rules"]
        (rule,) = [item for item in rules if "leases" in item["resources"]]
        assert (rule["resourceNames"], rule["verbs"]) == (["cachescope-operator"], ["get"])


def test_the_operator_holds_what_it_grants_to_engines(objects: list[dict[str, Any]]) -> None:
    held = {item[:3] for item in grants(objects, OPERATOR)}
    assert {("cachescope.dev", "fenceleases", verb) for verb in ("create", "get", "update")} <= held
    assert ("cachescope.dev", "epochledgers", "get") in held
    assert not {verb for _, _, verb in held} & {"*", "escalate", "bind", "impersonate", "deletecollection"}
    assert {everywhere for _, resource, _, everywhere in grants(objects, OPERATOR) if resource == "leases"} == {False}


@pytest.mark.parametrize(
    ("scope", "create", "kind", "aggregated"),
    [
        ("Namespaced", "null", "Role", False),
        ("Namespaced", "true", "ClusterRole", True),
        ("Cluster", "null", "ClusterRole", True),
        ("Cluster", "false", None, False),
    ],
)
def test_nobody_may_write_ledgers_or_leases_by_a_role_for_people(
    scope: str, create: str, kind: str | None, *, aggregated: bool
) -> None:
    objects = render("--set", f"scope={scope},aggregatedRoles.create={create}")
    roles = {
        item["metadata"]["labels"][COMPONENT_LABEL]: item
        for item in objects
        if item["kind"] == kind and item["metadata"]["labels"][COMPONENT_LABEL] in USER_ROLES
    }
    assert set(roles) == (USER_ROLES if kind else set())
    labels = {label for item in roles.values() for label in item["metadata"]["labels"]}
    assert ("rbac.authorization.k8s.io/aggregate-to-edit" in labels) is aggregated
    written = {(role, resource) for role in roles for _, resource, verb, _ in grants(objects, role) if verb in {"create", "patch"}}
    assert not {resource for _, resource in written} & {"epochledgers", "fenceleases", "servingpools/status", "*"}
    assert not kind or {("incident-responder", "cacheepochs"), ("tenant-admin", "tenants"), ("edit", "servingpools")} <= written
    assert {role for role, resource in written if resource == "publicsources"} == ({"source-approver"} if kind else set())


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("scope=Everywhere", "scope"),
        ("images.operator.digest=sha256:short", "digest"),
        ("images.engine.repository=x", "engine"),
        ("replicas=2", "replicas"),
        ("operator.replicas=-1", "replicas"),
        ("gateway.service.type=ExternalName", "type"),
        ("apiServers={10.0.0.1}", "apiServers"),
        ("apiServerPorts={0}", "apiServerPorts"),
        ("images.guard.version=latest", "version"),
        ("settings.maxRequestByte=1", "maxRequestByte"),
        ("settings.maxRequestBytes=1", "maxRequestBytes"),
        (f"{PROVIDERS}name=a,{PROVIDERS}issuer=b", "jwks"),
        (f"{PROVIDERS}name=a,{PROVIDERS}issuer=b,{PROVIDERS}jwks.url=https://a,{PROVIDERS}jwks.file=/b", "exactly one"),
    ],
)
def test_a_value_that_is_not_valid_is_refused_by_name(option: str, said: str) -> None:
    done = helm("--set", option)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.parametrize("path", sorted((CHART.parents[1] / "examples").glob("*values.yaml")), ids=lambda path: str(path.name))
def test_every_example_of_values_is_valid(path: Path) -> None:
    assert render("--values", str(path))


def test_it_may_be_a_part_of_another_chart() -> None:
    render("--set", "global.anything=1")
