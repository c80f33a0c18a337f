from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import orjson
import pytest

from cachescope.api.settings import Tls
from cachescope.cli.render import declare
from cachescope.core.epochs import Floors, epoch
from cachescope.core.errors import SpecError
from cachescope.core.heads import Head, parse_head
from cachescope.gateway.drain import REMOVAL_SECONDS
from cachescope.gateway.strict_json import parse
from cachescope.guard.settings import read_settings
from cachescope.manifests.configuration import write_head
from cachescope.manifests.engine import guard_body_bytes
from cachescope.manifests.installation import Declared, installation
from cachescope.manifests.parts import Site
from tests.unit.test_guard_settings import COMPLETE
from tests.unit.whole_path import EXAMPLES

SITE = Site("pools", "gateway-image", "guard-image")
KEYS = {"k1": "ab" * 32, "targets": "cd" * 32}
HEAD = Head("lineage", 1, Floors(base=epoch(1)))


def declared(change: tuple[str, str] = ("", "")) -> Declared:
    resources = (EXAMPLES / "resources.yaml").read_text()
    return declare((EXAMPLES / "settings.yaml").read_text(), resources.replace(*change) if change[0] else resources, source="test")


def rendered(change: tuple[str, str] = ("", "")) -> list[dict[str, Any]]:
    return installation(SITE, declared(change), KEYS, HEAD)


def one(kind: str, name: str) -> dict[str, Any]:
    return next(item for item in rendered() if (item["kind"], item["metadata"]["name"]) == (kind, name))


def pods() -> list[dict[str, Any]]:
    return [item["spec"]["template"]["spec"] for item in rendered() if item["kind"] == "Deployment"]


def test_rendering_twice_gives_the_same() -> None:
    assert json.dumps(rendered()) == json.dumps(rendered())


def test_every_container_meets_the_restricted_profile_with_a_read_only_root() -> None:
    for pod in pods():
        assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert not container["securityContext"]["allowPrivilegeEscalation"]


def test_an_engine_pod_holds_its_own_permit_key_and_no_other_secret() -> None:
    pod = one("Deployment", "tiny")["spec"]["template"]["spec"]
    assert [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume] == ["tiny-permit-keys"]
    text = json.dumps([item for item in rendered() if item["metadata"]["name"] == "tiny"])
    assert KEYS["k1"] not in text
    assert KEYS["targets"] not in text
    assert pod["automountServiceAccountToken"] is False


def test_envoy_holds_no_key() -> None:
    envoy = next(item for pod in pods() for item in pod["containers"] if item["name"] == "envoy")
    assert {mount["name"] for mount in envoy["volumeMounts"]} == {"run", "tmp-envoy", "settings"}


