"""Passes over a pool with a fault: it is said at once with what to do, and takes nothing with it."""

from __future__ import annotations

import copy
import dataclasses

import pytest

from cachescope.controller.pool_ledgers import LOST
from cachescope.controller.pools import PATIENCE
from cachescope.core.errors import ClusterError
from cachescope.core.labels import ROOT_KEYS_SECRET
from cachescope.core.leases import GATEWAY, GUARD, LeaseStatement, lease_keys, lease_name, write_lease
from cachescope.core.permits import permit_keys
from cachescope.core.pool_rules import MAX_INCIDENTS
from cachescope.kube.kinds import path_of
from cachescope.kube.rest import ConflictError, Document
from tests.unit.bench_leases import LeasedProcess, gateway, ledger
from tests.unit.controller_bench import CHILDREN, POOL, POOL_KEY, Bench, epoch
from tests.unit.pools import ADAPTERS, HUB

POOL_UID = "pool-uid-1"


@pytest.fixture
async def bench() -> Bench:
    made = Bench()
    await made.start()
    made.declare(POOL)
    return made


def message(bench: Bench, type_: str) -> str:
    """What the pool says of a condition."""
    conditions = bench.found("ServingPool", "tiny")["status"]["conditions"]
    return next(str(item["message"]) for item in conditions if item["type"] == type_)


def run_pod(bench: Bench, **status: object) -> None:
    """There is an engine pod."""
    metadata = {"name": "p", "namespace": "ns", "uid": "uid-p", "labels": {"cachescope.dev/pool": "tiny"}}
    bench.api._store("/api/v1/namespaces/ns/pods/p", {"kind": "Pod", "metadata": metadata, "status": status})


READY = [{"type": "Ready", "status": "True"}]


async def test_a_failing_cluster_is_said_after_a_while_and_tried_again(bench: Bench) -> None:
    await bench.pass_over()
    bench.remove("Deployment", "tiny")
    bench.api.refused = {"deployments/tiny"}
    for failures, said in (
        (0, ("False", "Healthy")),
        (PATIENCE, ("True", "ClusterError")),
        (PATIENCE + 1, ("True", "ClusterError")),
    ):
        with pytest.raises(ClusterError):
            await bench.pass_over(failures)
        assert bench.condition("ServingPool", "tiny", "Degraded") == said
    bench.api.refused = set()
    await bench.pass_over(PATIENCE + 1)
    assert bench.condition("ServingPool", "tiny", "Degraded") == ("False", "Healthy")


@pytest.mark.parametrize("refused", ["epochledgers/tiny", "deployments/tiny"])
async def test_a_new_pool_says_in_the_first_pass_what_the_cluster_refuses_and_goes_on_saying_it(bench: Bench, refused: str) -> None:
    bench.api.refused = {refused}
    for failures in range(PATIENCE + 2):
        with pytest.raises(ClusterError):
            await bench.pass_over(failures)
        assert bench.condition("ServingPool", "tiny", "Ready") == ("False", "ClusterError")
        assert bench.condition("ServingPool", "tiny", "Degraded") == ("True", "ClusterError")
    assert "the API server is away" in message(bench, "Ready")


@pytest.mark.parametrize("damaged", [False, True], ids=["unread", "damaged"])
async def test_without_root_keys_a_pool_says_so_in_the_first_pass(damaged: bool) -> None:
    bench = Bench()
    if damaged:
        secret = {
            "kind": "Secret",
            "metadata": {"name": ROOT_KEYS_SECRET, "namespace": "cachescope-system"},
            "data": {"k1": "AA=="},
        }
        bench.api.objects[f"/api/v1/namespaces/cachescope-system/secrets/{ROOT_KEYS_SECRET}"] = secret
        await bench.start()
    bench.declare(POOL)
    with pytest.raises(ClusterError):
        await bench.pass_over()
    assert bench.condition("ServingPool", "tiny", "Ready") == ("Unknown", "RootKeysMissing")
    assert bench.condition("ServingPool", "tiny", "Degraded") == ("True", "RootKeysMissing")
    assert ("is not whole" if damaged else "wait for the operator") in message(bench, "Ready")


