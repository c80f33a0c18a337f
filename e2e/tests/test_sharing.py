"""Who shares with whom on the real pool, by class, source, compartment and handle; each negative beside its control."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import openai
import pytest

from e2e.stack import client, kubectl
from e2e.stack.changes import changed
from e2e.stack.handles import handle, presenting
from e2e.stack.install import POOL, Stack
from e2e.stack.tenancy import object_of, public_source
from e2e.stack.waiting import until

TRIES = 50
TOKENS = 300
SCOPE, SOURCE = "end-to-end", "end-to-end"
CAROL, DAN, KIM = "blue-carol", "blue-dan", "green-south"
APPLICATIONS = [
    {"tenant": "blue", "kind": "api-key", "subject": "carol"},
    {"tenant": "green", "kind": "jwt", "issuer": "https://south.example", "subject": "kim"},
]
PUBLIC = {"dataClass": "public", "sources": [{"id": SOURCE}]}
Clients = dict[str, openai.OpenAI]


def scope(scope_class: str, **spec: Any) -> dict[str, Any]:
    declared = {"class": scope_class, "pools": [POOL], "tenants": ["blue", "green"], "applications": APPLICATIONS, **spec}
    return object_of("CacheScope", SCOPE, declared)


@pytest.fixture(autouse=True)
def _as_before(gateway: str) -> Iterator[None]:  # noqa: ARG001 - the installation must be up
    yield
    kubectl.run("delete", f"cachescope/{SCOPE}", f"publicsource/{SOURCE}", "--ignore-not-found", "--wait=true")


@contextmanager
def stage(name: str) -> Iterator[None]:
    with changed("servingpool", POOL, lambda pool: pool["spec"].update({"sharing": {"stage": name}})):
        yield


def said(who: openai.OpenAI, context: Mapping[str, Any] | None = None, compartment: str | None = None) -> openai.OpenAI:
    """A client that says so of each request."""
    headers = {"x-cachescope-context": json.dumps(context)} if context is not None else {}
    headers |= {"x-cachescope-compartment": compartment} if compartment is not None else {}
    return who.with_options(default_headers=headers)


def cached(who: openai.OpenAI, text: str) -> int:
    return client.chat(who, text).cached_tokens


def is_said(who: openai.OpenAI, context: Mapping[str, Any]) -> bool:
    """Whether the gateway takes a context of that client."""
    return not client.is_refused(said(who, context), openai.PermissionDeniedError)


def test_two_tenants_meet_on_an_approved_source_and_not_after_it_was_withdrawn(who: Clients) -> None:
    """One source; fifty of them, and a watch that stalls, are in `test_withdrawn_sources`."""
    text = client.prompt(TOKENS)
    carol, kim = said(who[CAROL], PUBLIC), said(who[KIM], PUBLIC)
    kubectl.apply([public_source(SOURCE, text), scope("Public", publicSources=[SOURCE])])
    with stage("Public"):
        until(lambda: is_said(who[CAROL], PUBLIC) and is_said(who[KIM], PUBLIC), "both applications are listed")
        cached(carol, text)
        until(lambda: cached(kim, text) > 0, "the control: what is public is shared")

        kubectl.apply([public_source(SOURCE, text, withdrawn=True)])
        until(lambda: cached(carol, text) == 0, "the gateway has taken the withdrawal over")
        until(lambda: _usable() == "False", "the source says so")
        assert cached(kim, text) == 0, "each has a cache of its own again"
    assert cached(carol, text) > 0, "the control: within the tenant it is reused"


def test_a_text_that_nobody_approved_is_never_shared(who: Clients) -> None:
    kubectl.apply([public_source(SOURCE, client.prompt(TOKENS)), scope("Public", publicSources=[SOURCE])])
    with stage("Public"):
        until(lambda: is_said(who[CAROL], PUBLIC) and is_said(who[KIM], PUBLIC), "both applications are listed")
        assert _across(said(who[CAROL], PUBLIC), said(who[KIM], PUBLIC)) == [0] * TRIES
        text = client.prompt(TOKENS)
        cached(said(who[CAROL], PUBLIC), text)
        assert cached(said(who[DAN]), text) > 0, "the control: it falls to the tenant's own"


def test_what_an_application_calls_personal_or_secret_is_narrower(who: Clients) -> None:
    kubectl.apply([scope("Tenant")])
    until(lambda: is_said(who[CAROL], {"dataClass": "internal"}), "the application is listed")
    personal, secret = (said(who[CAROL], {"dataClass": name}) for name in ("personal", "secret"))
    assert _across(personal, who[DAN]) == [0] * TRIES
    assert _across(secret, secret) == [0] * TRIES
    assert min(_across(personal, personal, tries=5)) > 0
    assert min(_across(said(who[CAROL], {"dataClass": "internal"}), who[DAN], tries=5)) > 0


def test_compartments_of_one_tenant_never_meet_and_are_authorized(who: Clients) -> None:
    members = [{"kind": "api-key", "subject": "carol"}, {"kind": "api-key", "subject": "dan"}]
    matters = {"members": [{"name": "one", "principals": members}, {"name": "two", "principals": members[:1]}]}
    kubectl.apply([scope("Tenant")])
    with changed("tenant", "blue", lambda tenant: tenant["spec"].update({"compartments": matters})):
        one, two = (said(who[CAROL], compartment=name) for name in ("one", "two"))
        until(lambda: not client.is_refused(two, openai.PermissionDeniedError), "the compartments are known")
        assert _across(one, two) == [0] * TRIES
        assert _across(who[DAN], one) == [0] * TRIES
        assert min(_across(one, said(who[DAN], compartment="one"), tries=5)) > 0
        assert client.is_refused(said(who[DAN], compartment="two"), openai.PermissionDeniedError)
        assert client.is_refused(said(who[DAN], compartment="three"), openai.PermissionDeniedError)


def test_a_narrower_scope_reaches_nothing_of_before(who: Clients) -> None:
    texts = [client.prompt(TOKENS) for _ in range(TRIES)]
    kubectl.apply([scope("Tenant")])
    until(lambda: is_said(who[CAROL], {}), "the scope is in force")
    for text in texts:
        cached(who[CAROL], text)
    assert cached(who[DAN], texts[0]) > 0, "the control: the tenant shares"
    kubectl.apply([scope("Principal")])
    until(lambda: cached(who[CAROL], texts[0]) == 0, "the narrower one is in force")
    assert [cached(who[DAN], text) for text in texts[1:]] == [0] * (TRIES - 1)


def test_another_revision_of_the_policy_reaches_nothing_of_before(who: Clients) -> None:
    texts = [client.prompt(TOKENS) for _ in range(TRIES)]
    kubectl.apply([scope("Tenant")])
    until(lambda: is_said(who[CAROL], {}), "the scope is in force")
    client.found(who[CAROL], texts)
    assert min(client.found(who[DAN], texts)) > 0, "the control: the tenant shares"
    alice = [client.prompt(TOKENS) for _ in range(5)]
    client.found(who["red-alice"], alice)
    kubectl.apply([scope("Tenant", applications=APPLICATIONS[:1])])
    until(lambda: cached(who[CAROL], texts[0]) == 0, "its next revision is in force")
    assert client.found(who[DAN], texts[1:]) == [0] * (TRIES - 1)
    assert min(client.found(who[CAROL], texts[1:])) > 0, "the control: under it the tenant shares as before"
    assert min(client.found(who["red-alice"], alice)) > 0, "the control: nobody else's policy has another revision"


def test_somebody_elses_handle_changes_nothing(stack: Stack, gateway: str, who: Clients) -> None:
    texts = [client.prompt(TOKENS) for _ in range(TRIES)]
    red = [handle(gateway, stack.credentials.api_keys["red-alice"], text) for text in texts]
    for text in texts:
        cached(who["red-alice"], text)
    with_handles = [presenting(who[CAROL], each) for each in red]
    assert [cached(each, text) for each, text in zip(with_handles, texts, strict=True)] == [0] * TRIES
    assert cached(presenting(who["red-alice"], red[0]), texts[0]) > 0, "the control: its owner finds what it names"


def test_two_tenants_with_the_same_template_share_nothing_of_it(who: Clients) -> None:
    """Byte for byte what everybody may send, and no source that somebody approved: each tenant has it for itself."""
    templates = [client.prompt(TOKENS) for _ in range(TRIES)]

    def sent(name: str, template: str, question: str) -> int:
        messages = [{"role": "system", "content": template}, {"role": "user", "content": question}]
        return client.chat(who[name], "", messages=messages).cached_tokens

    client.at_once(lambda template: sent(CAROL, template, "What does it cost?"), templates)
    assert client.at_once(lambda template: sent(KIM, template, "What does it cost?"), templates) == [0] * TRIES
    assert client.at_once(lambda template: sent("red-alice", template, "Who are you?"), templates) == [0] * TRIES
    assert min(client.at_once(lambda template: sent(DAN, template, "Who are you?"), templates)) > 0, (
        "the control: within the tenant"
    )


def _usable() -> str:
    return str(kubectl.condition(kubectl.get("publicsource", SOURCE), "Usable").get("status"))


def _across(first: openai.OpenAI, second: openai.OpenAI, tries: int = TRIES) -> list[int]:
    """What the second finds of prompts that the first has sent, every prompt new."""
    found = []
    for _ in range(tries):
        text = client.prompt(TOKENS)
        cached(first, text)
        found.append(cached(second, text))
    return found
