"""The gateway's process on an API server in memory: what it waits for, follows, lists anew and tells, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

from cachescope.core.errors import SpecError
from cachescope.core.leases import LeaseStatement
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Floor, Ledger, Lineage, advanced, authorization_key, reborn
from cachescope.core.types import Epoch
from cachescope.gateway import fleet, main
from cachescope.gateway.identity.credentials import Forbidden
from cachescope.gateway.identity.jwks_sources import key_session
from cachescope.gateway.key_sets import ProviderKeySets
from cachescope.gateway.main import Options, run
from cachescope.kube import watched
from tests.unit.envoy_streams import head
from tests.unit.followed_api import FollowedApi
from tests.unit.followed_installation import AUTHORIZATION, POD_UID, POOL, TARGET, Installation, eventually
from tests.unit.guard_fakes import until

NAMESPACE = "models"
SECONDS = 30


@pytest.fixture
async def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    for module, name in (
        (main, "LEAST_PAUSE_SECONDS"),
        (main, "ROUTABLE_SECONDS"),
        (fleet, "PERIOD_SECONDS"),
        (watched, "RETRY_SECONDS"),
    ):
        monkeypatch.setattr(module, name, 0.01)
    found = Installation(FollowedApi(), NAMESPACE, tmp_path)
    await found.declare()
    return found


@pytest.fixture
async def live(installation: Installation) -> AsyncIterator[Installation]:
    async with key_session() as session:
        gateway = installation.start("Namespaced", ProviderKeySets(session, installation.rest))
        tasks = [asyncio.create_task(task) for task in gateway.tasks()]
        await until(lambda: gateway.standing.in_force() is not None)
        yield installation
        for task in tasks:
            task.cancel()
        assert {type(ended) for ended in await asyncio.gather(*tasks, return_exceptions=True)} == {asyncio.CancelledError}


async def test_it_decides_once_everything_is_loaded_and_its_lease_is_held(live: Installation) -> None:
    assert list(live.gateway.standing.problems()) == []
    assert live.gateway.configuration.faults() == {}
    assert (await live.who(live.key)).credential.subject == "ci"
    await acknowledged(live, POOL, AUTHORIZATION)


async def acknowledged(live: Installation, pool: Ledger, authorization: Ledger) -> None:
    marks = {live.pool_uid: pool.mark, authorization_key(NAMESPACE): authorization.mark}
    await eventually(live, lambda statement: statement.acknowledged == marks)


async def test_a_tenant_that_is_suspended_is_refused(live: Installation) -> None:
    await live.rest.merge(live.path("tenants", "red"), {"spec": {"suspended": True}})
    await live.becomes(live.key, Forbidden)


async def test_a_ledger_that_rises_is_acknowledged_without_waiting_for_the_next_round(live: Installation) -> None:
    risen = advanced(POOL, floors={TARGET: Floor(Epoch(2))})
    await live.write("tiny", risen)
    await acknowledged(live, risen, AUTHORIZATION)
    assert live.state().pool == risen


async def test_a_ledger_that_it_cannot_judge_by_itself_is_read_at_once(live: Installation) -> None:
    """A ledger of a new lineage is taken over by a round alone, and one comes without waiting for its turn."""
    later = reborn(POOL, Lineage(2, "66" * 16))
    await live.write("tiny", later)
    await until(lambda: live.pool in live.gateway.trusts() and live.state().pool.lineage == later.lineage)


async def test_policy_that_a_head_wants_and_a_stalled_watch_does_not_show_is_listed(live: Installation) -> None:
    api = live.rest
    assert isinstance(api, FollowedApi)
    api.stalled.add("tenants")
    await live.rest.merge(live.path("tenants", "red"), {"spec": {"suspended": True}})
    assert (await live.who(live.key)).credential.subject == "ci", "control: the watch says nothing"
    head = advanced(AUTHORIZATION, policy=await live.digests())
    await live.write(AUTHORIZATION_HEAD, head)
    await acknowledged(live, POOL, head)
    await live.becomes(live.key, Forbidden)


async def test_its_lease_says_whom_it_routes_to_as_soon_as_that_changes(live: Installation) -> None:
    assert live.routable() is None
    await live.guard_comes_up()
    await eventually(live, lambda statement: statement.routable.get(live.pool_uid) == (POD_UID,))
    assert live.routable() == (POD_UID,)


async def test_before_it_has_a_configuration_it_trusts_nobody_and_holds_no_lease(installation: Installation) -> None:
    async with key_session() as session:
        gateway = installation.start("Namespaced", ProviderKeySets(session, installation.rest))
        assert gateway.trusts() == {}
        gateway._ledgers_changed()
        assert await installation.statement() is None


def options(installation: Installation, **changes: str) -> Options:
    known = {"pod_name": "gateway-0", "pod_uid": "uid-of-gateway-0"}
    return Options(installation.folder, str(installation.folder / "s"), 0, NAMESPACE, "Namespaced", **{**known, **changes})


@pytest.mark.parametrize("missing", ["pod_name", "pod_uid"])
async def test_a_process_that_does_not_know_its_pod_does_not_start(installation: Installation, missing: str) -> None:
    with pytest.raises(SpecError, match=r"CACHESCOPE_POD_NAME and CACHESCOPE_POD_UID"):
        await run(options(installation, **{missing: ""}))


@pytest.fixture
def process(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> Installation:
    """The API server in memory in place of the cluster's; the interpreter is not changed for other tests."""
    monkeypatch.setattr(main, "Rest", lambda: installation.rest)
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    return installation


