"""Where the engine knows no salts: whoever asks is served by engines of his own, and nothing of another identity is ever found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cachescope.core.caches import Caching
from cachescope.core.ledgers import Floor, Lineage, reborn
from cachescope.core.types import Epoch
from cachescope.gateway.exchange import Answer, Forward
from cachescope.gateway.wanted import KEPT_MS, MOST, MOST_OF_A_POOL, Wanted
from cachescope.kube.watched import Name
from tests.unit.single_tenant_path import TENANTS, SingleTenantPath, pool_of
from tests.unit.whole_path import CHAT, NAMESPACE, POOL, POOL_UID, prompt

TRIES = 50
FENCED = ("pool", "tenant", "lineage")
"""What guards know of; the others end with the right of the gateways that signed by them."""
OTHER_CACHE = "permit_for_another_cache"


@pytest.fixture
async def world(tmp_path: Path) -> SingleTenantPath:
    made = SingleTenantPath(tmp_path)
    await made.prove()
    return made


def keys(world: SingleTenantPath) -> dict[str, str]:
    """A credential of each tenant."""
    return {"blue": world.credentials.api_keys["blue-carol"], "green": world.credentials.token("south", "kim", "tiny")}


@pytest.mark.parametrize(("first", "second"), [TENANTS, TENANTS[::-1]])
async def test_a_tenant_finds_its_own_and_never_anothers(world: SingleTenantPath, first: str, second: str) -> None:
    who = keys(world)
    for _ in range(TRIES):
        text = prompt()
        assert await world.outcome(who[first], text) == 0
        assert await world.outcome(who[second], text) == 0
        found = await world.outcome(who[first], text)
        assert isinstance(found, int)
        assert found > 0


async def test_a_request_that_goes_astray_is_refused_by_the_other_tenants_guard(world: SingleTenantPath) -> None:
    who, text = keys(world), prompt()
    await world.outcome(who["blue"], text)
    body = json.dumps({"model": POOL, "messages": [{"role": "user", "content": text}]}).encode()
    for _ in range(TRIES):
        forward = await world.decide(who["green"], body)
        assert isinstance(forward, Forward)
        assert (await world.send(forward, address=world.pod("blue").address)).status == 401
    assert len(world.pod("blue").engine.seen) == 1


@pytest.mark.parametrize("change", ["pool", "tenant", "policy", "lineage", "keys"])
async def test_what_a_salt_would_separate_a_new_pod_separates(world: SingleTenantPath, change: str) -> None:
    who, text = keys(world), prompt()
    await world.outcome(who["blue"], text)
    assert await world.outcome(who["blue"], text) != 0
    forward = await world.decide(who["blue"], json.dumps({"model": POOL, "messages": [{"role": "user", "content": text}]}).encode())
    assert isinstance(forward, Forward)
    changes(world, change)
    world.round()
    await world.prove()
    assert {await world.outcome(who["blue"], text) for _ in range(TRIES)} == {"no_endpoint"}
    assert [len(items) for pool, items in world.wanted.now().items() if pool == f"uid-of-{pool_of('blue')}"] == [1]
    if change in FENCED:
        assert (await world.send(forward)).status == 409, "a permit of before is worth nothing"
    world.replace_pod("blue")
    await world.prove()
    assert await world.outcome(who["blue"], text) == 0
    assert await world.outcome(who["blue"], text) != 0


def changes(world: SingleTenantPath, what: str) -> None:
    """Change something that separates."""
    if what == "pool":
        world.raise_pool_epoch(2)
    elif what == "tenant":
        target = world.tenant_target("blue")
        world.advance_authorization({target: Floor(Epoch(2), abort_below=Epoch(2))})
    elif what == "policy":
        declare(world, "Tenant")
    elif what == "lineage":
        world.write_pool(reborn(world.pool_ledger, Lineage(2, "33" * 16)))
    else:
        (world.folder / "mounted/root-keys/k2").write_text("7c" * 32)
        world.take_over()


async def test_a_guard_that_starts_anew_beside_its_engine_lets_nobody_else_in(world: SingleTenantPath) -> None:
    who, text = keys(world), prompt()
    await world.outcome(who["blue"], text)
    world.raise_pool_epoch(2)
    world.pod("blue").start()
    await world.prove()
    assert {await world.outcome(who["blue"], text) for _ in range(TRIES)} == {"no_endpoint"}


async def test_a_guard_that_says_it_is_nobodys_and_is_not_refuses(world: SingleTenantPath, monkeypatch: pytest.MonkeyPatch) -> None:
    who, text = keys(world), prompt()
    await world.outcome(who["blue"], text)
    world.raise_pool_epoch(2)
    await world.prove()
    monkeypatch.setattr("cachescope.gateway.fitting.Fit.rank", lambda *_: 0)
    assert {await world.outcome(who["blue"], text) for _ in range(TRIES)} == {OTHER_CACHE}


def declare(world: SingleTenantPath, scope_class: str) -> None:
    """The class of one tenant on the pool."""
    scope = {"class": scope_class, "pools": [POOL], "tenants": ["blue"]}
    world.cluster.apply({"kind": "CacheScope", "metadata": {"name": "blue"}, "spec": scope}, NAMESPACE)
    world.take_over()


async def test_each_principal_has_a_pod_of_its_own_where_the_scope_asks_for_it(world: SingleTenantPath) -> None:
    declare(world, "Principal")
    carol, dan = (world.credentials.api_keys[name] for name in ("blue-carol", "blue-dan"))
    assert await world.outcome(carol, prompt()) == 0
    assert {await world.outcome(dan, prompt()) for _ in range(TRIES)} == {"no_endpoint"}, "the one pod is another's"
    assert [len(items) for items in world.wanted.now().values()] == [1]
    world.add_pod("blue")
    await world.prove()
    for _ in range(TRIES):
        text = prompt()
        assert [await world.outcome(who, text) for who in (carol, dan)] == [0, 0]
        assert 0 not in [await world.outcome(who, text) for who in (carol, dan)], "the control: everybody finds his own"


async def test_single_requests_are_refused_and_nothing_is_public(world: SingleTenantPath) -> None:
    who = keys(world)
    declare(world, "Request")
    assert {await world.outcome(who["blue"], prompt()) for _ in range(TRIES)} == {"permission_denied"}
    assert await world.outcome(who["green"], prompt()) == 0
    declare(world, "Public")
    assert await world.outcome(who["blue"], prompt()) == 0


async def test_a_tenant_without_a_pool_of_its_own_is_not_served(world: SingleTenantPath) -> None:
    world.cluster.store("ServingPool").remove(NAMESPACE, pool_of("blue"))
    world.take_over()
    who = keys(world)
    assert {await world.outcome(who["blue"], prompt()) for _ in range(TRIES)} == {"no_endpoint"}
    assert await world.outcome(who["green"], prompt()) == 0


async def test_another_tenant_of_that_name_is_not_served_by_its_pool(world: SingleTenantPath) -> None:
    who = keys(world)
    assert await world.outcome(who["blue"], prompt()) == 0
    tenant = world.cluster.tenants.documents[Name(NAMESPACE, "blue")]
    world.cluster.store("Tenant").remove(NAMESPACE, "blue")
    made = {"kind": "Tenant", "metadata": {"name": "blue", "uid": "another-uid-of-blue"}, "spec": tenant["spec"]}
    world.cluster.apply(made, NAMESPACE)
    world.take_over()
    assert {await world.outcome(who["blue"], prompt()) for _ in range(TRIES)} == {"no_endpoint"}


async def test_nothing_that_a_client_sends_switches_reuse_or_chooses_a_slot(world: SingleTenantPath) -> None:
    who, text = keys(world), prompt()
    await world.outcome(who["blue"], text, cache_prompt=False, id_slot=3, cache_salt="mine")
    assert world.pod("blue").engine.seen[-1].keys().isdisjoint({"cache_prompt", "id_slot", "cache_salt"})
    world.fresh_only = True
    assert await world.outcome(who["blue"], text, cache_prompt=True) == 0
    assert world.pod("blue").engine.seen[-1]["cache_prompt"] is False
    world.fresh_only = False
    assert await world.outcome(who["blue"], text) != 0


async def test_an_engine_that_reuses_nothing_is_told_so_in_each_request(world: SingleTenantPath) -> None:
    """As pods of isolation `Disabled`: the pool's own, and none of a tenant's."""
    world.edit("ServingPool", POOL, lambda item: item["spec"].update(isolation={"mode": "Disabled"}))
    for tenant in TENANTS:
        world.cluster.store("ServingPool").remove(NAMESPACE, pool_of(tenant))
    world.take_over()
    pod = world.pod("blue")
    pod.pool, pod.pool_uid = POOL, POOL_UID
    pod.start(Caching.OFF)
    await world.prove()
    who, text = keys(world), prompt()
    found = [await world.outcome(who["blue"], text, cache_prompt=True) for _ in range(TRIES)]
    assert found == [0] * TRIES
    assert all(body["cache_prompt"] is False for body in pod.engine.seen)


async def test_a_body_for_one_engine_never_reaches_another(world: SingleTenantPath) -> None:
    who = keys(world)
    assert await world.outcome(who["blue"], prompt()) == 0
    engine = {"type": "custom", "version": "1", "image": "x", "args": ["--model={model}", "--listen", "{host}:{port}"]}
    for name in (POOL, pool_of("blue")):
        world.edit("ServingPool", name, lambda item: item["spec"].update(engine=engine))
    await world.prove()
    assert {await world.outcome(who["blue"], prompt()) for _ in range(TRIES)} == {"no_endpoint"}


async def test_routes_that_the_engine_does_not_have_are_not_found(world: SingleTenantPath) -> None:
    who = keys(world)
    body = json.dumps({"model": POOL, "input": "x"}).encode()
    refused = await world.decide(who["blue"], body, "/v1/responses")
    assert isinstance(refused, Answer)
    assert refused.reason == "not_found"
    assert isinstance(
        await world.decide(who["blue"], json.dumps({"model": POOL, "prompt": "x"}).encode(), "/v1/completions"), Forward
    )
    assert CHAT


def test_what_is_wanted_is_bounded_and_forgotten() -> None:
    now = 0
    wanted = Wanted(lambda: now)
    for number in range(10 * MOST):
        wanted.note("pool", f"{number:043}")  # type: ignore[arg-type]
        wanted.note(f"pool-{number}", "x" * 43)  # type: ignore[arg-type]
    found = wanted.now()
    assert sum(map(len, found.values())) <= MOST
    assert len(found["pool"]) == MOST_OF_A_POOL
    assert wanted.now() == found
    now = KEPT_MS + 1
    assert wanted.now() == {}
