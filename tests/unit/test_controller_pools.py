"""Passes over a pool: everything is made, healed and said, and a steady state costs no write."""

from __future__ import annotations

import dataclasses

import pytest

from cachescope.kube.rest import ConflictError, Document
from tests.unit.controller_bench import CHILDREN, POOL, POOL_KEY, Bench, epoch
from tests.unit.pools import PLATFORM

NEWER = dataclasses.replace(PLATFORM, guard_image="registry.example/guard:0.2.0", guard_version="0.2.0")


@pytest.fixture
async def bench() -> Bench:
    made = Bench()
    await made.start()
    made.declare(POOL)
    return made


def standing(bench: Bench) -> Document:
    found: Document = bench.found("EpochLedger", "tiny")["spec"]
    return found


async def test_the_first_pass_makes_everything_and_says_how_it_is(bench: Bench) -> None:
    await bench.pass_over()
    for kind, name in CHILDREN:
        owner = bench.found(kind, name)["metadata"]["ownerReferences"][0]
        assert (owner["uid"], owner["controller"]) == ("pool-uid-1", True)
    assert "ownerReferences" not in bench.found("EpochLedger", "tiny")["metadata"]
    assert standing(bench)["sequence"] == 1
    status = bench.found("ServingPool", "tiny")["status"]
    assert {item["observedGeneration"] for item in status["conditions"]} == {status["observedGeneration"]} == {2}
    assert [item["type"] for item in status["conditions"]] == [
        "Ready",
        "Progressing",
        "Degraded",
        "IsolationVerified",
        "GuardOutdated",
    ]
    assert (status["epoch"], bench.condition("ServingPool", "tiny", "Ready")) == (1, ("False", "NoReadyPod"))


async def test_a_steady_state_writes_nothing_also_after_a_restart(bench: Bench) -> None:
    await bench.pass_over()
    bench.declare(epoch("e", incident={"id": "i"}))
    await bench.pass_over()
    bench.api.requests.clear()
    await bench.pass_over()
    bench.restart()
    await bench.pass_over()
    assert bench.api.requests == []


@pytest.mark.parametrize(("kind", "name"), CHILDREN)
async def test_a_child_that_was_deleted_comes_back(bench: Bench, kind: str, name: str) -> None:
    await bench.pass_over()
    before = bench.found(kind, name)
    bench.remove(kind, name)
    bench.api.requests.clear()
    await bench.pass_over()
    after = bench.found(kind, name)
    assert {**after, "metadata": 0} == {**before, "metadata": 0}
    rolls = kind == "ServiceAccount"
    assert bench.api.writes == ["apply"] * (2 if rolls else 1)


def made_for(bench: Bench) -> str:
    annotations = bench.found("Deployment", "tiny")["spec"]["template"]["metadata"].get("annotations") or {}
    return str(annotations.get("cachescope.dev/service-account", ""))


async def test_pods_are_of_the_account_that_there_is_from_the_first_write_on(bench: Bench) -> None:
    await bench.pass_over()
    first = bench.found("ServiceAccount", "tiny-engine")["metadata"]["uid"]
    assert made_for(bench) == first
    assert bench.api.writes.count("apply") == len(CHILDREN) + 1, "the Deployment is not written twice"
    revision = bench.names("ControllerRevision")
    bench.remove("ServiceAccount", "tiny-engine")
    await bench.pass_over()
    second = bench.found("ServiceAccount", "tiny-engine")["metadata"]["uid"]
    assert made_for(bench) == second != first
    assert bench.names("ControllerRevision") == revision, "it is no part of the frozen template"
    bench.api.requests.clear()
    await bench.pass_over()
    bench.restart(NEWER)
    await bench.pass_over()
    assert "apply" not in bench.api.writes
    assert made_for(bench) == second


async def test_pods_stay_while_an_account_of_somebody_else_is_in_the_way(bench: Bench) -> None:
    bench.declare(POOL, podTemplate={"annotations": {"a": "b"}})
    await bench.pass_over()
    before = bench.found("Deployment", "tiny")
    bench.remove("ServiceAccount", "tiny-engine")
    theirs = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tiny-engine", "namespace": "ns"}}
    bench.api._store("/api/v1/namespaces/ns/serviceaccounts/tiny-engine", theirs)
    await bench.pass_over()
    assert bench.condition("ServingPool", "tiny", "Degraded") == ("True", "NameTaken")
    assert bench.found("Deployment", "tiny") == before
    assert before["spec"]["template"]["metadata"]["annotations"].keys() == {"a", "cachescope.dev/service-account"}


