"""At stage `Observe` nothing is reused, and it is counted what would be: within a scope, and never across."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from cachescope.core.ledgers import Floor
from cachescope.core.types import Epoch
from cachescope.gateway import would_be_hits
from cachescope.gateway.audit import Audit
from cachescope.gateway.decision import Decision
from cachescope.gateway.exchange import Forward
from cachescope.gateway.would_be_hits import CHUNK_BYTES, MOST_CHUNKS, WouldBeHits
from tests.unit.whole_path import NAMESPACE, POOL, WholePath

TRIES = 50
TEXT = "what everybody asks, and nobody is told that somebody did. " * 40


class Observed(WholePath):
    """A path whose pool is observed."""

    def __init__(self, folder: Path, stage: str = "Observe") -> None:
        super().__init__(folder)
        self.registry = CollectorRegistry()
        self.hits = WouldBeHits(self.registry)
        audit = Audit(CollectorRegistry())
        self.gate = Decision(self.in_force, self.fleet, audit, lambda: self.seconds, observed=self.hits.count)
        self.edit("ServingPool", POOL, lambda item: item["spec"].update(sharing={"stage": stage}))
        keys = self.credentials.api_keys
        self.blue, self.dan, self.red = keys["blue-carol"], keys["blue-dan"], keys["red-alice"]

    async def share(self, key: str, text: str, **fields: Any) -> float:
        """How much of a request would have been reused, of what was looked at."""
        seen, found = self._sums()
        turns = [{"role": "user", "content": part} for part in text.split("|")]
        forward = await self.decide(key, json.dumps({"model": POOL, "messages": turns, **fields}).encode())
        assert isinstance(forward, Forward), forward
        await self.send(forward)
        now_seen, now_found = self._sums()
        return (now_found - found) / (now_seen - seen) if now_seen > seen else -1.0

    def _sums(self) -> tuple[float, float]:
        values = {"seen": 0.0, "found": 0.0}
        for family in self.registry.collect():
            for sample in family.samples:
                if sample.name.endswith("_total"):
                    values["found" if "reusable" in sample.name else "seen"] += sample.value
        return values["seen"], values["found"]


@pytest.fixture
async def world(tmp_path: Path) -> Observed:
    made = Observed(tmp_path)
    await made.prove()
    return made


async def test_a_prompt_would_be_found_by_those_who_may_share_it_and_is_not(world: Observed) -> None:
    assert await world.share(world.blue, TEXT) == 0
    assert await world.share(world.dan, TEXT) == 1
    assert await world.cached(world.blue, TEXT) == 0, "nothing is reused at this stage"


async def test_a_conversation_that_goes_on_would_find_what_it_began_with(world: Observed) -> None:
    assert await world.share(world.blue, f"1 {TEXT}") == 0
    assert 0.4 < await world.share(world.blue, f"1 {TEXT}|2 {TEXT}") < 0.6
    assert 0.6 < await world.share(world.blue, f"1 {TEXT}|2 {TEXT}|3 {TEXT}") < 0.7
    assert await world.share(world.blue, f"0 {TEXT}|1 {TEXT}") == 0, "what comes later is no prefix"


async def test_nothing_of_another_scope_counts(world: Observed) -> None:
    for number in range(TRIES):
        text = f"{number} {TEXT}"
        assert await world.share(world.blue, text) == 0
        assert await world.share(world.red, text) == 0, "another tenant's"
        assert await world.share(world.blue, text) == 1, "the control: its own"


@pytest.mark.parametrize("what", ["pool", "tenant", "tools"])
async def test_nothing_of_before_counts(world: Observed, what: str) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    assert await world.share(world.blue, TEXT) == 0
    assert await world.share(world.blue, TEXT) == 1
    if what == "pool":
        world.raise_pool_epoch(2)
    elif what == "tenant":
        world.advance_authorization({world.tenant_target("blue"): Floor(Epoch(2))})
    await world.prove()
    changed = {"tools": [tool]} if what == "tools" else {}
    assert await world.share(world.blue, TEXT, **changed) == 0
    assert await world.share(world.blue, TEXT, **changed) == 1


@pytest.mark.parametrize("stage", ["Tenant", "Public"])
async def test_other_stages_count_nothing(tmp_path: Path, stage: str) -> None:
    world = Observed(tmp_path, stage)
    await world.prove()
    assert {await world.share(world.blue, TEXT) for _ in range(3)} == {-1}


async def test_a_class_that_never_reuses_counts_nothing(world: Observed) -> None:
    scope = {"class": "Request", "pools": [POOL], "tenants": ["blue"]}
    world.cluster.apply({"kind": "CacheScope", "metadata": {"name": "blue"}, "spec": scope}, NAMESPACE)
    world.take_over()
    assert {await world.share(world.blue, TEXT) for _ in range(3)} == {-1}


async def test_what_is_kept_and_looked_at_is_bounded(world: Observed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(would_be_hits, "MOST_KEPT", 300)
    await world.share(world.blue, "x" * (2 * MOST_CHUNKS * CHUNK_BYTES))
    assert len(world.hits) == MOST_CHUNKS
    for number in range(TRIES):
        await world.share(world.blue, f"{number} {TEXT}")
    assert len(world.hits) == 300
    assert await world.share(world.blue, f"{TRIES - 1} {TEXT}") == 1, "the latest are kept"
    assert await world.share(world.blue, f"0 {TEXT}") == 0


async def test_metrics_name_pool_and_class_alone(world: Observed) -> None:
    await world.share(world.blue, TEXT)
    text = generate_latest(world.registry).decode()
    assert f'pool="{POOL}",pool_namespace="{NAMESPACE}",scope_class="Tenant"' in text
    assert "everybody" not in text
    assert "blue" not in text
