from __future__ import annotations

import json
from typing import Any

import pytest

from cachescope.cli.render import declare
from cachescope.core.epochs import Floors, epoch
from cachescope.core.errors import SpecError
from cachescope.core.heads import Head, parse_head
from cachescope.manifests.configuration import write_head
from cachescope.manifests.installation import Declared, installation
from cachescope.manifests.parts import Site
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
    assert {mount["name"] for mount in envoy["volumeMounts"]} == {"run", "tmp", "settings"}


def test_the_guard_is_the_last_middleware_and_users_arguments_come_first() -> None:
    command = one("Deployment", "tiny")["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[-2:] == ["--middleware", "cachescope.guard.asgi.Guard"]
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


def test_a_head_is_read_as_it_was_written() -> None:
    assert parse_head(json.loads(write_head(HEAD))) == HEAD
