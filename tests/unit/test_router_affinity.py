"""Which replica serves a request follows from whom it separates, never from what it says: it tells nobody of another's prompt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from cachescope.core.caches import Caching
from cachescope.core.endpoints import Endpoint
from cachescope.gateway.audit import Audit
from cachescope.gateway.challenges import ChallengeAnswer
from cachescope.gateway.decision import Decision
from cachescope.gateway.exchange import Forward
from cachescope.gateway.fleet import Fleet
from cachescope.gateway.guard_leases import GuardLeases
from tests.unit.single_tenant_path import Pod, challenged
from tests.unit.whole_path import POOL, POOL_UID, PrefixCachingEngine, WholePath, prompt

TRIES, REPLICAS = 50, 8


class Replicas(WholePath):
    """A shared pool with several engines."""

    def __init__(self, folder: Path) -> None:
        self.pods: dict[str, Pod] = {}
        super().__init__(folder)
        (self.folder / "pods").mkdir()
        for number in range(REPLICAS):
            pod = Pod(self, POOL, number, pool_uid=POOL_UID, engine=PrefixCachingEngine(), caching=Caching.SALTED)
            self.pods[pod.address] = pod
        self.fleet = Fleet(self, self, GuardLeases(self.cluster.leases.get), clock=lambda: self.clock_ms)
        self.gate = Decision(self.in_force, self.fleet, Audit(CollectorRegistry()), lambda: self.seconds)

    def endpoints(self, pool: str) -> Sequence[Endpoint]:
        """Implements `EndpointSource`."""
        return [Endpoint(pool, pod.uid, pod.address) for pod in self.pods.values()]

    async def challenge(self, address: str, nonce: str) -> ChallengeAnswer:
        """Implements `Challenger`."""
        return await challenged(self.pods[address], nonce)

    async def chosen(self, key: str, text: str) -> str:
        """The replica that a request goes to, with nothing else under way."""
        body = json.dumps({"model": POOL, "messages": [{"role": "user", "content": text}]}).encode()
        forward = await self.decide(key, body)
        assert isinstance(forward, Forward), forward
        self.gate.finished(forward)
        return forward.endpoint


@pytest.fixture
async def world(tmp_path: Path) -> Replicas:
    made = Replicas(tmp_path)
    await made.prove()
    return made


async def test_what_is_said_chooses_no_replica(world: Replicas) -> None:
    keys = world.credentials.api_keys
    for who in keys.values():
        assert len({await world.chosen(who, prompt()) for _ in range(TRIES)}) == 1


async def test_whether_another_tenant_sent_a_prompt_shows_in_no_choice(world: Replicas) -> None:
    """Also where the other tenant's request is still under way there: it counts as load, whatever it says."""
    first, second = world.credentials.api_keys["blue-carol"], world.credentials.api_keys["red-alice"]
    usual = await world.chosen(second, prompt())
    for _ in range(TRIES):
        text = prompt()
        await world.chosen(first, text)
        assert await world.chosen(second, text) == usual


async def test_those_who_share_meet_on_one_replica_and_others_are_spread(world: Replicas) -> None:
    keys = world.credentials.api_keys
    text = prompt()
    chosen = {name: await world.chosen(key, text) for name, key in keys.items()}
    assert chosen["blue-carol"] == chosen["blue-dan"], "people of one tenant find each other's prefixes"
    many = {await world.chosen(world.credentials.token("south", f"p{number}", "violet"), text) for number in range(TRIES)}
    assert len(many) > REPLICAS // 2, "the control: the choice is none that is the same for all"