async def test_a_failed_pass_takes_nothing_back_that_was_said(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.declare(epoch("e", floor=7))
    await bench.pass_over()
    before = bench.found("ServingPool", "tiny")["status"]

    async def fails(*_: object, **__: object) -> None:
        raise ClusterError("the API server is away; try again")

    monkeypatch.setattr(bench.site.ledgers, "stand", fails)
    with pytest.raises(ClusterError):
        await bench.pass_over()
    assert bench.found("ServingPool", "tiny")["status"] == before


async def test_what_is_not_ours_is_left_alone_and_said_and_looked_at_again_while_the_rest_is_made(bench: Bench) -> None:
    theirs = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "tiny", "namespace": "ns"}, "spec": {"clusterIP": "None"}}
    made = bench.api._store("/api/v1/namespaces/ns/services/tiny", theirs)
    bench.restart()
    await bench.pass_over()
    assert bench.found("Service", "tiny")["spec"] == made["spec"]
    for type_, state in (("Ready", "False"), ("Degraded", "True")):
        assert bench.condition("ServingPool", "tiny", type_) == (state, "NameTaken")
        assert "delete or rename it" in message(bench, type_)
    assert bench.found("Deployment", "tiny")
    assert bench.due == [POOL_KEY], "nobody tells when it goes"
    bench.remove("Service", "tiny")
    await bench.pass_over()
    assert bench.found("Service", "tiny")["spec"] != made["spec"]
    assert bench.condition("ServingPool", "tiny", "Degraded") == ("False", "Healthy")


REFUSED: list[Document] = [
    {"engine": {"version": "0.8.0", "image": "registry.example/vllm:0.8.0"}, "isolation": {"mode": "Shared"}},
    {"engine": {"version": "0.32.0", "image": "x", "args": ["--headless"]}, "replicas": 7},
    {"model": {"name": "tiny", "source": {"imagePath": "/a", "huggingFace": HUB["huggingFace"]}}},
    {"model": {"name": "tiny", "source": HUB}, "engine": {"version": "0.8.0", "image": "x"}, "isolation": {"mode": "Shared"}},
    {"rollout": "soon"},
    {"engine": {"version": "0.32.0", "image": "x", "adapters": [{"name": "tiny", "source": {"imagePath": "/x"}}]}},
]


def opened(bench: Bench) -> None:
    """Somebody opens the NetworkPolicy, as `kubectl edit` would."""
    path = next(path for path in bench.api.objects if path.endswith("networkpolicies/tiny"))
    edited = copy.deepcopy(bench.api.objects[path])
    edited["spec"]["ingress"] = [{}]
    bench.api._store(path, edited)


@pytest.mark.parametrize("refused", REFUSED)
@pytest.mark.parametrize("adapters", [[], ADAPTERS], ids=["", "adapters"])
@pytest.mark.parametrize("source", [{"imagePath": "/models/tiny"}, HUB], ids=["image", "hub"])
async def test_children_are_healed_as_they_were_while_the_spec_is_refused(
    bench: Bench, refused: Document, source: Document, adapters: list[Document]
) -> None:
    engine = {"version": "0.32.0", "image": "registry.example/vllm:0.32.0", "adapters": adapters}
    bench.declare(POOL, model={"name": "tiny", "source": source}, engine=engine, replicas=2)
    await bench.pass_over()
    before = {kind: bench.found(kind, name) for kind, name in CHILDREN}
    status = bench.found("ServingPool", "tiny")["status"]
    spec: Document = {"model": {"name": "tiny", "source": source}, "engine": engine, **refused}
    bench.declare(POOL, **spec)
    for again in (False, True):
        if again:
            bench.restart()
        bench.remove("Service", "tiny")
        opened(bench)
        await bench.pass_over()
        assert {kind: bench.found(kind, name).get("spec") for kind, name in CHILDREN} == {
            kind: item.get("spec") for kind, item in before.items()
        }
        assert bench.condition("ServingPool", "tiny", "Ready") == ("False", "InvalidSpec")
    bench.api.requests.clear()
    await bench.pass_over()
    assert bench.api.requests == []
    run_pod(bench, containerStatuses=[{"name": "engine", "state": {"waiting": {"reason": "ErrImagePull"}}}])
    await bench.pass_over()
    assert bench.condition("ServingPool", "tiny", "Degraded") == ("True", "PodFailing"), "it is still looked at"
    after = bench.found("ServingPool", "tiny")["status"]
    assert [after[name] for name in ("mode", "modeReason", "routes", "epoch")] == [
        status[name] for name in ("mode", "modeReason", "routes", "epoch")
    ]


