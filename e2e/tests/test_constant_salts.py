"""The control of every test here that says "nothing is found": on the same pool, behind gateways that salt with nothing, all is."""

from __future__ import annotations

from e2e.stack import client
from e2e.stack.attacker import Insider
from e2e.stack.install import Stack
from e2e.stack.waiting import until
from e2e.test_builds import constant_salts
from e2e.test_builds.gateways import gateways

TRIES = 5
TOKENS = 300


def test_with_one_salt_for_all_tenants_and_generations_all_is_found(stack: Stack, insider: Insider) -> None:
    texts = [client.prompt(TOKENS) for _ in range(TRIES)]
    with gateways(stack, constant_salts.constant) as built:
        carol, alice = built.client("blue-carol"), built.client("red-alice")
        client.found(carol, texts)
        assert min(client.found(alice, texts)) > 0, "another tenant"

        head = stack.raise_pool_epoch()
        until(lambda: insider.statement().sequence == head.sequence, "the guard takes no permit of before any more")
        assert min(client.found(carol, texts)) > 0, "what the generation before left"
