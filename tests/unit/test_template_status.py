"""A template says what its tenants' pools say: never better than the worst of them, and the same words while nothing changed."""

from __future__ import annotations

import pytest

from cachescope.api.conditions import ConditionType, Reason
from cachescope.controller.observed_pools import Elder, Fault
from cachescope.controller.template_status import Members, template_conditions, template_status
from cachescope.controller.verdicts import Verdict
from cachescope.kube.rest import Document
from tests.unit.observed import deployment
from tests.unit.observed_templates import members, of_tenant, saying, template

DOWN = saying("Ready", "False", "NoReadyPod")
SHORT = saying("Degraded", "True", "NoSpareGPU", "no GPU")


def found(kind: ConditionType, these: Members, changes: Document | None = None, **seen: object) -> Verdict:
    verdicts = template_conditions(template(changes, **seen), these)
    return next(item for item in verdicts if item.type is kind)


@pytest.mark.parametrize(
    ("these", "status", "reason", "told"),
    [
        (members(of_tenant("red"), of_tenant("blue")), "True", Reason.ROUTABLE, "2 of 2 tenants have engines that are routed to"),
        (members(of_tenant("red"), of_tenant("blue", DOWN)), "False", Reason.TENANTS_NOT_READY, "not those of tiny-blue:"),
        (
            members(of_tenant("red"), of_tenant("blue", saying("Ready", "True", "Routable", generation=3))),
            "False",
            Reason.TENANTS_NOT_READY,
            "1 of 2",
        ),
        (members(of_tenant("red"), missing=["blue"]), "False", Reason.TENANTS_NOT_READY, "tiny-blue"),
        (members(of_tenant("red", DOWN, replicas=0)), "True", Reason.ROUTABLE, "1 get theirs with their next request"),
        (members(), "False", Reason.NO_TENANTS, "create a Tenant"),
        (
            members(*(of_tenant(name, DOWN) for name in "abcde")),
            "False",
            Reason.TENANTS_NOT_READY,
            "not those of tiny-a, tiny-b, tiny-c and 2 more",
        ),
    ],
)
def test_it_is_ready_when_the_engines_of_each_tenant_serve_or_rest(these: Members, status: str, reason: Reason, told: str) -> None:
    verdict = found(ConditionType.READY, these)
    assert (verdict.status, verdict.reason) == (status, reason)
    assert told in verdict.message


def test_what_is_in_the_way_is_said_first() -> None:
    taken = Fault(Reason.NAME_TAKEN, "delete it")
    assert found(ConditionType.READY, members(), fault=taken).reason is Reason.NAME_TAKEN
    assert found(ConditionType.READY, members(of_tenant("red")), fault=taken).reason is Reason.ROUTABLE
    assert found(ConditionType.DEGRADED, members(of_tenant("red", SHORT)), fault=taken).reason is Reason.NAME_TAKEN
    elder = found(ConditionType.READY, members(of_tenant("red")), elder=Elder("other"))
    assert (elder.status, elder.reason) == ("False", Reason.MODEL_NAME_TAKEN)


def test_what_is_wrong_with_one_tenant_is_said_with_how_many_are_served() -> None:
    these = members(of_tenant("red"), of_tenant("blue", DOWN, SHORT))
    verdict = found(ConditionType.DEGRADED, these)
    assert (verdict.status, verdict.reason) == ("True", Reason.NO_SPARE_GPU)
    assert verdict.message == "1 of 2 tenants have engines that are routed to; tiny-blue: no GPU"
    while_own_run = found(ConditionType.DEGRADED, these, deployment=deployment())
    assert "with rollout.strategy InPlace they go first" in while_own_run.message
    assert found(ConditionType.DEGRADED, members(of_tenant("red"))).reason is Reason.HEALTHY


def test_what_a_newer_operator_said_is_said_in_words_of_this_one() -> None:
    newer = saying("Degraded", "True", "OfTomorrow", "look")
    verdict = found(ConditionType.DEGRADED, members(of_tenant("red", newer)))
    assert (verdict.reason, verdict.message.endswith("tiny-red: look")) == (Reason.FEWER_THAN_ASKED, True)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (ConditionType.PROGRESSING, saying("Progressing", "True", "RollingOut")),
        (ConditionType.GUARD_OUTDATED, saying("GuardOutdated", "True", "NewerGuardAvailable")),
    ],
)
def test_what_one_tenants_pool_says_the_template_says(kind: ConditionType, said: Document) -> None:
    verdict = found(kind, members(of_tenant("red"), of_tenant("blue", said)))
    assert (verdict.status, verdict.reason.value, verdict.message) == ("True", said["reason"], "tiny-blue: as it is")
    assert found(kind, members(of_tenant("red"), of_tenant("blue"))).status == "False"


def test_own_engines_that_are_still_there_are_progress() -> None:
    for these, whose in ((members(of_tenant("red")), "all tenants"), (members(of_tenant("red", DOWN)), "tiny-red")):
        verdict = found(ConditionType.PROGRESSING, these, deployment=deployment())
        assert (verdict.status, verdict.message.endswith(f"routes to those of {whose}")) == ("True", True)


def test_pools_that_are_still_to_be_made_are_progress() -> None:
    verdict = found(ConditionType.PROGRESSING, members(of_tenant("red"), missing=["blue"]))
    assert (verdict.status, verdict.message) == ("True", "1 pools of tenants are not made yet, tiny-blue")


def test_a_pool_that_goes_says_nothing_of_those_that_stay() -> None:
    these = members(of_tenant("red"))
    going = Members(these.plan, (*these.pools, of_tenant("blue", DOWN, SHORT)))
    assert [item.status for item in template_conditions(template(), going)] == ["True", "False", "False", "True", "False"]


def test_tenants_of_other_namespaces_are_said_not_to_be_served_where_they_could_be() -> None:
    allowed = {"allowedTenants": {"namespaces": {"from": "Selector", "matchLabels": {"a": "b"}}}}
    verdict = found(ConditionType.DEGRADED, members(of_tenant("red")), allowed)
    assert (verdict.reason, "tenants of other namespaces are not served" in verdict.message) == (Reason.OTHER_NAMESPACES, True)
    assert found(ConditionType.DEGRADED, members(of_tenant("red")), allowed, shared=False).reason is Reason.HEALTHY


def test_numbers_are_those_of_all_pools_together() -> None:
    status = template_status(template(), [of_tenant("red"), of_tenant("blue", replicas=3, **{"routable": 2})])
    assert [status[name] for name in ("mode", "replicas", "readyReplicas", "routable")] == ["PerTenant", 2, 2, 3]
    assert status["selector"] == ""
    unknown = template(before=status, fault=Fault(Reason.ROOT_KEYS_MISSING, "f"))
    assert template_status(unknown, [of_tenant("red")])["routable"] == 3, "what is kept is counted once"
