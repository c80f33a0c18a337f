"""Engines that leak on purpose, each in its own way, and honest ones beside them: what the probe shows of each, and what follows.

Pools of their own: their engine is the stub, whose version says that it enforces salts. So by what the catalogue says every one of
them would be shared, and only what is shown keeps tenants apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import httpx2 as httpx
import openai
import pytest

from e2e.stack import client, kubectl, shown, stub_pool
from e2e.stack.install import OPERATOR_PODS, Stack
from e2e.stack.kubectl import NAMESPACE
from e2e.stack.waiting import until
from e2e.stub_engine.faults import BEGUN
from e2e.stub_engine.leaks import Leak

TRIES = 50
TOKENS = 300
SHOWN_SECONDS = 180
ISOLATED_SECONDS = 5
FENCED_SECONDS = 120
HONEST = "honest"
FOUND = (Leak.ONE_ROUTE, Leak.FIRST_CHARACTERS, Leak.LETTER_CASE, Leak.STREAMED, Leak.SEVERAL_ANSWERS, Leak.UNTOLD, Leak.EVERYWHERE)
CLOSED = (Leak.HEADER, Leak.EXTRA_KEY)
"""What a gateway lets no client choose: the engine's leak is nobody's."""
RESTART = f"mkdir -p {stub_pool.FAULTS} && touch {stub_pool.FAULTS}/{BEGUN} && kill -TERM 1"
"""The stub knows by a file that it began before."""
Clients = dict[str, openai.OpenAI]


@pytest.fixture(scope="module")
def pools(stack: Stack, gateway: str) -> Iterator[Stack]:  # noqa: ARG001 - the installation must be up
    """A pool for each leak, and an honest one."""
    leaks = {name_of(leak): ("--leak", leak.value) for leak in (*FOUND, *CLOSED)}
    documents = [document(stack, name, args) for name, args in {HONEST: (), **leaks}.items()]
    kubectl.apply(documents)
    try:
        yield stack
    finally:
        names = [item["metadata"]["name"] for item in documents]
        kubectl.run("delete", "servingpool", *names, "--wait=true", "--timeout=120s")


@pytest.mark.usefixtures("pools")
def test_an_honest_engine_is_shown_to_keep_tenants_apart_and_reuses_only_then(who: Clients) -> None:
    until(lambda: shown.is_ready(HONEST, NAMESPACE), "the honest pool is shown to keep tenants apart", SHOWN_SECONDS)
    pool = kubectl.get("servingpool", HONEST)
    last = pool["status"]["isolation"]["last"]
    assert {item["found"] for item in last} <= {"Isolated", "Refused"}
    assert {"/v1/chat/completions", "/v1/completions"} <= {item["route"] for item in last}
    assert pool["status"]["isolation"]["verifiedAt"]
    texts = [client.prompt(TOKENS) for _ in range(TRIES)]
    client.found(who["blue-carol"], texts, model=HONEST)
    assert client.found(who["red-alice"], texts, model=HONEST) == [0] * TRIES
    assert min(client.found(who["blue-carol"], texts, model=HONEST)) > 0, "the control: everybody finds his own"


@pytest.mark.usefixtures("pools")
@pytest.mark.parametrize("leak", FOUND)
def test_a_leak_is_found_by_the_first_run_and_closed_at_once(who: Clients, leak: Leak) -> None:
    name = name_of(leak)
    until(lambda: isolation(name).get("reason") == "Leak", f"the leak {leak} is found", SHOWN_SECONDS)
    incident = assert_isolated(name, who)
    pool = kubectl.get("servingpool", name)
    assert pool["status"]["bypassed"]
    assert not pool["status"]["isolation"].get("proofs")
    degraded = kubectl.condition(pool, "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "Leak")
    assert "spec.sharing.resumeAfter" in degraded["message"]
    assert "Leak" in reasons_of_events(name)
    assert incident in audited()
    assert metric("cachescope_operator_leaking_pools") > 0


@pytest.mark.usefixtures("pools")
@pytest.mark.parametrize("leak", CLOSED)
def test_what_no_client_can_say_to_an_engine_leaks_nothing(who: Clients, leak: Leak) -> None:
    name = name_of(leak)
    until(lambda: shown.is_ready(name, NAMESPACE), f"the pool {name} is shown to keep tenants apart", SHOWN_SECONDS)
    texts = [client.prompt(TOKENS) for _ in range(TRIES)]
    chosen = {"model": name, "extra_headers": {"x-cache-salt": "agreed"}}
    for text in texts:
        said(who["blue-carol"], text, chosen)
    assert [said(who["red-alice"], text, chosen) for text in texts] == [0] * TRIES
    assert min(said(who["blue-carol"], text, chosen) for text in texts) > 0, "the control: everybody finds his own"


def test_an_engine_that_leaks_after_a_restart_is_closed_again_and_one_that_is_mended_reuses(pools: Stack, who: Clients) -> None:
    name = name_of(Leak.AFTER_RESTART)
    kubectl.apply([document(pools, name, ("--leak", Leak.AFTER_RESTART.value))])
    try:
        until(lambda: shown.is_ready(name, NAMESPACE), "the first process keeps tenants apart", SHOWN_SECONDS)
        assert reused(who["blue-carol"], name), "the control: what is shown is reused"
        kubectl.run("exec", pod_of(name), "-c", "engine", "--", "/bin/sh", "-c", RESTART)
        until(lambda: isolation(name).get("reason") == "Leak", "the second one leaks", SHOWN_SECONDS)
        incident = assert_isolated(name, who)
        mended = document(pools, name, ())
        mended["spec"]["sharing"] = {"resumeAfter": incident}
        kubectl.apply([mended])
        until(
            lambda: shown.is_ready(name, NAMESPACE) and len(kubectl.pods(stub_pool.pods(name))) == 1, "all is well", SHOWN_SECONDS
        )
        assert reused(who["blue-carol"], name)
        assert not kubectl.get("servingpool", name)["status"]["isolation"].get("leak")
    finally:
        kubectl.run("delete", "servingpool", name, "--wait=true", "--timeout=60s")


def assert_isolated(name: str, who: Clients) -> str:
    """The process serves nobody at once, and the incident that its leak became is fenced; returns the incident's id."""
    incident = incident_of(name)
    until(lambda: outcome(who["blue-carol"], name) == "no_endpoint", "it serves nobody", ISOLATED_SECONDS)
    assert [outcome(who[person], name) for person in ("red-alice", "blue-carol") for _ in range(TRIES)] == [
        "no_endpoint"
    ] * 2 * TRIES
    return incident


