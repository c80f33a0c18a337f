from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest

from cachescope.core.endpoints import Endpoint
from cachescope.core.errors import ClusterError
from cachescope.core.keys import Key, KeyRing
from cachescope.core.leases import GATEWAY, GUARD, LeaseStatement, lease_name, write_lease
from cachescope.core.statements import write_statement
from cachescope.core.types import Digest
from cachescope.gateway import fleet, guard_leases
from cachescope.gateway.challenges import ChallengeAnswer, PoolTrust
from cachescope.gateway.fleet import Fleet
from cachescope.gateway.guard_leases import GuardLeases
from cachescope.gateway.readings import LeaseText, Reading
from tests.unit.guard_fakes import until
from tests.unit.test_challenges import ENDPOINT, KEY, STATEMENT, TRUST

POOL = "models/tiny"
TRUSTS = {POOL: TRUST}
LEASE = LeaseStatement(GUARD, "pod-uid", "boot", 5000, 60_000, "0.1.0", pool_uid="pool-uid")
NAME = lease_name("pod-uid", "boot")


class Guards:
    """One endpoint whose guard and lease a test changes at will."""

    def __init__(self) -> None:
        self.ready = [ENDPOINT]
        self.now = 1_000_000
        self.tick = 1
        self.status = 401
        self.reachable = True
        self.asked = 0
        self.adapters: dict[str, Digest] = {}
        self.leases = {("models", NAME): Reading(LeaseText(write_lease(KEY, LEASE)))}
        self.fleet = Fleet(self, self, GuardLeases(lambda *key: self.leases.get(key)), clock=lambda: self.now)

    def endpoints(self, pool: str) -> Sequence[Endpoint]:
        return self.ready if pool == POOL else []

    async def challenge(self, address: str, nonce: str) -> ChallengeAnswer:
        self.asked += 1
        if not self.reachable:
            raise ClusterError(f"{address} did not answer; see its pod")
        return ChallengeAnswer(
            self.status, write_statement(KEY, replace(STATEMENT, nonce=nonce, tick=self.tick, adapters=self.adapters))
        )

    async def step(self, milliseconds: int = 0, ticks: int = 1) -> None:
        self.now += milliseconds
        self.tick += ticks
        self.fleet.step(TRUSTS)
        for task in self.fleet.under_way:
            await task

    def routable(self) -> bool:
        chosen = self.fleet.choose(POOL, TRUST, b"key") is not None
        assert chosen == (self.fleet.routable(TRUSTS) == {"pool-uid": ("pod-uid",)})
        return chosen


async def test_an_endpoint_is_routable_once_it_proved_itself() -> None:
    guards = Guards()
    assert not guards.routable()
    await guards.step()
    assert guards.routable()
    assert guards.fleet.states(POOL, TRUST) == {f"pod-uid {ENDPOINT.address}": "routable"}


def lease(key: Key = KEY, **changes: Any) -> Reading[LeaseText]:
    return Reading(LeaseText(write_lease(key, replace(LEASE, **changes))))


LEASES: dict[str, tuple[dict[tuple[str, str], Reading[LeaseText]], str]] = {
    "none": ({}, "holds no FenceLease"),
    "in another namespace": ({("other", NAME): lease()}, "holds no FenceLease"),
    "of an earlier process": ({("models", lease_name("pod-uid", "before")): lease(boot_id="before")}, "holds no FenceLease"),
    "of another process, under this name": ({("models", NAME): lease(boot_id="before")}, "another process's statement"),
    "of another pod, under this name": ({("models", NAME): lease(pod_uid="other")}, "another process's statement"),
    "signed by somebody else": ({("models", NAME): lease(Key("k1", b"x" * 32))}, "MAC"),
    "of another pool with the same key": ({("models", NAME): lease(pool_uid="other")}, "another pool"),
    "of a gateway": ({("models", NAME): lease(holder=GATEWAY)}, "not its own"),
    "that cannot be read": ({("models", NAME): Reading(None, "no statement")}, "no statement"),
}


