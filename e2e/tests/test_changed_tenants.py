"""What a tenant had before its epoch rose, or before it was made anew under its name, is never found or used again."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

from cachescope.core.heads import Epochs
from e2e.stack import client, kubectl
from e2e.stack.attacker import BODY, Insider
from e2e.stack.credentials import api_key_secret, new_key
from e2e.stack.install import Stack
from e2e.stack.tenancy import object_of, tenant
from e2e.stack.waiting import until

TRIES = 50
TOKENS = 300
EPOCH, NAME = "end-to-end-rotation", "phoenix"
Clients = dict[str, openai.OpenAI]


@contextmanager
def rotated(name: str) -> Iterator[None]:
    """A tenant whose epoch was raised by an incident, and who is refused nothing."""
    incident = {"id": secrets.token_hex(8), "reason": "end-to-end test"}
    kubectl.apply([object_of("CacheEpoch", EPOCH, {"target": {"kind": "Tenant", "name": name}, "incident": incident})])
    try:
        yield
    finally:
        kubectl.run("delete", "cacheepoch", EPOCH)


def test_a_stale_authorization_epoch_is_never_used(stack: Stack, who: Clients, insider: Insider) -> None:
    carol, kim = who["blue-carol"], who["green-south"]
    texts, others = ([client.prompt(TOKENS) for _ in range(tries)] for tries in (TRIES, 5))
    client.found(carol, texts)
    client.found(kim, others)
    target = stack.forger().tenant_target(kubectl.get("tenant", "blue")["metadata"]["uid"])
    before = stack.state.authorization.vector(target)
    stale = Epochs(insider.epochs().cache, before)
    given = [insider.permit(BODY, epochs=stale) for _ in range(TRIES)]
    assert insider.post(BODY, insider.permit(BODY, epochs=stale)).status_code == 200, "the control: as yet it is none"

    with rotated("blue"):
        until(lambda: stack.state.authorization.vector(target) != before, "the ledger has the tenant's new epoch")
        sequence = stack.authorization.sequence
        until(lambda: insider.statement().authorization_sequence >= sequence, "the guard has applied the new head")
        until(lambda: client.chat(carol, texts[0]).cached_tokens == 0, "the gateway salts with the new epoch")

    assert [_refused(insider, insider.permit(BODY, epochs=stale)) for _ in range(TRIES)] == [(409, "permit_behind")] * TRIES
    # On a slow machine those of before have also become too old, which is looked at first.
    assert [_refused(insider, permit)[0] for permit in given] == [409] * TRIES
    assert insider.post(BODY, insider.permit(BODY)).status_code == 200, "the control: what does not name the tenant passes"
    assert client.found(carol, texts[1:]) == [0] * (TRIES - 1)
    assert min(client.found(who["blue-dan"], texts)) > 0, "the control: the tenant reuses what it sent since"
    assert min(client.found(kim, others)) > 0, "the control: nobody else has lost anything"


@pytest.fixture
def phoenix(gateway: str) -> Iterator[openai.OpenAI]:
    """A person of a tenant that is deleted and made anew."""
    key = new_key()
    kubectl.apply([api_key_secret(key, kubectl.NAMESPACE, NAME, "nina")])
    _made()
    found = client.client(gateway, key)
    client.wait_routable(found)
    yield found
    kubectl.run("delete", f"tenant/{NAME}", f"secret/{NAME}", "--ignore-not-found", "--wait=true", "--timeout=60s")


def test_a_tenant_made_anew_under_its_name_finds_nothing_of_before(phoenix: openai.OpenAI) -> None:
    texts = [client.prompt(TOKENS) for _ in range(TRIES)]
    client.found(phoenix, texts)
    assert min(client.found(phoenix, texts)) > 0, "the control: it had them all"
    before = _uid()
    kubectl.run("delete", "tenant", NAME, "--wait=true", "--timeout=60s")
    until(lambda: client.is_refused(phoenix, openai.AuthenticationError), "the gateway knows it no more")
    _made()
    assert _uid() != before
    client.wait_routable(phoenix)
    assert client.found(phoenix, texts) == [0] * TRIES
    assert min(client.found(phoenix, texts)) > 0, "the control: it reuses what it sent since"


def _made() -> None:
    kubectl.apply([tenant(NAME, NAME)])
    until(lambda: kubectl.condition(kubectl.get("tenant", NAME), "Accepted").get("status") == "True", "it is accepted")


def _uid() -> str:
    return str(kubectl.get("tenant", NAME)["metadata"]["uid"])


def _refused(insider: Insider, permit: str) -> tuple[int, str]:
    """Status and code of the refusal of a permit."""
    answer = insider.post(BODY, permit)
    told: dict[str, Any] = answer.json().get("error", {})
    return answer.status_code, str(told.get("code"))
