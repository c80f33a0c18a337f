"""Public sources are withdrawn while the gateways' watch of them stalls: nothing of them is shared after the fence.

The gateways are test builds (`e2e.test_builds.stalled_watch`) in front of the real pool. The fence is that every gateway has
acknowledged the authorization head that tells of the withdrawal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest

from cachescope.core.ledgers import Ledger
from cachescope.core.policy_digest import policy_digest
from e2e.stack import client, kubectl
from e2e.stack.acknowledgements import every_gateway_has
from e2e.stack.attacker import PATH, chat_body, send
from e2e.stack.changes import changed
from e2e.stack.install import POOL, Stack
from e2e.stack.tenancy import object_of, public_source
from e2e.stack.waiting import until
from e2e.test_builds import stalled_watch
from e2e.test_builds.gateways import Built, gateways

TRIES, FEW = 50, 5
TOKENS = 300
SCOPE, PREFIX = "withdrawn-sources", "withdrawn-source"
CAROL, KIM = "blue-carol", "green-kim"
APPLICATIONS = [
    {"tenant": "blue", "kind": "api-key", "subject": "carol"},
    {"tenant": "green", "kind": "jwt", "issuer": "https://south.example", "subject": "kim"},
]


@dataclass(frozen=True)
class Inventory:
    """Approved texts, by the names of their PublicSources.

    Attributes:
        stack: The installation.
        texts: The texts.
    """

    stack: Stack
    texts: dict[str, str]

    def declared(self, **changes: Any) -> list[dict[str, Any]]:
        """The sources."""
        return [public_source(name, text, **changes) for name, text in self.texts.items()]

    def withdraw(self) -> Ledger:
        """Withdraw them all; returns the authorization head that tells of it."""
        kubectl.apply(self.declared(withdrawn=True))
        until(self._told, "the authorization head names the policy without them")
        return self.stack.authorization

    def _told(self) -> bool:
        return self.stack.authorization.policy["PublicSource"] == policy_digest(
            "PublicSource", kubectl.get("publicsources")["items"]
        )


@pytest.fixture
def inventory(stack: Stack) -> Iterator[Inventory]:
    found = Inventory(stack, {f"{PREFIX}-{number}": client.prompt(TOKENS) for number in range(TRIES + FEW)})
    spec = {
        "class": "Public",
        "pools": [POOL],
        "tenants": ["blue", "green"],
        "applications": APPLICATIONS,
        "publicSources": [*found.texts],
    }
    kubectl.apply([*found.declared(), object_of("CacheScope", SCOPE, spec)])
    try:
        with changed("servingpool", POOL, lambda pool: pool["spec"].update({"sharing": {"stage": "Public"}})):
            yield found
    finally:
        kubectl.run("delete", f"cachescope/{SCOPE}", "--ignore-not-found")
        kubectl.run("delete", "publicsource", *found.texts, "--ignore-not-found")


def found_by(built: Built, person: str, texts: dict[str, str]) -> list[int]:
    """What the engine has of each text, for an application that calls it public and names its source."""
    who = built.client(person)
    return client.at_once(lambda name: client.chat(_of(who, name), texts[name]).cached_tokens, texts)


def shared(built: Built, inventory: Inventory) -> dict[str, str]:
    """Have all texts in the cache of everybody; returns those that `green` has not asked for yet."""
    first, rest = (dict([*inventory.texts.items()][part]) for part in (slice(FEW), slice(FEW, None)))
    until(lambda: _takes(built, CAROL) and _takes(built, KIM), "both applications are listed")
    found_by(built, CAROL, inventory.texts)
    assert min(found_by(built, CAROL, inventory.texts)) > 0
    assert min(found_by(built, KIM, first)) > 0, "the control: what is public is shared"
    return rest


def test_a_watch_that_says_nothing_any_more_keeps_nothing_shared(stack: Stack, inventory: Inventory) -> None:
    with gateways(stack, stalled_watch.silent) as built:
        rest = shared(built, inventory)
        head = inventory.withdraw()
        until(lambda: every_gateway_has(stack, head), "every gateway has acknowledged it")
        assert found_by(built, KIM, rest) == [0] * TRIES
        assert min(found_by(built, KIM, rest)) > 0, "the control: its tenant has them now"


def test_a_gateway_that_cannot_know_what_was_withdrawn_issues_nothing(stack: Stack, inventory: Inventory) -> None:
    with gateways(stack, stalled_watch.deaf) as built:
        rest = shared(built, inventory)
        head = inventory.withdraw()
        until(lambda: _refused(built, *next(iter(rest.items()))), "it has no right to issue")
        assert [_refused(built, name, text) for name, text in rest.items()] == [True] * TRIES
        assert not every_gateway_has(stack, head)


def test_the_control_a_gateway_that_believes_its_watch_goes_on_sharing(stack: Stack, inventory: Inventory) -> None:
    with gateways(stack, stalled_watch.believing) as built:
        rest = shared(built, inventory)
        head = inventory.withdraw()
        until(lambda: every_gateway_has(stack, head), "every gateway has acknowledged it")
        assert min(found_by(built, KIM, rest)) > 0


def _context(name: str) -> dict[str, str]:
    return {"x-cachescope-context": json.dumps({"dataClass": "public", "sources": [{"id": name}]})}


def _of(who: openai.OpenAI, name: str) -> openai.OpenAI:
    return who.with_options(default_headers=_context(name))


def _takes(built: Built, person: str) -> bool:
    """Whether the gateway takes contexts from somebody."""
    return not client.is_refused(_of(built.client(person), f"{PREFIX}-0"), openai.PermissionDeniedError)


def _refused(built: Built, name: str, text: str) -> bool:
    """Whether the gateway answers that it is not ready."""
    headers = {"authorization": f"Bearer {built.key(KIM)}", "content-type": "application/json", **_context(name)}
    answer = send(f"http://{built.address}{PATH}", chat_body(text, model=client.MODEL), headers)
    return answer.status_code == 503 and answer.json()["error"]["code"] == "gateway_not_ready"
