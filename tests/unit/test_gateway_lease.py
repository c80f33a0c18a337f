"""The gateway's own lease: it says what is applied, is signed, and without its right nothing is decided."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cachescope.core.errors import ClusterError, SpecError, WireFormatError
from cachescope.core.labels import LEDGER_LABEL
from cachescope.core.leases import GATEWAY, lease_keys, read_lease, shard_key
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Floor, advanced, authorization_key, shard_name
from cachescope.core.policy_digest import policy_digest
from cachescope.core.types import Digest, Epoch
from cachescope.gateway import decision as decision_module
from cachescope.gateway import lease as lease_module
from cachescope.gateway.lease_store import RestLeases
from cachescope.gateway.standing import MAX_AGE_SECONDS
from cachescope.kube.rest import ApiError, ConflictError, Document
from cachescope.leases.ports import LeaseConflict, LeaseGone, LostAnswer, ServerBusy, Stored
from tests.unit.gateway_lease_bench import CHAT, PATH, World
from tests.unit.guard_fakes import until
from tests.unit.test_ledger_heads import shard_of
from tests.unit.whole_path import FIRST, FIRST_AUTHORIZATION, NAMESPACE, POOL, POOL_UID


@pytest.fixture
async def world(tmp_path: Path) -> World:
    found = World(tmp_path)
    await found.path.prove()
    return found


async def test_the_lease_says_what_is_applied_and_is_signed(world: World) -> None:
    await world.rounds.round()
    keys, lease = lease_keys(world.path.snapshot().keys.root), world.lease
    statement = read_lease(keys, lease.spec.statement, name=lease.name)
    assert (statement.holder, statement.pod_uid, statement.lease_ms) == (GATEWAY, "gateway-pod-uid", 60_000)
    assert statement.acknowledged == {POOL_UID: FIRST.mark, authorization_key(NAMESPACE): FIRST_AUTHORIZATION.mark}
    assert statement.witnesses.keys() == {authorization_key(NAMESPACE)}
    assert statement.witnesses[authorization_key(NAMESPACE)]["mac"]["key"] == "k1", "whole, with the operator's seal"
    assert (statement.fresh_ms, statement.released) == (600_000, False)
    assert statement.routable == {POOL_UID: ("pod-uid",)}
    assert lease.name.startswith("gateway-pod-uid.")
    assert (lease.spec.holder, lease.spec.pod, lease.spec.tick) == ("Gateway", "gateway-0", statement.tick)
    with pytest.raises(WireFormatError):
        read_lease(world.path.snapshot().permits[POOL_UID], lease.spec.statement, name=lease.name)


async def test_a_ledger_that_nobody_can_read_ends_no_round(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise OverflowError

    monkeypatch.setattr(lease_module, "read_ledger", broken)
    found = await world.holder.read_heads()
    assert ["OverflowError" in reading.fault for reading in found.heads.values()] == [True, True]


async def test_nothing_is_decided_before_the_first_right(world: World) -> None:
    assert await world.status() == (503, "gateway_not_ready")
    assert "no live right" in " ".join(world.standing.problems())
    await world.rounds.round()
    assert await world.status() == (200, "Salted")
    assert not list(world.standing.problems())


class TestWithoutARight:
    @pytest.mark.parametrize(
        ("now", "found", "state"),
        [
            (0, (200, "Salted"), "with_right"),
            (59_999, (200, "Salted"), "with_right"),
            (60_000, (200, "Fresh"), "fresh_only"),
            (659_999, (200, "Fresh"), "fresh_only"),
            (660_000, (503, "gateway_not_ready"), "stopped"),
        ],
    )
    async def test_it_goes_on_without_reuse_for_a_bounded_time(
        self, world: World, now: int, found: tuple[int, str], state: str
    ) -> None:
        await world.rounds.round()
        world.now = now
        world.path.clock_ms += 1
        assert (await world.status(), world.standing.state()) == (found, state)
        assert bool(list(world.standing.problems())) is (state == "stopped")
        await world.rounds.round()
        assert await world.status() == (200, "Salted"), "control: with the next right there is reuse again"

    async def test_nothing_is_decided_for_tenants_of_high_sensitivity(self, world: World) -> None:
        world.path.edit("Tenant", "blue", lambda tenant: tenant["spec"].update(sensitivity="High"))
        for name in ("red", "green", "violet"):
            world.path.cluster.tenants.remove("models", name)  # it is served where it is alone
        world.path.take_over()
        await world.rounds.round()
        assert await world.status() == (200, "Salted")
        world.now = 60_000
        assert await world.status() == (503, "gateway_not_ready")
        assert (await world.path.models(world.path.credentials.api_keys["blue-carol"])).status == 503  # type: ignore[attr-defined]
        world.path.edit("Tenant", "blue", lambda tenant: tenant["spec"].update(sensitivity="Standard"))
        assert await world.status() == (200, "Fresh"), "control: others go on"

    async def test_a_right_that_was_revoked_with_its_lease_is_followed_by_nothing(self, world: World) -> None:
        await world.rounds.round()
        world.right.revoke()
        assert await world.status() == (503, "gateway_not_ready")

    @pytest.mark.parametrize(("age", "status"), [(720.0, 200), (721.0, 503)])
    async def test_an_outage_makes_watches_older_and_stops_nothing_sooner(self, world: World, age: float, status: int) -> None:
        await world.rounds.round()
        world.now, world.ages["Tenant"] = 600_000, age
        assert (await world.status())[0] == status


async def test_a_right_that_ended_while_a_body_came_in_is_a_503(world: World) -> None:
    await world.rounds.round()
    assert world.path.gate.max_request_bytes == world.path.snapshot().settings.max_request_bytes
    world.right.revoke()
    assert world.path.gate.max_request_bytes > len(CHAT)


@pytest.mark.parametrize(
    ("age", "status"), [(0.0, 200), (30.0, 200), (MAX_AGE_SECONDS, 200), (MAX_AGE_SECONDS + 1, 503), (None, 503)]
)
async def test_a_watch_that_is_not_followed_ends_decisions_after_two_minutes(world: World, age: float | None, status: int) -> None:
    await world.rounds.round()
    world.ages["CacheScope"] = age
    assert (await world.status())[0] == status
    assert ("CacheScope" in " ".join(world.standing.problems())) is (status == 503)


async def test_a_round_takes_over_what_it_read_and_the_next_write_acknowledges_it(world: World) -> None:
    newer = advanced(FIRST, floors={world.path.pool_target(): Floor(Epoch(8))})
    world.path.cluster.write_ledger(NAMESPACE, POOL, newer)
    await world.rounds.round()
    assert world.path.snapshot().states[POOL_UID].pool == newer
    assert world.statement.acknowledged[POOL_UID] == FIRST.mark, "control: what was written before the read does not say it"
    assert world.holder.acknowledges_more()
    await world.rounds.acknowledge()
    assert world.statement.acknowledged[POOL_UID] == newer.mark
    assert not world.holder.acknowledges_more()


async def test_a_new_key_is_news_until_a_statement_is_signed_with_it(world: World) -> None:
    await world.rounds.round()
    assert not world.holder.signs_otherwise()
    (world.path.folder / "mounted/root-keys/k2").write_text("7f" * 32)
    world.path.refresh()
    assert world.holder.signs_otherwise()
    await world.rounds.acknowledge()
    assert not world.holder.signs_otherwise()


async def test_a_ledger_without_its_label_is_not_read(world: World) -> None:
    world.path.edit("EpochLedger", POOL, lambda ledger: ledger["metadata"]["labels"].pop(LEDGER_LABEL))
    await world.rounds.round()
    assert await world.status() == (503, "no_endpoint")


class TestShards:
    """A namespace whose shards are not at or above what its head announces issues nothing, and is not acknowledged."""

    def announce(self, world: World) -> str:
        """The operator announces a shard; only a test that puts it there lets it be found."""
        target = world.path.tenant_target("blue")
        self.shard = shard_of(target, Floor(Epoch(7)))
        name = shard_name(target)
        head = advanced(FIRST_AUTHORIZATION, shards={name: self.shard.mark})
        world.path.cluster.write_ledger(NAMESPACE, AUTHORIZATION_HEAD, head)
        return name

    async def test_without_the_shard_nothing_is_issued(self, world: World) -> None:
        name = self.announce(world)
        await world.rounds.round()
        await world.rounds.acknowledge()
        assert await world.status() == (503, "gateway_not_ready")
        assert name in world.path.configuration.faults()[f"EpochLedger {NAMESPACE}/{AUTHORIZATION_HEAD}"]
        assert world.statement.acknowledged.keys() == {POOL_UID}, "the pool's own ledger is another one"
        world.path.cluster.write_ledger(NAMESPACE, name, self.shard)
        await world.rounds.round()
        await world.rounds.acknowledge()
        assert await world.status() == (200, "Salted")
        assert world.statement.acknowledged.keys() == {POOL_UID, authorization_key(NAMESPACE)}

    async def test_a_shard_that_was_taken_back_is_told(self, world: World) -> None:
        name = self.announce(world)
        used = advanced(self.shard, base=Epoch(9))
        world.path.cluster.write_ledger(NAMESPACE, name, used)
        await world.rounds.round()
        again = advanced(self.shard, base=Epoch(8))
        world.path.cluster.write_ledger(NAMESPACE, name, again)
        head = advanced(world.path.snapshot().standings.authorizations[NAMESPACE].head, shards={name: again.mark})
        world.path.cluster.write_ledger(NAMESPACE, AUTHORIZATION_HEAD, head)
        await world.rounds.round()
        assert await world.status() == (503, "gateway_not_ready")
        await world.rounds.acknowledge()
        assert world.statement.acknowledged == {POOL_UID: FIRST.mark, shard_key(NAMESPACE, name): used.mark}

    async def test_a_shard_is_read_once(self, world: World) -> None:
        name = self.announce(world)
        world.path.cluster.write_ledger(NAMESPACE, name, self.shard)
        for _ in range(3):
            await world.rounds.round()
        assert [path.rpartition("/")[2] for path in world.api.read].count(name) == 1


class TestPolicy:
    """A gateway that read a digest of policy that it has not loaded issues nothing, and does not acknowledge that head."""

    def want(self, world: World, digest: str) -> None:
        world.path.cluster.write_ledger(
            NAMESPACE, AUTHORIZATION_HEAD, advanced(FIRST_AUTHORIZATION, policy={"Tenant": Digest(digest)})
        )

    async def test_a_digest_that_is_loaded_changes_nothing(self, world: World) -> None:
        self.want(world, digest_of(world))
        await world.rounds.round()
        await world.rounds.acknowledge()
        assert await world.status() == (200, "Salted")
        assert world.statement.acknowledged[authorization_key(NAMESPACE)].sequence == 2

    async def test_a_round_does_not_end_before_it_is_loaded(self, world: World) -> None:
        await world.rounds.round()
        self.want(world, "sha256:" + "0" * 64)
        round_ = asyncio.ensure_future(world.rounds.round())
        await asyncio.wait([round_], timeout=0.01)
        assert not round_.done()
        assert await world.status() == (503, "gateway_not_ready")
        world.now = 70_000
        assert (world.standing.state(), await world.status()) == ("stopped", (503, "gateway_not_ready")), "nor `Fresh`"
        assert "Tenant" in " ".join(world.standing.problems())
        assert not any(name.startswith("authorization/") for name in world.holder._acknowledged(world.path.snapshot()))
        loading = world.path.configuration.loading
        loading.listed(list(loading.unmet), world.path.cluster.tenants.version)
        assert not await round_, "it took longer than the lease"
        assert await world.rounds.round()
        assert await world.status() == (200, "Salted")

    async def test_a_request_waits_a_moment_for_policy_that_is_being_loaded(self, world: World) -> None:
        await world.rounds.round()
        world.path.gate = replace(world.path.gate, settled=world.standing.settled)
        self.want(world, "sha256:" + "0" * 64)
        world.path.configuration.take_hints()
        waiting = asyncio.ensure_future(world.status())
        await asyncio.sleep(0)
        assert not waiting.done()
        loading = world.path.configuration.loading
        loading.listed(list(loading.unmet), world.path.cluster.tenants.version)
        assert await asyncio.wait_for(waiting, 1) == (200, "Salted")

    async def test_a_change_that_is_not_compiled_is_not_loaded(self, world: World) -> None:
        await world.rounds.round()
        world.path.cluster.edit("Tenant", "blue", lambda it: it["spec"].update(suspended=True), namespace=NAMESPACE)
        self.want(world, digest_of(world))
        world.path.configuration.take_hints()
        assert await world.status() == (503, "gateway_not_ready")
        world.path.refresh()
        assert await world.status() == (403, "permission_denied")
        assert await world.status("red-alice") == (200, "Salted")


def digest_of(world: World) -> Digest:
    """What the operator computes of all tenants."""
    return policy_digest("Tenant", world.path.cluster.tenants.documents.values())


async def test_a_ledger_that_cannot_be_read_costs_no_right(world: World) -> None:
    broken = {"metadata": {"name": "other", "namespace": NAMESPACE, "labels": {LEDGER_LABEL: "head"}}, "spec": {"lineage": 1}}
    world.path.cluster.ledgers.put(broken)
    await world.rounds.round()
    assert await world.status() == (200, "Salted")
    assert f"EpochLedger {NAMESPACE}/other" in world.path.configuration.faults()


async def test_ledgers_that_cannot_be_listed_cost_the_right(world: World) -> None:
    async def refuse(path: str, **_: str) -> Document:
        raise ApiError(403, f"{path} is forbidden; check the Role")

    world.api.get = refuse  # type: ignore[method-assign]
    await world.rounds.round()
    assert await world.status() == (503, "gateway_not_ready")


async def test_a_lease_that_was_deleted_ends_the_right_and_goes_on_under_another_name(world: World) -> None:
    await world.rounds.round()
    name = world.holder.lease_name()
    world.api.leases.clear()
    await world.rounds.round()
    assert await world.status() == (503, "gateway_not_ready")
    await world.rounds.round()
    assert await world.status() == (200, "Salted")
    assert world.holder.lease_name() not in (name, "")
    assert world.lease.name == world.holder.lease_name()


async def test_without_a_configuration_there_is_nothing_to_say(world: World) -> None:
    world.path.configuration._snapshot = None
    with pytest.raises(SpecError, match="readyz"):
        world.holder.spec(1)
    await world.rounds.round()
    assert not world.api.leases


MEANINGS: list[tuple[ApiError, type[Exception]]] = [
    (ConflictError(409, "x"), LeaseConflict),
    (ApiError(0, "no answer"), LostAnswer),
    (ApiError(500, "x"), LostAnswer),
    (ApiError(504, "x"), LostAnswer),
    (ApiError(403, "x"), ApiError),
    (ApiError(422, "x"), ApiError),
    (ApiError(429, "x"), ServerBusy),
]


@pytest.mark.parametrize(("error", "meaning"), MEANINGS)
async def test_refusals_of_the_api_server_are_told_apart(world: World, error: ApiError, meaning: type[Exception]) -> None:
    store = RestLeases(world.api, NAMESPACE)
    for write in (store.create("a.b", {"tick": 1}), store.replace("a.b", {"tick": 1}, "1")):
        world.api.fail = error
        with pytest.raises(ClusterError) as raised:
            await write
        assert type(raised.value) is meaning


async def test_a_lease_is_stored_and_read_whole(world: World) -> None:
    store = RestLeases(world.api, NAMESPACE)
    assert await store.get("a.b") is None
    with pytest.raises(LeaseGone):
        await store.replace("a.b", {"tick": 1}, "1")
    made = await store.create("a.b", {"tick": 1})
    assert await store.replace("a.b", {"tick": 2}, made.resource_version) == await store.get("a.b") == Stored("2", 2)
    with pytest.raises(LeaseConflict):
        await store.replace("a.b", {"tick": 3}, made.resource_version)
    world.api.leases[f"{PATH}/a.b"]["metadata"]["deletionTimestamp"] = "now"
    found = await store.get("a.b")
    assert found is not None
    assert found.deleting


async def test_a_lease_that_cannot_be_read_is_not_one_that_is_gone(world: World) -> None:
    store = RestLeases(world.api, NAMESPACE)
    assert await store.get("a.b") is None
    world.api.fail = ApiError(500, "x")
    with pytest.raises(LostAnswer):
        await store.get("a.b")


@pytest.mark.parametrize("step", ["let_in", "understood"])
async def test_what_nobody_thought_of_in_a_request_is_a_503_and_no_log_quotes_it(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    await world.rounds.round()
    assert await world.status() == (200, "Salted")

    def broken(*_: object, **__: object) -> None:
        raise OverflowError(CHAT.decode())

    monkeypatch.setattr(decision_module, step, broken)
    assert await world.status() == (503, "gateway_not_ready")
    logged = str([vars(record) for record in caplog.records])
    assert "OverflowError" in logged
    assert CHAT.decode() not in logged


async def test_only_what_was_read_is_taken_over(world: World) -> None:
    await world.holder.apply(await world.holder.read_heads())
    with pytest.raises(TypeError, match="read_heads"):
        await world.holder.apply({})


async def test_an_answer_that_is_no_lease_is_a_lost_one(world: World) -> None:
    async def nonsense(*_: object, **__: str) -> Document:
        return {"kind": "Status"}

    world.api.create = nonsense  # type: ignore[method-assign, assignment]
    with pytest.raises(LostAnswer):
        await RestLeases(world.api, NAMESPACE).create("a.b", {"tick": 1})


async def test_a_gateway_that_ends_says_so(world: World) -> None:
    running = asyncio.ensure_future(world.rounds.run())
    await until(lambda: world.right.live(0))
    assert (world.statement.released, bool(world.statement.routable)) == (False, True)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (world.statement.released, bool(world.statement.routable)) == (True, False)
    assert await world.status() == (503, "gateway_not_ready")
