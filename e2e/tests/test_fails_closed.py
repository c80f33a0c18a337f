"""What is broken lets nothing pass: the processor dead, the guard removed, the configuration unreadable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2 as httpx
import pytest

from e2e.stack import kubectl
from e2e.stack.attacker import BODY, PATH
from e2e.stack.install import GATEWAY, POOL, Stack, install
from e2e.stack.waiting import until

TRIES = 50


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
    with _gateway() as address:
        kubectl.run("exec", f"deployment/{GATEWAY}", "-c", "processor", "--", "/bin/sh", "-c", "kill -TERM 1")
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
    with _gateway() as address, kubectl.forwarded(f"deployment/{POOL}", 8000) as engine:
        assert httpx.post(f"http://{engine}{PATH}", content=BODY, headers=_json(), timeout=60).status_code == 200
        until(lambda: _status(stack, address) == 503, "the gateway noticed")
        assert [_status(stack, address) for _ in range(TRIES)] == [503] * TRIES


def test_an_unreadable_configuration_lets_nothing_pass(stack: Stack) -> None:
    kubectl.apply([_broken(item) for item in stack.manifests() if _is(item, "ConfigMap", "cachescope-config")])
    old = {pod["metadata"]["name"] for pod in _pods()}
    kubectl.run("delete", "pod", *old, "--wait=true")
    until(lambda: any(_running(pod) for pod in _pods()), "a new gateway runs")
    name = next(pod["metadata"]["name"] for pod in _pods() if _running(pod))
    with kubectl.forwarded(f"pod/{name}", 8080) as address:
        until(lambda: _status(stack, address) == 503, "Envoy has found its processor")
        assert [_status(stack, address) for _ in range(TRIES)] == [503] * TRIES
    assert not any(_ready(pod) for pod in _pods())


def test_an_engine_that_was_asked_for_another_front_door_serves_nobody(stack: Stack) -> None:
    kubectl.apply([_with_rust_front_end(item) for item in stack.manifests() if _is(item, "Deployment", POOL)])
    until(lambda: len(_pods(POOL)) == 1 and _misconfigured(_pods(POOL)[0]), "the new engine's guard refuses")
    with _gateway() as address:
        assert [_status(stack, address) for _ in range(TRIES)] == [503] * TRIES
    with kubectl.forwarded(f"pod/{_pods(POOL)[0]['metadata']['name']}", 8000) as engine:
        answers = [
            httpx.post(f"http://{engine}{PATH}", content=BODY, headers=_json(), timeout=60).status_code for _ in range(TRIES)
        ]
    assert answers == [503] * TRIES


@contextmanager
def _gateway() -> Iterator[str]:
    with kubectl.forwarded(f"service/{GATEWAY}", 80) as address:
        yield address


def _status(stack: Stack, address: str) -> int:
    headers = _json() | {"authorization": f"Bearer {stack.credentials.api_keys['blue-carol']}"}
    return httpx.post(f"http://{address}{PATH}", content=BODY, headers=headers, timeout=60).status_code


def _json() -> dict[str, str]:
    return {"content-type": "application/json"}


def _is(item: dict[str, Any], kind: str, name: str) -> bool:
    return bool((item["kind"], item["metadata"]["name"]) == (kind, name))


def _without_guard(deployment: dict[str, Any]) -> dict[str, Any]:
    engine = deployment["spec"]["template"]["spec"]["containers"][0]
    position = engine["command"].index("--middleware")
    del engine["command"][position : position + 2]
    return deployment


def _with_rust_front_end(deployment: dict[str, Any]) -> dict[str, Any]:
    deployment["spec"]["strategy"] = {"type": "Recreate", "rollingUpdate": None}
    engine = deployment["spec"]["template"]["spec"]["containers"][0]
    engine["env"].append({"name": "VLLM_USE_RUST_FRONTEND", "value": "1"})
    return deployment


def _misconfigured(pod: dict[str, Any]) -> bool:
    if not any("running" in status["state"] for status in pod["status"].get("containerStatuses") or []):
        return False
    try:
        with kubectl.forwarded(f"pod/{pod['metadata']['name']}", 8000) as engine:
            answer = httpx.get(f"http://{engine}/health", timeout=5)
    except (kubectl.KubectlError, httpx.HTTPError):
        return False
    return answer.status_code == 503 and "VLLM_USE_RUST_FRONTEND" in answer.text


def _broken(config: dict[str, Any]) -> dict[str, Any]:
    return {**config, "data": {**config["data"], "resources.yaml": "kind: ServingPool\nspec: not a pool\n"}}


def _pods(name: str = GATEWAY) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = kubectl.get("pods", "-l", f"app.kubernetes.io/name={name}")["items"]
    return found


def _running(pod: dict[str, Any]) -> bool:
    statuses = pod["status"].get("containerStatuses") or []
    return len(statuses) == 2 and all("running" in status["state"] for status in statuses)


def _ready(pod: dict[str, Any]) -> bool:
    return any(item["type"] == "Ready" and item["status"] == "True" for item in pod["status"].get("conditions") or [])
