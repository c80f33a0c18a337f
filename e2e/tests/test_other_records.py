"""What the engine keeps under one record is found under that very record and under no other, however near, on the real engine.

The insider makes salts as only gateways do (`e2e.stack.forging`). So each negative stands beside the control that the salt which it
changes, or which a client sends, is the real one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import openai
import pytest

from cachescope.core.epochs import EpochVector
from cachescope.core.record import IdentityRecord
from cachescope.core.types import Digest, Epoch, Namespace, Salt
from e2e.stack import client, kubectl
from e2e.stack.attacker import BODY, Insider
from e2e.stack.forging import Forger
from e2e.stack.install import ENGINE_PODS, Stack

TRIES = 50
# Two full blocks.
TOKENS = 300
OTHER = Digest("sha256:" + "f" * 64)
Clients = dict[str, openai.OpenAI]


@dataclass(frozen=True)
class Kept:
    """What a person of `blue` has sent through the gateway.

    Attributes:
        texts: The prompts.
        record: Their record, but for their content.
        other_namespace: The namespace of `green`.
        forger: Makes salts of them.
        insider: Reaches the engine.
    """

    texts: list[str]
    record: IdentityRecord
    other_namespace: Namespace
    forger: Forger
    insider: Insider

    @property
    def salt(self) -> Salt:
        """The salt that the gateway sent with them."""
        return self.forger.salt(self.record)

    def found(self, salt: str) -> list[int]:
        """How much of each prompt the engine has under a salt."""
        return client.at_once(lambda text: self.insider.found(text, salt), self.texts)


@pytest.fixture(scope="module")
def kept(stack: Stack, gateway: str, insider: Insider) -> Kept:
    texts = [client.prompt(TOKENS) for _ in range(TRIES)]
    client.found(client.client(gateway, stack.credentials.api_keys["blue-carol"]), texts)
    forger, statement = stack.forger(), insider.statement()
    mine, others = (forger.record(kubectl.get("tenant", name)["metadata"]["uid"], statement) for name in ("blue", "green"))
    return Kept(texts, mine, others.namespace, forger, insider)


def _loaded(name: str) -> Callable[[IdentityRecord], IdentityRecord]:
    return lambda record: replace(record, engine=replace(record.engine, **{name: OTHER}))


def _stale(index: int) -> Callable[[IdentityRecord], IdentityRecord]:
    """The epoch before of one target of pool, scope and tenant; which is which only the keys tell."""

    def change(record: IdentityRecord) -> IdentityRecord:
        entries = list(record.epochs.entries)
        target, epoch = entries[index]
        entries[index] = (target, Epoch(epoch - 1))
        return replace(record, epochs=EpochVector(tuple(entries)))

    return change


CHANGES: dict[str, Callable[[IdentityRecord], IdentityRecord]] = {
    "another policy revision": lambda record: replace(record, policy_revision=record.policy_revision + 1),
    **{f"stale epoch of target {index}": _stale(index) for index in range(3)},
    **{f"another {name}": _loaded(name) for name in ("model", "tokenizer", "runtime", "adapter")},
}


@pytest.mark.parametrize("change", CHANGES)
def test_one_field_of_the_record_separates(kept: Kept, change: str) -> None:
    assert kept.found(kept.forger.salt(CHANGES[change](kept.record))) == [0] * TRIES
    assert min(kept.found(kept.salt)) > 0, "the control: the engine has them all, under the record as it is"


def test_another_tenants_namespace_separates(kept: Kept) -> None:
    # Not with all of the other's record: the engine would then have the prompts for him, who is an attacker below.
    assert kept.found(kept.forger.salt(replace(kept.record, namespace=kept.other_namespace))) == [0] * TRIES
    assert min(kept.found(kept.salt)) > 0


def test_a_salt_that_is_the_same_but_for_its_last_character_finds_nothing(kept: Kept) -> None:
    last = "A" if kept.salt[-1] != "A" else "Q"
    assert kept.found(kept.salt[:-1] + last) == [0] * TRIES
    assert min(kept.found(kept.salt)) > 0


@pytest.mark.parametrize("attacker", ["green-south", "red-alice"])
def test_the_very_salt_of_another_tenant_helps_nobody(kept: Kept, who: Clients, attacker: str) -> None:
    assert client.found(_saying(kept, who[attacker]), kept.texts, **_fields(kept.salt)) == [0] * TRIES
    assert min(kept.found(kept.salt)) > 0, "the control: past the gateway the salt is all that it takes"
    assert min(client.found(who[attacker], kept.texts[:5])) > 0, "and whoever asks again finds his own"


UNSALTED: dict[str, dict[str, Any]] = {"blue-carol": {}, "green-south": {"cache_salt": None}, "red-alice": {"cache_salt": ""}}
"""Whom the gateway forgets a salt for, if it ever does; each sends each prompt once."""


@pytest.fixture(scope="module")
def unsalted(insider: Insider) -> list[str]:
    """Prompts that the engine has without a salt."""
    texts = [client.prompt(TOKENS) for _ in range(TRIES)]
    client.at_once(lambda text: insider.found(text, None), texts)
    return texts


@pytest.mark.parametrize("person", UNSALTED)
def test_no_request_goes_without_its_salt(insider: Insider, who: Clients, unsalted: list[str], person: str) -> None:
    assert client.found(who[person], unsalted, **UNSALTED[person]) == [0] * TRIES
    assert min(client.at_once(lambda text: insider.found(text, None), unsalted)) > 0, "the control: without a salt they are there"


def test_whoever_sends_no_salt_finds_nothing_that_has_one(kept: Kept) -> None:
    assert client.at_once(lambda text: kept.insider.found(text, None), kept.texts) == [0] * TRIES
    assert min(kept.found(kept.salt)) > 0


def _fields(salt: Salt) -> dict[str, Any]:
    """The salt in every field in which an engine, a router or a connector might look for one."""
    inner = {"cache_salt": salt, "extra_key": salt, "salt": salt}
    names = ("cache_salt", "extra_key", "prompt_cache_key", "session_id", "request_id", "safety_identifier", "user")
    nested = ("nvext", "kv_transfer_params", "ec_transfer_params", "mm_processor_kwargs", "metadata")
    return {**dict.fromkeys(names, salt), **dict.fromkeys(nested, inner)}


def _saying(kept: Kept, who: openai.OpenAI) -> openai.OpenAI:
    """A client that has the salt, whom it is of, the engine's address and a permit in every header that might choose a cache."""
    engine = kubectl.ready_pod(ENGINE_PODS)["status"]["podIP"]
    salted = ("x-cache-salt", "x-cachescope-salt", "x-session-id", "x-request-id", "x-cachescope-record")
    others = {
        "x-tenant-id": kubectl.get("tenant", "blue")["metadata"]["uid"],
        "x-cachescope-tenant": "blue",
        "x-cachescope-namespace": kept.record.namespace,
        "x-cachescope-permit": kept.insider.permit(BODY),
        "x-gateway-destination-endpoint": f"{engine}:8000",
    }
    return who.with_options(default_headers={**dict.fromkeys(salted, kept.salt), **others})
