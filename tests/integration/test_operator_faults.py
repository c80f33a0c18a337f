"""Rollbacks under faults: a real operator that is killed and paused, a real API server, and simulated guards that are cut off.

In each the epoch advances exactly once and `Fenced=True` comes, and at that moment no process holds a right on anything older.
`CACHESCOPE_FAULT_TIMES` repeats all of it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cachescope.core.ledgers import AUTHORIZATION_HEAD
from cachescope.core.rosters import right_ms
from cachescope.kube.rest import ApiError
from e2e.stack import kubectl
from e2e.stack.paths import KUBECONFIG
from tests.integration import namespaces
from tests.integration.breaking_operator import ForkedOperator, When
from tests.integration.fence_stage import FRESH_MS, LEASE_MS, POOL, Advance, Stage, asking, disconnected, staged
from tests.integration.following import running
from tests.integration.operator_process import resource, until
from tests.integration.simulated_guards import Home, SimulatedGateway, SimulatedGuard, alive

TIMES = int(os.environ.get("CACHESCOPE_FAULT_TIMES", "1"))
LANES = 3
MOST_WRITES = 40
GUARDS = 4

pytestmark = pytest.mark.parametrize("turn", range(TIMES))


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedOperator]:
    """An operator that leads, in a namespace of its own."""
    with namespaces.made("fence") as namespace:
        made = ForkedOperator(namespace, tmp_path_factory.mktemp("operator") / f"{namespace}.log")
        try:
            until(made.leads, why=made.log.read_text)
            yield made
        finally:
            made.stop(signal.SIGKILL)


@pytest.fixture(autouse=True)
async def _connections(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Where the API server is, and no connection that outlives a test."""
    monkeypatch.setenv("KUBECONFIG", str(KUBECONFIG))
    yield
    await disconnected()


@pytest.fixture
async def stage(operator: ForkedOperator) -> AsyncIterator[Stage]:
    async with asking(operator.namespace, operator.log.parent) as made:
        yield made


@pytest.fixture
async def home(stage: Stage) -> AsyncIterator[Home]:
    made = await stage.made()
    yield made
    await made.api.close()


@pytest.fixture
async def guards(stage: Stage, home: Home) -> AsyncIterator[list[SimulatedGuard]]:
    made = [SimulatedGuard(home) for _ in range(GUARDS)]
    async with alive(*made):
        await stage.roll_back("settled")  # once: an operator that has just begun waits, and that would hide what is tested
        await stage.fenced("settled")
        yield made


@pytest.fixture
def name(turn: int) -> str:
    return f"incident-{turn}-{secrets.token_hex(3)}"


async def test_a_rollback_is_fenced_by_acknowledgements(stage: Stage, guards: list[SimulatedGuard], name: str) -> None:
    async with Advance(stage):
        began = time.monotonic()
        await stage.roll_back(name)
        found = await stage.fenced(name, guards)
        print(f"\nfenced {found['seconds']:.3f} s after the write, {time.monotonic() - began:.3f} s after kubectl")  # noqa: T201
    assert (found["reason"], found["seconds"] < LEASE_MS / 1000) == ("Acknowledged", True)
    assert all(item.holds(found["sequence"]) and item.left_ms for item in guards), "and all of them go on"


async def test_a_guard_that_is_cut_off_is_waited_for_as_long_as_its_right_lasts(
    stage: Stage, guards: list[SimulatedGuard], name: str
) -> None:
    lost = guards[0]
    lost.switches.partitioned = True
    ends = _ends(lost, LEASE_MS)
    async with Advance(stage):
        await stage.roll_back(name)
        found = await stage.fenced(name, guards)
    assert time.time() > ends
    assert (found["reason"], found["guards"]["expired"]) == ("Expired", 1)
    assert found["seconds"] <= right_ms(LEASE_MS) / 1000 + 1.5
    assert (lost.left_ms, lost.holds(found["sequence"])) == (0, False)
    lost.switches.partitioned = False
    await stage.until(_holds(lost, found["sequence"]))


async def test_a_guard_that_cannot_close_is_counted_once_its_right_is_over(
    stage: Stage, guards: list[SimulatedGuard], name: str
) -> None:
    frozen = guards[0]
    frozen.switches.closes.clear()
    async with Advance(stage) as advance:
        await stage.roll_back(name)
        await advance.written()
        found = await stage.fenced(name, guards)
    assert (found["guards"]["expired"], frozen.left_ms, frozen.holds(found["sequence"])) == (1, 0, False)
    frozen.switches.closes.set()
    await stage.until(_holds(frozen, found["sequence"]))


async def test_a_lease_that_is_deleted_by_hand_proves_nothing(stage: Stage, guards: list[SimulatedGuard], name: str) -> None:
    lost = guards[0]
    lost.switches.partitioned = True
    async with Advance(stage) as advance:
        await stage.roll_back(name)
        await advance.written()
        deleted = time.time()
        await stage.delete("FenceLease", lost.lease)
        await stage.fenced(name, guards)
    assert time.time() - deleted >= right_ms(LEASE_MS) / 1000
    before = lost.lease
    lost.switches.partitioned = False
    await stage.until(_lives_anew(lost, before))


