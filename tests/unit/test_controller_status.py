"""What a pool says of itself: never better than it is, and the same words while nothing changed."""

from __future__ import annotations

from typing import Any

import pytest

from cachescope.api.conditions import ConditionType, Reason
from cachescope.controller import pod_faults
from cachescope.controller.lease_book import Process
from cachescope.controller.pool_status import Observed, elder_of, pool_conditions, pool_status
from cachescope.controller.verdicts import Verdict, flipped
from cachescope.core.digests import sha256
from cachescope.core.leases import GUARD, LeaseStatement, Seen
from cachescope.core.record import EngineDigests
from cachescope.kube.rest import Document
from cachescope.manifests.revisions import Revision
from tests.unit.pools import UID, pool

GPU = {"gpus": {"count": 2}}
NO_GPU = (
    "0/3 nodes are available: 1 node(s) had untolerated taint, 2 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available."
)


def pod(name: str = "p", *, ready: bool = True, **status: Any) -> Document:
    conditions = [{"type": "Ready", "status": str(ready)}, *status.pop("conditions", [])]
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "status": {"conditions": conditions, **status}}


def deployment(asked: int = 1, **status: Any) -> Document:
    counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas", "readyReplicas"), asked)
    return {"metadata": {"generation": 3}, "spec": {"replicas": asked}, "status": {"observedGeneration": 3, **counts, **status}}


def guard(name: str = "p", *, live: bool = True, version: str = "0.1.0") -> Process:
    digests = EngineDigests(sha256(b"m"), sha256(b"t"), sha256(b"r"))
    seen = {UID: Seen("l", 1, 4)}
    statement = LeaseStatement(GUARD, f"uid-{name}", "b", 7, 60_000, version, seen, UID, digests)
    return Process(f"lease-{name}", name, "", 60, 0, statement, live)


def said(kind: ConditionType, changes: Document | None = None, **seen: Any) -> Verdict:
    defaults = {"deployment": deployment(), "pods": [pod()], "routed": frozenset({"uid-p"}), "guard_version": "0.1.0"}
    verdicts = pool_conditions(Observed(pool(changes), **{**defaults, **seen}))
    return next(item for item in verdicts if item.type is kind)


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        ({}, Reason.ROUTABLE),
        ({"routed": frozenset()}, Reason.GUARD_NOT_PROVEN),
        ({"routed": frozenset({"uid-of-a-dead-pod"})}, Reason.GUARD_NOT_PROVEN),
        ({"pods": [pod(ready=False)]}, Reason.NO_READY_POD),
        ({"pods": []}, Reason.NO_READY_POD),
        ({"pods": [], "deployment": None}, Reason.NO_READY_POD),
        ({"pods": [], "deployment": deployment(0)}, Reason.SCALED_TO_ZERO),
    ],
)
def test_ready_only_when_a_gateway_routes_to_a_ready_pod(seen: dict[str, Any], reason: Reason) -> None:
    found = said(ConditionType.READY, **seen)
    assert (found.status, found.reason) == ("True" if reason is Reason.ROUTABLE else "False", reason)


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
    assert said(ConditionType.DEGRADED, changes, **rolling).reason is Reason.UNSCHEDULABLE


def test_words_of_the_scheduler_stay_the_same_while_its_numbers_change() -> None:
    one, two = (
        pod_faults.unschedulable(unschedulable(text))
        for text in (NO_GPU, NO_GPU.replace("3 nodes", "9 nodes").replace("2 Ins", "8 Ins"))
    )
    assert one == two == "Insufficient nvidia.com/gpu, node(s) had untolerated taint"


def container(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": "engine", "ready": False, **fields}]


OOM = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (
            container(state={"waiting": {"reason": "ErrImagePull"}}),
            "container engine: ImagePullBackOff: the image cannot be pulled",
        ),
        (
            container(state={"waiting": {"reason": "ImagePullBackOff"}}),
            "container engine: ImagePullBackOff: the image cannot be pulled",
        ),
        (
            container(state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=OOM, restartCount=4),
            "OOMKilled: it ended with exit code 137",
        ),
        (container(state={"running": {}}, lastState=OOM, restartCount=5), "OOMKilled: it ended with exit code 137"),
        (container(state={"waiting": {"reason": "CreateContainerConfigError"}}), "container engine: CreateContainerConfigError"),
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
    assert (found.reason, found.message) == (Reason.POD_FAILING, "pods is forbidden: exceeded quota")


def test_fewer_than_asked_in_time_and_faults_of_the_cluster_are_said() -> None:
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    assert said(ConditionType.DEGRADED, deployment=deployment(conditions=[late])).reason is Reason.FEWER_THAN_ASKED
    assert said(ConditionType.DEGRADED, fault="refused").reason is Reason.CLUSTER_ERROR
    assert said(ConditionType.DEGRADED).reason is Reason.HEALTHY


@pytest.mark.parametrize(
    ("frozen", "reason"), [("0.0.9", "NewerGuardAvailable"), ("0.1.0", "GuardsCurrent"), ("0.2.0", "GuardsCurrent")]
)
def test_an_older_guard_is_outdated_and_a_newer_one_is_not(frozen: str, reason: str) -> None:
    found = said(ConditionType.GUARD_OUTDATED, revision=Revision("i", {}, "image", frozen))
    assert found.reason.value == reason


def test_the_model_name_belongs_to_the_oldest_pool_of_the_namespace() -> None:
    mine = pool(creationTimestamp="2026-02-01T00:00:00Z")

    def other(created: str, model: str = "tiny") -> Document:
        return {"metadata": {"name": "other", "uid": "other-uid", "creationTimestamp": created}, "spec": {"model": {"name": model}}}

    assert elder_of(mine, [other("2026-01-01T00:00:00Z")]) == "other"
    assert elder_of(mine, [other("2026-03-01T00:00:00Z"), other("2026-01-01T00:00:00Z", "else")]) == ""
    assert said(ConditionType.DEGRADED, elder="other").reason is Reason.MODEL_NAME_TAKEN


def test_the_status_counts_what_exists() -> None:
    seen = Observed(
        pool(generation="4"),
        deployment=deployment(2),
        pods=[pod(), pod("q", ready=False)],
        guards=[guard(), guard("q", live=False, version="0.0.9"), guard("gone")],
        routed=frozenset({"uid-p", "uid-q", "uid-gone"}),
        epoch=5,
    )
    status = pool_status(seen)
    assert (status["mode"], status["epoch"], status["replicas"], status["routable"]) == ("Shared", 5, 2, 1)
    assert [(item["pod"], item["version"], item["sequence"], item["live"]) for item in status["guards"]] == [
        ("p", "0.1.0", 4, True),
        ("q", "0.0.9", 4, False),
    ]
    assert len(status["engines"]) == 1
    assert {item["capability"] for item in status["routes"]} == {"Enforced"}
    assert "cachescope.dev/pool=tiny" in status["selector"]


def test_an_engine_that_does_not_enforce_salts_has_no_mode() -> None:
    status = pool_status(Observed(pool({"engine.version": "0.8.0"})))
    assert (status["mode"], {item["capability"] for item in status["routes"]}) == ("", {"Unsupported"})
    assert "no request is routed" in status["modeReason"]


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
