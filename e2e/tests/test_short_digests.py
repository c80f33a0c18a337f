"""The real pool behind gateways of a test build, in which all digests of records collide: the whole record decides all the same.

Beside it stands the build that trusts those digests: with it two tenants share, and anybody's handle matches.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import openai

from cachescope.core.handles import Outcome
from e2e.stack import client, kubectl
from e2e.stack.changes import changed
from e2e.stack.handles import handle, presenting
from e2e.stack.install import GATEWAY, GATEWAY_PODS, GATEWAY_PORT, Stack
from e2e.stack.waiting import until
from e2e.test_builds import short_digests

TRIES, FEW = 50, 5
TOKENS = 300
CONTAINER = "processor"


@dataclass(frozen=True)
class Built:
    """One gateway of a build.

    Attributes:
        stack: The installation.
        address: `address:port` of the gateway.
        pod: Name of its pod.
    """

    stack: Stack
    address: str
    pod: str

    @property
    def keys(self) -> dict[str, str]:
        """Bearer credentials of a person of `blue` and of one of `green`."""
        return {"carol": self.stack.credentials.api_keys["blue-carol"], "kim": self.stack.credentials.token("south", "kim", "tiny")}

    def client(self, name: str) -> openai.OpenAI:
        """A person's client."""
        return client.client(self.address, self.keys[name])

    def presented(self, owner: str, person: str, texts: list[str]) -> Counter[str]:
        """What became of the handles that one was given, when another presented them with the same prompts."""
        given = [handle(self.address, self.keys[owner], text) for text in texts]
        before = self.lines()
        for text, found in zip(texts, given, strict=True):
            client.chat(presenting(self.client(person), found), text)
        until(lambda: len(self.lines()) >= len(before) + len(texts), "every request is in the audit log")
        return Counter(line["handle"] for line in self.lines()[len(before) :])

    def lines(self) -> list[dict[str, Any]]:
        """Audit lines of the requests that it forwarded."""
        logged = kubectl.run("logs", self.pod, "-c", CONTAINER, "--tail=-1").splitlines()
        found = [json.loads(line) for line in logged if line.startswith("{")]
        return [line for line in found if line["event"] == "forwarded"]


@contextmanager
def gateways(stack: Stack, build: Callable[[short_digests.Patch], None]) -> Iterator[Built]:
    """Gateways of a build, and afterwards the declared ones."""

    def change(deployment: dict[str, Any]) -> None:
        containers = deployment["spec"]["template"]["spec"]["containers"]
        next(each for each in containers if each["name"] == CONTAINER)["command"] = short_digests.command(build)

    try:
        with changed("deployment", GATEWAY, change):
            kubectl.rolled_out(GATEWAY)
            pod = kubectl.ready_pod(GATEWAY_PODS)["metadata"]["name"]
            with kubectl.forwarded(f"pod/{pod}", GATEWAY_PORT) as address:
                found = Built(stack, address, pod)
                client.wait_routable(found.client("carol"))
                yield found
    finally:
        kubectl.rolled_out(GATEWAY)


def test_where_digests_collide_the_whole_record_decides(stack: Stack) -> None:
    texts = [client.prompt(TOKENS) for _ in range(TRIES)]
    with gateways(stack, short_digests.shortened) as built:
        client.found(built.client("carol"), texts)
        assert client.found(built.client("kim"), texts) == [0] * TRIES
        assert min(client.found(built.client("carol"), texts)) > 0, "the control: each finds his own"
        others = built.presented("carol", "kim", texts)
        assert (others.total(), others[Outcome.MATCHES.value]) == (TRIES, 0)
        assert built.presented("carol", "carol", texts[:FEW]) == {Outcome.MATCHES.value: FEW}, "the control: it is his"
        assert {line["record_digest"] for line in built.lines()} == {short_digests.RECORD}, "the control: all collide"
        assert len({line["namespace_digest"] for line in built.lines()}) == 1


def test_the_control_whoever_trusts_the_digest_is_wrong(stack: Stack) -> None:
    texts = [client.prompt(TOKENS) for _ in range(FEW)]
    with gateways(stack, short_digests.trusting) as built:
        client.found(built.client("carol"), texts)
        assert min(client.found(built.client("kim"), texts)) > 0
        assert built.presented("carol", "kim", texts) == {Outcome.MATCHES.value: FEW}
