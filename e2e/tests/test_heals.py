"""Whatever is killed, deleted or edited heals; nothing is lost, and no request passes meanwhile that should not.

Each fault stands beside a prober that asks without pause (e2e/stack/prober.py). The seconds that each took are printed (`-s`) and
kept in `heal-times.json` in the cache folder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest

from e2e.stack import client, kubectl, outage, prober
from e2e.stack.install import ENGINE_PODS, GATEWAY_PODS, OPERATOR_PODS, POOL, Stack, pool_is_ready
from e2e.stack.paths import CACHE
from e2e.stack.waiting import until

HEAL_SECONDS = 240
OUTAGE_SECONDS = 30
KEYS, ENGINE = f"{POOL}-permit-keys", f"{POOL}-engine"
CHILDREN = (
    ("deployment", POOL),
    ("service", POOL),
    ("networkpolicy", POOL),
    ("poddisruptionbudget", POOL),
    ("secret", KEYS),
    ("role", ENGINE),
    ("rolebinding", ENGINE),
    ("serviceaccount", ENGINE),
)
Manifest = dict[str, Any]
Edit = Callable[[Manifest], Manifest]
STRANGER = {"kind": "ServiceAccount", "name": "default", "namespace": kubectl.NAMESPACE}
POD = "/spec/template/spec/containers/0"
# Kind, name, what is done, and the JSON patch that does it, which may depend on the object.
EDITS: tuple[tuple[str, str, str, Edit], ...] = (
    ("deployment", POOL, "variable added", lambda _: _add(f"{POD}/env/-", {"name": "ADDED", "value": "1"})),
    ("deployment", POOL, "guard removed", lambda item: _put(f"{POD}/command", _without_guard(item))),
    ("deployment", POOL, "another image", lambda _: _put(f"{POD}/image", "localhost/no:image")),
    ("deployment", POOL, "one more replica", lambda _: _put("/spec/replicas", 2)),
    ("service", POOL, "another selector", lambda _: _add("/spec/selector/other", "yes")),
    ("networkpolicy", POOL, "open to all", lambda _: _add("/spec/ingress/-", {})),
    ("networkpolicy", POOL, "of other pods", lambda _: _add("/spec/podSelector/matchLabels/other", "yes")),
    ("poddisruptionbudget", POOL, "no disruption", lambda _: _put("/spec/maxUnavailable", 0)),
    ("secret", KEYS, "another key", lambda _: _add("/data/zzz", "MDAw" * 22)),
    ("role", ENGINE, "widened", lambda _: _add("/rules/-", {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]})),
    ("rolebinding", ENGINE, "another subject", lambda _: _add("/subjects/-", STRANGER)),
    ("serviceaccount", ENGINE, "owner dropped", lambda _: {"op": "remove", "path": "/metadata/ownerReferences"}),
)


@dataclass(frozen=True)
class Healing:
    """Does what breaks something, and waits until all is well again.

    Attributes:
        stack: The installation.
        times: Seconds until then, by fault, of all faults so far.
    """

    stack: Stack
    times: dict[str, float]

    def after(self, fault: str, act: Callable[[], object], healed: Callable[[], bool] = lambda: True) -> None:
        """Do it, wait, and hold what the prober saw against what it may see."""
        before, started = self._epoch(), time.monotonic()
        act()
        done = prober.now()
        until(lambda: healed() and _whole() and prober.served_since(done), f"healed: {fault}", HEAL_SECONDS)
        self.times[fault] = round(time.monotonic() - started, 1)
        nothing_passed()
        assert self._epoch() == before

    def _epoch(self) -> tuple[str, int]:
        return self.stack.ledger.lineage.id, self.stack.pool_epoch()


@pytest.fixture(scope="module")
def healing(stack: Stack) -> Iterator[Healing]:
    """The prober runs from the first fault to the last."""
    with prober.probing(stack):
        found = Healing(stack, {})
        yield found
    report(found.times)


@pytest.mark.parametrize(("kind", "name", "what", "edit"), EDITS, ids=[f"{kind}: {what}" for kind, _, what, _ in EDITS])
def test_an_edited_child_heals(healing: Healing, kind: str, name: str, what: str, edit: Edit) -> None:
    item = kubectl.get(kind, name)
    patch = json.dumps([edit(item)])
    healing.after(
        f"{kind} edited: {what}",
        lambda: kubectl.run("patch", kind, name, "--type=json", "-p", patch),
        lambda: essence(kind, name) == _essence(item),
    )


@pytest.mark.parametrize(("kind", "name"), CHILDREN, ids=[kind for kind, _ in CHILDREN])
def test_a_deleted_child_heals(healing: Healing, kind: str, name: str) -> None:
    before = essence(kind, name)
    healing.after(
        f"{kind} deleted", lambda: kubectl.run("delete", kind, name, "--wait=false"), lambda: essence(kind, name) == before
    )


def test_guards_renew_their_leases_after_all_that(healing: Healing) -> None:
    """Their ServiceAccount, their Role and its binding were taken away and came back: is it the right ones?"""
    ticks = _ticks()
    healing.after("guard's lease renewed", lambda: None, lambda: any(tick > ticks.get(name, -1) for name, tick in _ticks().items()))


def test_a_killed_guard_process_comes_back(healing: Healing) -> None:
    pod = kubectl.ready_pod(ENGINE_PODS)["metadata"]["name"]
    ticks = _ticks()
    healing.after(
        "guard process ended",
        lambda: kubectl.run("exec", pod, "-c", "engine", "--", "/bin/sh", "-c", "kill -TERM 1"),
        lambda: bool(set(_ticks()) - set(ticks)),
    )


def test_a_killed_engine_pod_comes_back(healing: Healing) -> None:
    healing.after("engine pod deleted", lambda: _kill(ENGINE_PODS))


def test_killed_gateways_come_back(healing: Healing) -> None:
    healing.after("all gateway pods deleted", lambda: _kill(GATEWAY_PODS))


def test_a_killed_operator_comes_back_and_heals_what_broke_meanwhile(healing: Healing) -> None:
    before = essence("networkpolicy", POOL)

    def act() -> None:
        _kill(OPERATOR_PODS)
        kubectl.run("delete", "networkpolicy", POOL)

    healing.after("operator pod deleted, then a child", act, lambda: essence("networkpolicy", POOL) == before)


@pytest.mark.skipif(not outage.possible(), reason="the cluster's API server is no process of this machine")
def test_an_outage_of_the_api_server_heals(healing: Healing) -> None:
    ticks = _ticks()
    healing.after(
        f"API server gone for {OUTAGE_SECONDS} s",
        lambda: outage.without_api_server(OUTAGE_SECONDS),
        lambda: any(tick > ticks.get(name, -1) for name, tick in _ticks().items()),
    )


def test_reuse_is_back_after_all_that(healing: Healing, who: dict[str, openai.OpenAI]) -> None:
    """A gateway or a guard that lost its right meanwhile answers, and lets nothing be reused until it has one."""
    healing.after("reuse is back", lambda: None, lambda: client.reuses(who["blue-carol"]))


def _whole() -> bool:
    """The pool is ready, and no engine pod is on its way out: a recreated ServiceAccount rolls them."""
    return pool_is_ready() and len(kubectl.pods(ENGINE_PODS)) == 1


def nothing_passed() -> None:
    """No answer that should not be, each beside the answers that show that somebody was there to give it."""
    found = prober.counts()
    assert found[prober.DIRECT][200] == 0
    assert found[prober.DIRECT][401] > 0
    assert found[prober.ANONYMOUS][200] == 0
    assert found[prober.ANONYMOUS][401] > 0
    assert found[prober.AUTHORISED][200] > 0


def report(times: dict[str, float]) -> None:
    """Print the table, and keep it."""
    (CACHE / "heal-times.json").write_text(json.dumps(times, indent=1) + "\n")
    for fault, seconds in times.items():
        print(f"{fault:55} {seconds:6.1f} s")  # noqa: T201 - the table is for whoever runs this


def essence(kind: str, name: str) -> Manifest:
    """What matters of an object: nothing that the API server or a controller counts; empty where there is none."""
    return _essence(kubectl.get(kind, name)) if kubectl.exists(kind, name) else {}


def _essence(item: Manifest) -> Manifest:
    meta = item["metadata"]
    rest = {key: value for key, value in item.items() if key not in {"metadata", "status"}}
    return {**rest, "labels": meta.get("labels"), "owners": meta.get("ownerReferences")}


def _ticks() -> dict[str, int]:
    leases = kubectl.get("fenceleases")["items"]
    return {item["metadata"]["name"]: item["spec"]["tick"] for item in leases if item["spec"].get("pool") == POOL}


def _kill(labels: str) -> None:
    kubectl.run("delete", "pod", "-l", labels, "--grace-period=1", "--wait=true")


def _without_guard(item: Manifest) -> list[str]:
    command: list[str] = item["spec"]["template"]["spec"]["containers"][0]["command"]
    position = command.index("--middleware")
    return command[:position] + command[position + 2 :]


def _add(path: str, value: object) -> Manifest:
    return {"op": "add", "path": path, "value": value}


def _put(path: str, value: object) -> Manifest:
    return {"op": "replace", "path": path, "value": value}
