"""A template has a pool for each tenant that it selects, and none for anybody else; it has no engines of its own."""

from __future__ import annotations

import copy

import pytest

from cachescope.api.isolation import DedicatedTo
from cachescope.controller.store import Key
from cachescope.core.epochs import target_name
from cachescope.core.errors import ClusterError
from cachescope.core.types import TargetKind
from cachescope.kube.kinds import path_of
from cachescope.kube.rest import Document
from cachescope.manifests.dedicated import dedicated_name
from tests.unit.controller_bench import POOL, POOL_KEY, tenant
from tests.unit.template_bench import PER_TENANT, TemplateBench

POOL_OF_FORGED = Key("ServingPool", "ns", "tiny-0123456789")


@pytest.fixture
async def bench() -> TemplateBench:
    return TemplateBench()


async def test_each_tenant_has_engines_of_its_own_and_the_template_has_none(bench: TemplateBench) -> None:
    await bench.begin("red", "blue", replicas=2, allowedTenants={"namespaces": {"from": "Same"}}, sharing={"stage": "Observe"})
    assert bench.served() == {"red", "blue"}
    assert not bench.has_engines()
    assert bench.found("EpochLedger", "tiny")
    for pool in bench.dedicated():
        spec, metadata = pool["spec"], pool["metadata"]
        assert bench.has_engines(metadata["name"])
        assert (spec["replicas"], spec["sharing"]) == (2, {"stage": "Observe"})
        assert spec.keys().isdisjoint({"isolation", "allowedTenants"})
        (owner,) = metadata["ownerReferences"]
        assert (owner["uid"], owner["controller"], metadata["name"][:5]) == ("pool-uid-1", True, "tiny-")
        assert spec["dedicatedTo"]["poolUid"] == "pool-uid-1"
        assert pool["status"]["mode"] == "Dedicated"
    status = bench.found("ServingPool", "tiny")["status"]
    assert (status["mode"], status["modeReason"]) == (
        "PerTenant",
        "each tenant has engines of its own, as isolation PerTenant asks",
    )
    assert status["selector"] == ""


async def test_engines_of_a_tenant_are_of_the_templates_epoch_target(bench: TemplateBench) -> None:
    await bench.begin("red")
    name = bench.pool_of("red")["metadata"]["name"]
    containers = bench.found("Deployment", name)["spec"]["template"]["spec"]["containers"]
    variables = {item["name"]: item.get("value") for container in containers for item in container["env"]}
    assert variables["CACHESCOPE_POOL_TARGET"] == target_name(bench.keys.targets, TargetKind.POOL, "pool-uid-1")
    assert variables["CACHESCOPE_POOL_UID"] == bench.pool_of("red")["metadata"]["uid"]
    assert variables["CACHESCOPE_CACHING"] == "OneCache"


async def test_a_steady_state_writes_nothing_also_after_a_restart(bench: TemplateBench) -> None:
    await bench.begin("red", "blue")
    bench.api.requests.clear()
    await bench.settle()
    bench.restart()
    await bench.settle()
    assert bench.api.writes == []
    bench.declare(tenant("green"))
    await bench.settle()
    assert bench.api.writes, "the same passes write where something is to be done"


async def test_a_tenant_that_comes_gets_engines_and_one_that_goes_loses_them(bench: TemplateBench) -> None:
    await bench.begin("red")
    bench.declare(tenant("blue"))
    await bench.settle()
    assert bench.served() == {"red", "blue"}
    bench.remove("Tenant", "red")
    await bench.settle()
    assert bench.served() == {"blue"}


async def test_a_tenant_that_is_being_deleted_has_lost_its_engines(bench: TemplateBench) -> None:
    await bench.begin("red")
    going = copy.deepcopy(bench.found("Tenant", "red"))
    going["metadata"]["deletionTimestamp"] = "2026-02-01T00:00:00Z"
    bench.api._store(path_of(going), going)
    await bench.settle()
    assert bench.served() == set()


async def test_a_tenant_that_is_made_anew_never_meets_the_pool_of_before(bench: TemplateBench) -> None:
    await bench.begin("red")
    before = bench.pool_of("red")
    bench.remove("Tenant", "red")
    again = tenant("red")
    again["metadata"]["uid"] = "tenant-uid-of-another"
    bench.declare(again)
    await bench.settle()
    after = bench.pool_of("red")
    assert after["metadata"]["name"] != before["metadata"]["name"]
    assert after["spec"]["dedicatedTo"]["tenantUid"] == "tenant-uid-of-another"
    assert len(bench.dedicated()) == 1


async def test_tenants_are_selected_by_their_labels(bench: TemplateBench) -> None:
    labelled = tenant("blue")
    labelled["metadata"]["labels"] = {"tier": "gold", "more": "x"}
    bench.declare(labelled)
    await bench.begin("red", isolation={**PER_TENANT, "tenants": {"matchLabels": {"tier": "gold"}}})
    assert bench.served() == {"blue"}
    bench.declare(POOL, isolation=PER_TENANT)
    await bench.settle()
    assert bench.served() == {"blue", "red"}