async def test_a_pool_whose_spec_was_never_obeyed_has_no_children(bench: Bench) -> None:
    for spec in REFUSED:
        bench.declare(POOL, **spec)
        await bench.pass_over()
        assert [item["type"] for item in bench.found("ServingPool", "tiny")["status"]["conditions"]] == ["Ready"]
    assert not [path for path in bench.api.objects if path.endswith(("deployments/tiny", "services/tiny"))]


async def test_a_status_of_another_version_is_no_fault_of_the_spec(bench: Bench) -> None:
    await bench.pass_over()
    newer = copy.deepcopy(bench.found("ServingPool", "tiny"))
    newer["status"]["mode"] = "OfAnotherVersion"
    bench.api._store(path_of(newer), newer)
    await bench.pass_over()
    assert bench.condition("ServingPool", "tiny", "Ready") == ("False", "NoReadyPod")
    assert bench.found("ServingPool", "tiny")["status"]["mode"] == "Shared"


async def test_a_ledger_that_cannot_be_read_goes_on_from_what_is_remembered(bench: Bench) -> None:
    bench.declare(epoch("e", floor=7))
    await bench.pass_over()
    generation = bench.found("EpochLedger", "tiny")["spec"]["lineage"]["generation"]
    bench.declare({**bench.found("EpochLedger", "tiny"), "spec": {}})
    await bench.pass_over()
    assert bench.found("EpochLedger", "tiny")["spec"]["lineage"]["generation"] > generation
    assert bench.found("ServingPool", "tiny")["status"]["epoch"] == bench.found("CacheEpoch", "e")["status"]["epoch"] == 7


async def test_a_ledger_that_nobody_remembers_switches_off_what_incidents_can_until_people_resume(bench: Bench) -> None:
    await bench.pass_over()
    bench.declare({**bench.found("EpochLedger", "tiny"), "spec": {}})
    bench.restart()
    await bench.pass_over()
    status = bench.found("ServingPool", "tiny")["status"]
    assert (status["bypassed"], status["publicStopped"], status["epoch"]) == (True, True, 2)
    bench.declare(POOL, sharing={"resumeAfter": LOST})
    await bench.pass_over()
    status = bench.found("ServingPool", "tiny")["status"]
    assert (status["bypassed"], status["publicStopped"]) == (False, False)


async def test_a_pool_that_is_made_anew_begins_anew_whatever_gateways_say_of_its_name(bench: Bench) -> None:
    await bench.pass_over()
    speaker, before = gateway(bench), ledger(bench)
    bench.remove("ServingPool", "tiny")
    anew = {**POOL, "metadata": {**POOL["metadata"], "uid": "uid-of-another-pool"}}
    bench.declare(anew)
    # Its ledger is still the one of the pool before it, and a gateway finds ledgers by names.
    speaker.acknowledged["uid-of-another-pool"] = before.mark
    speaker.write()
    with pytest.raises(ConflictError, match="about to go"):  # the other pool's children
        await bench.pass_over()
    status = bench.found("ServingPool", "tiny")["status"]
    assert (status["bypassed"], status["publicStopped"], status["epoch"]) == (False, False, 1)
    assert ledger(bench).lineage.generation > before.lineage.generation


async def test_a_guards_word_for_a_lost_ledger_counts(bench: Bench) -> None:
    await bench.pass_over()
    guard = LeasedProcess(bench)
    guard.acknowledged[guard.pool_uid] = ledger(bench).mark
    guard.write()
    bench.declare(
        {**bench.found("EpochLedger", "tiny"), "spec": {"lineage": bench.found("EpochLedger", "tiny")["spec"]["lineage"]}}
    )
    bench.declare({**bench.found("ServingPool", "tiny"), "status": {}})
    bench.restart()
    await bench.pass_over()
    assert bench.found("ServingPool", "tiny")["status"]["bypassed"] is True


