"""Public sources and scopes of class Public, as the operator tells people of them: also when nothing but time passes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from cachescope.controller.store import Key
from cachescope.kube.rest import Document
from tests.unit.controller_bench import POOL, Bench, tenant

SOURCE, SCOPE = Key("PublicSource", "ns", "terms"), Key("CacheScope", "ns", "s")
DIGEST = f"sha256:{'1' * 64}"


def resource(kind: str, name: str, **spec: Any) -> Document:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-of-{name}", "generation": 0}
    return {"apiVersion": "cachescope.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def approval(begins: float, ends: float) -> dict[str, str]:
    return {"by": "legal", "at": moment(begins), "expires": moment(ends)}


@pytest.fixture
async def bench() -> Bench:
    made = Bench()
    await made.start()
    made.declare(POOL, sharing={"stage": "Public"})
    made.declare(tenant("red"))
    made.declare(resource("PublicSource", "terms", digest=DIGEST, approval=approval(500, 2000)))
    made.declare(resource("CacheScope", "s", **{"class": "Public"}, pools=["tiny"], tenants=["red"], publicSources=["terms"]))
    return made


async def usable(bench: Bench) -> tuple[str, str]:
    await bench.sources.reconcile(SOURCE, 0)
    return bench.condition("PublicSource", "terms", "Usable")


async def effective(bench: Bench) -> tuple[str, tuple[str, str]]:
    await bench.scopes.reconcile(SCOPE, 0)
    return bench.found("CacheScope", "s")["status"]["effectiveClass"], bench.condition("CacheScope", "s", "Accepted")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, ("True", "Approved")),
        ({"approval": None}, ("False", "NotApproved")),
        ({"approval": approval(1500, 2000)}, ("False", "NotApproved")),
        ({"approval": approval(500, 1000)}, ("False", "Expired")),
        ({"withdrawn": True}, ("False", "Withdrawn")),
        ({"digest": "md5:1"}, ("False", "InvalidSpec")),
        ({"approval": approval(2000, 500)}, ("False", "InvalidSpec")),
    ],
)
async def test_a_source_says_whether_it_may_be_shared(bench: Bench, spec: dict[str, Any], said: tuple[str, str]) -> None:
    bench.declare(bench.found("PublicSource", "terms"), **spec)
    assert await usable(bench) == said


async def test_it_is_looked_at_again_when_that_changes_and_so_are_scopes(bench: Bench) -> None:
    bench.due.clear()
    assert await usable(bench) == ("True", "Approved")
    assert bench.due == [SOURCE, SCOPE]
    bench.now = 2000.0
    assert await usable(bench) == ("False", "Expired")
    assert bench.due == [SOURCE, SCOPE], "nothing changes by itself any more"


async def test_a_source_that_is_gone_or_going_is_left_alone(bench: Bench) -> None:
    bench.found("PublicSource", "terms")["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    bench.declare(bench.found("PublicSource", "terms"))
    await bench.sources.reconcile(SOURCE, 0)
    await bench.sources.reconcile(Key("PublicSource", "ns", "nowhere"), 0)
    assert "status" not in bench.found("PublicSource", "terms")


async def test_a_public_scope_says_what_it_comes_to_now(bench: Bench) -> None:
    assert await effective(bench) == ("Public", ("True", "Accepted"))
    bench.now = 2000.0
    assert await effective(bench) == ("Tenant", ("True", "NothingPublic"))
    bench.now = 1000.0
    bench.declare(POOL, sharing={"stage": "Tenant"})
    assert await effective(bench) == ("Tenant", ("True", "NothingPublic"))


async def test_an_incident_that_stopped_public_sharing_is_told_too(bench: Bench) -> None:
    bench.found("ServingPool", "tiny")["status"] = {"publicStopped": True}
    bench.declare(POOL, sharing={"stage": "Public"})
    assert await effective(bench) == ("Tenant", ("True", "NothingPublic"))
    assert "incident" in bench.message("CacheScope", "s", "Accepted")


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"publicSources": ["terms", "nowhere"]}, "PublicSource 'nowhere'"),
        ({"applications": [{"tenant": "blue", "kind": "api-key", "subject": "app"}]}, "Tenant 'blue' of an application"),
    ],
)
async def test_what_a_scope_names_and_is_not_there_is_told(bench: Bench, spec: dict[str, Any], named: str) -> None:
    bench.declare(bench.found("CacheScope", "s"), **spec)
    assert (await effective(bench))[1] == ("False", "ReferenceNotFound")
    assert named in bench.message("CacheScope", "s", "Accepted")


async def test_a_source_that_cannot_be_read_makes_nothing_public(bench: Bench) -> None:
    bench.declare(bench.found("PublicSource", "terms"), digest="md5:1")
    assert (await effective(bench))[0] == "Tenant"
