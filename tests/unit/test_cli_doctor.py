"""Each finding beside its control: the sound installation passes every check, and each fault changes exactly what it should."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cachescope.api.conditions import Reason
from cachescope.api.crds import definitions
from cachescope.cli.doctor import root_keys
from cachescope.cli.doctor.examination import examine
from cachescope.cli.doctor.findings import Unseen, Verdict, exit_code
from cachescope.cli.doctor.gather import cluster_wide, gather
from cachescope.cli.doctor.observed import OPERATOR_LEASE, ROOT_KEYS, Observed
from cachescope.cli.doctor.resources import REMEDIES
from cachescope.core.keys import Key
from cachescope.core.labels import API_KEYS_LABEL
from cachescope.core.ledgers import AUTHORIZATION_HEAD
from cachescope.core.signed import sign
from cachescope.kube.rest import ApiError, NotFoundError
from tests.unit.doctor_documents import (
    HEAD,
    HEX,
    NOW,
    RENEWED,
    SOUND,
    Document,
    acknowledging,
    binding,
    changed,
    condition,
    deployment,
    fence_lease,
    ledger,
    named,
    role,
    subject,
    unfenced,
    with_conditions,
    worst,
)


def test_a_sound_installation_passes_every_check() -> None:
    assert worst(SOUND) == []
    assert exit_code(examine(SOUND)) == 0


def test_enforcement_of_network_policies_is_never_called_a_pass() -> None:
    (finding,) = [item for item in examine(SOUND) if item.check == "network policies"]
    assert finding.verdict is Verdict.NOTE


BAD_KEYS = named("a", labels={API_KEYS_LABEL: "true"}) | {"data": {"zzzzzzzz": base64.b64encode(b"{}").decode()}}
OTHER_CRD = {**definitions()[0], "metadata": {**definitions()[0]["metadata"], "annotations": {}}}
FAULTS: list[tuple[Observed, str, str]] = [
    (replace(SOUND, kinds=frozenset({"servingpools"})), "kinds", "fenceleases"),
    (changed(customresourcedefinitions=[OTHER_CRD, *definitions()[1:]]), "kinds' version", OTHER_CRD["metadata"]["name"]),
    (changed(deployments=[deployment("gateway")]), "operator", "no operator"),
    (changed(deployments=[deployment("operator"), deployment("gateway", 1)]), "gateway", "1 of 2"),
    (changed(lease=[]), OPERATOR_LEASE, "ever"),
    (changed(lease=[{"spec": {"renewTime": (NOW - timedelta(seconds=60)).isoformat()}}]), OPERATOR_LEASE, "60 s"),
    (changed(lease=[{"spec": {**RENEWED, "holderIdentity": ""}}]), OPERATOR_LEASE, "held by nobody"),
    (changed(root_keys=[]), ROOT_KEYS, "no Secret"),
    (changed(root_keys=[{"data": {"targets": HEX}}]), ROOT_KEYS, "missing"),
    (changed(root_keys=[{"data": {"k1": HEX}}]), ROOT_KEYS, "missing"),
    (changed(root_keys=[{"data": {"k1": "bm8=", "targets": HEX}}]), ROOT_KEYS, "k1"),
    (
        changed(servingpools=[with_conditions("tiny", condition("Ready", "False", Reason.NO_READY_POD))]),
        "servingpools",
        "NoReadyPod",
    ),
    (changed(servingpools=[with_conditions("tiny")]), "servingpools", "not looked"),
    (
        changed(servingpools=[with_conditions("tiny", condition("Ready", "True", Reason.ROUTABLE), generation=2)]),
        "servingpools",
        "not looked",
    ),
    (
        changed(
            servingpools=[
                with_conditions(
                    "tiny", condition("Ready", "True", Reason.ROUTABLE), condition("Degraded", "True", Reason.NO_SPARE_GPU)
                )
            ]
        ),
        "servingpools",
        "NoSpareGPU",
    ),
    (changed(tenants=[with_conditions("red", condition("Accepted", "False", Reason.IDENTITY_TAKEN))]), "tenants", "IdentityTaken"),
    (replace(SOUND, key_secrets={("ns", "a"): []}), "API key Secrets", "ns/a"),
    (replace(SOUND, key_secrets={("ns", "a"): [named("a")]}), "API key Secrets", "label"),
    (replace(SOUND, key_secrets={("ns", "a"): [BAD_KEYS]}), "API key Secrets", "ns/a: 'zzzzzzzz' is no API key entry"),
    (changed(fenceleases=[fence_lease("p1.boot1", 200)]), "leases", "tiny-0"),
    (changed(epochledgers=[ledger(AUTHORIZATION_HEAD, 5, 900, restored=2, confirmed=1)]), "authorization heads", "restored"),
    (changed(cacheepochs=[unfenced(16)]), "fences", "16 min (WaitingForProcesses)"),
    (changed(fenceleases=[acknowledging(pool=(1, 6), authorization=(1, 5))]), "acknowledgements", "acknowledges 6 of lineage 1"),
    (changed(fenceleases=[acknowledging(pool=(1, 7))]), "acknowledgements", "acknowledges nothing"),
    (
        changed(epochledgers=[ledger("tiny", 1, 900, generation=2), HEAD]),
        "acknowledgements",
        "7 of lineage 1 of the EpochLedger ns/tiny, which stands at 1 of lineage 2",
    ),
]


def test_a_guard_has_its_lease_to_acknowledge_what_is_new() -> None:
    new = [ledger("tiny", 8, 60), ledger(AUTHORIZATION_HEAD, 7, 119)]
    assert worst(changed(epochledgers=new)) == []
    assert len(worst(changed(epochledgers=[ledger("tiny", 8, 121), ledger(AUTHORIZATION_HEAD, 7, 121)]))) == 2


@pytest.mark.parametrize(("drains", "other"), [("tiny", AUTHORIZATION_HEAD), (AUTHORIZATION_HEAD, "tiny")])
def test_a_guard_has_the_drain_of_a_ledger_to_acknowledge_that_one(drains: str, other: str) -> None:
    def stand(age: float, other_age: float = 60) -> Observed:
        return changed(epochledgers=[ledger(drains, 8, age, drainSeconds={"t": 300}), ledger(other, 8, other_age)])

    assert worst(stand(419)) == []
    assert len(worst(stand(422))) == 1
    assert len(worst(stand(419, 121))) == 1


def test_a_key_is_in_use_while_a_ledger_or_a_lease_or_a_copy_in_one_rests_on_it() -> None:
    assert [item.verdict for item in examine(SOUND) if item.check == "keys in use"] == [Verdict.PASS]
    newer = Key("k2", b"n" * 32)
    copies = {"authorization/ns": {"mac": {"key": "k0"}}, "broken": "x", "also": {"mac": {"key": 1}}}
    lease = fence_lease("a.b", 5) | {"spec": {"statement": sign(newer, "lease", {"witnesses": copies}, deflated=True)}}
    sealed = named("tiny") | {"spec": {"mac": {"key": "k1"}}}
    unread = [fence_lease("c.d", 5) | {"spec": {"statement": text}} for text in ("x", sign(newer, "lease", {"witnesses": 1}))]
    found = list(
        root_keys.check(
            changed(
                epochledgers=[sealed, *[named(f"t{n}") | {"spec": {"mac": {"key": "k1"}}} for n in "1234"]],
                fenceleases=[lease, *unread],
            )
        )
    )
    assert [(item.verdict, item.message) for item in found] == [
        (Verdict.NOTE, "k0 is in use beside k2: ns/a.b"),
        (Verdict.NOTE, "k1 is in use beside k2: ns/tiny, ns/t1, ns/t2 and 2 more"),
    ]


def test_a_key_that_was_added_and_comes_before_the_one_in_force_is_noted() -> None:
    def noted(*ids: str) -> list[str]:
        found = root_keys.check(changed(root_keys=[{"data": dict.fromkeys((*ids, "targets"), HEX)}]))
        return [item.message.partition(":")[0] for item in found if item.verdict is Verdict.NOTE]

    assert noted("k1", "k0") == ["k0 is not in force"]
    assert noted("k1") == noted("k1", "k2") == noted() == []


def test_a_fence_that_has_not_waited_for_long_is_no_fault() -> None:
    longest = 858.8 / 60
    assert "**858.8 s**" in (Path(__file__).parents[2] / "docs" / "incidents.md").read_text("utf-8")
    assert worst(changed(cacheepochs=[unfenced(longest)])) == []


def test_what_is_held_is_a_note_and_no_late_fence() -> None:
    document = unfenced(60, Reason.NOT_WRITTEN)
    document["status"]["conditions"].append(condition("Held", "True", Reason.JUMP_TOO_LARGE))
    assert [item.verdict for item in worst(changed(cacheepochs=[document]))] == [Verdict.NOTE]


def test_a_restore_that_is_not_confirmed_is_one_finding() -> None:
    unconfirmed = ledger(AUTHORIZATION_HEAD, 5, 900, restored=1)
    observed = changed(epochledgers=[unconfirmed], cacheepochs=[unfenced(60, Reason.RESTORE_UNCONFIRMED)])
    assert [item.check for item in worst(observed)] == ["authorization heads"]


def test_a_lease_that_cannot_be_read_acknowledges_nothing() -> None:
    broken = acknowledging()
    broken["spec"]["statement"] = "v1.k.!.mac"
    assert {item.check for item in worst(changed(fenceleases=[broken]))} == {"acknowledgements"}


@pytest.mark.parametrize(("observed", "check", "said"), FAULTS, ids=[f"{check}: {said}" for _, check, said in FAULTS])
def test_a_fault_is_one_failure_with_its_remedy(observed: Observed, check: str, said: str) -> None:
    (finding,) = worst(observed)
    assert (finding.check, finding.verdict) == (check, Verdict.FAIL)
    assert said in finding.message
    assert finding.remedy
    assert exit_code([finding]) == 1


NOTES = [
    changed(tenants=[with_conditions("red", condition("Accepted", "False", Reason.SUSPENDED))]),
    changed(
        cacheepochs=[
            with_conditions(
                "e", condition("Accepted", "True", Reason.ACCEPTED), condition("Held", "True", Reason.SPEC_BEHIND_LEDGER)
            )
        ]
    ),
    changed(fenceleases=[fence_lease("gone.boot1", 9000)]),
]


@pytest.mark.parametrize("observed", NOTES, ids=["suspended", "held", "left over"])
def test_what_is_meant_so_is_noted_and_no_failure(observed: Observed) -> None:
    (finding,) = worst(observed)
    assert (finding.verdict, exit_code([finding])) == (Verdict.NOTE, 0)


@pytest.mark.parametrize("name", SOUND.documents)
def test_a_check_that_could_not_look_is_no_pass(name: str) -> None:
    observed = replace(SOUND, documents={**SOUND.documents, name: Unseen("forbidden")})
    findings = worst(observed)
    assert {item.verdict for item in findings} == {Verdict.UNSEEN}
    assert "forbidden" in findings[0].message
    assert exit_code(findings) == 2


def test_an_api_server_that_cannot_be_reached_is_the_only_finding() -> None:
    (finding,) = examine(replace(SOUND, fault="no answer"))
    assert (finding.check, finding.verdict) == ("api", Verdict.FAIL)


def holders(*bindings: Document, roles: tuple[Document, ...] = (), trusted: tuple[str, ...] = ()) -> list[str]:
    observed = changed(rolebindings=list(bindings), roles=list(roles))
    return [item.message.split()[0] for item in worst(observed, trusted) if item.check == "key namespace"]


@pytest.mark.parametrize(
    "rule",
    [("", "secrets", "list"), ("", "pods", "create"), ("", "pods/exec", "create"), ("apps", "deployments", "patch"),
     ("batch", "*", "create"), ("", "serviceaccounts/token", "create"), ("rbac.authorization.k8s.io", "roles", "bind"),
     ("*", "*", "*")],
)  # fmt: skip
def test_every_right_that_leads_to_the_keys_is_found(rule: tuple[str, str, str]) -> None:
    assert holders(binding("r", subject("Group", "devs"), kind="Role"), roles=(role("r", rule),)) == ["Group:devs"]


@pytest.mark.parametrize(
    "rule", [("", "pods", "get"), ("", "configmaps", "*"), ("apps", "deployments", "list"), ("other", "secrets", "get")]
)
def test_rights_that_do_not_lead_to_the_keys_are_not_found(rule: tuple[str, str, str]) -> None:
    assert holders(binding("r", subject("Group", "devs"), kind="Role"), roles=(role("r", rule),)) == []


def test_a_right_to_one_secret_counts_when_it_is_that_of_the_root_keys() -> None:
    bound = binding("r", subject("User", "eve"), kind="Role")
    assert holders(bound, roles=(role("r", ("", "secrets", "get"), names=("cachescope-root-keys",)),)) == ["User:eve"]
    assert holders(bound, roles=(role("r", ("", "secrets", "get"), names=("another",)),)) == []


@pytest.mark.parametrize(
    ("who", "found"),
    [
        (subject("Group", "system:nodes"), False),
        (subject("Group", "system:authenticated"), True),
        (subject("Group", "system:serviceaccounts"), True),
        (subject("Group", "system:serviceaccounts:team"), True),
        (subject("User", "system:serviceaccount:team:default"), True),
        (subject("User", "system:serviceaccount:kube-system:x"), False),
        (subject("ServiceAccount", "x", "kube-system"), False),
        (subject("ServiceAccount", "cachescope-operator", "ns"), False),
        (subject("ServiceAccount", "cachescope-operator", "elsewhere"), True),
        (subject("ServiceAccount", "cachescope-gateway"), False),
        (subject("ServiceAccount", "default"), True),
    ],
    ids=lambda value: str(value.get("name")) if isinstance(value, dict) else None,
)
def test_system_components_are_left_out_and_everybody_is_not(who: Document, *, found: bool) -> None:
    assert bool(holders(binding("read", who))) is found


def test_a_binding_of_the_whole_cluster_counts_too() -> None:
    everywhere = binding("read", subject("Group", "devs"), namespace=None)
    (finding,) = worst(changed(clusterrolebindings=[everywhere]))
    assert "ClusterRoleBinding b" in finding.message


def test_the_platforms_own_are_left_out_when_they_are_named() -> None:
    bound = binding("read", subject("ServiceAccount", "ci", "tools"), subject("Group", "devs"))
    assert holders(bound) == ["Group:devs", "ServiceAccount:tools/ci"]
    assert holders(bound, trusted=("ServiceAccount:tools/ci",)) == ["Group:devs"]


def test_the_roles_of_every_cluster_are_known_without_reading_them() -> None:
    observed = changed(rolebindings=[binding("edit", subject("Group", "devs"))], clusterroles=Unseen("forbidden"))
    assert {item.verdict for item in worst(observed)} == {Verdict.UNSEEN, Verdict.FAIL}


@pytest.mark.parametrize(
    ("status", "reason", "verdict"),
    [
        ("False", Reason.WITHDRAWN, Verdict.NOTE),
        ("False", Reason.EXPIRED, Verdict.NOTE),
        ("False", Reason.INVALID_SPEC, Verdict.FAIL),
        (None, None, Verdict.FAIL),
    ],
)
def test_a_source_that_is_not_usable_is_noted_and_one_that_cannot_be_read_is_a_fault(
    status: str | None, reason: Reason | None, verdict: Verdict
) -> None:
    well = with_conditions("terms", condition("Usable", "True", Reason.APPROVED))
    assert worst(changed(publicsources=[well])) == []
    found = with_conditions("terms", condition("Usable", status, reason)) if status and reason else named("terms")
    assert [item.verdict for item in worst(changed(publicsources=[found]))] == [verdict]


def test_a_public_scope_of_which_nothing_is_public_is_noted() -> None:
    scope = with_conditions("shared", condition("Accepted", "True", Reason.NOTHING_PUBLIC))
    assert [item.verdict for item in worst(changed(cachescopes=[scope]))] == [Verdict.NOTE]


GOOD = {
    Reason.ROUTABLE, Reason.SCALED_TO_ZERO, Reason.ROLLING_OUT, Reason.ROLLED_OUT, Reason.HEALTHY, Reason.GUARDS_CURRENT,
    Reason.NEWER_GUARD_AVAILABLE, Reason.OLD_GUARD_RUNNING, Reason.ACCEPTED, Reason.SUSPENDED,
    Reason.SPEC_BEHIND_LEDGER, Reason.NOT_HELD, Reason.ACKNOWLEDGED, Reason.APPROVED, Reason.VERIFIED, Reason.ONE_CACHE_PER_POD,
    Reason.REUSE_OFF,
}  # fmt: skip


def test_every_reason_of_a_failure_has_its_remedy() -> None:
    assert set(Reason) - GOOD == set(REMEDIES)


class FakeApi:
    """Answers from a table; paths that it lacks are not there."""

    def __init__(self, answers: Mapping[str, Document | ApiError]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def get(self, path: str, **query: str) -> Document:
        self.asked.append(path)
        answer = self.answers.get(path, NotFoundError(404, f"{path} is not there") if not query else {"items": []})
        if isinstance(answer, ApiError):
            raise answer
        return answer


DEPLOYMENTS = "/apis/apps/v1/namespaces/ns/deployments"
ENVIRONMENT = [{"name": "CACHESCOPE_SCOPE", "value": "Cluster"}]


def operator_in_cluster_mode() -> Document:
    return deployment("operator") | {"spec": {"template": {"spec": {"containers": [{"env": ENVIRONMENT}]}}}}


async def test_in_cluster_mode_resources_of_all_namespaces_are_gathered() -> None:
    api = FakeApi({"/version": {}, DEPLOYMENTS: {"items": [operator_in_cluster_mode()]}})
    await gather(api, "ns")
    assert "/apis/cachescope.dev/v1alpha1/servingpools" in api.asked
    assert not cluster_wide([deployment("operator") | {"spec": {"template": {"spec": {"containers": [{}]}}}}])


async def test_what_is_forbidden_is_said_and_the_rest_is_gathered() -> None:
    tenants = [named("red") | {"spec": {"identities": {"apiKeys": [{"secretName": "red-alice"}]}}}]
    secret = "/api/v1/namespaces/ns/secrets/red-alice"
    api = FakeApi(
        {
            "/version": {},
            "/apis/cachescope.dev/v1alpha1/namespaces/ns/tenants": {"items": tenants},
            secret: named("red-alice"),
            "/api/v1/namespaces/ns/secrets/cachescope-root-keys": ApiError(403, "forbidden"),
        }
    )
    observed = await gather(api, "ns")
    assert isinstance(observed.of(ROOT_KEYS), Unseen)
    assert observed.of(OPERATOR_LEASE) == []
    assert observed.of("tenants") == tenants
    assert observed.key_secrets == {("ns", "red-alice"): [named("red-alice")]}
    assert observed.kinds == frozenset()


async def test_an_api_server_without_an_answer_is_asked_once() -> None:
    api = FakeApi({"/version": ApiError(0, "no answer")})
    assert (await gather(api, "ns")).fault == "no answer"
    assert api.asked == ["/version"]
