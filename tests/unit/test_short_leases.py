"""A gateway's statement can be read, however many pools there are: what can be missed most is left out first."""

from __future__ import annotations

import logging
import random
import uuid
from typing import Any

import pytest

from cachescope.api.ledgers import FenceLeaseSpec
from cachescope.core.digests import sha256
from cachescope.core.leases import GATEWAY, LeaseStatement, lease_keys, lease_name, read_lease
from cachescope.core.ledgers import AUTHORIZATION, Lineage, Mark, authorization_key
from cachescope.gateway.keys import parse_keys
from cachescope.gateway.short_leases import ReadableStatements
from tests.unit.whole_path import ROOT_KEYS

KEYS = lease_keys(parse_keys(ROOT_KEYS).root)


def written(pools: int, namespaces: int = 1, pods: int = 2, *, times: int = 1) -> tuple[LeaseStatement, LeaseStatement]:
    """A statement, and what can be read of it. Names and digests are random, as they are: that is what deflating leaves."""
    chance = random.Random(pools)  # noqa: S311 - names of a test
    uids = [_uid(chance) for _ in range(pools)]
    keys = [authorization_key(f"namespace-{number}") for number in range(namespaces)]
    statement = LeaseStatement(
        GATEWAY,
        "pod-uid",
        "ab" * 16,
        1,
        60_000,
        "0.1.0",
        acknowledged={name: _mark(chance) for name in (*uids, *keys)},  # in the order in which a gateway says them
        witnesses={key: _witness(chance) for key in keys},
        routable={uid: tuple(_uid(chance) for _ in range(pods)) for uid in uids},
    )
    statements = ReadableStatements()
    text = [statements.write(KEYS.current, statement) for _ in range(times)][-1]
    assert FenceLeaseSpec(holder="Gateway", pod="g", tick=1, lease_seconds=60, version="0.1.0", statement=text)
    return statement, read_lease(KEYS, text, name=lease_name("pod-uid", "ab" * 16))


def _uid(chance: random.Random) -> str:
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))


def _mark(chance: random.Random) -> Mark:
    return Mark(Lineage(chance.getrandbits(31), f"{chance.getrandbits(128):032x}"), 7, sha256(chance.randbytes(32)))


def _witness(chance: random.Random) -> dict[str, Any]:
    return {"floors": {chance.randbytes(32).hex(): 2**40 for _ in range(256)}}


def test_a_thousand_pools_are_said_whole(caplog: pytest.LogCaptureFixture) -> None:
    statement, read = written(1000)
    assert read == statement
    assert not caplog.records


@pytest.mark.parametrize(("pools", "pods"), [(1_500, 12), (5_000, 2)])
def test_of_more_pools_it_says_what_fits_and_logs_what_does_not(pools: int, pods: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        statement, read = written(pools, pods=pods, times=2)
    assert 0 < len(read.acknowledged) <= len(statement.acknowledged)
    assert len(read.routable) < pools
    assert (len(read.acknowledged) == len(statement.acknowledged)) is (pools == 1_500)
    (record,) = caplog.records
    assert record.__dict__["routable"] == pools - len(read.routable)


def test_what_revocations_wait_for_is_left_out_last() -> None:
    statement, read = written(5_000, namespaces=20)
    heads = {name for name in statement.acknowledged if name.startswith(AUTHORIZATION)}
    assert len(read.acknowledged) < len(statement.acknowledged)
    assert heads <= read.acknowledged.keys()


def test_witnesses_go_before_acknowledgements() -> None:
    statement, read = written(10, namespaces=60)
    assert read.acknowledged == statement.acknowledged
    assert 0 < len(read.witnesses) < 60
