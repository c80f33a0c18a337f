"""Election on a real API server: the next takes over from a holder that died or went, and never while it leads."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from cachescope.kube.election import Election
from cachescope.kube.events import Recorder
from cachescope.kube.kinds import collection_of
from cachescope.kube.rest import Document, Rest
from e2e.stack import kubectl
from tests.integration.api_server import SECONDS, namespace, rest, until

__all__ = ["namespace", "rest"]
DURATION, RENEW, RETRY = 2.0, 1.2, 0.2


class Process:
    """A candidate, until it dies or releases."""

    def __init__(self, rest: Rest, namespace: str, name: str) -> None:
        self.election = Election(rest, namespace, "operator", name, duration=DURATION, renew=RENEW, retry=RETRY)
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        await self.election.won()
        await self.election.held()

    async def dies(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@pytest.fixture
async def two(rest: Rest, namespace: str) -> AsyncIterator[list[Process]]:
    found = [Process(rest, namespace, name) for name in ("a", "b")]
    yield found
    for process in found:
        await process.dies()


async def led(processes: list[Process]) -> Process:
    """The leader, once there is one; watched all the time that there are never two."""
    async with asyncio.timeout(SECONDS):
        while True:
            leaders = [process for process in processes if process.election.leading]
            assert len(leaders) <= 1
            if leaders:
                return leaders[0]
            await asyncio.sleep(0.005)


async def test_another_takes_over_from_a_holder_that_died_and_never_before(two: list[Process], rest: Rest, namespace: str) -> None:
    for number in range(3):
        leader = await led(two)
        await leader.dies()
        died = time.monotonic()
        others = [process for process in two if process is not leader]
        assert leader.election.leading, "it does not know that it is dead"
        successor = await led_after(two, leader)
        assert successor in others
        assert RENEW - RETRY < time.monotonic() - died < SECONDS
        two[two.index(leader)] = Process(rest, namespace, f"again-{number}")


async def led_after(processes: list[Process], dead: Process) -> Process:
    while True:
        leader = await led(processes)
        if leader is not dead:
            return leader
        await asyncio.sleep(0.005)


async def test_a_leader_keeps_leading(two: list[Process]) -> None:
    leader = await led(two)
    ends = time.monotonic() + 2 * DURATION
    while time.monotonic() < ends:
        assert await led(two) is leader
        assert leader.election.leading
        await asyncio.sleep(0.01)


async def test_who_releases_is_followed_at_once(two: list[Process]) -> None:
    leader = await led(two)
    await leader.dies()
    await leader.election.release()
    released = time.monotonic()
    assert await led(two) is not leader
    assert time.monotonic() - released < DURATION


async def test_who_loses_the_lease_ends(two: list[Process], namespace: str) -> None:
    leader = await led(two)
    stolen = '{"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 3600}}'
    await asyncio.to_thread(kubectl.run, "patch", "lease", "operator", "--type=merge", "-p", stolen, namespace=namespace)
    await asyncio.wait_for(leader.task, SECONDS)
    assert not leader.election.leading


async def test_events_of_an_object_are_one_event_that_kubectl_shows(rest: Rest, namespace: str) -> None:
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "pool", "namespace": namespace}}
    regarding = await rest.create(collection_of("ConfigMap", namespace), document)
    for _ in range(3):
        await Recorder(rest).post(regarding, type="Warning", reason="PodFailing", message="it fails", action="Observed")

    async def counted() -> bool:
        found: Document = await rest.get(collection_of("Event", namespace), fieldSelector="reason=PodFailing")
        return [item.get("series", {}).get("count") for item in found["items"]] == [3]

    await until(counted)
    assert "it fails" in await asyncio.to_thread(kubectl.run, "events", "--for=configmap/pool", namespace=namespace)