async def test_the_oldest_are_served_and_it_is_said_who_is_not(bench: TemplateBench) -> None:
    await bench.begin("red", "blue", "green", isolation={**PER_TENANT, "maxIsolatedPools": 2})
    assert bench.served() == {"red", "blue"}
    assert bench.condition("ServingPool", "tiny", "Degraded") == ("True", "TooManyTenants")
    message = bench.message("ServingPool", "tiny", "Degraded")
    assert "1 tenants get no engines and are not served, green;" in message
    assert "raise isolation.maxIsolatedPools" in message
    bench.remove("Tenant", "red")
    await bench.settle()
    assert bench.served() == {"blue", "green"}
    assert bench.condition("ServingPool", "tiny", "Degraded") == ("False", "Healthy")


async def test_a_tenant_that_is_selected_later_takes_nobodys_engines_however_old_it_is(bench: TemplateBench) -> None:
    chosen = {**PER_TENANT, "maxIsolatedPools": 1, "tenants": {"matchLabels": {"tier": "gold"}}}
    await bench.begin("red", isolation=chosen)
    assert bench.served() == set()
    for name, created in (("young", "2026-02-02T00:00:00Z"), ("old", "2026-01-01T00:00:00Z")):
        item = tenant(name, created=created)
        item["metadata"]["labels"] = {"tier": "gold"}
        bench.declare(item)
        await bench.settle()
        assert bench.served() == {"young"}
    bench.restart()
    await bench.settle()
    assert bench.served() == {"young"}


async def test_a_change_of_the_template_reaches_every_tenant_and_an_edit_of_theirs_is_taken_back(bench: TemplateBench) -> None:
    await bench.begin("red")
    bench.declare(POOL, isolation=PER_TENANT, fence={"leaseSeconds": 30})
    await bench.settle()
    assert bench.pool_of("red")["spec"]["fence"] == {"leaseSeconds": 30}
    edited = bench.pool_of("red")
    edited["spec"]["replicas"] = 5
    edited["spec"]["fence"]["leaseSeconds"] = 3
    bench.api._store(path_of(edited), edited)
    await bench.settle()
    assert (bench.pool_of("red")["spec"]["replicas"], bench.pool_of("red")["spec"]["fence"]) == (1, {"leaseSeconds": 30})


def forged(bench: TemplateBench, name: str, **whose: str) -> None:
    """Somebody makes a pool that says it is for a tenant."""
    said = {"poolName": "tiny", "poolUid": "pool-uid-1", "tenantName": "red", "tenantUid": "tenant-uid-red", **whose}
    document = copy.deepcopy(POOL)
    document["metadata"] |= {"name": name, "uid": "uid-of-forged"}
    owner = {"apiVersion": POOL["apiVersion"], "kind": "ServingPool", "name": "tiny", "uid": "pool-uid-1", "controller": True}
    document["metadata"]["ownerReferences"] = [owner]
    bench.declare(document, dedicatedTo=said)


async def test_a_pool_that_the_operator_did_not_make_gets_no_engines(bench: TemplateBench) -> None:
    await bench.begin("red", isolation={**PER_TENANT, "maxIsolatedPools": 0})
    forged(bench, "tiny-0123456789")
    await bench.pools.reconcile(POOL_OF_FORGED, 0)
    assert bench.condition("ServingPool", "tiny-0123456789", "Ready") == ("False", "InvalidSpec")
    assert "only the operator makes pools" in bench.message("ServingPool", "tiny-0123456789", "Ready")
    assert not bench.has_engines("tiny-0123456789")


async def test_a_pool_without_its_template_as_its_controller_gets_no_engines(bench: TemplateBench) -> None:
    await bench.begin("red")
    made = bench.pool_of("red")
    bench.remove("ServingPool", made["metadata"]["name"])
    del made["metadata"]["ownerReferences"]
    made["metadata"]["uid"] = "uid-of-forged"
    for kind in ("Deployment", "ControllerRevision"):
        for name in [item for item in bench.names(kind) if item.startswith(made["metadata"]["name"])]:
            bench.remove(kind, name)
    bench.api._store(path_of(made), made)
    await bench.pools.reconcile(POOL_OF_FORGED._replace(name=made["metadata"]["name"]), 0)
    assert bench.condition("ServingPool", made["metadata"]["name"], "Ready") == ("False", "InvalidSpec")
    assert not bench.has_engines(made["metadata"]["name"])


async def test_a_pool_of_a_tenant_that_is_no_tenant_gets_no_engines(bench: TemplateBench) -> None:
    await bench.begin("red")
    whose = {"tenantName": "nobody", "tenantUid": "tenant-uid-nobody"}
    other = DedicatedTo(pool_name="tiny", pool_uid="pool-uid-1", tenant_name="nobody", tenant_uid="tenant-uid-nobody")
    name = dedicated_name(bench.keys.targets, other)
    forged(bench, name, **whose)
    await bench.pools.reconcile(POOL_OF_FORGED._replace(name=name), 0)
    assert bench.condition("ServingPool", name, "Ready") == ("False", "InvalidSpec")
    assert not bench.has_engines(name)
    await bench.settle()
    assert bench.served() == {"red"}, "the template deletes it"


