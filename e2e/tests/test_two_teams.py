"""Two teams, one installation: a Tenant that claims another's identity changes nothing for the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai

from e2e.stack import client, kubectl
from e2e.stack.credentials import api_key_secret, new_key
from e2e.stack.install import Stack
from e2e.stack.waiting import until

TRIES = 10
TOKENS = 300
NAME = "newcomer"
Clients = dict[str, openai.OpenAI]


def test_a_token_that_another_tenant_holds_stays_the_others(who: Clients) -> None:
    blue = kubectl.get("tenant", "blue")["status"]["accepted"]
    with _tenant({"jwt": [{"provider": "north", "audience": "tiny"}]}):
        until(lambda: _accepted() == ("False", "IdentityTaken"), "the newcomer is told that the identity is taken")
        assert kubectl.get("tenant", NAME)["status"].get("accepted", []) == []
        assert kubectl.get("tenant", "blue")["status"]["accepted"] == blue
        # `blue-north` still is blue: it finds what blue's other people sent, every time, and is never refused.
        assert min(_cached(who["blue-carol"], who["blue-north"]) for _ in range(TRIES)) > 0
    assert _cached(who["blue-carol"], who["blue-north"]) > 0


def test_api_keys_that_another_tenant_holds_stay_the_others(who: Clients) -> None:
    with _tenant({"apiKeys": [{"secretName": "red-alice"}, {"secretName": "blue-carol"}]}):
        until(lambda: _accepted() == ("False", "IdentityTaken"), "the newcomer is told that the identity is taken")
        assert min(_cached(who["red-alice"], who["red-alice"]) for _ in range(TRIES)) > 0
        assert min(_cached(who["blue-carol"], who["blue-dan"]) for _ in range(TRIES)) > 0
        # Neither of the two has become the newcomer, whose people would share.
        assert [_cached(who["red-alice"], who["blue-carol"]) for _ in range(TRIES)] == [0] * TRIES


def test_a_newcomer_with_identities_of_its_own_is_served_and_shares_with_nobody(stack: Stack, gateway: str, who: Clients) -> None:
    key = new_key()
    kubectl.apply([api_key_secret(key, kubectl.NAMESPACE, NAME, "nina")])
    identities = {"apiKeys": [{"secretName": NAME}], "jwt": [{"provider": "north", "audience": NAME}]}
    with _tenant(identities):
        until(lambda: _accepted() == ("True", "Accepted"), "the newcomer is accepted")
        nina = client.client(gateway, key)
        kim = client.client(gateway, stack.credentials.token("north", "kim", NAME))
        client.wait_routable(nina)
        assert min(_cached(nina, kim) for _ in range(TRIES)) > 0
        assert [_cached(who["blue-carol"], nina) for _ in range(TRIES)] == [0] * TRIES
        assert [_cached(nina, who["blue-carol"]) for _ in range(TRIES)] == [0] * TRIES
    kubectl.run("delete", "secret", NAME)


def test_a_copied_hash_of_a_key_is_worth_nothing(stack: Stack, gateway: str, who: Clients) -> None:
    copied = kubectl.get("secret", "blue-carol")
    meta = {"name": NAME, "labels": copied["metadata"]["labels"]}
    kubectl.apply([{"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": copied["data"]}])
    with _tenant({"apiKeys": [{"secretName": NAME}]}):
        until(lambda: _accepted()[0] == "True", "the newcomer is accepted: a Secret of its own is its own")
        carol = client.client(gateway, stack.credentials.api_keys["blue-carol"])
        assert min(_cached(carol, who["blue-dan"]) for _ in range(TRIES)) > 0
    kubectl.run("delete", "secret", NAME)


@contextmanager
def _tenant(identities: dict[str, Any]) -> Iterator[None]:
    meta = {"name": NAME}
    kubectl.apply(
        [{"apiVersion": "cachescope.dev/v1alpha1", "kind": "Tenant", "metadata": meta, "spec": {"identities": identities}}]
    )
    try:
        yield
    finally:
        kubectl.run("delete", "tenant", NAME)


def _accepted() -> tuple[str | None, str | None]:
    found = kubectl.condition(kubectl.get("tenant", NAME), "Accepted")
    return found.get("status"), found.get("reason")


def _cached(first: openai.OpenAI, second: openai.OpenAI) -> int:
    text = client.prompt(TOKENS)
    client.chat(first, text)
    return client.chat(second, text).cached_tokens
