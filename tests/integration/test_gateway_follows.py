"""A gateway on a real API server: it takes over what is declared, holds its own lease, and tells whom it routes to."""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from cachescope.core.leases import lease_name
from cachescope.core.ledgers import (
    AUTHORIZATION_HEAD,
    Floor,
    Ledger,
    Lineage,
    Role,
    advanced,
    authorization_key,
    reborn,
    shard_name,
)
from cachescope.core.policy_digest import policy_digest
from cachescope.core.types import Epoch
from cachescope.gateway.health import Health
from cachescope.gateway.identity.credentials import Forbidden, Unauthenticated
from cachescope.gateway.identity.jwks_sources import key_session
from cachescope.gateway.key_sets import ProviderKeySets
from cachescope.gateway.main import STALE_SECONDS
from cachescope.kube.rest import Rest
from e2e.stack.credentials import new_key
from tests.integration import namespaces
from tests.integration.following import namespace, rest, running, until
from tests.unit.followed_installation import AUTHORIZATION, BOOT, POD_UID, POOL, TARGET, Installation, eventually

__all__ = ["namespace", "rest"]


@pytest.fixture
async def installation(rest: Rest, namespace: str, tmp_path: Path) -> Installation:
    found = Installation(rest, namespace, tmp_path)
    await found.declare()
    return found


@pytest.fixture(params=["Namespaced", "Cluster"])
async def live(request: pytest.FixtureRequest, installation: Installation) -> AsyncIterator[Installation]:
    async with key_session() as session, AsyncExitStack() as stack:
        gateway = installation.start(request.param, ProviderKeySets(session, installation.rest))
        for task in gateway.tasks():
            await stack.enter_async_context(running(task))
        await until(lambda: gateway.standing.in_force() is not None)
        yield installation


async def test_a_gateway_is_ready_once_everything_is_loaded_and_its_lease_is_held(live: Installation) -> None:
    ready, report = Health(live.gateway.standing, live.gateway.fleet, dict).report()
    assert ready, report
    assert report["problems"] == []
    assert all(age is not None for age in live.gateway.followed.ages().values())
    statement = await live.statement()
    assert statement is not None
    await acknowledged(live, POOL, AUTHORIZATION)
    assert (await live.who(live.key)).credential.subject == "ci"


async def test_what_changes_is_taken_over(live: Installation) -> None:
    tenant = live.path("tenants", "red")
    await live.rest.merge(tenant, {"spec": {"suspended": True}})
    await live.becomes(live.key, Forbidden)
    await live.rest.merge(tenant, {"spec": {"suspended": False}})
    await live.becomes(live.key, None)
    await live.rest.merge(live.path("secrets", "red", api="v1"), {"metadata": {"labels": {"cachescope.dev/api-keys": None}}})
    await live.becomes(live.key, Unauthenticated)
    await live.rest.merge(live.path("secrets", "red", api="v1"), {"metadata": {"labels": {"cachescope.dev/api-keys": "true"}}})
    await live.becomes(live.key, None)
    await live.rest.merge(f"{tenant}/status", {"status": {"accepted": []}})
    await live.becomes(live.key, Unauthenticated)


async def acknowledged(live: Installation, pool: Ledger, authorization: Ledger) -> None:
    """Wait until the gateway's lease acknowledges both; a cluster-wide gateway's names those of other tests too."""
    marks = {live.pool_uid: pool.mark, authorization_key(live.namespace): authorization.mark}
    await eventually(live, lambda said: marks.items() <= said.acknowledged.items())


async def test_a_ledger_that_rises_is_taken_over_and_acknowledged_before_the_next_round(live: Installation) -> None:
    """Twenty times, of which the half takes less than the second after which a round comes by itself."""
    pool, seconds = POOL, []
    for epoch in range(2, 22):
        pool = advanced(pool, floors={TARGET: Floor(Epoch(epoch))})
        started = time.monotonic()
        await live.write("tiny", pool)
        await acknowledged(live, pool, AUTHORIZATION)
        seconds.append(time.monotonic() - started)
        assert live.state().pool == pool
    print(f"write of a ledger to its acknowledgement: p50 {statistics.median(seconds):.3f} s, most {max(seconds):.3f} s")  # noqa: T201
    assert statistics.median(seconds) < 0.8, seconds


async def test_a_ledger_that_is_gone_leaves_its_pool_unroutable_and_a_fork_does(live: Installation) -> None:
    path = live.path("epochledgers", "tiny")
    await live.rest.delete(path)
    await until(lambda: live.pool not in live.gateway.trusts())
    await live.write("tiny", POOL)
    await until(lambda: live.pool in live.gateway.trusts())
    await live.rest.delete(path)
    await live.write("tiny", Ledger(Role.POOL, POOL.lineage, 1, base=Epoch(5)))
    await until(lambda: live.pool not in live.gateway.trusts())
    assert "does not follow" in str(live.gateway.configuration.faults())
    await live.rest.delete(path)
    later = reborn(POOL, Lineage(2, "66" * 16))
    await live.write("tiny", later)
    await until(lambda: live.pool in live.gateway.trusts())
    assert live.state().pool.lineage == later.lineage


