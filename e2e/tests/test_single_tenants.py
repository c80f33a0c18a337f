"""Tenants of an engine that knows no salts have engines of their own. Real llama.cpp, which takes a salt and ignores it."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx2 as httpx
import openai
import pytest

from cachescope.core.labels import ENGINE_PORT
from e2e.faults import site
from e2e.faults.declarations import is_true, rollback_of
from e2e.faults.site import Site
from e2e.stack import client, kubectl, llama_pool, outage, single_tenants, stub_pool, volumes
from e2e.stack.node_firewall import undisturbed
from e2e.stack.tenancy import object_of
from e2e.stack.waiting import until
from e2e.tests.test_network import CONNECT, CONNECTED, REFUSED

SOLO, OFF, SLEEPY, PEOPLE = "solo", "off", "sleepy", "people"
PRINCIPALS = ("blue", "blue-ann")
IDLE_SECONDS = 60
CHOSEN = ("blue", "green", "red")
TRIES, NETWORK_TRIES = 50, 10
TOKENS = 400
PAIRS = list(itertools.permutations(CHOSEN, 2))

pytestmark = pytest.mark.skipif(not outage.possible(), reason="the node's folders and addresses are none of this machine")


@pytest.fixture(scope="module")
def place() -> Iterator[Site]:
    """An installation with three tenants that may have engines of their own, and one that may not."""
    with site.shared("single") as found:
        for tenant in (*CHOSEN, "violet"):
            found.add_tenant(tenant)
        kubectl.run("label", "tenant", *CHOSEN, "tier=own", "--overwrite", namespace=found.namespace)
        yield found


@pytest.fixture(scope="module")
def claim(place: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The claim that holds the model."""
    folder = tmp_path_factory.mktemp("volume") / "model"
    llama_pool.write_model(folder)
    with volumes.claimed(SOLO, folder, place.namespace):
        yield SOLO


@pytest.fixture(scope="module")
def sleepy(place: Site, claim: str) -> Iterator[str]:
    """A pool whose engines are stopped when nobody asks them; it falls asleep while other tests run."""
    kubectl.run("label", "tenant", "violet", "tier=sleepy", "--overwrite", namespace=place.namespace)
    isolation = {"tenants": {"matchLabels": {"tier": "sleepy"}}, "idleSeconds": IDLE_SECONDS, "minWarmSeconds": 1}
    kubectl.apply([_pool(place, SLEEPY, claim, **isolation)], place.namespace)
    single_tenants.await_pools(SLEEPY, place.namespace, "violet")
    until(lambda: _serves(place, "violet", SLEEPY), "violet is served", single_tenants.READY_SECONDS)
    yield SLEEPY
    _delete(place, SLEEPY)


@pytest.fixture(scope="module")
def solo(place: Site, claim: str, sleepy: str) -> Iterator[str]:  # noqa: ARG001 - it is made first, and has time
    """The pool of each tenant's own engines, ready."""
    kubectl.apply([_pool(place, SOLO, claim, tenants={"matchLabels": {"tier": "own"}})], place.namespace)
    single_tenants.await_pools(SOLO, place.namespace, *CHOSEN)
    for tenant in CHOSEN:
        until(partial(_serves, place, tenant, SOLO), f"{tenant} is served", single_tenants.READY_SECONDS)
    yield SOLO
    _delete(place, SOLO)


def test_a_pool_that_cannot_share_has_engines_for_each_chosen_tenant(place: Site, solo: str) -> None:
    status = kubectl.get("servingpool", solo, namespace=place.namespace)["status"]
    assert status["mode"] == "PerTenant"
    assert "has no salt" in status["modeReason"]
    pools = single_tenants.pools_of(solo, place.namespace)
    assert {item["status"]["mode"] for item in pools.values()} == {"Dedicated"}
    for kind in ("deployment", "service", "networkpolicy", "epochledger"):
        assert all(kubectl.exists(kind, item["metadata"]["name"], place.namespace) for item in pools.values()), kind
    assert not kubectl.exists("deployment", solo, place.namespace)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_no_tenant_finds_what_another_sent(place: Site, solo: str, first: str, second: str) -> None:
    with place.client(first) as one, place.client(second) as other:
        for _ in range(TRIES):
            text = client.prompt(TOKENS)
            assert _cached(one, solo, text) < TOKENS / 2
            assert _cached(other, solo, text) < TOKENS / 2, "another tenant's prompt was found"
        assert _cached(one, solo, text) > TOKENS / 2, "the control: its own is"