def outcome(who: openai.OpenAI, name: str) -> str:
    """The code of the refusal that somebody meets, or `served`."""
    try:
        client.chat(who.with_options(max_retries=0), "hello", model=name)
    except openai.APIStatusError as error:
        return str(error.code)
    return "served"


def metric(name: str) -> float:
    """A number that the operator tells Prometheus."""
    with kubectl.forwarded_pod(OPERATOR_PODS, 9090) as address:
        lines = httpx.get(f"http://{address}/metrics", timeout=10).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def name_of(leak: Leak) -> str:
    """Name of the pool whose engine has a leak."""
    return f"leak-{leak.value}"


def document(stack: Stack, name: str, args: Sequence[str]) -> dict[str, Any]:
    """A pool whose engine is started with some arguments."""
    return stub_pool.document(name, image=stack.images[stub_pool.IMAGE], args=tuple(args))


def isolation(name: str) -> dict[str, Any]:
    """A pool's condition."""
    return kubectl.condition(kubectl.get("servingpool", name), "IsolationVerified")


def incident_of(name: str) -> str:
    """Id of the incident that a pool's leak became."""
    return str(kubectl.get("servingpool", name)["status"]["isolation"]["incident"])


def epoch(name: str, incident: str) -> dict[str, Any]:
    """Its CacheEpoch; empty before it is there."""
    found = f"{name}-{incident}"
    return kubectl.get("cacheepoch", found) if kubectl.exists("cacheepoch", found) else {"metadata": {}}


def reasons_of_events(name: str) -> set[str]:
    """What Events say of a pool."""
    found = json.loads(kubectl.run("get", "events", "--field-selector", f"involvedObject.name={name}", "-o", "json"))
    return {item["reason"] for item in found["items"]}


def audited() -> str:
    """What the operators have logged of leaks."""
    logs = (kubectl.run("logs", pod["metadata"]["name"], "--tail=-1") for pod in kubectl.pods(OPERATOR_PODS))
    return "\n".join(line for log in logs for line in log.splitlines() if "leak" in line)


def said(who: openai.OpenAI, text: str, chosen: dict[str, Any]) -> int:
    """Tokens that are found of a prompt, for somebody who tries to choose a cache."""
    answer = who.chat.completions.create(
        model=chosen["model"], messages=[{"role": "user", "content": text}], max_tokens=2, extra_headers=chosen["extra_headers"]
    )
    details = answer.usage.prompt_tokens_details if answer.usage else None
    return details.cached_tokens or 0 if details else 0


def reused(who: openai.OpenAI, name: str) -> bool:
    """Whether somebody finds his own prompt again."""
    text = client.prompt(TOKENS)
    client.chat(who, text, model=name)
    return client.chat(who, text, model=name).cached_tokens > 0


def pod_of(name: str) -> str:
    """The pool's one pod."""
    return str(kubectl.ready_pod(stub_pool.pods(name))["metadata"]["name"])