async def test_an_invalid_spec_is_said_in_the_first_pass_and_an_incident_does_not_wait_for_it(bench: Bench) -> None:
    bench.declare(POOL, engine={"version": "0.32.0", "image": "x", "args": ["--headless"]})
    bench.declare(epoch("e", incident={"id": "i"}))
    await bench.pass_over()
    assert bench.condition("ServingPool", "tiny", "Ready") == ("False", "InvalidSpec")
    assert bench.found("ServingPool", "tiny")["status"]["epoch"] == bench.found("CacheEpoch", "e")["status"]["epoch"] == 2
    assert not [path for path in bench.api.objects if path.endswith("deployments/tiny")]
    bench.declare(POOL)
    await bench.pass_over()
    assert bench.condition("ServingPool", "tiny", "Ready") == ("False", "NoReadyPod")


async def test_epochs_rise_are_held_and_said(bench: Bench) -> None:
    bench.declare(epoch("e", floor=7))
    await bench.pass_over()
    assert (bench.found("ServingPool", "tiny")["status"]["epoch"], bench.condition("CacheEpoch", "e", "Held")) == (
        7,
        ("False", "NotHeld"),
    )
    bench.declare(epoch("e", floor=3))
    await bench.pass_over()
    assert bench.condition("CacheEpoch", "e", "Held") == ("True", "SpecBehindLedger")
    bench.declare(epoch("e", floor=5000))
    await bench.pass_over()
    assert bench.condition("CacheEpoch", "e", "Held") == ("True", "JumpTooLarge")
    assert list(standing(bench)["floors"].values()) == [7]


async def test_an_incident_that_is_deleted_and_made_again_counts_once(bench: Bench) -> None:
    await bench.pass_over()
    for _ in range(2):
        bench.declare(epoch("e", incident={"id": "i"}))
        await bench.pass_over()
        assert bench.found("CacheEpoch", "e")["status"]["epoch"] == 2
        bench.remove("CacheEpoch", "e")
        await bench.pass_over()
    assert standing(bench)["sequence"] == 2


async def test_a_broken_epoch_holds_up_no_other(bench: Bench) -> None:
    bench.declare(epoch("broken"))
    bench.declare(epoch("e", incident={"id": "i"}))
    await bench.pass_over()
    assert bench.condition("CacheEpoch", "broken", "Accepted") == ("False", "InvalidSpec")
    assert bench.found("CacheEpoch", "e")["status"]["epoch"] == 2


async def test_an_epoch_without_its_pool_is_said(bench: Bench) -> None:
    bench.declare(epoch("e", floor=3))
    bench.remove("ServingPool", "tiny")
    await bench.pass_over()
    assert bench.condition("CacheEpoch", "e", "Accepted") == ("False", "ReferenceNotFound")
    assert not [path for path in bench.api.objects if path.endswith("epochledgers/tiny")]


async def test_a_ledger_outlives_its_pool_and_another_pool_of_the_name_is_another_target(bench: Bench) -> None:
    bench.declare(epoch("e", floor=7))
    await bench.pass_over()
    before = standing(bench)
    bench.remove("ServingPool", "tiny")
    await bench.pass_over()
    assert standing(bench) == before
    bench.declare({**POOL, "metadata": {**POOL["metadata"], "uid": "pool-uid-2"}})
    for kind, name in [*CHILDREN, ("ControllerRevision", next(iter(bench.names("ControllerRevision"))))]:
        bench.remove(kind, name)
    await bench.pass_over()
    assert standing(bench)["lineage"]["generation"] > before["lineage"]["generation"], "what was cached before is unreachable"
    assert before["floors"].keys().isdisjoint(standing(bench)["floors"])
    assert not [item for item in bench.api.objects.values() if item.get("reason") == "NewLineage"], "that is nothing to warn of"


async def test_a_ledger_that_vanished_goes_on_in_a_new_lineage_and_falls_below_nothing(bench: Bench) -> None:
    bench.declare(epoch("e", floor=7, incident={"id": "i"}))
    await bench.pass_over()
    before = standing(bench)
    bench.remove("EpochLedger", "tiny")
    await bench.pass_over()
    after = standing(bench)
    assert after["lineage"]["generation"] == before["lineage"]["generation"] + 1
    assert after["lineage"]["id"] != before["lineage"]["id"]
    assert (after["floors"], after["incidents"]) == (before["floors"], before["incidents"])


