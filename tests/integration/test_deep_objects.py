"""An object as deep as the API server keeps one is one object among others, for requests, watches, operator and gateway."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from cachescope.kube.rest import ApiError, Rest, collection
from e2e.stack import kubectl
from e2e.stack.paths import KUBECONFIG

DEEPEST = 9_900  # the API server refuses 10,000


@pytest.fixture
def namespace() -> Iterator[str]:
    name = f"cachescope-deep-{secrets.token_hex(4)}"
    kubectl.run("create", "namespace", name, namespace=name)
    yield name
    kubectl.run("delete", "namespace", name, "--wait=false", namespace=name)


@pytest.fixture
async def rest(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rest]:
    monkeypatch.setenv("KUBECONFIG", str(KUBECONFIG))
    async with Rest() as made:
        yield made


async def test_a_deep_object_is_read_and_watched_like_any_other(rest: Rest, namespace: str) -> None:
    path = collection("v1", "configmaps", namespace)
    version = (await rest.get(path))["metadata"]["resourceVersion"]
    create_deep(path, namespace)
    names = {item["metadata"]["name"] for item in (await rest.get(path))["items"]}
    assert "deep" in names
    async for event in rest.watch(path, resource_version=version, seconds=20):
        if event["object"]["metadata"].get("name") == "deep":
            break
    else:
        raise AssertionError("the watch never told of the deep object")


async def test_a_name_never_leads_to_another_path(rest: Rest, namespace: str) -> None:
    assert (await rest.get(f"/api/v1/namespaces/{namespace}"))["metadata"]["name"] == namespace
    for name in ("..", "../kube-system", "a?x=y", "a%2f", "", "."):
        with pytest.raises(ApiError, match="no path of an object"):
            await rest.get(f"/api/v1/namespaces/{name}")


def create_deep(path: str, namespace: str) -> None:
    """A ConfigMap whose managedFields are as deep as the API server takes them."""
    fields = '{"f:a":' * DEEPEST + "{}" + "}" * DEEPEST
    entry = f'{{"manager":"x","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{fields}}}'
    body = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "deep", "managedFields": ["HERE"]}})
    kubectl.run("create", "--raw", path, "-f", "-", stdin=body.replace('"HERE"', entry), namespace=namespace)
