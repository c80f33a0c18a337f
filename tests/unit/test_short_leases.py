"""A gateway's statement can be read, however many pools there are: what can be missed most is left out first."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from cachescope.api.ledgers import FenceLeaseSpec
from cachescope.core.digests import sha256
from cachescope.core.leases import GATEWAY, LeaseStatement, lease_keys, lease_name, read_lease
from cachescope.core.ledgers import Lineage, Mark, authorization_key
from cachescope.gateway.keys import parse_keys
from cachescope.gateway.short_leases import write_readable
from tests.unit.whole_path import ROOT_KEYS

KEYS = lease_keys(parse_keys(ROOT_KEYS).root)
MARK = Mark(Lineage(2**40, "1" * 32), 2**40, sha256(b"x"))


def written(pools: int, namespaces: int = 1) -> tuple[LeaseStatement, LeaseStatement]:
    """A statement, and what can be read of it."""
    uids = [f"{number:08}-0000-4000-8000-000000000000" for number in range(pools)]
    keys = [authorization_key(f"namespace-{number}") for number in range(namespaces)]
    witness: dict[str, Any] = {"floors": {f"{number:064x}": 2**40 for number in range(256)}}
    statement = LeaseStatement(
        GATEWAY,
        "pod-uid",
        "ab" * 16,
        1,
        60_000,
        "0.1.0",
        acknowledged=dict.fromkeys([*keys, *uids], MARK),
        witnesses=dict.fromkeys(keys, witness),
        routable={uid: (uid, uid) for uid in uids},
    )
    text = write_readable(KEYS.current, statement)
    assert FenceLeaseSpec(holder="Gateway", pod="g", tick=1, lease_seconds=60, version="0.1.0", statement=text)
    return statement, read_lease(KEYS, text, name=lease_name("pod-uid", "ab" * 16))


def test_a_thousand_pools_are_said_whole(caplog: pytest.LogCaptureFixture) -> None:
    statement, read = written(1000)
    assert read == statement
    assert not caplog.records


@pytest.mark.parametrize("pools", [1_500, 5_000])
def test_of_more_pools_it_says_what_fits_and_logs_what_does_not(pools: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        statement, read = written(pools)
    assert 0 < len(read.acknowledged) <= len(statement.acknowledged)
    assert len(read.routable) < pools
    assert (len(read.acknowledged) == len(statement.acknowledged)) is (pools == 1_500)
    (record,) = caplog.records
    assert record.__dict__["routable"] == pools - len(read.routable)


def test_witnesses_go_before_acknowledgements() -> None:
    statement, read = written(10, namespaces=60)
    assert read.acknowledged == statement.acknowledged
    assert 0 < len(read.witnesses) < 60
