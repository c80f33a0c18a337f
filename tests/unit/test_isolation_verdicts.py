"""What a pool says of the probe: each reason with its message, and a leak in `Degraded` too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cachescope.api.conditions import SAID, ConditionType, Reason
from cachescope.api.statuses import IsolationProof, IsolationStatus, ProbedRoute
from cachescope.controller.isolation_verdicts import one_cache_per_pod
from cachescope.controller.lease_book import Life, Process
from cachescope.controller.pool_status import pool_conditions, pool_status
from cachescope.controller.template_status import template_conditions
from cachescope.controller.verdicts import Verdict
from cachescope.core.ledgers import Flags
from cachescope.core.types import Epoch
from cachescope.kube.rest import Document
from tests.unit.observed import guard, observed, pod, said
from tests.unit.observed_templates import members, template
from tests.unit.shown_isolation import CHAT, COMPLETIONS

VERIFIED = ConditionType.ISOLATION_VERIFIED
WHEN = "2026-11-30T12:00:00Z"
BYPASSED = Flags(bypassed=Epoch(2))
LEAK = IsolationStatus(leak=f"{CHAT} of p: found", incident="isolation-1")
WHOSE = {"poolName": "t", "poolUid": "uid-of-template", "tenantName": "red", "tenantUid": "uid-of-red"}


def serving(name: str, boot: str, life: Life = Life.LIVE) -> Process:
    process = guard(name, life)
    assert process.statement is not None
    return replace(process, statement=replace(process.statement, boot_id=boot))


TWO: dict[str, Any] = {"pods": [pod("p"), pod("q")], "guards": [serving("p", "a"), serving("q", "b")]}


def record(*proofs: tuple[str, tuple[str, ...]], last: tuple[str, ...] = (CHAT,), **changes: Any) -> IsolationStatus:
    """A record in which processes (as one text of letters) are proven on routes."""
    found = tuple(ProbedRoute(route=path, found="Isolated") for path in last)
    made = tuple(IsolationProof(routes=routes, boots=tuple(boots)) for boots, routes in proofs)
    return IsolationStatus(verified_at=WHEN, proofs=made, last=found, **changes)


CASES = [
    pytest.param(
        {"isolation": record(("b", (CHAT,)))},
        "True",
        Reason.VERIFIED,
        f"1 of 1 engine processes keep tenants apart on {CHAT}, last shown {WHEN}",
        id="verified",
    ),
    pytest.param(
        {**TWO, "isolation": record(("a", (CHAT, COMPLETIONS)), ("b", (CHAT,)), last=(CHAT, COMPLETIONS))},
        "True",
        Reason.VERIFIED,
        f"2 of 2 engine processes keep tenants apart on {CHAT}, last shown {WHEN}; nothing is reused on {COMPLETIONS}, where "
        "the engine does not show it",
        id="on some routes",
    ),
    pytest.param(
        {**TWO, "isolation": record(("a", (CHAT,)))},
        "False",
        Reason.PARTLY_VERIFIED,
        f"1 of 2 engine processes keep tenants apart on {CHAT}, last shown {WHEN}; the others reuse nothing before they were",
        id="some",
    ),
    pytest.param(
        {**TWO, "isolation": record(("a", (CHAT,)), fault="a request was answered with 503")},
        "False",
        Reason.PARTLY_VERIFIED,
        "the others reuse nothing before they were: a request was answered with 503",
        id="some, and why",
    ),
    pytest.param({}, "False", Reason.NOT_VERIFIED_YET, "nothing is reused before the probe has shown", id="nothing known"),
    pytest.param(
        {"isolation": IsolationStatus()}, "False", Reason.NOT_VERIFIED_YET, "nothing is reused before", id="nothing shown"
    ),
    pytest.param(
        {"isolation": record(last=(CHAT,))},
        "False",
        Reason.NO_EVIDENCE,
        "does not tell what it finds in its cache",
        id="untold",
    ),
    pytest.param(
        {"isolation": record(fault="a request was answered with nothing")},
        "False",
        Reason.PROBE_FAILED,
        "nothing is reused; the probe is repeated, the last one ended at a request was answered with nothing",
        id="failed",
    ),
    pytest.param(
        {"isolation": record(("z", (CHAT,)), last=())}, "False", Reason.NOT_VERIFIED_YET, "nothing is reused", id="of others"
    ),
    pytest.param(
        {"isolation": record(("b", (CHAT,))), "flags": BYPASSED},
        "True",
        Reason.VERIFIED,
        f"keep tenants apart on {CHAT}",
        id="an incident that switched reuse off changes nothing of it",
    ),
    pytest.param(
        {"isolation": LEAK, "flags": BYPASSED},
        "False",
        Reason.LEAK,
        f"the probe found a leak at {CHAT} of p: found. That process serves nothing, and all reuse of the pool is off by the "
        "incident isolation-1; replace the engine, then set spec.sharing.resumeAfter to it",
        id="leak",
    ),
    pytest.param(
        {"isolation": IsolationStatus(leak="x")}, "False", Reason.LEAK, "its incident could not be declared yet", id="undeclared"
    ),
    pytest.param(
        {"isolation": record(("b", (CHAT,)), leak="x", incident="i")},
        "False",
        Reason.LEAK,
        "at x",
        id="one leaks, one does not",
    ),
    pytest.param(
        {"guards": [guard(says="0.31.0")]},
        "False",
        Reason.OTHER_VERSION,
        "nothing is reused: the engine says that it is 0.31.0, and 0.32.0 is declared",
        id="another version",
    ),
    pytest.param({"guards": []}, "Unknown", Reason.NO_READY_POD, "there is no engine process to probe", id="no guard"),
    pytest.param({"pods": [pod(ready=False)]}, "Unknown", Reason.NO_READY_POD, "no engine process", id="not ready"),
    pytest.param({"guards": [serving("p", "b", Life.LAPSED)]}, "Unknown", Reason.NO_READY_POD, "no engine", id="lapsed"),
]


@pytest.mark.parametrize(("seen", "status", "reason", "told"), CASES)
def test_a_shared_pool_says_what_was_shown(seen: dict[str, Any], status: str, reason: Reason, told: str) -> None:
    found = said(VERIFIED, **seen)
    assert (found.status, found.reason) == (status, reason)
    assert told in found.message


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"isolation": {"mode": "Disabled"}}, Reason.REUSE_OFF),
        ({"dedicatedTo": WHOSE}, Reason.ONE_CACHE_PER_POD),
    ],
)
def test_a_pool_that_shares_no_cache_is_true_whatever_was_shown(changes: Document, reason: Reason) -> None:
    for shown in (None, record(("b", (CHAT,)))):
        found = said(VERIFIED, changes, isolation=shown)
        assert (found.status, found.reason) == ("True", reason)
    assert said(VERIFIED).reason is Reason.NOT_VERIFIED_YET


def kinds(verdicts: list[Verdict]) -> list[ConditionType]:
    return [item.type for item in verdicts]


def test_of_a_pool_that_cannot_be_read_nothing_is_said() -> None:
    assert VERIFIED in kinds(pool_conditions(observed()))
    assert VERIFIED not in kinds(pool_conditions(observed(readable=False)))


def test_a_template_is_true_once_it_has_no_engines_that_share() -> None:
    found = [item for item in template_conditions(template(deployment=None), members()) if item.type is VERIFIED]
    assert found == [one_cache_per_pod()]
    assert VERIFIED not in kinds(template_conditions(template(deployment={"spec": {}}), members()))


def test_a_leak_degrades_the_pool_before_anything_that_follows_from_it() -> None:
    failing = pod(ready=False, containerStatuses=[{"name": "engine", "state": {"waiting": {"reason": "ImagePullBackOff"}}}])
    found = said(ConditionType.DEGRADED, pods=[failing], isolation=LEAK)
    assert (found.status, found.reason) == ("True", Reason.LEAK)
    assert "all reuse of the pool is off by the incident isolation-1" in found.message
    assert said(ConditionType.DEGRADED, pods=[failing], isolation=record()).reason is Reason.POD_FAILING


def test_every_reason_is_said_of_some_pool() -> None:
    said_here = {(case.values[1], case.values[2]) for case in CASES}
    others = {("True", Reason.REUSE_OFF), ("True", Reason.ONE_CACHE_PER_POD)}
    assert said_here | others == {(status, reason) for kind, status, reason in SAID if kind is VERIFIED}


def test_the_status_holds_what_gateways_and_the_next_operator_read() -> None:
    shown = record(("b", (CHAT,)), leak="x", incident="i")
    status = pool_status(observed(isolation=shown))["isolation"]
    assert IsolationStatus.model_validate(status) == shown
    assert status["proofs"] == [{"routes": [CHAT], "boots": ["b"]}]
    assert "isolation" not in pool_status(observed())


def test_a_spec_that_is_refused_takes_no_proof() -> None:
    before = pool_status(observed(isolation=record(("b", (CHAT,)))))
    after = pool_status(observed({"engine.version": "0.8.0"}, invalid="use another version", before=before))
    assert after["isolation"] == before["isolation"]