async def test_a_lease_that_is_shortened_in_the_spec_shortens_no_right(
    stage: Stage, home: Home, guards: list[SimulatedGuard], name: str
) -> None:
    await stage.shape(2 * LEASE_MS)
    long = SimulatedGuard(replace(home, lease_ms=2 * LEASE_MS))
    async with alive(long), Advance(stage) as advance:
        long.switches.partitioned = True
        ends = _ends(long, 2 * LEASE_MS)
        await stage.roll_back(name)
        await advance.written()
        await stage.shape(LEASE_MS)
        found = await stage.fenced(name, [*guards, long])
    assert time.time() > ends
    assert (found["guards"]["expired"], found["seconds"] > LEASE_MS / 1000) == (1, True)


async def test_what_is_declared_in_the_middle_of_a_fence_lowers_nothing(
    stage: Stage, guards: list[SimulatedGuard], name: str
) -> None:
    held = guards[0]
    held.switches.closes.clear()
    async with Advance(stage) as advance:
        await stage.roll_back(name)
        await advance.written()
        await stage.declare(name, floor=1)
        await stage.delete("CacheEpoch", name)
        await stage.declare(name, floor=1, incident={"id": name})
        held.switches.closes.set()
        found = await stage.fenced(name, guards)
    assert (found["epoch"], kubectl.condition(await stage.get("CacheEpoch", name), "Held")["status"]) == (advance.stands, "False")
    await stage.declare(name, floor=1)

    async def says_so() -> bool:
        return bool(kubectl.condition(await stage.get("CacheEpoch", name), "Held").get("reason") == "SpecBehindLedger")

    await stage.until(says_so)
    assert (await stage.status(name))["epoch"] == advance.stands


async def test_somebody_who_writes_the_ledger_all_the_time_delays_and_changes_nothing(
    stage: Stage, guards: list[SimulatedGuard], name: str
) -> None:
    async with Advance(stage), running(_edit_labels(stage)):
        await stage.roll_back(name)
        found = await stage.fenced(name, guards)
    assert found["guards"]["total"] >= GUARDS


async def test_lost_answers_of_lease_writes_lose_no_acknowledgement(stage: Stage, guards: list[SimulatedGuard], name: str) -> None:
    for item in guards:
        item.switches.losing = 3
    async with Advance(stage):
        await stage.roll_back(name)
        found = await stage.fenced(name, guards)
    assert found["guards"]["expired"] == 0


async def test_a_guard_that_is_stopped_longer_than_its_right_acts_on_nothing_older(
    stage: Stage, guards: list[SimulatedGuard], name: str
) -> None:
    stopped = guards[0]
    stopped.switches.running.clear()
    async with Advance(stage):
        await stage.roll_back(name)
        found = await stage.fenced(name, guards)
    assert (found["guards"]["expired"], stopped.left_ms) == (1, 0)
    stopped.switches.running.set()
    generation = stopped.heads.generation
    await stage.until(_holds(stopped, found["sequence"]))
    assert stopped.heads.generation > generation, "what it had in flight belongs to a right that is over"


async def test_a_revocation_waits_for_gateways_too_and_for_what_they_may_do_without_a_right(
    stage: Stage, home: Home, guards: list[SimulatedGuard], name: str
) -> None:
    lost, other = gateways = [SimulatedGateway(home) for _ in range(2)]
    await stage.apply(resource("Tenant", name, {"identities": {"apiKeys": [{"secretName": "keys"}]}}))
    async with alive(*gateways):
        lost.switches.partitioned = True
        ends = _ends(lost, LEASE_MS) + FRESH_MS / 1000
        target = {"kind": "Tenant", "name": name}
        await stage.apply(resource("CacheEpoch", name, {"target": target, "incident": {"id": name}, "deny": True}))
        found = await stage.fenced(name, [*guards, *gateways], people=True)
        assert time.time() > ends
        assert (found["gateways"]["total"] >= 2, found["gateways"]["expired"], found["guards"]["expired"]) == (True, 1, 0)
        head = await stage.ledger(AUTHORIZATION_HEAD)
        assert (other.holds_people(found["sequence"]), any(floor.denies for floor in head.floors.values())) == (True, True)


async def test_an_operator_that_is_killed_at_any_write_of_a_rollback_leaves_one_advance_and_a_true_fence(
    tmp_path: Path, turn: int
) -> None:
    steps: Iterator[Step] = iter(
        [Step(number, when, turn > 0) for number in range(1, MOST_WRITES) for when in _whens(number, turn)]
    )
    killed: list[Step] = []
    await asyncio.gather(*(_kill_at(folder, steps, killed) for folder in _folders(tmp_path)))
    assert len(killed) >= 4, "the fuse ends nothing"
    assert next(steps, None) is not None, f"a rollback takes {MOST_WRITES} writes; look for a loop"


