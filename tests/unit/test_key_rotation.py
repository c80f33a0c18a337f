"""Rotations of the root keys, as the operator makes them: nobody is asked what he cannot know, and no ledger needs an old key."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest

from cachescope.core.keys import KeyRing
from cachescope.core.labels import ROOT_KEYS_SECRET
from cachescope.core.ledgers import AUTHORIZATION_HEAD, Ledger
from cachescope.kube.kinds import collection_of
from tests.unit.bench_leases import LeasedProcess, begun, gateway, ledger
from tests.unit.controller_bench import Bench, epoch, tenant

NEW = "k2999"
KEYS = f"{collection_of('Secret', 'cachescope-system')}/{ROOT_KEYS_SECRET}"
DENIAL = epoch("e", target={"kind": "Tenant", "name": "red"}, incident={"id": "leak-1"}, deny=True)


@pytest.fixture
async def bench() -> Bench:
    found = await begun(tenant("red"), DENIAL)
    await settle(found)
    return found


async def settle(bench: Bench) -> None:
    """Passes over everything, until nothing is left to do."""
    for _ in range(3):
        await bench.pass_over()
        await bench.authorize()


async def take_over(bench: Bench, **changes: bytes | None) -> None:
    """Somebody writes the Secret with the root keys, and the operator reads it."""
    data = bench.api.objects[KEYS]["data"]
    for name, secret in changes.items():
        data.pop(name, None)
        data |= {name: base64.b64encode(secret.hex().encode()).decode()} if secret else {}
    assert await bench.keys.refresh(datetime(2027, 1, 1, tzinfo=UTC))
    bench.book.verify_again()


async def rotate(bench: Bench) -> KeyRing:
    """A new key comes; the keys of before."""
    before = bench.keys.ring
    await take_over(bench, **{NEW: b"n" * 32})
    return before


def handed_out(bench: Bench) -> set[str]:
    return set(bench.found("Secret", "tiny-permit-keys")["data"])


def ledgers(bench: Bench) -> dict[str, Ledger]:
    return {name: ledger(bench, name) for name in bench.names("EpochLedger")}


def sealing_keys(bench: Bench) -> set[str]:
    return {bench.found("EpochLedger", name)["spec"]["mac"]["key"] for name in bench.names("EpochLedger")}


async def test_guards_get_a_new_key_once_every_gateway_signs_with_it(bench: Bench) -> None:
    first, second = gateway(bench, "w1"), gateway(bench, "w2")
    first.root = second.root = old = await rotate(bench)
    for process in (first, second):
        process.write()
    await settle(bench)
    assert handed_out(bench) == {old.current.id}
    first.root = None
    first.write()
    await settle(bench)
    assert handed_out(bench) == {old.current.id}, "one of them would not know what a guard signs with it"
    second.root = None
    second.write()
    await settle(bench)
    assert handed_out(bench) == {old.current.id, NEW}


async def test_a_gateway_that_comes_with_an_older_key_takes_none_back(bench: Bench) -> None:
    old = await rotate(bench)
    await settle(bench)
    assert handed_out(bench) == {old.current.id, NEW}, "without gateways nobody has to be waited for"
    late = gateway(bench)
    late.root = old
    late.write()
    await settle(bench)
    assert handed_out(bench) == {old.current.id, NEW}


@pytest.mark.parametrize("cleanly", [False, True])
async def test_a_gateway_that_is_gone_is_not_waited_for(bench: Bench, cleanly: bool) -> None:
    gone = gateway(bench)
    gone.root = old = await rotate(bench)
    gone.write()
    await settle(bench)
    assert handed_out(bench) == {old.current.id}
    if cleanly:
        gone.write(released=True)
    else:
        bench.now += 60
        bench.book.judge()
    await settle(bench)
    assert handed_out(bench) == {old.current.id, NEW}


async def test_every_ledger_is_sealed_with_a_new_key_once_and_says_the_same(bench: Bench) -> None:
    before = ledgers(bench)
    assert len(before) == 3, "the pool's, the head, and the shard of the denial"
    await rotate(bench)
    await settle(bench)
    after = ledgers(bench)
    assert sealing_keys(bench) == {NEW}
    for name, found in after.items():
        assert found.lineage == before[name].lineage
        # The head also takes over what else changed: in this API a list of API keys shows the permit keys too.
        assert found.sequence == before[name].sequence + 1 or name == AUTHORIZATION_HEAD
        assert (found.floors, found.incidents, found.base) == (before[name].floors, before[name].incidents, before[name].base)
    bench.api.requests.clear()
    bench.restart()
    await settle(bench)
    assert bench.api.writes == []


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_key_that_is_dropped_afterwards_starts_no_lineage_and_opens_nothing(bench: Bench, restarted: bool) -> None:
    guard, router = LeasedProcess(bench), gateway(bench)
    guard.acknowledge()
    router.acknowledge()
    old = await rotate(bench)
    await settle(bench)
    guard.acknowledge()
    router.acknowledge()
    before = ledgers(bench)
    await take_over(bench, **{old.current.id: None})
    if restarted:
        bench.restart()
    await settle(bench)
    assert {name: item.lineage for name, item in ledgers(bench).items()} == {name: item.lineage for name, item in before.items()}
    assert not ledger(bench, AUTHORIZATION_HEAD).unconfirmed


async def test_a_key_that_is_dropped_at_once_makes_a_later_lineage(bench: Bench) -> None:
    """The control: a seal of a key that is gone proves nothing."""
    old, before = bench.keys.ring, ledger(bench)
    await take_over(bench, **{NEW: b"n" * 32, old.current.id: None})
    await settle(bench)
    assert ledger(bench).lineage.generation > before.lineage.generation
