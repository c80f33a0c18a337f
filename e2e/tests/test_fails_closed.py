"""What is broken lets nothing pass: the processor dead, the guard removed, the settings unreadable, the API out of reach."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2 as httpx
import pytest

from cachescope.core.labels import ENGINE_PORT
from e2e.stack import kubectl
from e2e.stack.attacker import BODY, PATH, send
from e2e.stack.changes import changed, no_operator, removed
from e2e.stack.forwarding import ForwardError
from e2e.stack.install import ENGINE_PODS, GATEWAY, GATEWAY_PODS, GATEWAY_PORT, POOL, Stack, pool_is_ready
from e2e.stack.waiting import until

TRIES = 50
SETTINGS = "cachescope-settings"
# It ends when it is told to, so that its pod need not be killed.
NEVER_SERVES = "import signal; signal.signal(signal.SIGTERM, signal.default_int_handler); signal.pause()"


@pytest.fixture(autouse=True)
def _whole_again(stack: Stack) -> Iterator[None]:
    """Every test starts and ends with the declared installation, serving."""
    _serves(stack)
    yield
    kubectl.rolled_out(GATEWAY)
    until(pool_is_ready, "the pool is ready again", 300)
    _serves(stack)


def test_a_dead_processor_lets_nothing_pass(stack: Stack) -> None:
    old = _names()
    with changed("deployment", GATEWAY, _without_processor):
        until(lambda: not old & _names(), "the declared gateway is gone")
        with _new_envoy() as address:
            answers = [_send(stack, address) for _ in range(TRIES)]
    assert [answer.status_code for answer in answers] == [503] * TRIES
    assert {(answer.json()["error"]["type"], answer.json()["error"]["code"]) for answer in answers} == {
        ("server_error", "gateway_not_ready")
    }


def test_a_processor_that_restarts_lets_nothing_pass_meanwhile(stack: Stack) -> None:
    pod = kubectl.ready_pod(GATEWAY_PODS)["metadata"]["name"]
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
    with no_operator(), changed("deployment", POOL, _without_guard):
        kubectl.rolled_out(POOL)
        with _gateway() as address, kubectl.forwarded_pod(ENGINE_PODS, ENGINE_PORT) as engine:
            assert send(f"http://{engine}{PATH}", BODY, _json()).status_code == 200
            until(lambda: _status(stack, address) == 503, "the gateway noticed")
            assert [_status(stack, address) for _ in range(TRIES)] == [503] * TRIES


@pytest.mark.usefixtures("stack")
def test_with_unreadable_settings_no_gateway_starts() -> None:
    with changed("configmap", SETTINGS, _broken):
        kubectl.run("delete", "pod", *_names(), "--wait=true")
        until(
            lambda: any(_failed(pod, "envoy") for pod in kubectl.staying_pods(GATEWAY_PODS)),
            "the Envoy of a new gateway refuses to start",
        )
        assert not any(kubectl.is_ready(pod) or _envoy_is_ready(pod) for pod in kubectl.staying_pods(GATEWAY_PODS))
    # The next pods start at once; the kubelet waits longer after every failure of these.
    kubectl.run("delete", "pod", *_names(), "--wait=true")


def test_a_gateway_that_may_not_read_the_api_lets_nothing_pass(stack: Stack) -> None:
    with removed("rolebinding", GATEWAY):
        kubectl.run("delete", "pod", *_names(), "--wait=true")
        with _new_envoy() as address:
            assert [_status(stack, address) for _ in range(TRIES)] == [503] * TRIES
        assert not any(kubectl.is_ready(pod) for pod in kubectl.pods(GATEWAY_PODS))


@pytest.mark.usefixtures("stack")
def test_without_its_settings_no_gateway_starts() -> None:
    with removed("configmap", SETTINGS):
        kubectl.run("delete", "pod", *_names(), "--wait=true")
        until(
            lambda: any(_cannot_mount(pod) for pod in kubectl.staying_pods(GATEWAY_PODS)),
            "the kubelet misses the settings of a new gateway",
        )
        assert [pod["metadata"]["name"] for pod in kubectl.staying_pods(GATEWAY_PODS) if _started(pod)] == []
    # The next pod asks for its volumes at once; this one's kubelet waits longer after every failure.
    kubectl.run("delete", "pod", *_names(), "--wait=false")


def test_an_engine_that_was_asked_for_another_front_door_serves_nobody(stack: Stack) -> None:
    with no_operator(), changed("deployment", POOL, _with_dev_mode):
        until(lambda: len(pods := kubectl.pods(ENGINE_PODS)) == 1 and _misconfigured(pods[0]), "the new engine's guard refuses")
        with _gateway() as address:
            assert [_status(stack, address) for _ in range(TRIES)] == [503] * TRIES
        pod = kubectl.pods(ENGINE_PODS)[0]["metadata"]["name"]
        with kubectl.forwarded(f"pod/{pod}", ENGINE_PORT) as engine:
            answers = [send(f"http://{engine}{PATH}", BODY, _json()).status_code for _ in range(TRIES)]
    assert answers == [503] * TRIES


def test_a_pool_that_asks_for_another_front_door_says_so_and_runs_nothing_new(stack: Stack) -> None:
    before = kubectl.get("deployment", POOL)["spec"]
    with changed("servingpool", POOL, _spec_with_dev_mode):
        until(lambda: _why_not_ready() == "InvalidSpec", "the pool says that its spec is refused")
        assert kubectl.get("deployment", POOL)["spec"] == before
    with _gateway() as address:
        until(lambda: _status(stack, address) == 200, "the pool serves as before")


def _serves(stack: Stack) -> None:
    with _gateway() as address:
        until(lambda: _status(stack, address) == 200, "the gateway serves")


@contextmanager
def _gateway() -> Iterator[str]:
    with kubectl.forwarded_pod(GATEWAY_PODS, GATEWAY_PORT) as address:
        yield address


@contextmanager
def _new_envoy() -> Iterator[str]:
    """A gateway whose Envoy serves, whatever its processor does."""
    until(
        lambda: any(_envoy_is_ready(pod) for pod in kubectl.staying_pods(GATEWAY_PODS)),
        "Envoy serves beside a processor that does not",
    )
    name = next(pod["metadata"]["name"] for pod in kubectl.staying_pods(GATEWAY_PODS) if _envoy_is_ready(pod))
    with kubectl.forwarded(f"pod/{name}", GATEWAY_PORT) as address:
        yield address


def _status(stack: Stack, address: str) -> int:
    return _send(stack, address).status_code


def _send(stack: Stack, address: str) -> httpx.Response:
    headers = _json() | {"authorization": f"Bearer {stack.credentials.api_keys['blue-carol']}"}
    return send(f"http://{address}{PATH}", BODY, headers)


def _json() -> dict[str, str]:
    return {"content-type": "application/json"}


def _engine(deployment: dict[str, Any]) -> dict[str, Any]:
    containers: list[dict[str, Any]] = deployment["spec"]["template"]["spec"]["containers"]
    return next(each for each in containers if each["name"] == "engine")


def _without_guard(deployment: dict[str, Any]) -> None:
    engine = _engine(deployment)
    position = engine["command"].index("--middleware")
    del engine["command"][position : position + 2]


def _with_dev_mode(deployment: dict[str, Any]) -> None:
    deployment["spec"]["strategy"] = {"type": "Recreate"}
    _engine(deployment)["env"].append({"name": "VLLM_SERVER_DEV_MODE", "value": "1"})


def _spec_with_dev_mode(pool: dict[str, Any]) -> None:
    pool["spec"]["engine"]["env"]["VLLM_SERVER_DEV_MODE"] = "1"


def _why_not_ready() -> str | None:
    ready = kubectl.condition(kubectl.get("servingpool", POOL), "Ready")
    return ready.get("reason") if ready.get("status") == "False" else None


def _misconfigured(pod: dict[str, Any]) -> bool:
    if not any("running" in status["state"] for status in pod["status"].get("containerStatuses") or []):
        return False
    try:
        with kubectl.forwarded(f"pod/{pod['metadata']['name']}", ENGINE_PORT) as engine:
            answer = httpx.get(f"http://{engine}/health", timeout=5)
    except (ForwardError, httpx.HTTPError):
        return False
    return answer.status_code == 503 and "VLLM_SERVER_DEV_MODE" in answer.text


def _broken(config: dict[str, Any]) -> None:
    config["data"]["settings.yaml"] = "identityProviders: not a list\n"


def _without_processor(deployment: dict[str, Any]) -> None:
    deployment["spec"]["strategy"] = {"type": "Recreate"}
    processor = next(each for each in deployment["spec"]["template"]["spec"]["containers"] if each["name"] == "processor")
    processor["command"] = ["/opt/cachescope/bin/python", "-c", NEVER_SERVES]
    processor.pop("args", None)
    del processor["livenessProbe"]  # it would be restarted; here it stays dead


def _names() -> set[str]:
    return {pod["metadata"]["name"] for pod in kubectl.pods(GATEWAY_PODS)}


def _cannot_mount(pod: dict[str, Any]) -> bool:
    about = f"involvedObject.name={pod['metadata']['name']},reason=FailedMount"
    return any(SETTINGS in event["message"] for event in kubectl.get("events", "--field-selector", about)["items"])


def _started(pod: dict[str, Any]) -> bool:
    return any("waiting" not in status["state"] for status in pod["status"].get("containerStatuses") or [])


def _envoy_is_ready(pod: dict[str, Any]) -> bool:
    statuses = pod["status"].get("containerStatuses") or []
    return any(status["name"] == "envoy" and status["ready"] for status in statuses)


def _failed(pod: dict[str, Any], container: str) -> bool:
    statuses = pod["status"].get("containerStatuses") or []
    return any(status["name"] == container and status["restartCount"] > 0 for status in statuses)
