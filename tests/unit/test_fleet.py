from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cachescope.core.endpoints import Endpoint
from cachescope.core.errors import ClusterError
from cachescope.core.statements import write_statement
from cachescope.gateway.challenges import ChallengeAnswer
from cachescope.gateway.fleet import Fleet
from tests.unit.test_challenges import ENDPOINT, KEY, STATEMENT, TRUST

TRUSTS = {"tiny": TRUST}


class Guards:
    """One endpoint whose guard a test changes at will."""

    def __init__(self) -> None:
        self.ready = [ENDPOINT]
        self.now = 1_000_000
        self.tick = 1
        self.status = 401
        self.reachable = True
        self.asked = 0
        self.fleet = Fleet(self, self, lambda: self.now)

    def endpoints(self, pool: str) -> Sequence[Endpoint]:
        return self.ready if pool == "tiny" else []

    async def challenge(self, address: str, nonce: str) -> ChallengeAnswer:
        self.asked += 1
        if not self.reachable:
            raise ClusterError(f"{address} did not answer; see its pod")
        return ChallengeAnswer(self.status, write_statement(KEY, replace(STATEMENT, nonce=nonce, tick=self.tick)))

    async def step(self, milliseconds: int = 0, ticks: int = 1) -> None:
        self.now += milliseconds
        self.tick += ticks
        self.fleet.step(TRUSTS)
        for task in self.fleet.under_way:
            await task

    def routable(self) -> bool:
        return self.fleet.choose("tiny", TRUST, b"key") is not None


async def test_an_endpoint_is_routable_once_it_proved_itself() -> None:
    guards = Guards()
    assert not guards.routable()
    await guards.step()
    assert guards.routable()
    assert guards.fleet.states("tiny", TRUST) == {f"pod-uid {ENDPOINT.address}": "routable"}


async def test_a_guard_that_vanished_is_noticed_with_the_next_answer() -> None:
    guards = Guards()
    await guards.step()
    guards.status = 200
    await guards.step(15_000)
    assert not guards.routable()
    assert "without a guard's statement" in str(guards.fleet.states("tiny", TRUST))


async def test_a_lost_answer_keeps_the_proof_until_it_is_too_old() -> None:
    guards = Guards()
    await guards.step()
    guards.reachable = False
    await guards.step(15_000)
    assert guards.routable()
    await guards.step(15_001)
    assert not guards.routable()
    guards.reachable = True
    await guards.step(500)
    assert guards.routable()


async def test_a_tick_that_stands_still_ends_routing() -> None:
    guards = Guards()
    await guards.step()
    for _ in range(3):
        await guards.step(15_000, ticks=0)
    assert not guards.routable()


async def test_an_endpoint_that_left_proves_itself_again() -> None:
    guards = Guards()
    await guards.step()
    guards.ready = []
    await guards.step(100)
    guards.ready = [ENDPOINT]
    assert not guards.routable()
    await guards.step(100)
    assert guards.routable()
    assert guards.asked == 2


async def test_what_is_in_flight_is_counted_until_it_ends() -> None:
    guards = Guards()
    other = replace(ENDPOINT, pod_uid="other-uid", address="10.0.0.2:8000")
    await guards.step()
    guards.fleet.started(ENDPOINT.address)
    guards.fleet.ended(ENDPOINT.address)
    guards.fleet.ended(other.address)
    assert guards.routable()


async def test_a_proof_is_worth_nothing_for_another_address_of_the_same_pod() -> None:
    guards = Guards()
    await guards.step()
    guards.ready = [replace(ENDPOINT, address="10.6.6.6:80")]
    assert not guards.routable()
