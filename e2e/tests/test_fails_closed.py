"""What is broken lets nothing pass: the processor dead, the guard removed, the configuration unreadable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2 as httpx
import pytest

from cachescope.core.labels import ENGINE_PORT
from cachescope.manifests.network import GATEWAY_PORT
from e2e.stack import kubectl
from e2e.stack.attacker import BODY, PATH, send
from e2e.stack.install import GATEWAY, POOL, Stack, install
from e2e.stack.waiting import until

TRIES = 50
# It ends when it is told to, so that its pod need not be killed.
NEVER_SERVES = "import signal; signal.signal(signal.SIGTERM, signal.default_int_handler); signal.pause()"


@pytest.fixture(autouse=True)
def _whole_again(stack: Stack) -> Iterator[None]:
    """Every test starts and ends with the declared installation, serving."""
    with _gateway() as address:
        until(lambda: _status(stack, address) == 200, "the gateway serves before the test")
    yield
    install(stack)
    with _gateway() as address:
        until(lambda: _status(stack, address) == 200, "the gateway serves again")


def test_a_dead_processor_lets_nothing_pass(stack: Stack) -> None:
    _replace_gateway(stack, _without_processor)
    until(lambda: any(_envoy_is_ready(pod) for pod in _staying()), "Envoy serves beside a processor that does not")
    name = next(pod["metadata"]["name"] for pod in _staying() if _envoy_is_ready(pod))
    with kubectl.forwarded(f"pod/{name}", GATEWAY_PORT) as address:
        answers = [_send(stack, address) for _ in range(TRIES)]
    assert [answer.status_code for answer in answers] == [503] * TRIES
    assert {(answer.json()["error"]["type"], answer.json()["error"]["code"]) for answer in answers} == {
        ("server_error", "gateway_not_ready")
    }


def test_a_processor_that_restarts_lets_nothing_pass_meanwhile(stack: Stack) -> None:
    pod = kubectl.ready_pod(GATEWAY)["metadata"]["name"]
    with kubectl.forwarded(f"pod/{pod}", GATEWAY_PORT) as address:
        kubectl.run("exec", pod, "-c", "processor", "--", "/bin/sh", "-c", "kill -TERM 1")
        seen: set[int] = set()

        def next_status() -> int:
            status = _status(stack, address)
            seen.add(status)
            return status

        until(lambda: next_status() == 503, "Envoy answers for the dead processor")
        until(lambda: next_status() == 200, "the processor is back")
    assert seen <= {200, 503}


def test_an_engine_without_its_guard_is_not_routed_to(stack: Stack) -> None:
    kubectl.apply([_without_guard(item) for item in stack.manifests() if _is(item, "Deployment", POOL)])
    kubectl.rolled_out(POOL)
    with _gateway() as address, kubectl.forwarded_pod(POOL, ENGINE_PORT) as engine:
        assert send(f"http://{engine}{PATH}", BODY, _json()).status_code == 200
        until(lambda: _status(stack, address) == 503, "the gateway noticed")
        assert [_status(stack, address) for _ in range(TRIES)] == [503] * TRIES


def test_an_unreadable_configuration_lets_nothing_pass(stack: Stack) -> None:
    kubectl.apply([_broken(item) for item in stack.manifests() if _is(item, "ConfigMap", "cachescope-config")])
    old = {pod["metadata"]["name"] for pod in _pods()}
    kubectl.run("delete", "pod", *old, "--wait=true")
    until(lambda: any(_envoy_is_ready(pod) for pod in _staying()), "a new gateway's Envoy serves")
    name = next(pod["metadata"]["name"] for pod in _staying() if _envoy_is_ready(pod))
    with kubectl.forwarded(f"pod/{name}", GATEWAY_PORT) as address:
        assert [_status(stack, address) for _ in range(TRIES)] == [503] * TRIES
    assert not any(_ready(pod) for pod in _pods())


@pytest.mark.usefixtures("stack")
def test_without_its_configuration_no_gateway_starts() -> None:
    kubectl.run("delete", "configmap", "cachescope-config")
    kubectl.run("delete", "pod", *(pod["metadata"]["name"] for pod in _pods()), "--wait=true")
    until(lambda: any(_cannot_mount(pod) for pod in _staying()), "the kubelet misses the configuration of a new gateway")
    assert [pod["metadata"]["name"] for pod in _staying() if _started(pod)] == []
    # The next pod asks for its volumes at once; this one's kubelet waits longer after every failure.
    kubectl.run("delete", "pod", *(pod["metadata"]["name"] for pod in _staying()), "--wait=false")


def test_an_engine_that_was_asked_for_another_front_door_serves_nobody(stack: Stack) -> None:
    kubectl.apply([_with_dev_mode(item) for item in stack.manifests() if _is(item, "Deployment", POOL)])
    until(lambda: len(_pods(POOL)) == 1 and _misconfigured(_pods(POOL)[0]), "the new engine's guard refuses")
    with _gateway() as address:
        assert [_status(stack, address) for _ in range(TRIES)] == [503] * TRIES
    with kubectl.forwarded(f"pod/{_pods(POOL)[0]['metadata']['name']}", 8000) as engine:
        answers = [send(f"http://{engine}{PATH}", BODY, _json()).status_code for _ in range(TRIES)]
    assert answers == [503] * TRIES


@contextmanager
def _gateway() -> Iterator[str]:
    with kubectl.forwarded_pod(GATEWAY, GATEWAY_PORT) as address:
        yield address


def _status(stack: Stack, address: str) -> int:
    return _send(stack, address).status_code


def _send(stack: Stack, address: str) -> httpx.Response:
    headers = _json() | {"authorization": f"Bearer {stack.credentials.api_keys['blue-carol']}"}
    return send(f"http://{address}{PATH}", BODY, headers)


def _json() -> dict[str, str]:
    return {"content-type": "application/json"}


def _is(item: dict[str, Any], kind: str, name: str) -> bool:
    return bool((item["kind"], item["metadata"]["name"]) == (kind, name))


def _without_guard(deployment: dict[str, Any]) -> dict[str, Any]:
    engine = deployment["spec"]["template"]["spec"]["containers"][0]
    position = engine["command"].index("--middleware")
    del engine["command"][position : position + 2]
    return deployment


def _with_dev_mode(deployment: dict[str, Any]) -> dict[str, Any]:
    deployment["spec"]["strategy"] = {"type": "Recreate", "rollingUpdate": None}
    engine = deployment["spec"]["template"]["spec"]["containers"][0]
    engine["env"].append({"name": "VLLM_SERVER_DEV_MODE", "value": "1"})
    return deployment


def _misconfigured(pod: dict[str, Any]) -> bool:
    if not any("running" in status["state"] for status in pod["status"].get("containerStatuses") or []):
        return False
    try:
        with kubectl.forwarded(f"pod/{pod['metadata']['name']}", 8000) as engine:
            answer = httpx.get(f"http://{engine}/health", timeout=5)
    except (kubectl.KubectlError, httpx.HTTPError):
        return False
    return answer.status_code == 503 and "VLLM_SERVER_DEV_MODE" in answer.text


def _broken(config: dict[str, Any]) -> dict[str, Any]:
    return {**config, "data": {**config["data"], "resources.yaml": "kind: ServingPool\nspec: not a pool\n"}}


def _replace_gateway(stack: Stack, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Apply a changed gateway in place of the declared one, whose pods are gone when this returns."""
    old = {pod["metadata"]["name"] for pod in _pods()}
    kubectl.apply([change(item) for item in stack.manifests() if _is(item, "Deployment", GATEWAY)])
    until(lambda: not old & {pod["metadata"]["name"] for pod in _pods()}, "the declared gateway is gone")