def test_whom_nobody_chose_is_not_served_and_leaves_nothing(place: Site, solo: str) -> None:
    assert place.outcome_of("violet", solo) == "no_endpoint"
    assert "violet" not in single_tenants.pools_of(solo, place.namespace)


def test_no_engine_of_a_tenant_reaches_another_tenants(place: Site, solo: str) -> None:
    for first, second in PAIRS:
        (pod,), (target,) = (single_tenants.pods_of(solo, tenant, place.namespace) for tenant in (first, second))
        address = target["status"]["podIP"]
        assert undisturbed(partial(_connects, place, pod, address), NETWORK_TRIES) == [False] * NETWORK_TRIES
        assert _connects(place, pod, "$KUBERNETES_SERVICE_HOST", 443), "the control: it has a network"
        assert _serves(place, second, solo), "the control: the gateway reaches it"


def test_an_old_generation_goes_with_its_processes(place: Site, solo: str) -> None:
    text = client.prompt(TOKENS)
    with place.client("blue") as who:
        assert _cached(who, solo, text) < TOKENS / 2
        assert _cached(who, solo, text) > TOKENS / 2
        before = {pod["metadata"]["uid"] for pod in single_tenants.pods_of(solo, "blue", place.namespace)}
        name = f"solo-{secrets.token_hex(4)}"
        rollback = rollback_of(name)
        rollback["spec"]["target"]["name"] = solo
        kubectl.apply([rollback], place.namespace)
        until(lambda: is_true(place.namespace, name, "Fenced"), "the rollback is fenced in every tenant's pool", 90)
        found: list[int] = []
        until(lambda: _answered(who, text, found), "blue is served again", single_tenants.READY_SECONDS)
        assert found[0] < TOKENS / 2, "what was computed before the rollback was found"
        assert not before & {pod["metadata"]["uid"] for pod in single_tenants.pods_of(solo, "blue", place.namespace)}
        assert _cached(who, solo, text) > TOKENS / 2, "reuse comes back"


def test_a_tenant_that_is_made_anew_gets_new_engines(place: Site, solo: str) -> None:
    text = client.prompt(TOKENS)
    until(lambda: _serves(place, "green", solo), "green is served in the present generation", single_tenants.READY_SECONDS)
    before = single_tenants.pools_of(solo, place.namespace)["green"]["metadata"]
    with place.client("green") as who:
        _cached(who, solo, text)
        assert _cached(who, solo, text) > TOKENS / 2
    kubectl.run("delete", "tenant", "green", namespace=place.namespace)
    until(lambda: "green" not in single_tenants.pools_of(solo, place.namespace), "the deleted tenant's pool is gone", 60)
    place.add_tenant("green")
    kubectl.run("label", "tenant", "green", "tier=own", "--overwrite", namespace=place.namespace)
    single_tenants.await_pools(solo, place.namespace, *CHOSEN)
    after = single_tenants.pools_of(solo, place.namespace)["green"]["metadata"]
    assert after["uid"] != before["uid"]
    assert after["name"] != before["name"]
    until(lambda: _serves(place, "green", solo), "green is served again", single_tenants.READY_SECONDS)
    with place.client("green") as who:
        assert _cached(who, solo, text) < TOKENS / 2
        assert _cached(who, solo, text) > TOKENS / 2


def test_idle_engines_stop_and_start_again_when_they_are_asked(place: Site, solo: str, sleepy: str) -> None:  # noqa: ARG001 - as above
    def replicas() -> int:
        return int(single_tenants.pools_of(sleepy, place.namespace)["violet"]["spec"]["replicas"])

    until(lambda: replicas() == 0 and not single_tenants.pods_of(sleepy, "violet", place.namespace), "they stop", 4 * IDLE_SECONDS)
    with place.client("violet") as who, pytest.raises(openai.InternalServerError) as refused:
        _cached(who, sleepy, "is anybody there?")
    assert refused.value.status_code == 503
    assert refused.value.response.headers["retry-after"] == "1"
    until(lambda: _serves(place, "violet", sleepy), "the request started them, and a later one is served", 120)
    assert replicas() == 1


