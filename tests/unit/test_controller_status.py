"""What a pool says of itself: never better than it is, and the same words while nothing changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cachescope.api.conditions import ConditionType, Reason
from cachescope.controller import pod_faults
from cachescope.controller.lease_book import Life, Process
from cachescope.controller.observed_pools import Elder, Fault, elder_of, elders_of_adapters
from cachescope.controller.pool_status import pool_conditions, pool_status
from cachescope.controller.verdicts import Verdict, flipped
from cachescope.core.digests import sha256
from cachescope.kube.rest import Document
from tests.unit.observed import deployment, gateway, guard, observed, pod, revision, said
from tests.unit.pools import ADAPTERS, pool

GPU = {"gpus": {"count": 2}}
NO_GPU = (
    "0/3 nodes are available: 1 node(s) had untolerated taint, 2 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available."
)


@pytest.mark.parametrize(
    ("seen", "reason", "remedy"),
    [
        ({}, Reason.ROUTABLE, "1 of 1"),
        ({"gateways": []}, Reason.NO_GATEWAY, "`kubectl get pods -n cachescope-system -l app.kubernetes.io/component=gateway`"),
        ({"guards": []}, Reason.GUARD_WITHOUT_LEASE, "can it reach the API server? See `kubectl logs -n models -l"),
        ({"guards": [guard(life=Life.LAPSED)]}, Reason.GUARD_WITHOUT_LEASE, "API server"),
        ({"guards": [guard("another")], "pods": [pod(), pod("another", ready=False)]}, Reason.GUARD_WITHOUT_LEASE, "API server"),
        (
            {"minimum_guard": "0.2.0"},
            Reason.GUARD_TOO_OLD,
            "0.2.0 or newer (minimumGuardVersion); set spec.rollout.guardUpdates to Now",
        ),
        ({"minimum_guard": "0.1.0"}, Reason.GUARD_NOT_PROVEN, "/readyz"),
        ({}, Reason.GUARD_NOT_PROVEN, "/readyz of a gateway pod (namespace cachescope-system)"),
        ({"gateways": [gateway("dead")]}, Reason.GUARD_NOT_PROVEN, "/readyz"),
        ({"pods": [pod(ready=False)]}, Reason.NO_READY_POD, "`kubectl describe pod p -n models`"),
        ({"pods": []}, Reason.NO_READY_POD, "`kubectl describe replicasets -n models -l cachescope.dev/pool=tiny`"),
        ({"pods": [], "deployment": None}, Reason.NO_READY_POD, "kubectl describe replicasets"),
        ({"pods": [], "deployment": deployment(0)}, Reason.SCALED_TO_ZERO, "raise spec.replicas"),
        ({"pods": [], "deployment": None, "fault": Fault(Reason.CLUSTER_ERROR, "refused")}, Reason.CLUSTER_ERROR, "refused"),
        ({"pods": [], "fault": Fault(Reason.CLUSTER_ERROR, "refused")}, Reason.NO_READY_POD, "describe"),
        ({"fault": Fault(Reason.LEDGER_UNUSABLE, "restore it")}, Reason.LEDGER_UNUSABLE, "restore it"),
        ({"fault": Fault(Reason.NAME_TAKEN, "delete it")}, Reason.NAME_TAKEN, "delete it"),
        ({"gateways": [gateway("p")], "invalid": "correct it"}, Reason.INVALID_SPEC, "correct it"),
    ],
)
def test_ready_only_when_a_gateway_routes_to_a_ready_pod_and_else_it_says_what_is_missing(
    seen: dict[str, Any], reason: Reason, remedy: str
) -> None:
    silent = {} if reason is Reason.ROUTABLE else {"gateways": [gateway()]}
    found = said(ConditionType.READY, **{**silent, **seen})
    assert (found.status, found.reason) == ("True" if reason is Reason.ROUTABLE else "False", reason)
    assert remedy in found.message


@pytest.mark.parametrize("reason", [Reason.CLUSTER_ERROR, Reason.LEDGER_UNUSABLE, Reason.NAME_TAKEN])
def test_a_pool_that_serves_is_ready_whatever_is_degraded(reason: Reason) -> None:
    fault = Fault(reason, "look at it")
    assert said(ConditionType.READY, fault=fault).reason is Reason.ROUTABLE
    assert said(ConditionType.DEGRADED, fault=fault).reason is reason


def test_without_root_keys_nothing_is_known_and_what_was_known_is_kept() -> None:
    before = pool_status(observed())
    seen = observed(guards=[], gateways=[], before=before, fault=Fault(Reason.ROOT_KEYS_MISSING, "restore the Secret"))
    found = pool_conditions(seen)[0]
    assert (found.status, found.reason) == ("Unknown", Reason.ROOT_KEYS_MISSING)
    assert "restore the Secret" in found.message
    assert pool_status(seen) == before


def status_with(status: str, reason: str, *, guards: tuple[str, ...] = ("p",)) -> dict[str, Any]:
    ready = {"type": "Ready", "status": status, "reason": reason, "message": "as before"}
    return {"conditions": [ready], "guards": [{"pod": name, "live": True} for name in guards]}


UNSEEN: dict[str, Any] = {"gateways": [gateway("p", life=Life.UNSEEN)], "guards": [guard(life=Life.UNSEEN)]}


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (status_with("True", "Routable"), Reason.ROUTABLE),
        (status_with("False", "NoGateway"), Reason.NO_GATEWAY),
        (status_with("False", "GuardNotProven"), Reason.GUARD_NOT_PROVEN),
        (status_with("False", "NoReadyPod"), Reason.GUARD_NOT_PROVEN),
        (status_with("False", "NoReadyPod", guards=()), Reason.GUARD_WITHOUT_LEASE),
        ({}, Reason.GUARD_WITHOUT_LEASE),
    ],
)
def test_a_lease_that_has_not_moved_yet_changes_no_verdict(before: dict[str, Any], reason: Reason) -> None:
    found = said(ConditionType.READY, **UNSEEN, before=before)
    assert found.reason is reason
    if before and before["conditions"][0]["reason"] == reason.value and found.status == "False":
        assert found.message == "as before"
    live = {"gateways": [gateway("p", life=Life.UNSEEN), gateway("p")]}
    assert said(ConditionType.READY, **{**UNSEEN, **live}, before=before).reason is Reason.ROUTABLE


def test_a_guard_that_has_not_moved_yet_lives_as_far_as_it_was_said() -> None:
    for guards, live in ((("p",), True), ((), False)):
        status = pool_status(observed(**UNSEEN, before=status_with("True", "Routable", guards=guards)))
        assert ([item["live"] for item in status["guards"]], len(status["engines"])) == ([live], int(live))


def test_a_pod_that_is_being_deleted_is_not_ready() -> None:
    leaving = pod()
    leaving["metadata"]["deletionTimestamp"] = "now"
    assert said(ConditionType.READY, pods=[leaving]).reason is Reason.NO_READY_POD


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({}, Reason.ROLLED_OUT),
        ({"observedGeneration": 2}, Reason.ROLLING_OUT),
        ({"updatedReplicas": 0}, Reason.ROLLING_OUT),
        ({"availableReplicas": 0}, Reason.ROLLING_OUT),
        ({"replicas": 2}, Reason.ROLLING_OUT),
    ],
)
def test_progressing_until_all_pods_are_of_the_newest_template(status: dict[str, int], reason: Reason) -> None:
    assert said(ConditionType.PROGRESSING, deployment=deployment(**status)).reason is reason


def unschedulable(message: str) -> list[Document]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return [pod(), pod("q", ready=False, conditions=[condition])]


def test_no_spare_gpu_names_the_remedy() -> None:
    rolling = {"pods": unschedulable(NO_GPU), "deployment": deployment(1, replicas=2)}
    found = said(ConditionType.DEGRADED, GPU, **rolling)
    assert (found.status, found.reason) == ("True", Reason.NO_SPARE_GPU)
    assert "the new pod q " in found.message
    assert "set spec.rollout.strategy to InPlace" in found.message


@pytest.mark.parametrize(
    ("changes", "message", "replicas"),
    [
        ({**GPU, "rollout": {"strategy": "InPlace"}}, NO_GPU, 2),
        (GPU, "0/3 nodes are available: 3 Insufficient cpu.", 2),
        (GPU, NO_GPU, 1),
        (None, NO_GPU, 2),
    ],
)
def test_what_a_spare_gpu_would_not_solve_is_unschedulable(changes: Document | None, message: str, replicas: int) -> None:
    rolling = {"pods": unschedulable(message), "deployment": deployment(1, replicas=replicas)}
    found = said(ConditionType.DEGRADED, changes, **rolling)
    assert found.reason is Reason.UNSCHEDULABLE
    assert "the engine pod q (" in found.message


def test_words_of_the_scheduler_stay_the_same_while_its_numbers_change() -> None:
    one, two = (
        pod_faults.unschedulable(unschedulable(text))
        for text in (NO_GPU, NO_GPU.replace("3 nodes", "9 nodes").replace("2 Ins", "8 Ins"))
    )
    assert one == two == ("q", "Insufficient nvidia.com/gpu, node(s) had untolerated taint")


def container(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": "engine", "ready": False, **fields}]


OOM = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (
            container(state={"waiting": {"reason": "ErrImagePull"}}),
            "container engine of pod p: ImagePullBackOff: the image cannot be pulled; see `kubectl describe pod p -n models`",
        ),
        (
            container(state={"waiting": {"reason": "ImagePullBackOff"}}),
            "container engine of pod p: ImagePullBackOff: the image cannot be pulled; see `kubectl describe pod p -n models`",
        ),
        (
            container(state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=OOM, restartCount=4),
            "OOMKilled: it ended with exit code 137; see `kubectl logs p -n models -c engine --previous`",
        ),
        (container(state={"running": {}}, lastState=OOM, restartCount=5), "OOMKilled: it ended with exit code 137"),
        (
            container(state={"waiting": {"reason": "CreateContainerConfigError"}}),
            "container engine of pod p: CreateContainerConfigError; see `kubectl describe pod p -n models`",
        ),
        (container(state={"waiting": {"reason": "PodInitializing"}}), ""),
        (container(state={"running": {}}, restartCount=0), ""),
        ([{"name": "engine", "ready": True, "state": {"running": {}}, "lastState": OOM, "restartCount": 5}], ""),
    ],
)
def test_a_failing_container_is_named_in_words_that_stay(status: list[dict[str, Any]], fault: str) -> None:
    found = said(ConditionType.DEGRADED, pods=[pod(ready=False, containerStatuses=status)])
    assert fault in found.message
    assert found.reason is (Reason.POD_FAILING if fault else Reason.HEALTHY)


def test_pods_that_cannot_be_created_are_said_without_their_names() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": 'pods "tiny-x7f" is forbidden: exceeded quota'}
    found = said(ConditionType.DEGRADED, deployment=deployment(conditions=[failure]))
    look = "see `kubectl describe replicasets -n models -l cachescope.dev/pool=tiny`"
    assert (found.reason, found.message) == (Reason.POD_FAILING, f"pods is forbidden: exceeded quota; {look}")


def test_fewer_than_asked_in_time_and_faults_of_the_cluster_are_said() -> None:
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    found = said(ConditionType.DEGRADED, deployment=deployment(conditions=[late]))
    assert found.reason is Reason.FEWER_THAN_ASKED
    assert "`kubectl logs -n models -l cachescope.dev/pool=tiny -c engine --previous`" in found.message
    assert said(ConditionType.DEGRADED, fault=Fault(Reason.CLUSTER_ERROR, "refused")).reason is Reason.CLUSTER_ERROR
    assert said(ConditionType.DEGRADED).reason is Reason.HEALTHY


@pytest.mark.parametrize(
    ("frozen", "running", "reason", "remedy"),
    [
        ("0.0.9", ["0.0.9"], "NewerGuardAvailable", "set spec.rollout.guardUpdates to Now"),
        ("0.0.9", [], "NewerGuardAvailable", "guardUpdates"),
        (
            "0.1.0",
            ["0.1.0", "0.0.9"],
            "OldGuardRunning",
            "q (0.0.9) for one; the rollout replaces them: where it does not go on, see Degraded",
        ),
        ("0.1.0", ["0.1.0"], "GuardsCurrent", ""),
        ("0.2.0", ["0.2.0"], "GuardsCurrent", ""),
    ],
)
def test_a_guard_is_outdated_in_the_template_or_in_a_pod(frozen: str, running: list[str], reason: str, remedy: str) -> None:
    guards = [guard(name, version=version) for name, version in zip("pq", running, strict=False)]
    seen: dict[str, Any] = {"revision": revision(frozen), "pods": [pod(), pod("q", ready=False)], "guards": guards}
    found = said(ConditionType.GUARD_OUTDATED, **seen)
    assert found.reason.value == reason
    assert remedy in found.message


@pytest.mark.parametrize("old", [guard("gone", version="0.0.9"), guard(life=Life.LAPSED, version="0.0.9")], ids=["gone", "lapsed"])
def test_a_guard_that_is_gone_is_not_outdated(old: Process) -> None:
    assert said(ConditionType.GUARD_OUTDATED, guards=[old]).reason is Reason.GUARDS_CURRENT


def test_of_guards_nothing_is_said_while_no_template_is_known() -> None:
    assert ConditionType.GUARD_OUTDATED not in {item.type for item in pool_conditions(observed(revision=None))}


def other(created: str, model: str = "tiny", adapters: Sequence[str] = (), **labels: str) -> Document:
    allowed = {"namespaces": {"from": "Selector", "matchLabels": labels}} if labels else {}
    engine = {"adapters": [{"name": name} for name in adapters]}
    spec = {"model": {"name": model}, "engine": engine, "allowedTenants": allowed}
    return {"metadata": {"name": "other", "uid": "other-uid", "creationTimestamp": created}, "spec": spec}


def test_the_model_name_belongs_to_the_oldest_pool_of_the_namespace() -> None:
    mine = pool(creationTimestamp="2026-02-01T00:00:00Z")
    assert elder_of(mine, [other("2026-01-01T00:00:00Z")]) == Elder("other")
    assert elder_of(mine, [other("2026-03-01T00:00:00Z"), other("2026-01-01T00:00:00Z", "else")]) is None


def test_the_name_of_an_adapter_belongs_to_the_oldest_pool_that_serves_it() -> None:
    mine = pool({"engine.adapters": ADAPTERS}, creationTimestamp="2026-02-01T00:00:00Z")
    older, younger = "2026-01-01T00:00:00Z", "2026-03-01T00:00:00Z"
    assert elder_of(mine, [other(older, "else", ["tiny"])]) == Elder("other"), "an adapter takes the name of a model as well"
    assert elders_of_adapters(mine, [other(older, "on-claim")]) == {"on-claim": "other"}
    assert elders_of_adapters(mine, [other(older, "else", ["in-image", "x", "of-hub"])]) == {"in-image": "other", "of-hub": "other"}
    assert elders_of_adapters(mine, [other(younger, "on-claim"), other(older, "else", ["x"])]) == {}


def test_adapters_whose_names_are_taken_are_said_and_the_pool_serves_its_model() -> None:
    seen = {"elders_of_adapters": {"x": "other"}}
    assert said(ConditionType.READY, **seen).reason is Reason.ROUTABLE
    found = said(ConditionType.DEGRADED, **seen)
    assert (found.status, found.reason) == ("True", Reason.MODEL_NAME_TAKEN)
    assert "'x' by 'other'; rename these in spec.engine.adapters" in found.message


def test_the_status_names_the_digest_of_each_adapter_of_each_engine() -> None:
    before, after = guard(), guard("q")
    assert before.statement is not None
    before = replace(before, statement=replace(before.statement, adapters={"y": sha256(b"y"), "x": sha256(b"x")}))
    status = pool_status(observed(pods=[pod(), pod("q")], guards=[before, after]))
    assert [[(item["name"], item["digest"]) for item in engine["adapters"]] for engine in status["engines"]] == [
        [],
        [("x", sha256(b"x")), ("y", sha256(b"y"))],
    ]


def test_a_younger_pool_is_out_of_reach_unless_it_admits_more() -> None:
    wide = {"allowedTenants": {"namespaces": {"from": "Selector", "matchLabels": {"a": "1", "b": "2"}}}}
    mine = pool(wide, creationTimestamp="2026-02-01T00:00:00Z")
    for labels, everywhere in (({}, False), ({"a": "1"}, True), ({"a": "2"}, False), ({"c": "3"}, False)):
        older = [other("2026-01-01T00:00:00Z", **labels)]
        assert elder_of(mine, older) == Elder("other", everywhere)
        assert elder_of(mine, older, shared=False) == Elder("other")


def test_a_pool_that_nobody_reaches_is_not_ready_and_names_the_older_one() -> None:
    for elder, ready in ((Elder("other"), Reason.MODEL_NAME_TAKEN), (Elder("other", everywhere=False), Reason.ROUTABLE)):
        assert said(ConditionType.READY, elder=elder).reason is ready
        found = said(ConditionType.DEGRADED, elder=elder)
        assert found.reason is Reason.MODEL_NAME_TAKEN
        assert "the older pool 'other'" in found.message
        assert "change spec.model.name" in found.message


def test_the_status_counts_what_exists() -> None:
    seen = observed(
        deployment=deployment(2),
        pods=[pod(), pod("q", ready=False)],
        guards=[guard(), guard("q", Life.LAPSED, version="0.0.9"), guard("gone")],
        gateways=[gateway("p", "q", "gone"), gateway("p")],
        epoch=5,
    )
    status = pool_status(seen)
    assert (status["mode"], status["epoch"], status["replicas"], status["routable"]) == ("Shared", 5, 2, 1)
    assert [(item["pod"], item["version"], item["sequence"], item["live"]) for item in status["guards"]] == [
        ("p", "0.1.0", 4, True),
        ("q", "0.0.9", 4, False),
    ]
    assert len(status["engines"]) == 1
    routes = {item["route"]: item["capability"] for item in status["routes"]}
    assert (routes["/v1/chat/completions"], routes["/v1/audio/transcriptions"]) == ("Enforced", "Unsupported")
    assert {"/v1/chat/completions", "/v1/messages", "/v1/embeddings", "/rerank"} <= routes.keys()
    assert not {"/tokenize", "/v1/messages/count_tokens"} & routes.keys(), "what reaches no cache has no verdict"
    assert "cachescope.dev/pool=tiny" in status["selector"]


def test_the_epoch_and_what_a_refused_spec_would_change_stay_as_they_were() -> None:
    before = pool_status(observed(epoch=5))
    refused = {"engine.version": "0.8.0"}
    after = pool_status(observed(refused, invalid="use another version", before=before))
    assert after == before
    assert "mode" not in pool_status(observed(refused, invalid="use another version"))


def test_events_tell_of_flips_and_not_of_what_every_pool_says_at_first() -> None:
    at_first = [
        Verdict(ConditionType.READY, "False", Reason.NO_READY_POD),
        Verdict(ConditionType.DEGRADED, "False", Reason.HEALTHY),
        Verdict(ConditionType.PROGRESSING, "True", Reason.ROLLING_OUT),
    ]
    assert flipped([], at_first) == []
    broken = Verdict(ConditionType.READY, "False", Reason.INVALID_SPEC)
    assert flipped([], [broken]) == [broken]
    old = [{"type": "Ready", "status": "False", "reason": "NoReadyPod"}]
    now = Verdict(ConditionType.READY, "True", Reason.ROUTABLE)
    assert flipped(old, [now]) == [now]
    assert flipped(old, at_first[:1]) == []


def test_a_selector_that_counts_for_nothing_is_said() -> None:
    changes = {"allowedTenants": {"namespaces": {"from": "Selector", "matchLabels": {"team": "red"}}}}
    assert "counts for nothing" in pool_status(observed(changes, shared=False))["modeReason"]
    assert "counts for nothing" not in pool_status(observed(changes, shared=True))["modeReason"]
    assert "counts for nothing" not in pool_status(observed(shared=False))["modeReason"]


@pytest.mark.parametrize(("says", "reason"), [("0.31.0", Reason.OTHER_VERSION), ("0.32.0", Reason.HEALTHY), ("", Reason.HEALTHY)])
def test_an_engine_that_says_another_version_degrades_the_pool_and_is_named(says: str, reason: Reason) -> None:
    found = said(ConditionType.DEGRADED, guards=[guard(says=says)])
    assert found.reason is reason
    isolation = said(ConditionType.ISOLATION_VERIFIED, guards=[guard(says=says)])
    assert (isolation.reason is Reason.OTHER_VERSION) == (reason is Reason.OTHER_VERSION)
    if reason is Reason.OTHER_VERSION:
        assert (
            found.message
            == "the engine says that it is 0.31.0, and 0.32.0 is declared; correct engine.version, or the image (pod p)"
        )
    assert [item["version"] for item in pool_status(observed(guards=[guard(says=says)]))["engines"]] == [says]
