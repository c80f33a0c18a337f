"""A source is withdrawn while the gateway's watch stalls, on a real API server: the head tells it, or it issues nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from cachescope.core.digests import sha256
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Ledger, advanced, authorization_key
from cachescope.gateway.identity.jwks_sources import key_session
from cachescope.gateway.key_sets import ProviderKeySets
from cachescope.kube.rest import Rest
from cachescope.kube.watched import Name
from e2e.test_builds import stalled_watch
from tests.integration.following import SECONDS, namespace, rest, running, until
from tests.unit.followed_installation import AUTHORIZATION, Installation

__all__ = ["namespace", "rest"]

SOURCE = "terms"


@pytest.fixture
async def live(rest: Rest, namespace: str, tmp_path: Path) -> AsyncIterator[Installation]:
    """A gateway that has taken over a source which is not withdrawn."""
    found = Installation(rest, namespace, tmp_path)
    await found.declare()
    await found.create("PublicSource", "publicsources", SOURCE, {"digest": sha256(b"terms")})
    async with key_session() as session, AsyncExitStack() as stack:
        gateway = found.start("Namespaced", ProviderKeySets(session, rest))
        for task in gateway.tasks():
            await stack.enter_async_context(running(task))
        await until(lambda: gateway.standing.in_force() is not None)
        assert not withdrawn(found)
        yield found


def withdrawn(live: Installation) -> bool:
    """Whether the gateway knows that the source is withdrawn."""
    reading = live.gateway.followed.stores.sources.items()[Name(live.namespace, SOURCE)]
    assert reading.value is not None
    return reading.value.withdrawn


async def withdraw(live: Installation) -> Ledger:
    """Withdraw the source, and announce it as the operator does; returns the authorization head."""
    await live.rest.merge(live.path("publicsources", SOURCE), {"spec": {"withdrawn": True}})
    head = advanced(AUTHORIZATION, policy=await live.digests())
    await live.write(AUTHORIZATION_HEAD, head)
    return head


async def acknowledges(live: Installation, head: Ledger) -> bool:
    """Whether the gateway's lease acknowledges it."""
    statement = await live.statement()
    assert statement is not None
    return statement.acknowledged.get(authorization_key(live.namespace)) == head.mark


async def acknowledged(live: Installation, head: Ledger) -> None:
    """Wait until the gateway's lease acknowledges it."""
    async with asyncio.timeout(SECONDS):
        while not await acknowledges(live, head):  # noqa: ASYNC110 - the API server has no event of ours to wait for
            await asyncio.sleep(0.02)


async def test_what_a_silent_watch_does_not_show_is_listed_before_anything_is_acknowledged(
    live: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled_watch.silent(monkeypatch.setattr)
    head = await withdraw(live)
    await acknowledged(live, head)
    assert withdrawn(live)
    assert live.gateway.standing.in_force() is not None


async def test_who_cannot_know_what_was_withdrawn_issues_and_acknowledges_nothing(
    live: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled_watch.deaf(monkeypatch.setattr)
    head = await withdraw(live)
    await until(lambda: live.gateway.standing.in_force() is None)
    assert live.gateway.configuration.stale == ["PublicSource"]
    await until(lambda: not live.gateway.right.live(live.gateway.clock()))
    assert live.gateway.standing.in_force() is None, "not even `Fresh`"
    assert not await acknowledges(live, head)


async def test_the_control_who_believes_its_watch_acknowledges_what_it_does_not_have(
    live: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled_watch.believing(monkeypatch.setattr)
    head = await withdraw(live)
    await acknowledged(live, head)
    assert not withdrawn(live), "a leak"
    assert live.gateway.standing.in_force() is not None
