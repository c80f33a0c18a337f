"""Every metric is on the page, and every alert is about a metric that there is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from cachescope.controller.fence_metrics import SLACK_MS, FenceMetrics, is_overdue
from cachescope.controller.metrics import Metrics
from cachescope.core.fences import Wanted
from cachescope.core.ledgers import Floor, Ledger, Lineage, Role
from cachescope.core.rosters import after_right_ms, right_ms, silent_ms
from cachescope.core.types import Epoch, TargetName
from cachescope.gateway.audit import Audit
from cachescope.gateway.health import Health
from cachescope.guard.metrics import exposition
from tests.unit.gateway_lease_bench import World as GatewayWorld
from tests.unit.guard_fakes import World as GuardWorld
from tests.unit.test_controller_fences import FIRST, LEASE, SECOND, World

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ((?:`\w+`(?:, )?)*) *\|", re.MULTILINE)
RULE = ROOT / "charts" / "cachescope" / "templates" / "prometheus-rule.yaml"
TARGET = TargetName("a" * 64)
ALERT = re.compile(r"alert: (\w+)\n\s+expr: (.*)$", re.MULTILINE)


def _page() -> str:
    return (ROOT / "docs" / "metrics.md").read_text("utf-8")


def _rows(section: str) -> set[tuple[str, str]]:
    text = _page().split(f"\n## {section}\n")[1].split("\n## ")[0]
    return {(name, kind) for name, kind, _ in ROW.findall(text)}


def _named(families: Iterable[Metric]) -> set[tuple[str, str]]:
    """Names as they are scraped, and types."""
    return {(f"{item.name}_total" if item.type == "counter" else item.name, item.type) for item in families}


def _operator(world: World) -> Metrics:
    metrics = Metrics()
    metrics.leads(dict, lambda: 0, FenceMetrics(world.fences, world.book))
    return metrics


def test_every_metric_of_the_guard_is_explained() -> None:
    world = GuardWorld()
    assert _named(text_string_to_metric_families(exposition(world.process, world.running.requests))) == _rows("Guard")


async def test_every_metric_of_the_gateway_is_explained(tmp_path: Path) -> None:
    world = GatewayWorld(tmp_path)
    await world.path.prove()
    registry = CollectorRegistry()
    Audit(registry)
    health: Collector = Health(world.standing, world.path.fleet, dict)
    registry.register(health)
    assert _named(registry.collect()) == _rows("Gateway")


def test_every_metric_of_the_operator_is_explained() -> None:
    assert _named(_operator(World()).registry.collect()) == _rows("Operator")


def test_every_alert_is_explained_and_about_a_metric_that_there_is() -> None:
    alerts = ALERT.findall(RULE.read_text("utf-8"))
    explained = re.findall(r"`(CacheScope\w+)`", _page().split("\n## Alerts\n")[1])
    assert [name for name, _ in alerts] != []
    assert sorted(name for name, _ in alerts) == sorted(explained)
    known = {name for section in ("Guard", "Gateway", "Operator") for name, _ in _rows(section)}
    asked = {metric for _, expression in alerts for metric in re.findall(r"cachescope_\w+", expression)}
    assert asked - known == set()


@pytest.mark.parametrize(
    "metric", ["operator_open_fences", "operator_unconfirmed_restores", "guard_right_seconds", "gateway_state"]
)
def test_what_nobody_may_oversleep_has_an_alert(metric: str) -> None:
    assert f"cachescope_{metric}" in RULE.read_text("utf-8")


def test_that_nobody_leads_is_told_also_where_no_operator_is_scraped() -> None:
    expressions = dict(ALERT.findall(RULE.read_text("utf-8")))
    assert 'absent(cachescope_operator_leading{namespace="{{ .Release.Namespace }}"})' in expressions["CacheScopeNobodyLeads"]


def _open(world: World, role: str = "Pool") -> tuple[float | None, ...]:
    registry = _operator(world).registry
    name = "cachescope_operator_open_fences"
    return tuple(registry.get_sample_value(name, {"role": role, "state": state}) for state in ("waiting", "overdue"))


async def test_a_fence_is_overdue_once_silence_alone_would_have_ended_it() -> None:
    world = World()
    world.saw("g", FIRST)
    assert _open(world) == (0, 0)
    world.write(SECOND)
    assert _open(world) == (1, 0)
    world.now += (right_ms(LEASE) + SLACK_MS) / 1000
    world.saw("g", FIRST)  # it renews, and does not acknowledge
    assert _open(world) == (1, 0)
    world.now += 0.01
    assert _open(world) == (0, 1)
    world.saw("g", SECOND)
    await world.fences.look()
    assert world.done(SECOND)
    assert _open(world) == (0, 0)


def test_what_was_missed_or_vanished_begins_the_wait_anew() -> None:
    world = World()
    world.saw("g", FIRST)
    world.write(SECOND)
    (fence,) = world.fences.waiting()
    bound = right_ms(LEASE) + SLACK_MS
    assert is_overdue(world.book.roster, fence.wanted, fence.wanted.written_ms + bound + 1)
    world.now += 2
    world.book.roster.vanished("g", world.book.now_ms())
    assert not is_overdue(world.book.roster, fence.wanted, fence.wanted.written_ms + bound + 2000)
    world.now += 1
    world.book.roster.settle(world.book.now_ms())
    assert not is_overdue(world.book.roster, fence.wanted, fence.wanted.written_ms + bound + 3000)
    assert is_overdue(world.book.roster, fence.wanted, fence.wanted.written_ms + bound + 3001)


@pytest.mark.parametrize("role", ["Pool", "Authorization"])
async def test_a_fence_is_not_overdue_while_answers_may_drain(role: str) -> None:
    world = World()
    world.saw("g", FIRST)
    drains = {TARGET: Floor(Epoch(2), drain_seconds=300)}
    if role == "Authorization":
        world.fences.stands("head", Ledger(Role.AUTHORIZATION, Lineage(1, "a"), 2, floors=drains))
        world.fences.want(Wanted("head", 2, world.version, world.book.now_ms(), namespace="ns"))
    else:
        world.write(replace(SECOND, floors=drains))
    world.now += (right_ms(LEASE) + SLACK_MS) / 1000 + 300
    world.saw("g", FIRST)
    assert _open(world, role) == (1, 0)
    world.now += 1 + right_ms(LEASE) / 1000
    world.saw("g", FIRST)
    assert _open(world, role) == (0, 1)


def test_a_revocation_may_take_as_long_as_those_who_expired_may_go_on() -> None:
    world = World()
    world.saw("g", FIRST)
    world.book.roster.allow(("ns", "pool"), LEASE, 2000)
    world.book.roster.allow_gateways(LEASE, 7000)
    world.fences.stands("head", Ledger(Role.AUTHORIZATION, Lineage(1, "a"), 2))
    wanted = Wanted("head", 2, world.version, world.book.now_ms(), namespace="ns")
    bound = max(right_ms(LEASE + 7000), right_ms(LEASE) + silent_ms(2000)) + after_right_ms(LEASE, 2000) + SLACK_MS
    assert not is_overdue(world.book.roster, wanted, world.book.now_ms() + bound)
    assert is_overdue(world.book.roster, wanted, world.book.now_ms() + bound + 1)


def test_namespaces_that_wait_for_a_confirmation_are_counted() -> None:
    world = World()
    name = "cachescope_operator_unconfirmed_restores"
    world.fences.stands("head", Ledger(Role.AUTHORIZATION, Lineage(1, "a"), 2))
    assert _operator(world).registry.get_sample_value(name) == 0
    world.fences.stands("head", Ledger(Role.AUTHORIZATION, Lineage(1, "a"), 3, restored=1))
    assert _operator(world).registry.get_sample_value(name) == 1
