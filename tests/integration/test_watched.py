"""A watch on a real API server: versions that are gone, gaps, refusals, large objects."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from cachescope.kube.rest import Document, Rest, collection
from cachescope.kube.watched import Name, Watched
from e2e.stack import kubectl
from e2e.stack.tenancy import API_VERSION, tenant
from tests.integration.following import namespace, rest, running, until

__all__ = ["namespace", "rest"]

LABEL = "cachescope.dev/watch-test"


def secrets_of(namespace: str) -> str:
    return collection("v1", "secrets", namespace)


def make(rest: Rest, namespace: str) -> Watched[str]:
    return Watched(rest, secrets_of(namespace), parse=lambda document: document["data"]["a"], label_selector=f"{LABEL}=yes")


def secret(name: str, value: str = "MQ==", label: str = "yes") -> Document:
    return {"metadata": {"name": name, "labels": {LABEL: label}}, "data": {"a": value}}


def has(watched: Watched[Any], namespace: str, name: str) -> bool:
    return watched.get(namespace, name) is not None


def differs(watched: Watched[Any], answered: float | None) -> bool:
    return watched._answered != answered


async def test_objects_come_change_and_go(rest: Rest, namespace: str) -> None:
    for number in range(5):
        await rest.create(secrets_of(namespace), secret(f"first-{number}"))
    watched = make(rest, namespace)
    async with running(watched.run()):
        await until(lambda: len(watched.items()) == 5)
        await rest.create(secrets_of(namespace), secret("other", label="no"))
        await rest.create(secrets_of(namespace), secret("late"))
        await until(lambda: watched.get(namespace, "late") == "MQ==")
        await rest.merge(f"{secrets_of(namespace)}/late", {"data": {"a": "Mg=="}})
        await until(lambda: watched.get(namespace, "late") == "Mg==")
        await rest.delete(f"{secrets_of(namespace)}/first-0")
        await until(lambda: watched.get(namespace, "first-0") is None)
        await rest.merge(f"{secrets_of(namespace)}/first-1", {"metadata": {"labels": {LABEL: "no"}}})
        await until(lambda: watched.get(namespace, "first-1") is None)
        assert {name.name for name in watched.items()} == {"first-2", "first-3", "first-4", "late"}


async def test_a_version_that_is_gone_is_listed_again_and_what_was_deleted_across_the_gap_is_gone(
    rest: Rest, namespace: str
) -> None:
    # Tenants, not Secrets: their kind is younger than version 1, so the API server never knows it, however new the cluster is.
    tenants = collection(API_VERSION, "tenants", namespace)
    for name in ("stays", "goes"):
        await rest.create(tenants, tenant(name, "keys"))
    watched = Watched(rest, tenants, parse=lambda document: document["metadata"]["uid"])
    async with running(watched.run()):
        await until(lambda: len(watched.items()) == 2)
    await rest.delete(f"{tenants}/goes")
    await rest.create(tenants, tenant("comes", "keys"))
    watched._from = "1"  # what a gateway is left with that could not reach the API server for long
    lists = watched._listed_at
    async with running(watched.run()):
        await until(lambda: set(watched.items()) == {Name(namespace, "stays"), Name(namespace, "comes")})
    assert watched._listed_at > lists


async def test_a_watch_that_ended_goes_on_without_a_new_list(rest: Rest, namespace: str) -> None:
    watched = make(rest, namespace)
    async with running(watched.run()):
        await until(lambda: watched.age() is not None)
        listed_at = watched._listed_at
        for name in ("one", "two", "three"):
            await rest.create(secrets_of(namespace), secret(name))
            await until(partial(has, watched, namespace, name))
            await until(partial(differs, watched, watched._answered))  # a bookmark, or the end of the watch
        assert watched._listed_at == listed_at


async def test_a_refusal_is_said_and_overcome(rest: Rest, namespace: str) -> None:
    watched: Watched[str] = Watched(rest, f"/apis/cachescope.dev/v1alpha1/namespaces/{namespace}/nothings", parse=str)
    async with running(watched.run()):
        await until(lambda: "404" in watched.fault)
        assert watched.age() is None
        watched._path = secrets_of(namespace)
        await until(lambda: watched.age() is not None)
        await until(lambda: watched.fault == "")


async def test_a_server_that_does_not_answer_leaves_what_is_known(
    rest: Rest, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rest.create(secrets_of(namespace), secret("known"))
    watched = make(rest, namespace)
    assert rest._api is not None
    configuration = rest._api.configuration
    async with running(watched.run()):
        await until(lambda: len(watched.items()) == 1)
        with monkeypatch.context() as patch:
            patch.setattr(configuration, "_base_path", "https://127.0.0.1:1")
            await until(lambda: "did not answer" in watched.fault)
            assert len(watched.items()) == 1
            heard = watched._answered
            await asyncio.to_thread(kubectl.run, "delete", "secret", "known", namespace=namespace)
            assert watched._answered == heard
        await until(lambda: not watched.items())


async def test_an_object_as_large_as_the_api_server_takes_is_followed(rest: Rest, namespace: str) -> None:
    watched = make(rest, namespace)
    async with running(watched.run()):
        await until(lambda: watched.age() is not None)
        listed_at = watched._listed_at
        await rest.create(secrets_of(namespace), secret("large", value="MTEx" * 200_000))
        await until(lambda: watched.get(namespace, "large") is not None)
        assert watched._listed_at == listed_at, "it came with the watch, not with a new list after a watch that broke"