def test_each_principal_has_an_engine_of_its_own_where_the_scope_asks_for_it(place: Site, claim: str) -> None:
    place.add_principal("blue", "blue-ann")
    kubectl.run("label", "tenant", "blue", "people=yes", "--overwrite", namespace=place.namespace)
    scope = object_of("CacheScope", PEOPLE, {"class": "Principal", "pools": [PEOPLE], "tenants": ["blue"]})
    pool = _pool(place, PEOPLE, claim, tenants={"matchLabels": {"people": "yes"}})
    pool["spec"]["replicas"] = len(PRINCIPALS)
    kubectl.apply([scope, pool], place.namespace)
    try:
        single_tenants.await_pools(PEOPLE, place.namespace, "blue")
        for principal in PRINCIPALS:
            until(partial(_serves, place, principal, PEOPLE), f"{principal} is served", single_tenants.READY_SECONDS)
        with place.client(PRINCIPALS[0]) as one, place.client(PRINCIPALS[1]) as other:
            for _ in range(TRIES):
                text = client.prompt(TOKENS)
                assert _cached(one, PEOPLE, text) < TOKENS / 2
                assert _cached(other, PEOPLE, text) < TOKENS / 2, "another principal's prompt was found"
                assert min(_cached(who, PEOPLE, text) for who in (one, other)) > TOKENS / 2, "the control: everybody finds his own"
    finally:
        kubectl.run("delete", "cachescope", PEOPLE, namespace=place.namespace)
        _delete(place, PEOPLE)


def test_sharing_is_refused_where_the_engine_knows_no_salts(place: Site, claim: str) -> None:
    kubectl.apply([_pool(place, "wished", claim, mode="Shared")], place.namespace)
    try:
        until(lambda: _condition(place, "wished", "Ready") == ("False", "InvalidSpec"), "the wish is refused", 60)
        pool = kubectl.get("servingpool", "wished", namespace=place.namespace)
        assert "isolation Shared is refused" in kubectl.condition(pool, "Ready")["message"]
        assert place.outcome_of("blue", "wished") in {"no_endpoint", "model_not_found"}
        assert not kubectl.exists("deployment", "wished", place.namespace)
    finally:
        _delete(place, "wished")


def test_where_reuse_is_disabled_not_even_a_tenant_finds_its_own(place: Site, claim: str) -> None:
    stub_pool.bring_up(_pool(place, OFF, claim, mode="Disabled"), place.namespace)
    try:
        until(partial(_serves, place, "blue", OFF), "blue is served", single_tenants.READY_SECONDS)
        with place.client("blue") as who:
            for _ in range(TRIES):
                text = client.prompt(TOKENS)
                assert _cached(who, OFF, text) == 0
                assert _cached(who, OFF, text, cache_prompt=True) == 0
    finally:
        _delete(place, OFF)


def _pool(place: Site, name: str, claim: str, **isolation: Any) -> dict[str, Any]:
    document = llama_pool.document(name, image=place.images[llama_pool.IMAGE], claim=claim)
    document["spec"]["isolation"] = isolation
    document["spec"]["resources"]["requests"]["cpu"] = site.CPU
    return document


def _cached(who: openai.OpenAI, model: str, text: str, **extra: object) -> int:
    """How many tokens of a prompt were found. Every prompt begins with the same template, which is no more than a few."""
    messages: Any = [{"role": "user", "content": text}]
    usage = who.chat.completions.create(model=model, messages=messages, max_tokens=2, extra_body=extra or None).usage
    assert usage is not None
    return (usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens) or 0


def _answered(who: openai.OpenAI, text: str, found: list[int]) -> bool:
    try:
        found.append(_cached(who, SOLO, text))
    except (openai.OpenAIError, httpx.HTTPError):
        return False
    return True


def _serves(place: Site, tenant: str, model: str) -> bool:
    return place.outcome_of(tenant, model) == "served"


def _connects(place: Site, pod: dict[str, Any], address: str, port: int = ENGINE_PORT) -> bool:
    command = ("exec", pod["metadata"]["name"], "-c", "engine", "--", "python3", "-c", CONNECT, address, str(port))
    said = kubectl.run(*command, namespace=place.namespace).strip()
    assert said in {CONNECTED, REFUSED}, said
    return said == CONNECTED


def _condition(place: Site, name: str, kind: str) -> tuple[str | None, str | None]:
    found = kubectl.condition(kubectl.get("servingpool", name, namespace=place.namespace), kind)
    return found.get("status"), found.get("reason")


def _delete(place: Site, name: str) -> None:
    kubectl.run("delete", "servingpool", name, "--wait=true", "--timeout=60s", namespace=place.namespace)
