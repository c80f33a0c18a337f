"""The kinds on a real API server, and a namespace of its own for each file of tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from cachescope.kube.rest import Rest
from e2e.stack import kubectl
from e2e.stack.paths import KUBECONFIG, ROOT
from tests.integration import namespaces
from tests.integration.crd_objects import Server


@pytest.fixture(scope="session", autouse=True)
def crds() -> None:
    """The kinds as the models say them now, before any test: a new cluster has none. They stay, since they belong to all of it."""
    kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    kubectl.run("wait", "--for=condition=Established", "--timeout=30s", "-f", str(ROOT / "crds"))


@pytest.fixture(scope="module")
def crd_namespace() -> Iterator[str]:
    with namespaces.made("crds") as name:
        yield name


@pytest.fixture
async def server(crd_namespace: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    monkeypatch.setenv("KUBECONFIG", str(KUBECONFIG))
    async with Rest() as rest:
        yield Server(rest, crd_namespace)
