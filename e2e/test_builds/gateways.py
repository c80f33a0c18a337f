"""Gateways of a test build in front of the real pool, in the place of the declared ones for a while."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import openai

from e2e.stack import client, decisions, kubectl
from e2e.stack.changes import changed
from e2e.stack.install import GATEWAY, GATEWAY_PODS, GATEWAY_PORT, Stack

PROGRAM = "/opt/cachescope/bin/python"

Patch = Callable[[object, str, object], None]
"""Puts something in the place of an attribute; `setattr`, where it need not be undone."""
Build = Callable[[Patch], None]
"""What a build changes of the product. Its module imports nothing but the product: its source is all that a container gets."""


@dataclass(frozen=True)
class Built:
    """One gateway of a build.

    Attributes:
        stack: The installation.
        address: `address:port` of the gateway.
        pod: Its pod.
    """

    stack: Stack
    address: str
    pod: dict[str, Any]

    def key(self, person: str) -> str:
        """Bearer credential of a person with an API key, or of `kim` of `green`."""
        return self.stack.credentials.api_keys.get(person) or self.stack.credentials.token("south", "kim", "tiny")

    def client(self, person: str) -> openai.OpenAI:
        """A person's client."""
        return client.client(self.address, self.key(person))

    def forwarded(self) -> list[dict[str, Any]]:
        """Its audit lines of requests that it forwarded."""
        return decisions.forwarded(self.pod["metadata"]["name"])


@contextmanager
def gateways(stack: Stack, build: Build) -> Iterator[Built]:
    """Gateways of a build, one of which is reached alone; afterwards the declared ones."""

    def change(deployment: dict[str, Any]) -> None:
        containers = deployment["spec"]["template"]["spec"]["containers"]
        next(each for each in containers if each["name"] == decisions.CONTAINER)["command"] = command(build)

    try:
        with changed("deployment", GATEWAY, change):
            kubectl.rolled_out(GATEWAY)
            pod = kubectl.ready_pod(GATEWAY_PODS)
            with kubectl.forwarded(f"pod/{pod['metadata']['name']}", GATEWAY_PORT) as address:
                found = Built(stack, address, pod)
                client.wait_routable(found.client("blue-carol"))
                yield found
    finally:
        kubectl.rolled_out(GATEWAY)


def command(build: Build) -> list[str]:
    """What starts the processor so; its own arguments follow."""
    module = inspect.getmodule(build)
    if module is None:
        raise ValueError("a build is a function of a module, whose source starts the container; define it in one")
    begin = f"{build.__name__}(setattr)\nfrom cachescope.cli.main import main\nmain()\n"
    return [PROGRAM, "-c", f"{inspect.getsource(module)}\n\n{begin}"]
