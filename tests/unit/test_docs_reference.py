"""The reference says what the kinds are, and all that the operator says of them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Iterator
from typing import Any
from unittest.mock import patch

import pytest

from cachescope.api.conditions import SAID, ConditionType, Reason, State
from cachescope.api.statuses import IsolationProof, IsolationStatus, ProbedRoute
from cachescope.controller.lease_book import Life
from cachescope.controller.observed_pools import Elder, Fault
from cachescope.controller.pool_status import pool_conditions
from cachescope.controller.store import Key
from cachescope.controller.verdicts import Verdict
from cachescope.core import shard_room
from cachescope.core.pool_rules import MAX_INCIDENTS
from cachescope.core.rosters import right_ms
from tests.unit.bench_leases import LEASE_MS, LeasedProcess, begun, wait
from tests.unit.controller_bench import POOL, Bench, epoch, tenant
from tests.unit.make_reference import MARK, PAGE, generated
from tests.unit.observed import deployment, gateway, guard, observed, pod, revision
from tests.unit.observed_templates import of_template
from tests.unit.test_controller_public_sources import DIGEST, resource

Said = tuple[ConditionType, State, Reason]
JWT = {"provider": "corp", "audience": "llm", "claims": {"team": "sales"}}
SCOPE = {
    "apiVersion": "cachescope.dev/v1alpha1",
    "kind": "CacheScope",
    "metadata": {"name": "s", "namespace": "ns", "uid": "scope-uid", "generation": 0},
    "spec": {"pools": ["nobody"], "tenants": ["nobody"]},
}
PUBLIC = resource("CacheScope", "p", **{"class": "Public"}, pools=["tiny"], tenants=["t0"])
APPROVAL = {"by": "legal", "at": "1970-01-01T00:00:00Z", "expires": "1970-01-02T00:00:00Z"}
ENDED = {**APPROVAL, "expires": "1970-01-01T00:01:00Z"}


def test_the_fields_are_those_of_the_crds() -> None:
    assert MARK + PAGE.read_text("utf-8").split(MARK)[1] == generated(), "run `python -m tests.unit.make_reference`"


def test_the_table_of_reasons_is_what_the_code_can_say() -> None:
    text = PAGE.read_text("utf-8").split("## Conditions\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) `(\w+)` \| [^|]+ \| [^|]+ \|$", text, re.MULTILINE)
    assert len(rows) == text.count("\n| `"), "a row is a condition, its status and reason, what it means, and what to do"
    assert sorted(rows) == sorted((kind.value, state, reason.value) for kind, state, reason in SAID)


def test_what_the_table_lacks_cannot_be_said() -> None:
    assert {reason for _, _, reason in SAID} == set(Reason)
    with pytest.raises(RuntimeError, match="reference"):
        Verdict(ConditionType.READY, "True", Reason.NO_READY_POD)


async def test_all_that_the_table_has_comes_about() -> None:
    pools = {(item.type, item.status, item.reason) for item in _of_pools()}
    assert pools | {item async for item in _of_others()} == SAID


def _of_pools() -> Iterator[Verdict]:
    faults = [Fault(reason, "f") for reason in (Reason.NAME_TAKEN, Reason.LEDGER_UNUSABLE, Reason.ROOT_KEYS_MISSING)]
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1: Insufficient nvidia.com/gpu"}
    waiting = [pod(), pod("q", ready=False, conditions=[unplaced])]
    failing = [pod(ready=False, containerStatuses=[{"name": "engine", "state": {"waiting": {"reason": "ErrImagePull"}}}])]
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    yield from pool_conditions(observed({"gpus": {"count": 1}}, pods=waiting, deployment=deployment(replicas=2)))
    cases: tuple[dict[str, Any], ...] = (
        {},
        {"gateways": []},
        {"gateways": [gateway()]},
        {"gateways": [gateway()], "guards": [guard(life=Life.LAPSED)]},
        {"gateways": [gateway()], "minimum_guard": "9"},
        {"pods": waiting},
        {"pods": failing},
        {"pods": [], "deployment": deployment(0)},
        {"pods": [], "deployment": None, "fault": Fault(Reason.CLUSTER_ERROR, "f")},
        {"deployment": deployment(conditions=[late])},
        {"invalid": "f"},
        {"elder": Elder("other")},
        {"revision": revision("0.0.1")},
        {"guards": [guard(version="0.0.1")]},
        *({"fault": fault, "gateways": []} for fault in faults),
    )
    for seen in (*cases, *_isolation()):
        yield from pool_conditions(observed(**seen))
    yield from pool_conditions(observed({"isolation": {"mode": "Disabled"}}))
    yield from of_template()
    yield from of_template("red", unserved=["blue"])
    others = {"namespaces": {"from": "Selector", "matchLabels": {"a": "b"}}}
    yield from of_template("red", changes={"allowedTenants": others})


def _isolation() -> Iterator[dict[str, Any]]:
    """Pools of which the probe has shown different things."""
    shown = IsolationProof(routes=("/v1/chat/completions",), boots=("b",))
    last = (ProbedRoute(route="/v1/embeddings", found="NoEvidence"),)
    yield {"isolation": IsolationStatus(proofs=(shown,))}
    yield {"isolation": IsolationStatus(proofs=(shown,)), "guards": [guard(), guard("q", boot="c")], "pods": [pod(), pod("q")]}
    yield {"isolation": IsolationStatus(last=last)}
    yield {"isolation": IsolationStatus(fault="f")}
    yield {"isolation": IsolationStatus(leak="l", incident="i")}
    yield {"guards": [guard(says="0.1.0")]}


async def _of_others() -> AsyncIterator[Said]:
    bench = Bench()
    await bench.start()
    bench.declare(POOL)
    labelled = {"metadata": {"name": "keys", "namespace": "ns"}}
    bench.api._store("/api/v1/namespaces/ns/secrets/keys", labelled)
    tenants: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
        ({"jwt": [JWT]}, {}),
        ({"jwt": [JWT]}, {}),
        ({"jwt": [{**JWT, "provider": "nobody"}]}, {}),
        ({"serviceAccounts": [{"name": "app", "namespace": "other"}]}, {}),
        ({"apiKeys": [{"secretName": "none"}]}, {}),
        ({"apiKeys": [{"secretName": "keys"}]}, {}),
        ({}, {"suspended": True}),
        ({}, {"suspended": "perhaps"}),
    )
    for number, (identities, spec) in enumerate(tenants):
        bench.declare(tenant(f"t{number}", **identities), **spec)
        await bench.tenants.reconcile(Key("Tenant", "ns", f"t{number}"), 0)
    bench.declare(epoch("d", target={"kind": "Tenant", "name": "denied"}, incident={"id": "d"}, deny=True))
    bench.declare(tenant("denied"))
    await bench.tenants.reconcile(Key("Tenant", "ns", "denied"), 0)
    bench.declare(SCOPE)
    await bench.scopes.reconcile(Key("CacheScope", "ns", "s"), 0)
    bench.declare(PUBLIC)
    await bench.scopes.reconcile(Key("CacheScope", "ns", "p"), 0)
    sources: tuple[dict[str, Any], ...] = ({}, {"approval": APPROVAL}, {"approval": ENDED}, {"withdrawn": True}, {"digest": ""})
    for number, spec in enumerate(sources):
        bench.declare(resource("PublicSource", f"s{number}", digest=DIGEST), **spec)
        await bench.sources.reconcile(Key("PublicSource", "ns", f"s{number}"), 0)
    for floor in (7, 3, 9000):
        bench.declare(epoch("e", floor=floor))
        await bench.pass_over()
        for item in _conditions(bench):
            yield item
    for item in await _of_fences():
        yield item


async def _of_fences() -> Collection[Said]:
    bench = await begun(tenant("red"))
    guard, away = LeasedProcess(bench), LeasedProcess(bench, name="h")
    found = await _rolled(bench, "all-known", guard, away) | await _rolled(bench, "one-missing", guard)
    wait(bench, right_ms(LEASE_MS) + 1)
    found |= await _rolled(bench, "long-ago", guard)
    bench.book.roster.settle(bench.book.now_ms())
    found |= await _rolled(bench, "settling", guard, away)
    red = {"kind": "Tenant", "name": "red"}
    bench.declare(epoch("late", target=red, incident={"id": "late"}, credentialsIssuedBefore="2999-01-01T00:00:00Z"))
    await bench.authorize()
    found |= set(_conditions(bench))
    with patch.object(shard_room, "MAX_INCIDENTS", 0):
        bench.declare(epoch("p", target=red, incident={"id": "no-room"}))
        await bench.authorize()
    found |= set(_conditions(bench))
    bench.declare(epoch("r", target={"kind": "Namespace"}, incident={"id": "backup"}, restored={"confirmed": False}))
    for _ in range(2):
        await bench.authorize()
    for number in range(MAX_INCIDENTS):
        bench.declare(epoch(f"i{number}", incident={"id": f"i{number}"}))
    return found | set(_conditions(bench)) | await _rolled(bench, "too-many")


async def _rolled(bench: Bench, name: str, *heard: LeasedProcess) -> set[Said]:
    bench.declare(epoch(name, incident={"id": name}))
    await bench.pass_over()
    for process in heard:
        process.acknowledge()
    await bench.tell()
    return set(_conditions(bench))


def _conditions(bench: Bench) -> Iterator[Said]:
    for document in bench.api.objects.values():
        for item in (document.get("status") or {}).get("conditions") or ():
            if document["kind"] != "ServingPool":
                yield ConditionType(item["type"]), item["status"], Reason(item["reason"])