async def served(process: Installation) -> LeaseStatement | None:
    """Wait until a request without a credential is refused as such; the lease that the process holds then."""
    async with grpc.aio.insecure_channel(f"unix:{options(process).socket}") as channel, asyncio.timeout(SECONDS):
        ask: Any = channel.stream_stream(
            "/envoy.service.ext_proc.v3.ExternalProcessor/Process",
            request_serializer=ext_proc.ProcessingRequest.SerializeToString,
            response_deserializer=ext_proc.ProcessingResponse.FromString,
        )
        while await status(ask(wait_for_ready=True)) != 401:  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0.01)
    return await process.statement()


async def status(call: Any) -> int:
    await call.write(head("/v1/chat/completions"))
    reply = await call.read()
    await call.done_writing()
    return int(reply.immediate_response.status.code)


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
async def test_the_process_serves_until_a_signal_and_gives_its_lease_back(process: Installation, name: signal.Signals) -> None:
    running = asyncio.create_task(run(options(process)))
    before = await served(process)
    os.kill(os.getpid(), name)
    async with asyncio.timeout(SECONDS):
        await running
    after = await process.statement()
    assert (before is not None, after is not None) == (True, True)
    assert [said.released for said in (before, after) if said] == [False, True]
    assert isinstance(process.rest, FollowedApi)
    assert not process.rest.entered
    for changed in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().remove_signal_handler(changed)


async def test_a_part_that_fails_takes_the_process_down_and_its_lease_is_given_back(
    process: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks = asyncio.Event()

    async def keep_policy(_: main.Gateway) -> None:
        await breaks.wait()
        raise OverflowError

    monkeypatch.setattr(main.Gateway, "_keep_policy", keep_policy)
    running = asyncio.create_task(run(options(process)))
    before = await served(process)
    breaks.set()
    async with asyncio.timeout(SECONDS):
        with pytest.raises(OverflowError):
            await running
    after = await process.statement()
    assert [said.released for said in (before, after) if said] == [False, True]
    for changed in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().remove_signal_handler(changed)


async def test_a_part_that_ends_takes_the_process_down_and_one_that_runs_does_not() -> None:
    async def broken() -> None:
        raise OverflowError

    async def whole() -> None:
        await asyncio.Event().wait()

    stop = asyncio.Event()
    goes_on = asyncio.create_task(whole())
    with pytest.raises(OverflowError):
        await main._first(stop.wait(), [goes_on, asyncio.create_task(broken())])
    stop.set()
    await main._first(stop.wait(), [goes_on])
    assert not goes_on.done()
    goes_on.cancel()