async def test_a_shard_is_read_when_a_head_announces_it(live: Installation) -> None:
    shard = Ledger(Role.SHARD, Lineage(1, "77" * 16), 1, floors={TARGET: Floor(Epoch(6), denied=Epoch(6))})
    head = advanced(AUTHORIZATION, shards={shard_name(TARGET): shard.mark})
    await live.write(AUTHORIZATION_HEAD, head)
    await until(lambda: live.pool not in live.gateway.trusts())
    await live.write(shard_name(TARGET), shard)
    await until(lambda: live.pool in live.gateway.trusts())
    assert live.state().authorization.floor(TARGET).denies
    await acknowledged(live, POOL, head)


async def test_policy_that_a_head_wants_is_loaded_by_the_watch_or_by_a_list(live: Installation) -> None:
    uid = await live.tenant("blue", new_key())
    await until(lambda: uid in live.policy().tenants)
    head = advanced(AUTHORIZATION, policy=await live.digests())
    await live.write(AUTHORIZATION_HEAD, head)
    await acknowledged(live, POOL, head)
    # A state that this gateway's watch never passed through: only a list can say that it is older.
    odd = advanced(head, policy={**head.policy, "Tenant": policy_digest("Tenant", [{"metadata": {"uid": str(uuid.uuid4())}}])})
    started = time.monotonic()
    await live.write(AUTHORIZATION_HEAD, odd)
    await until(lambda: live.gateway.configuration.stale == ["Tenant"])
    assert live.gateway.standing.in_force() is None
    await acknowledged(live, POOL, odd)
    assert time.monotonic() - started >= STALE_SECONDS
    await until(lambda: live.gateway.standing.in_force() is not None)


async def test_a_guard_with_a_lease_is_routed_to_and_the_gateways_lease_says_so_at_once(live: Installation) -> None:
    assert live.routable() is None
    await live.guard_comes_up()
    await until(lambda: live.routable() == (POD_UID,))
    await eventually(live, lambda statement: statement.routable.get(live.pool_uid) == (POD_UID,))
    await live.rest.delete(live.path("fenceleases", lease_name(POD_UID, BOOT)))
    await until(lambda: live.routable() is None)
    await eventually(live, lambda statement: live.pool_uid not in statement.routable)


async def test_a_lease_that_somebody_deleted_is_made_anew_under_another_name(live: Installation) -> None:
    before = await live.statement()
    assert before is not None
    await live.rest.delete(live.path("fenceleases", lease_name(before.pod_uid, before.boot_id)))
    await eventually(live, lambda statement: statement.boot_id != before.boot_id)
    await until(lambda: live.gateway.standing.in_force() is not None)


async def test_an_api_server_that_answers_no_more_ends_reuse_then_all_and_its_return_brings_both_back(
    live: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert live.rest._api is not None
    states = []
    with monkeypatch.context() as patch:
        patch.setattr(live.rest._api.configuration, "_base_path", "https://127.0.0.1:1")
        assert live.gateway.standing.state() == "with_right", "an outage that is shorter than the lease stops nothing"
        for state in ("fresh_only", "stopped"):
            await until(lambda state=state: live.gateway.standing.state() == state)  # type: ignore[misc]
            states.append(live.gateway.standing.in_force() is not None)
    assert states == [True, False]
    await until(lambda: live.gateway.standing.state() == "with_right")
    assert (await live.who(live.key)).credential.subject == "ci"


async def test_a_gateway_that_ends_releases_its_lease(installation: Installation) -> None:
    async with key_session() as session:
        gateway = installation.start("Namespaced", ProviderKeySets(session, installation.rest))
        async with AsyncExitStack() as stack:
            for task in gateway.tasks():
                await stack.enter_async_context(running(task))
            await until(lambda: gateway.standing.in_force() is not None)
            before = await installation.statement()
        after = await installation.statement()
    assert before is not None
    assert after is not None
    assert (before.released, after.released) == (False, True)
    assert gateway.standing.in_force() is None


@pytest.fixture
def other_namespace() -> Iterator[str]:
    with namespaces.made("other") as name:
        yield name


async def test_another_namespace_is_admitted_by_its_labels_alone(live: Installation, other_namespace: str) -> None:
    key = new_key()
    uid = await live.tenant("visitor", key, other_namespace)
    allowed = {"namespaces": {"from": "Selector", "matchLabels": {"team": "visitor"}}}
    await live.rest.merge(live.path("servingpools", "tiny"), {"spec": {"allowedTenants": allowed}})
    if live.gateway.followed.stores.namespaces is None:
        await live.becomes(key, Unauthenticated)  # a gateway of one namespace knows no tenant of another
        return
    await live.becomes(key, None)
    assert not models(live, uid)
    await live.rest.merge(f"/api/v1/namespaces/{other_namespace}", {"metadata": {"labels": {"team": "visitor"}}})
    await until(lambda: models(live, uid) == ["tiny"])
    await live.rest.merge(f"/api/v1/namespaces/{other_namespace}", {"metadata": {"labels": {"team": None}}})
    await until(lambda: not models(live, uid))


def models(live: Installation, uid: str) -> list[str]:
    snapshot = live.gateway.configuration.current()
    assert snapshot is not None
    return list(snapshot.policy.models(uid))