async def test_an_old_leader_that_was_paused_and_goes_on_changes_nothing(tmp_path: Path, turn: int) -> None:
    async with _installed(tmp_path) as (stage, home, old):
        guards = [SimulatedGuard(home) for _ in range(2)]
        async with alive(*guards):
            old.send(signal.SIGSTOP)
            await stage.roll_back(f"first-{turn}")
            await stage.leave_election()
            new = ForkedOperator(stage.namespace, stage.log, "new")
            try:
                await new.led()
                await stage.fenced(f"first-{turn}", guards)
                async with Advance(stage):
                    old.send(signal.SIGCONT)
                    await stage.roll_back(f"second-{turn}")
                    await stage.fenced(f"second-{turn}", guards)
                await asyncio.to_thread(old.child.join, 30)
                assert old.child.exitcode not in (None, 0), "it lost the Lease, and is started anew"
                assert new.leads()
            finally:
                new.stop(signal.SIGKILL)
                old.stop(signal.SIGKILL)


@dataclass(frozen=True)
class Step:
    """A write of a rollback at which the operator is killed; Events count where somebody has the time."""

    number: int
    when: When
    events: bool


async def _kill_at(folder: Path, steps: Iterator[Step], killed: list[Step]) -> None:
    """Take the next step, in an installation of its own, until a rollback needs fewer writes."""
    async with _installed(folder) as (stage, home, first):
        guards, operator = [SimulatedGuard(home) for _ in range(2)], first
        async with alive(*guards):
            for step in steps:
                operator, blown = await _killed_at(stage, operator, guards, step)
                if not blown:
                    break
                killed.append(step)
        operator.stop(signal.SIGKILL)


async def _killed_at(
    stage: Stage, operator: ForkedOperator, guards: list[SimulatedGuard], step: Step
) -> tuple[ForkedOperator, bool]:
    """One rollback whose operator ends at a write; the operator that lives afterwards, and whether there was such a write."""
    name = f"killed-{step.number}-{step.when}-{secrets.token_hex(2)}"
    await _quiet(operator)
    async with Advance(stage):
        operator.arm(step.number, step.when, events=step.events)
        await stage.roll_back(name)

        async def over() -> bool:
            return operator.blown or (await stage.status(name))["fenced"] == "True"

        await stage.until(over)
        await _quiet(operator)
        operator.disarm()
        blown, sent = operator.blown, operator.sent
        if blown:
            await stage.leave_election()
            operator = ForkedOperator(stage.namespace, stage.log)
            await operator.led()
        await stage.fenced(name, guards)
    await stage.delete("CacheEpoch", name)  # each that is left is written again with each rollback: its target's epoch rose
    what = f"killed {step.when} write {step.number}: {sent[-1]}" if blown else f"lives: it takes {len(sent)} writes"
    print(f"\n{what}")  # noqa: T201 - the steps are for people
    return operator, blown


async def _quiet(operator: ForkedOperator) -> None:
    """Wait until it has nothing to do, or is dead; what is written after the fence is told belongs to a rollback too."""
    done, looks = -1.0, 0
    while looks < 3 and operator.child.is_alive():
        before, done = done, await asyncio.to_thread(operator.count, "cachescope_operator_reconciles_total")
        looks = looks + 1 if done == before else 0
        await asyncio.sleep(0.15)
    assert operator.child.is_alive() or operator.blown, operator.log.read_text()[-4000:]


def _folders(folder: Path) -> list[Path]:
    """One for each lane."""
    made = [folder / str(lane) for lane in range(LANES)]
    for item in made:
        item.mkdir()
    return made


def _whens(number: int, turn: int) -> tuple[When, ...]:
    """Before a write is after the one before it, but for what was done in between: that is left to repetitions."""
    return ("before", "after") if number == 1 or turn else ("after",)


@asynccontextmanager
async def _installed(folder: Path) -> AsyncIterator[tuple[Stage, Home, ForkedOperator]]:
    async with staged(folder) as stage:
        operator = ForkedOperator(stage.namespace, stage.log)
        try:
            await operator.led()
            home = await stage.made()
            yield stage, home, operator
            await home.api.close()
        finally:
            operator.stop(signal.SIGKILL)


async def _edit_labels(stage: Stage) -> None:
    for number in itertools.count():
        with suppress(ApiError):
            await stage.rest.merge(stage.path("EpochLedger", POOL), {"metadata": {"labels": {"storm": str(number)}}})
        await asyncio.sleep(0.005)


def _ends(process: SimulatedGuard | SimulatedGateway, lease_ms: int) -> float:
    """When a process that is cut off now has surely lost its right, on a clock of ours that begins where its own does."""
    return time.time() + (process.left_ms - lease_ms + right_ms(lease_ms)) / 1000


def _holds(guard: SimulatedGuard, sequence: int) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return guard.holds(sequence) and guard.left_ms > 0

    return holds


def _lives_anew(guard: SimulatedGuard, before: str) -> Callable[[], Awaitable[bool]]:
    async def anew() -> bool:
        return guard.lease != before and guard.left_ms > 0

    return anew