async def test_more_incidents_than_fit_are_no_fault_of_the_spec_and_children_are_made(bench: Bench) -> None:
    await bench.pass_over()
    for number in range(MAX_INCIDENTS + 1):
        bench.declare(epoch(f"e{number}", incident={"id": f"i{number}"}))
    await bench.pass_over()
    assert bench.condition("ServingPool", "tiny", "Ready") == ("False", "LedgerUnusable")
    assert "delete old CacheEpochs" in message(bench, "Ready")
    bench.remove("Service", "tiny")
    await bench.pass_over()
    assert bench.found("Service", "tiny")


async def test_a_revision_that_cannot_be_read_is_logged_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    await bench.pass_over()
    (name,) = bench.names("ControllerRevision")
    document = copy.deepcopy(bench.found("ControllerRevision", name))
    document["metadata"] = {**document["metadata"], "name": "tiny-1", "uid": "r-1"}
    bench.api._store(path_of(document), document)
    for number in (1, 2):
        for _ in range(3):
            await bench.pass_over()
        assert [item.message for item in caplog.records].count("revision not read") == number
        bench.restart()


async def test_a_restart_takes_nothing_back_and_believes_no_lease_that_does_not_move(bench: Bench) -> None:
    bench.book.judge()
    run_pod(bench, conditions=READY)
    for ready in (("True", "Routable"), ("False", "NoGateway")):
        live = ready[0] == "True"
        write_leases(bench, tick=int(live))
        bench.book.judge()
        bench.now += 0 if live else 1000
        bench.book.judge()
        await bench.pass_over()
        assert bench.condition("ServingPool", "tiny", "Ready") == ready
        assert [item["live"] for item in bench.found("ServingPool", "tiny")["status"]["guards"]] == [live]
        bench.api.requests.clear()
        bench.restart()
        await bench.pass_over()
        bench.book.judge()
        await bench.pass_over()
        assert bench.api.requests == [], f"{ready} is not written anew"
    bench.now += 1000
    bench.book.judge()
    await bench.pass_over()
    assert bench.condition("ServingPool", "tiny", "Ready") == ("False", "NoGateway")
    write_leases(bench, tick=7)
    await bench.pass_over()
    assert bench.condition("ServingPool", "tiny", "Ready") == ("True", "Routable")


def write_leases(bench: Bench, *, tick: int, routed: bool = True) -> None:
    """A guard and a gateway write their leases."""
    pods = {"pool-uid-1": ("uid-p",)} if routed else {}
    for statement, ring in (
        (LeaseStatement(GUARD, "uid-p", "b", tick, 30_000, "0.1.0", pool_uid=POOL_UID), permit_keys(bench.keys.ring, POOL_UID)),
        (LeaseStatement(GATEWAY, "uid-g", "b", tick, 30_000, "0.1.0", routable=pods), lease_keys(bench.keys.ring)),
    ):
        text = write_lease(ring.current, statement)
        spec = {"holder": statement.holder, "pod": "p", "pool": "tiny" if statement.pool_uid else "", "leaseSeconds": 30}
        metadata = {"name": lease_name(statement.pod_uid, "b"), "namespace": "ns"}
        document = {"apiVersion": "cachescope.dev/v1alpha1", "kind": "FenceLease", "metadata": metadata}
        bench.declare({**document, "spec": {**spec, "statement": text}})


async def test_a_guard_below_the_installations_minimum_is_said(bench: Bench) -> None:
    run_pod(bench, conditions=READY)
    bench.book.judge()
    write_leases(bench, tick=1, routed=False)
    for minimum, reason in (("0.1.0", "GuardNotProven"), ("0.2.0", "GuardTooOld")):
        settings = bench.site.settings.model_copy(update={"minimum_guard_version": minimum})
        bench.pools.site = dataclasses.replace(bench.site, settings=settings)
        await bench.pass_over()
        assert bench.condition("ServingPool", "tiny", "Ready") == ("False", reason)
