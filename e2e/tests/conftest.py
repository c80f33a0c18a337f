"""The demo's installation on the real cluster, shared by all end-to-end tests; brought to its declared state first."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from cachescope.core.labels import ENGINE_PORT
from e2e.stack import client, kubectl
from e2e.stack.attacker import Insider
from e2e.stack.install import ENGINE_PODS, GATEWAY_PODS, GATEWAY_PORT, Stack, install, prepare

# They take the shared installation away, or stand beside it: after all that needs it.
LAST = ("test_lifecycle", "test_cluster_mode")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules that end the shared installation come last."""
    items.sort(key=lambda item: LAST.index(name) + 1 if (name := item.path.stem) in LAST else 0)


@pytest.fixture(scope="session")
def stack() -> Stack:
    """The installation, applied and rolled out."""
    prepared = prepare()
    install(prepared)
    return prepared


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Iterator[str]:
    """`address:port` of the gateway on loopback, once a request passes."""
    with kubectl.forwarded_pod(GATEWAY_PODS, GATEWAY_PORT) as address:
        client.wait_routable(client.client(address, stack.credentials.api_keys["blue-carol"]))
        yield address


@pytest.fixture(scope="module")
def insider(stack: Stack, gateway: str) -> Iterator[Insider]:  # noqa: ARG001 - the pool must be up first
    """A way to the engine's port, past the gateway."""
    with kubectl.forwarded_pod(ENGINE_PODS, ENGINE_PORT) as address:
        yield Insider(stack, address)


@pytest.fixture
def who(stack: Stack, gateway: str) -> dict[str, openai.OpenAI]:
    """A client for every person: API keys, and the same `sub` from two issuers for two tenants and within one."""
    token = stack.credentials.token
    tokens = {
        "blue-north": token("north", "kim", "tiny"),
        "green-south": token("south", "kim", "tiny"),
        "violet-north": token("north", "kim", "violet"),
        "violet-south": token("south", "kim", "violet"),
    }
    return {name: client.client(gateway, key) for name, key in {**stack.credentials.api_keys, **tokens}.items()}