def test_the_guard_is_the_last_middleware_and_users_arguments_come_first() -> None:
    command = one("Deployment", "tiny")["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[-4:-2] == ["--middleware", "cachescope.guard.asgi.Guard"]
    assert command.index("--enforce-eager") < command.index("--model")


def test_nobody_but_gateways_and_monitoring_reaches_an_engine() -> None:
    policy = one("NetworkPolicy", "tiny")["spec"]
    assert policy["egress"] == []
    assert [(rule["ports"][0]["port"], list(rule["from"][0])) for rule in policy["ingress"]] == [
        (8000, ["podSelector"]),
        (9400, ["namespaceSelector"]),
    ]


def test_the_gateway_may_read_endpoint_slices_of_its_namespace_and_nothing_else() -> None:
    rules = one("Role", "cachescope-gateway")["rules"]
    assert rules == [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]
    assert not any(item["kind"].startswith("Cluster") for item in rendered())


def test_no_pod_runs_as_a_fixed_user() -> None:
    assert "runAsUser" not in json.dumps(rendered())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("version: 0.32.0", "version: 0.30.0"), "0.30.0"),
        (("version: 0.32.0", "version: latest"), "latest"),
        (("--enforce-eager", "--grpc"), "grpc"),
        (("--enforce-eager", "--headless"), "headless"),
        (("--enforce-eager", "--api-server-count=2"), "api-server-count"),
        (("VLLM_TARGET_DEVICE: cpu", "VLLM_SERVER_DEV_MODE: '1'"), "VLLM_SERVER_DEV_MODE"),
        (("VLLM_TARGET_DEVICE: cpu", "VLLM_USE_RUST_FRONTEND: '1'"), "VLLM_USE_RUST_FRONTEND"),
        (("VLLM_TARGET_DEVICE: cpu", "PYTHONPATH: /elsewhere"), "PYTHONPATH"),
    ],
)
def test_a_pool_that_cannot_be_guarded_is_refused_with_the_reason(change: tuple[str, str], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        rendered(change)


def seconds(container: dict[str, Any]) -> int:
    """The limit of a container's preStop command."""
    return int(container["lifecycle"]["preStop"]["exec"]["command"][-1])


def test_a_gateways_processor_outlives_its_envoy_and_both_end_within_the_grace() -> None:
    pod = one("Deployment", "cachescope-gateway")["spec"]["template"]["spec"]
    containers = {item["name"]: item for item in pod["containers"]}
    envoy = REMOVAL_SECONDS + seconds(containers["envoy"])
    assert envoy + 5 <= seconds(containers["processor"])
    assert pod["terminationGracePeriodSeconds"] > seconds(containers["processor"]) + 30
    assert containers["envoy"]["lifecycle"]["preStop"]["exec"]["command"][:2] == ["cachescope", "drain-envoy"]
    assert containers["processor"]["lifecycle"]["preStop"]["exec"]["command"][:2] == ["cachescope", "outlive-envoy"]


def test_a_container_that_hangs_is_not_drained_before_its_restart() -> None:
    probes = [container["livenessProbe"] for pod in pods() for container in pod["containers"]]
    assert [probe["terminationGracePeriodSeconds"] for probe in probes] == [10] * len(probes)


def test_an_engines_running_requests_may_end_within_the_grace() -> None:
    pod = one("Deployment", "tiny")["spec"]["template"]["spec"]
    (engine,) = pod["containers"]
    drain = int(engine["command"][engine["command"].index("--shutdown-timeout") + 1])
    assert drain >= 60
    assert pod["terminationGracePeriodSeconds"] > engine["lifecycle"]["preStop"]["sleep"]["seconds"] + drain


def body_limit(settings: str) -> int:
    resources = (EXAMPLES / "resources.yaml").read_text()
    items = installation(SITE, declare(settings, resources, source="test"), KEYS, HEAD)
    engine = next(item for item in items if (item["kind"], item["metadata"]["name"]) == ("Deployment", "tiny"))
    (container,) = engine["spec"]["template"]["spec"]["containers"]
    return next(int(item["value"]) for item in container["env"] if item["name"] == "CACHESCOPE_MAX_BODY_BYTES")


def test_the_guards_limit_follows_the_gateways() -> None:
    assert body_limit("{}") == guard_body_bytes(16 * 2**20)
    assert body_limit("maxRequestBytes: 2048") == guard_body_bytes(2048)


def test_a_guard_takes_the_limit_of_the_largest_setting() -> None:
    environ = {**COMPLETE, "CACHESCOPE_MAX_BODY_BYTES": str(guard_body_bytes(256 * 2**20))}
    assert read_settings(environ).max_body_bytes == guard_body_bytes(256 * 2**20)


@pytest.mark.parametrize(
    "element",
    [*(f"{sign}{digit}e{power}" for sign in ("", "-") for digit in ("9", "99", "1.5") for power in range(-30, 31)),
     "0.0", "-0", '"\\u0001"', '"\\u00e9"', '"\\/"', '"\u00e9"', '"\x7f"', "null", "[]", "{}"],
)  # fmt: skip
def test_what_the_gateway_makes_of_a_body_passes_the_guards_limit(element: str) -> None:
    body = f"[{','.join([element] * 1000)}]".encode()
    assert len(orjson.dumps(parse(body))) <= guard_body_bytes(len(body)) - guard_body_bytes(0)


def test_a_head_is_read_as_it_was_written() -> None:
    assert parse_head(json.loads(write_head(HEAD))) == HEAD


def test_a_certificate_is_mounted_into_envoy_alone_and_probed_by_https() -> None:
    plain = declared()
    with_tls = replace(plain, settings=plain.settings.model_copy(update={"tls": Tls(secret_name="door")}))
    objects = installation(SITE, with_tls, KEYS, HEAD)
    pod = next(item for item in objects if item["metadata"]["name"] == "cachescope-gateway" and item["kind"] == "Deployment")
    processor, envoy = pod["spec"]["template"]["spec"]["containers"]
    assert {"name": "tls", "mountPath": "/etc/cachescope/tls", "readOnly": True} in envoy["volumeMounts"]
    assert "tls" not in {mount["name"] for mount in processor["volumeMounts"]}
    assert envoy["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert {"name": "tls", "secret": {"secretName": "door"}} in pod["spec"]["template"]["spec"]["volumes"]
