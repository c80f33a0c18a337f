"""An object as deep as the API server keeps one is one object among others, for requests, watches, operator and gateway."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cachescope.api.documents import API_VERSION
from cachescope.gateway.stores import follow
from cachescope.kube.rest import ApiError, Rest, collection
from e2e.stack import kubectl
from tests.integration.api_server import namespace, rest
from tests.integration.operator_process import condition, pool, running, until

__all__ = ["namespace", "rest"]
DEEPEST = 9_900  # the API server refuses 10,000
CONFIG_MAP: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap"}
TENANT: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "Tenant", "spec": {}}
EPOCH: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "CacheEpoch", "spec": {"target": {"name": "tiny"}, "floor": 3}}


async def test_a_deep_object_is_read_and_watched_like_any_other(rest: Rest, namespace: str) -> None:
    path = collection("v1", "configmaps", namespace)
    version = (await rest.get(path))["metadata"]["resourceVersion"]
    create_deep(path, namespace, CONFIG_MAP)
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


def test_the_operator_goes_on_for_everybody_else(namespace: str, tmp_path: Path) -> None:
    create_deep(collection(API_VERSION, "cacheepochs", namespace), namespace, EPOCH)
    with running(namespace, tmp_path / "log") as operator:
        create_deep(collection(API_VERSION, "tenants", namespace), namespace, TENANT)  # one that was there, and one that comes
        kubectl.apply([pool()], namespace=namespace)
        until(lambda: condition("servingpool", "tiny", "Ready", namespace), why=(tmp_path / "log").read_text)
        until(lambda: condition("tenant", "deep", "Accepted", namespace), why=(tmp_path / "log").read_text)
        assert operator.leads()


async def test_a_gateway_goes_on_following(rest: Rest, namespace: str) -> None:
    create_deep(collection(API_VERSION, "tenants", namespace), namespace, TENANT)
    followed = follow(rest, namespace, "Namespaced", changed=lambda: None, ledgers_changed=lambda: None)
    async with asyncio.timeout(30):
        following = asyncio.create_task(followed.run())
        while not all(age is not None for age in followed.ages().values()):
            assert not following.done()
            await asyncio.sleep(0.05)
    assert [name.name for name in followed.stores.tenants.items()] == ["deep"]
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


def create_deep(path: str, namespace: str, document: dict[str, Any]) -> None:
    """An object whose managedFields are as deep as the API server takes them."""
    fields = '{"f:a":' * DEEPEST + "{}" + "}" * DEEPEST
    entry = f'{{"manager":"x","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{fields}}}'
    body = json.dumps({**document, "metadata": {"name": "deep", "managedFields": ["HERE"]}})
    kubectl.run("create", "--raw", path, "-f", "-", stdin=body.replace('"HERE"', entry), namespace=namespace)