def _without_processor(deployment: dict[str, Any]) -> dict[str, Any]:
    deployment["spec"]["strategy"] = {"type": "Recreate", "rollingUpdate": None}
    processor = next(each for each in deployment["spec"]["template"]["spec"]["containers"] if each["name"] == "processor")
    processor["command"] = ["/opt/cachescope/bin/python", "-c", NEVER_SERVES]
    del processor["livenessProbe"]  # it would be restarted; here it stays dead
    return deployment


def _pods(name: str = GATEWAY) -> list[dict[str, Any]]:
    return kubectl.pods(name)


def _staying() -> list[dict[str, Any]]:
    return [pod for pod in _pods() if "deletionTimestamp" not in pod["metadata"]]


def _cannot_mount(pod: dict[str, Any]) -> bool:
    about = f"involvedObject.name={pod['metadata']['name']},reason=FailedMount"
    return any("cachescope-config" in event["message"] for event in kubectl.get("events", "--field-selector", about)["items"])


def _started(pod: dict[str, Any]) -> bool:
    return any("waiting" not in status["state"] for status in pod["status"].get("containerStatuses") or [])


def _envoy_is_ready(pod: dict[str, Any]) -> bool:
    statuses = pod["status"].get("containerStatuses") or []
    return any(status["name"] == "envoy" and status["ready"] for status in statuses)


def _ready(pod: dict[str, Any]) -> bool:
    return any(item["type"] == "Ready" and item["status"] == "True" for item in pod["status"].get("conditions") or [])
