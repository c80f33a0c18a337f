"""Cluster mode: pools and tenants of all namespaces; a pool is usable from another namespace only where it allows that.

Two installations must not serve the same namespace, so the demo's is uninstalled first: as a user would, with its pool in use.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import httpx2 as httpx
import pytest

from e2e.stack import helm, kubectl, tenancy
from e2e.stack.attacker import PATH, send
from e2e.stack.credentials import api_key_secret, new_key
from e2e.stack.install import ENGINE_PODS, GATEWAY, GATEWAY_PODS, GATEWAY_PORT, OPERATOR, POOL, RELEASE, Stack, namespace
from e2e.stack.paths import CHARTS
from e2e.stack.waiting import until

TRIES = 20
OPEN, CLOSED, TRAP = "open-to-friends", "same-namespace-only", "open-to-all-it-says"
LABELS = {"cachescope.example/models": "yes"}


@dataclass(frozen=True)
class Cluster:
    """An installation for the whole cluster.

    Attributes:
        home: Its namespace.
        models: The namespace with the pools.
        friend: A tenant's namespace that one pool allows.
        stranger: A tenant's namespace that none does.
        keys: An API key by namespace, of the tenant there.
    """

    home: str
    models: str
    friend: str
    stranger: str
    keys: dict[str, str]


@pytest.fixture(scope="module")
def cluster(stack: Stack) -> Iterator[Cluster]:
    """The demo is uninstalled; then the other mode is installed, in namespaces of its own."""
    _uninstall_demo()
    names = [f"cachescope-{part}-{secrets.token_hex(4)}" for part in ("system", "models", "friend", "stranger")]
    home, models, friend, stranger = names
    found = Cluster(home, models, friend, stranger, {name: new_key() for name in names[1:]})
    try:
        _prepare(stack, found)
        yield found
        helm.run("uninstall", RELEASE, "--wait", "--ignore-not-found", namespace=found.home)
    finally:
        kubectl.run("delete", "namespace", *names, "--ignore-not-found", "--wait=false")


@pytest.mark.usefixtures("stack")
def test_the_demo_uninstalls_while_it_serves() -> None:
    assert kubectl.pods(ENGINE_PODS)
    _uninstall_demo()
    assert not kubectl.exists("namespace", kubectl.NAMESPACE)


def test_pools_of_another_namespace_get_all_their_objects_there(cluster: Cluster) -> None:
    for name in (OPEN, CLOSED):
        for kind in ("deployment", "service", "networkpolicy", "poddisruptionbudget", "epochledger"):
            until(lambda kind=kind, name=name: kubectl.exists(kind, name, cluster.models), f"{kind} {name}")  # type: ignore[misc]


def test_a_pool_is_usable_from_another_namespace_only_where_it_allows_that(cluster: Cluster) -> None:
    with kubectl.forwarded_pod(GATEWAY_PODS, GATEWAY_PORT, cluster.home) as gateway:

        def answer(who: str, model: str) -> tuple[int, str]:
            return _answer(gateway, cluster.keys[who], model)

        # Nobody serves behind these pools: `no_endpoint` says that the caller may use the pool, `model_not_found` that he may not.
        until(lambda: answer(cluster.models, CLOSED) == (503, "no_endpoint"), "the pool's own namespace may use it")
        until(lambda: answer(cluster.friend, OPEN) == (503, "no_endpoint"), "an allowed namespace may use it")
        until(
            lambda: answer(cluster.stranger, TRAP) == (503, "no_endpoint"),
            "a pool of a namespace that is not listed serves its own",
        )
        refused = ((cluster.friend, CLOSED), (cluster.friend, TRAP), (cluster.stranger, CLOSED), (cluster.stranger, OPEN))
        for who, model in refused:
            assert [answer(who, model) for _ in range(TRIES)] == [(404, "model_not_found")] * TRIES
        assert _models(gateway, cluster.keys[cluster.friend]) == [OPEN]
        assert _models(gateway, cluster.keys[cluster.models]) == sorted([OPEN, CLOSED])
        assert _models(gateway, cluster.keys[cluster.stranger]) == [TRAP]


def test_a_namespace_that_loses_its_label_loses_the_pool(cluster: Cluster) -> None:
    with kubectl.forwarded_pod(GATEWAY_PODS, GATEWAY_PORT, cluster.home) as gateway:
        key = cluster.keys[cluster.friend]
        assert _answer(gateway, key, OPEN)[1] == "no_endpoint"
        kubectl.run("label", "namespace", cluster.friend, f"{next(iter(LABELS))}-")
        until(lambda: _answer(gateway, key, OPEN)[1] == "model_not_found", "the gateway follows the namespace's labels")
        assert [_answer(gateway, key, OPEN)[0] for _ in range(TRIES)] == [404] * TRIES


def test_uninstalled_it_leaves_no_right_and_nothing_that_blocks(cluster: Cluster) -> None:
    helm.run("test", RELEASE, namespace=cluster.home)
    assert _of_the_release(cluster)
    helm.run("uninstall", RELEASE, "--wait", namespace=cluster.home)
    assert _of_the_release(cluster) == set()
    kubectl.run("delete", "servingpool", "--all", "--wait=true", "--timeout=30s", namespace=cluster.models)
    until(lambda: not kubectl.exists("deployment", OPEN, cluster.models), "the pool's objects went with it, without an operator")
    kubectl.run("delete", "namespace", cluster.home, cluster.models, "--wait=true", "--timeout=180s")


def _uninstall_demo() -> None:
    if not kubectl.exists("namespace", kubectl.NAMESPACE):
        return
    helm.run("uninstall", RELEASE, "--wait", "--ignore-not-found")
    kubectl.run("delete", "servingpool", POOL, "--ignore-not-found", "--wait=true", "--timeout=30s")
    until(lambda: not kubectl.pods(ENGINE_PODS), "the engines went with their pool, without an operator")
    kubectl.run("delete", "namespace", kubectl.NAMESPACE, "--ignore-not-found", "--wait=true", "--timeout=180s")


def _prepare(stack: Stack, cluster: Cluster) -> None:
    for name in (cluster.home, cluster.models, cluster.stranger):
        namespace(name)
    namespace(cluster.friend, **LABELS)
    kubectl.apply(stack.credentials.secrets(cluster.home), namespace=cluster.home)
    shared = f"settings.sharedPoolNamespaces={{{cluster.models}}}"
    options = ("--set", "scope=Cluster", "--set", "gateway.replicas=1", "--set", shared)
    helm.upgrade(RELEASE, CHARTS / "cachescope", *stack.values(), *options, namespace=cluster.home)
    kubectl.apply([tenancy.pool(OPEN, allowed=LABELS), tenancy.pool(CLOSED)], namespace=cluster.models)
    # Of a namespace that nobody listed: it must draw no prompt of another team, whatever it says of itself.
    kubectl.apply([tenancy.pool(TRAP, allowed=LABELS)], namespace=cluster.stranger)
    for name, key in cluster.keys.items():
        kubectl.apply([api_key_secret(key, name, "team", "somebody"), tenancy.tenant("team", "team")], namespace=name)
    for deployment in (OPERATOR, GATEWAY):
        kubectl.rolled_out(deployment, namespace=cluster.home)


def _answer(gateway: str, key: str, model: str) -> tuple[int, str]:
    body = httpx.Request(
        "POST", "http://gateway", json={"model": model, "messages": [{"role": "user", "content": "hello"}]}
    ).content
    answer = send(f"http://{gateway}{PATH}", body, {"content-type": "application/json", "authorization": f"Bearer {key}"})
    return answer.status_code, str(answer.json().get("error", {}).get("code"))


def _models(gateway: str, key: str) -> list[str]:
    answer = httpx.get(f"http://{gateway}/v1/models", headers={"authorization": f"Bearer {key}"}, timeout=30)
    return sorted(item["id"] for item in answer.json()["data"])


def _of_the_release(cluster: Cluster) -> set[str]:
    items = kubectl.get("clusterroles,clusterrolebindings")["items"]
    return {item["metadata"]["name"] for item in items if cluster.home in item["metadata"]["name"]}