@pytest.mark.parametrize(("leases", "said"), LEASES.values(), ids=LEASES.keys())
async def test_without_a_valid_lease_a_proof_is_not_enough(leases: dict[tuple[str, str], Reading[LeaseText]], said: str) -> None:
    guards = Guards()
    await guards.step()
    good, guards.leases = guards.leases, leases
    assert not guards.routable()
    assert said in str(guards.fleet.states(POOL, TRUST))
    guards.leases = good
    assert guards.routable()


ABSURD = {
    "a number without end": {"lease_ms": 10**400},
    "too deep to be read": '{"a":' * 20_000 + "1" + "}" * 20_000,
    "a list": [],
}


@pytest.mark.parametrize("payload", ABSURD.values(), ids=ABSURD.keys())
async def test_an_absurd_lease_is_a_fault_of_that_lease(payload: object) -> None:
    guards = Guards()
    await guards.step()
    whole = {**asdict(LEASE), **payload} if isinstance(payload, dict) else payload
    body = payload if isinstance(payload, str) else json.dumps(whole)
    guards.leases = {("models", NAME): Reading(LeaseText(signed(body)))}
    assert not guards.routable()
    assert "lease" in str(guards.fleet.states(POOL, TRUST))


async def test_what_nobody_thought_of_in_a_lease_is_a_fault_of_that_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OverflowError

    guards = Guards()
    await guards.step()
    assert guards.routable()
    monkeypatch.setattr(guard_leases, "read_lease", broken)
    guards.leases = {("models", NAME): lease()}
    assert not guards.routable()
    assert "OverflowError" in str(guards.fleet.states(POOL, TRUST))


async def test_what_nobody_thought_of_in_an_answer_is_a_fault_of_that_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RecursionError

    guards = Guards()
    await guards.step()
    monkeypatch.setattr(fleet, "proven", broken)
    await guards.step(15_000)
    assert not guards.routable()
    assert "RecursionError" in str(guards.fleet.states(POOL, TRUST))


def signed(body: str) -> str:
    """What a holder of the key could sign."""
    mac = KEY.mac("cachescope/signed", "lease", "v1", KEY.id, body.encode())
    return ".".join(
        ["v1", *(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (KEY.id.encode(), body.encode(), mac))]
    )


async def test_a_lease_is_verified_again_when_the_pools_keys_change() -> None:
    guards = Guards()
    await guards.step()
    assert guards.routable()
    rotated = replace(TRUST, keys=KeyRing.of(Key("k2", b"n" * 32)))
    assert guards.fleet.choose(POOL, rotated, b"key") is None


async def test_an_adapter_is_asked_only_of_an_engine_that_loaded_it() -> None:
    guards = Guards()
    guards.adapters = {"x": Digest("sha256:x")}
    await guards.step()
    for adapter, chosen in (("", True), ("x", True), ("y", False)):
        assert (guards.fleet.choose(POOL, TRUST, b"key", adapter) is not None) is chosen
    guards.adapters = {}
    await guards.step(15_000)
    assert guards.fleet.choose(POOL, TRUST, b"key", "x") is None, "the process that answers now has it no more"
    assert guards.routable(), "control"


async def test_a_guard_that_vanished_is_noticed_with_the_next_answer() -> None:
    guards = Guards()
    await guards.step()
    guards.status = 200
    await guards.step(15_000)
    assert not guards.routable()
    assert "without a guard's statement" in str(guards.fleet.states(POOL, TRUST))


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


async def test_endpoints_are_challenged_again_and_again_whatever_happens_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "PERIOD_SECONDS", 0)
    guards = Guards()
    faults: list[Exception] = [OverflowError(), KeyError()]

    def trusts() -> dict[str, PoolTrust]:
        if faults:
            raise faults.pop()
        return TRUSTS

    watching = asyncio.create_task(guards.fleet.watch(trusts))
    await until(guards.routable)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert (faults, guards.asked) == ([], 1)


def test_verdicts_on_leases_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_leases, "_REMEMBERED", 3)
    leases = {lease_name("pod-uid", f"boot-{number}"): lease(boot_id=f"boot-{number}") for number in range(10)}
    known = GuardLeases(lambda _, name: leases[name])
    assert [known.problem(ENDPOINT, TRUST, f"boot-{number}") for number in range(10)] == [None] * 10
    assert len(known._verdicts) <= 3
