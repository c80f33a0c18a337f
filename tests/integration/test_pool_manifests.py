"""A real API server takes every object of a pool, in a namespace that enforces the restricted profile, without a warning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cachescope.manifests.pool import pool_objects
from cachescope.manifests.revisions import build_revision, read_revision
from e2e.stack import kubectl
from e2e.stack.kubectl import KubectlError
from tests.integration import namespaces
from tests.unit import engine_pools
from tests.unit.pools import ADAPTERS, FULL, PLATFORM, ROOT, TARGET, pool

CLAIM = {"model.source": {"persistentVolumeClaim": {"claimName": "models", "path": "llama"}}}
FRACTION = {"resources": {"limits": {"cpu": 0.5, "memory": "8Gi"}}}
RESTRICTED = tuple(f"pod-security.kubernetes.io/{mode}=restricted" for mode in ("enforce", "warn", "audit"))
# What has to exist before a pod that names it is taken.
ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tiny-engine"}}


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    with namespaces.made("manifests") as name:
        kubectl.run("label", "namespace", name, *RESTRICTED, namespace=name)
        kubectl.apply([ACCOUNT], namespace=name)
        yield name


def children(namespace: str, changes: dict[str, Any], platform: Any = PLATFORM) -> list[dict[str, Any]]:
    made = pool(changes, namespace=namespace)
    return pool_objects(platform, made, keys=ROOT, revision=build_revision(platform, made, TARGET))


def orphans(namespace: str, changes: dict[str, Any]) -> list[dict[str, Any]]:
    """The same without their owner: there is none here, and the garbage collector would take them at once."""
    items = children(namespace, changes)
    for item in items:
        del item["metadata"]["ownerReferences"]
    return items


def dry_run(namespace: str, *items: dict[str, Any]) -> list[dict[str, Any]]:
    """Apply on the server without storing anything; a warning is a failure."""
    options = ("--server-side", "--dry-run=server", "--warnings-as-errors", "--field-manager=test", "-o", "json", "-f", "-")
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    answer = json.loads(kubectl.run("apply", *options, stdin=document, namespace=namespace))
    found: list[dict[str, Any]] = answer["items"] if answer["kind"] == "List" else [answer]
    return found


def pod_of(deployment: dict[str, Any]) -> dict[str, Any]:
    """The pod that the Deployment's controller would make: admission judges pods alone."""
    template = deployment["spec"]["template"]
    spec = {key: value for key, value in template["spec"].items() if key not in {"priorityClassName", "runtimeClassName"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", **template["metadata"]}, "spec": spec}


@pytest.mark.parametrize(
    "changes",
    [{}, FULL, CLAIM, FRACTION, {"replicas": 0}, {"engine.adapters": ADAPTERS}],
    ids=["image", "hub", "claim", "fraction", "zero", "adapters"],
)
def test_every_object_is_taken_without_a_warning(namespace: str, changes: dict[str, Any]) -> None:
    items = children(namespace, changes)
    assert [item["kind"] for item in dry_run(namespace, *items)] == [item["kind"] for item in items]
    dry_run(namespace, pod_of(items[-1]))


@pytest.mark.parametrize("engine", engine_pools.OTHERS)
def test_every_object_of_an_engine_that_nobody_runs_here_is_taken_too(namespace: str, engine: str) -> None:
    items = engine_pools.children(engine, namespace=namespace)
    assert [item["kind"] for item in dry_run(namespace, *items)] == [item["kind"] for item in items]
    dry_run(namespace, pod_of(items[-1]))


def test_a_fixed_user_is_taken_too(namespace: str) -> None:
    items = children(namespace, {}, replace(PLATFORM, run_as_user=1000, api_servers=("10.0.0.1/32", "fd00::1/128")))
    dry_run(namespace, *items, pod_of(items[-1]))


def test_a_pod_beyond_the_restricted_profile_is_refused_and_its_deployment_warned_of(namespace: str) -> None:
    deployment = children(namespace, {})[-1]
    deployment["spec"]["template"]["spec"]["containers"][0]["securityContext"] = {}
    with pytest.raises(KubectlError, match="warning"):
        dry_run(namespace, deployment)
    with pytest.raises(KubectlError, match="violates PodSecurity"):
        dry_run(namespace, pod_of(deployment))


def test_a_frozen_template_comes_back_from_the_server_as_it_was(namespace: str) -> None:
    made = pool(FULL, namespace=namespace)
    revision = build_revision(PLATFORM, made, TARGET)
    item = next(item for item in orphans(namespace, FULL) if item["kind"] == "ControllerRevision")
    kubectl.apply([item], namespace=namespace)
    stored = kubectl.get("controllerrevision", item["metadata"]["name"], namespace=namespace)
    assert read_revision(stored) == revision
    item["data"]["template"]["spec"]["containers"][0]["image"] = "elsewhere"
    with pytest.raises(KubectlError, match="immutable"):
        kubectl.apply([item], namespace=namespace)


def test_applying_the_same_again_changes_nothing(namespace: str) -> None:
    items = orphans(namespace, {"replicas": 0})
    kubectl.apply(items, namespace=namespace)
    before = versions(namespace)
    assert len(before) >= len(items)
    kubectl.apply(items, namespace=namespace)
    assert versions(namespace) == before
    items[-1]["spec"]["revisionHistoryLimit"] = 3
    kubectl.apply(items, namespace=namespace)
    assert versions(namespace) != before


def versions(namespace: str) -> dict[str, str]:
    kinds = "serviceaccount,role,rolebinding,secret,networkpolicy,service,poddisruptionbudget,controllerrevision,deployment"
    items = kubectl.get(kinds, "-l", "cachescope.dev/pool=tiny", namespace=namespace)["items"]
    # Controllers write the status of what has one; `generation` is what a change of the spec moves.
    moved = {(item["kind"], item["metadata"]["name"]): item["metadata"] for item in items}
    return {"/".join(key): str(meta.get("generation") or meta["resourceVersion"]) for key, meta in moved.items()}