async def test_a_pool_that_is_deleted_comes_back_while_its_tenant_is_there(bench: TemplateBench) -> None:
    await bench.begin("red")
    before = bench.pool_of("red")
    bench.delete_pool(before["metadata"]["name"])
    await bench.settle()
    after = bench.pool_of("red")
    assert after["metadata"]["name"] == before["metadata"]["name"]
    assert after["metadata"]["uid"] != before["metadata"]["uid"]


async def test_what_is_in_the_way_of_one_tenant_holds_up_no_other_and_is_said(
    bench: TemplateBench, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.begin("red", "blue")
    name = bench.pool_of("red")["metadata"]["name"]
    bench.delete_pool(name)
    theirs = copy.deepcopy(POOL)
    theirs["metadata"] |= {"name": name, "uid": "uid-of-theirs"}
    bench.declare(theirs, model={"name": "other", "source": {"imagePath": "/models/other"}})
    bench.delete_pool(bench.pool_of("blue")["metadata"]["name"])
    bench.due.clear()
    await bench.settle()
    assert bench.served() == {"blue"}
    assert bench.condition("ServingPool", "tiny", "Degraded") == ("True", "NameTaken")
    assert POOL_KEY in bench.due, "nobody tells when it goes"
    assert [record.getMessage() for record in caplog.records].count("pool of a tenant not written") == 1
    bench.remove("ServingPool", name)
    await bench.settle()
    assert bench.served() == {"red", "blue"}
    assert bench.condition("ServingPool", "tiny", "Degraded") == ("False", "Healthy")


async def test_a_cluster_that_refuses_one_pool_gets_the_others_and_is_asked_again(bench: TemplateBench) -> None:
    await bench.begin("red")
    bench.declare(tenant("blue"))
    bench.declare(tenant("green"))
    await bench.pass_over()
    refused = bench.pool_of("blue")["metadata"]["name"]
    for name in ("blue", "green"):
        bench.remove("ServingPool", bench.pool_of(name)["metadata"]["name"])
    bench.api.refused = {f"servingpools/{refused}"}
    with pytest.raises(ClusterError):
        await bench.pass_over()
    assert bench.served() == {"red", "green"}
    assert bench.condition("ServingPool", "tiny", "Progressing") == ("True", "RollingOut")
    bench.api.refused = set()
    await bench.settle()
    assert bench.served() == {"red", "green", "blue"}


async def test_no_pool_of_a_tenant_is_compared_for_the_name_of_its_model(bench: TemplateBench) -> None:
    await bench.begin("red")
    name = bench.pool_of("red")["metadata"]["name"]
    for found in ("tiny", name):
        assert bench.condition("ServingPool", found, "Degraded") == ("False", "Healthy")
    younger = copy.deepcopy(POOL)
    younger["metadata"] |= {"name": "younger", "uid": "pool-uid-younger", "creationTimestamp": "2026-03-01T00:00:00Z"}
    bench.declare(younger)
    await bench.pools.reconcile(Key("ServingPool", "ns", "younger"), 0)
    assert "the older pool 'tiny'" in bench.message("ServingPool", "younger", "Degraded")


def scope(name: str, *pools: str, **spec: object) -> Document:
    metadata = {"name": name, "namespace": "ns", "uid": f"scope-uid-{name}", "generation": 0}
    rule = {"class": "Tenant", "pools": list(pools), "tenants": ["red"], **spec}
    return {"apiVersion": POOL["apiVersion"], "kind": "CacheScope", "metadata": metadata, "spec": rule}


async def test_a_scope_that_names_a_tenants_pool_is_told_to_name_the_template(bench: TemplateBench) -> None:
    await bench.begin("red")
    name = bench.pool_of("red")["metadata"]["name"]
    for scoped, pools, said in (("good", ["tiny"], "Accepted"), ("wrong", [name], "ReferenceNotFound")):
        bench.declare(scope(scoped, *pools))
        await bench.scopes.reconcile(Key("CacheScope", "ns", scoped), 0)
        assert bench.condition("CacheScope", scoped, "Accepted")[1] == said
    assert "(name 'tiny', that it was made of)" in bench.message("CacheScope", "wrong", "Accepted")


@pytest.mark.parametrize(
    ("mode", "said"), [("Shared", "usable now"), ("PerTenant", "shared by its tenants"), ("Disabled", "shared by")]
)
async def test_nothing_is_public_where_tenants_share_no_engines(bench: TemplateBench, mode: str, said: str) -> None:
    await bench.begin("red", isolation={"mode": mode}, sharing={"stage": "Public"})
    bench.declare(scope("s", "tiny", **{"class": "Public"}))
    await bench.scopes.reconcile(Key("CacheScope", "ns", "s"), 0)
    assert bench.condition("CacheScope", "s", "Accepted") == ("True", "NothingPublic")
    assert said in bench.message("CacheScope", "s", "Accepted")