async def test_an_old_ledger_that_was_put_back_becomes_a_new_lineage_with_the_maximum(bench: Bench) -> None:
    await bench.pass_over()
    old = standing(bench)
    bench.declare(epoch("e", floor=7))
    await bench.pass_over()
    new = standing(bench)
    bench.remove("CacheEpoch", "e")
    bench.declare({**bench.found("EpochLedger", "tiny"), "spec": old})
    await bench.pass_over()
    after = standing(bench)
    assert after["floors"] == new["floors"]
    assert after["lineage"]["generation"] > new["lineage"]["generation"]


async def test_whoever_was_faster_is_read_before_a_ledger_is_written(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.pass_over()
    bench.declare(epoch("e", incident={"id": "mine"}))
    write = bench.api.replace
    tries: list[str] = []

    async def beaten(path: str, document: Document, **query: str) -> Document:
        if "epochledgers" in path and not tries:
            tries.append(path)
            bench.declare({**bench.found("EpochLedger", "tiny"), "spec": bench.sealed(base=20)})
            raise ConflictError(409, "somebody was faster; read it again")
        return await write(path, document, **query)

    monkeypatch.setattr(bench.api, "replace", beaten)
    await bench.pass_over()
    assert (standing(bench)["base"], standing(bench)["sequence"], bench.found("CacheEpoch", "e")["status"]["epoch"]) == (20, 3, 21)


async def test_a_new_operator_changes_no_template_until_somebody_asks(bench: Bench) -> None:
    await bench.pass_over()
    template = bench.found("Deployment", "tiny")["spec"]["template"]
    bench.restart(NEWER)
    await bench.pass_over()
    assert bench.found("Deployment", "tiny")["spec"]["template"] == template
    assert bench.condition("ServingPool", "tiny", "GuardOutdated") == ("True", "NewerGuardAvailable")
    bench.declare(POOL, rollout={"guardUpdates": "Now"})
    await bench.pass_over()
    assert "guard:0.2.0" in str(bench.found("Deployment", "tiny")["spec"]["template"])
    assert bench.condition("ServingPool", "tiny", "GuardOutdated") == ("False", "GuardsCurrent")


@pytest.mark.parametrize(("shared", "reason"), [((), "ModelNameTaken"), (("ns",), "NoReadyPod")])
async def test_a_younger_pool_of_the_model_is_out_of_reach_where_selectors_do_not_count(
    bench: Bench, shared: tuple[str, ...], reason: str
) -> None:
    bench.pools.site = dataclasses.replace(
        bench.site, settings=bench.site.settings.model_copy(update={"shared_pool_namespaces": shared})
    )
    bench.declare({**POOL, "metadata": {**POOL["metadata"], "name": "older", "uid": "pool-uid-0"}})
    bench.declare(POOL, allowedTenants={"namespaces": {"from": "Selector", "matchLabels": {"a": "b"}}})
    await bench.pass_over()
    assert bench.condition("ServingPool", "tiny", "Ready") == ("False", reason)


async def test_a_deleted_revision_comes_back_as_it_was_while_the_process_knows_it(bench: Bench) -> None:
    await bench.pass_over()
    (name,) = bench.names("ControllerRevision")
    bench.remove("ControllerRevision", name)
    await bench.pass_over()
    assert bench.names("ControllerRevision") == [name]


async def test_two_revisions_are_kept(bench: Bench) -> None:
    for number in range(4):
        bench.declare(POOL, sharedMemory=f"{number + 1}Gi")
        await bench.pass_over()
    numbers = sorted(item["revision"] for item in bench.api.objects.values() if item.get("kind") == "ControllerRevision")
    assert numbers == [3, 4]
    bench.api.requests.clear()
    await bench.pass_over()
    assert bench.api.requests == []


async def test_a_pool_that_is_being_deleted_is_left_alone(bench: Bench) -> None:
    path = next(path for path in bench.api.objects if path.endswith("servingpools/tiny"))
    leaving = dict(bench.api.objects[path])
    leaving["metadata"] = {**leaving["metadata"], "deletionTimestamp": "now"}
    bench.api._store(path, leaving)
    bench.api.requests.clear()
    await bench.pools.reconcile(POOL_KEY, 0)
    assert bench.api.requests == []
