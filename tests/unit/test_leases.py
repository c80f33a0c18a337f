"""A lease is believed only whole, signed, and in its own object; a right runs from the send of what was committed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cachescope.core.errors import WireFormatError
from cachescope.core.keys import Key, KeyRing
from cachescope.core.leases import (
    GATEWAY,
    GUARD,
    LeaseStatement,
    Right,
    claimed_lease,
    lease_keys,
    lease_name,
    read_lease,
    write_lease,
)
from cachescope.core.ledger_seals import witness
from cachescope.core.ledgers import Lineage, Mark, write_mark
from cachescope.core.permits import permit_keys
from cachescope.core.record import EngineDigests
from cachescope.core.signed import sign
from cachescope.core.types import Digest
from tests.unit.ledger_book import LedgerBook

ROOT = KeyRing.of(Key("k1", b"r" * 32))
KEYS = permit_keys(ROOT, "pool-uid")
ENGINE = EngineDigests(Digest("sha256:m"), Digest("sha256:t"), Digest("sha256:r"))
MARK = Mark(Lineage(7, "line"), 3, Digest("sha256:" + "d" * 64))
AUTHORIZATION = "authorization/models"
COPY = witness(LedgerBook("tiny", "pool-uid", namespace="models").spec("tiny"))
OWN = LeaseStatement(
    holder=GUARD,
    pod_uid="pod",
    boot_id="boot",
    tick=12,
    lease_ms=60_000,
    version="0.1.0",
    acknowledged={"pool-uid": MARK, AUTHORIZATION: MARK},
    witnesses={"pool-uid": COPY, AUTHORIZATION: COPY},
    pool_uid="pool-uid",
    fresh_ms=120_000,
    released=True,
    engine=ENGINE,
)
NAME = lease_name("pod", "boot")
WRITTEN = write_mark(MARK)
PAYLOAD = {
    "holder": GUARD,
    "pod_uid": "pod",
    "boot_id": "boot",
    "tick": 12,
    "lease_ms": 60_000,
    "version": "0.1.0",
    "acknowledged": {"pool-uid": WRITTEN},
    "witnesses": {"pool-uid": COPY},
    "pool_uid": "pool-uid",
    "fresh_ms": 0,
    "released": False,
    "engine": None,
    "routable": {},
}


def test_what_was_written_is_read() -> None:
    plain = replace(OWN, acknowledged={}, witnesses={}, engine=None, released=False, fresh_ms=0)
    for statement in (OWN, plain):
        assert read_lease(KEYS, write_lease(KEYS.current, statement), name=NAME) == statement


def test_a_guard_says_when_it_was_used_and_a_gateway_never() -> None:
    used = replace(OWN, used_ms=11)
    assert read_lease(KEYS, write_lease(KEYS.current, used), name=NAME) == used
    assert claimed_lease(write_lease(KEYS.current, used))["used_ms"] == 11
    assert "used_ms" not in claimed_lease(write_lease(KEYS.current, OWN)), "written as before there was any"
    gateway = LeaseStatement(GATEWAY, "pod", "boot", 12, 60_000, "0.1.0", used_ms=11)
    keys = lease_keys(ROOT)
    with pytest.raises(WireFormatError):
        read_lease(keys, write_lease(keys.current, gateway), name=NAME)
    assert read_lease(keys, write_lease(keys.current, replace(gateway, used_ms=0)), name=NAME)


def test_a_gateway_says_where_it_routes() -> None:
    gateway = replace(OWN, holder=GATEWAY, pool_uid="", engine=None, routable={"pool-uid": ("a", "b")})
    gateway = replace(gateway, acknowledged={"pool-uid": MARK, "another": MARK, AUTHORIZATION: MARK})
    keys = lease_keys(ROOT)
    assert read_lease(keys, write_lease(keys.current, gateway), name=NAME) == gateway


def test_a_lease_that_was_copied_into_another_object_proves_nothing() -> None:
    with pytest.raises(WireFormatError, match="another process"):
        read_lease(KEYS, write_lease(KEYS.current, OWN), name=lease_name("pod", "other"))


def test_a_guard_cannot_speak_for_a_gateway_nor_for_another_pool() -> None:
    text = write_lease(KEYS.current, OWN)
    for keys in (lease_keys(ROOT), permit_keys(ROOT, "another-pool")):
        with pytest.raises(WireFormatError, match="MAC"):
            read_lease(keys, text, name=NAME)


@pytest.mark.parametrize(
    "change",
    [
        {"tick": "12"},
        {"tick": True},
        {"acknowledged": {"pool-uid": {**WRITTEN, "sequence": "3"}}},
        {"acknowledged": {"pool-uid": {**WRITTEN, "sequence": True}}},
        {"acknowledged": {"pool-uid": {**WRITTEN, "sequence": 10**40}}},
        {"acknowledged": {"pool-uid": {**WRITTEN, "lineage": {"id": "line"}}}},
        {"acknowledged": {"pool-uid": {"lineage": WRITTEN["lineage"]}}},
        {"acknowledged": []},
        {"acknowledged": {"another-pool": WRITTEN}},
        {"witnesses": {"another-pool": COPY}},
        {"witnesses": {"pool-uid": "text"}},
        {"witnesses": []},
        {"released": 1},
        {"released": None},
        {"fresh_ms": -1},
        {"fresh_ms": 3_600_001},
        {"fresh_ms": "120"},
        {"engine": {"model": "m"}},
        {"adapters": ["x"]},
        {"adapters": {"x": 7}},
        {"adapters": None},
        {"pod_uid": 7},
        {"tick": -1},
        {"tick": 10**400},
        {"lease_ms": 3_600_001},
        {"routable": {"another-pool": ["pod"]}},
        {"holder": GATEWAY},
        {"holder": "Operator"},
        {"engine": {"model": "m", "tokenizer": "t", "runtime": 7}},
    ],
)
def test_fields_of_another_form_are_refused(change: dict[str, object]) -> None:
    assert read_lease(KEYS, sign(KEYS.current, "lease", PAYLOAD), name=NAME).tick == 12
    with pytest.raises(WireFormatError):
        read_lease(KEYS, sign(KEYS.current, "lease", {**PAYLOAD, **change}), name=NAME)


def test_what_a_later_version_says_beside_it_is_passed_over() -> None:
    """After a rollback of the operator, guards of the later version go on: their signature covers what this one does not know."""
    engine = {**vars(ENGINE), "further": "field"}
    further = {**PAYLOAD, "further": {"field": 1}, "engine": engine}
    assert read_lease(KEYS, sign(KEYS.current, "lease", further), name=NAME).engine == ENGINE
    for name in PAYLOAD:
        with pytest.raises(WireFormatError):
            read_lease(KEYS, sign(KEYS.current, "lease", {key: value for key, value in further.items() if key != name}), name=NAME)


def test_adapters_are_published_by_name_and_a_lease_without_any_is_as_before() -> None:
    digests = {"x": Digest("sha256:x"), "y": Digest("sha256:y")}
    text = write_lease(KEYS.current, replace(OWN, adapters=digests))
    assert read_lease(KEYS, text, name=NAME).adapters == digests
    assert "adapters" not in claimed_lease(write_lease(KEYS.current, OWN))
    assert read_lease(KEYS, write_lease(KEYS.current, OWN), name=NAME).adapters == {}


def test_without_a_grant_there_is_no_right() -> None:
    right = Right()
    assert not right.live(0)
    assert right.generation == 0


def test_a_right_runs_from_the_send_of_the_write() -> None:
    right = Right()
    right.grant(sent_at=100, lease_ms=1000, now=900)
    assert right.left_ms(900) == 200
    assert right.live(1099)
    assert not right.live(1100)


def test_a_renewal_in_time_keeps_the_generation_and_a_late_one_does_not() -> None:
    right = Right()
    assert right.grant(sent_at=0, lease_ms=1000, now=10)
    assert not right.grant(sent_at=900, lease_ms=1000, now=999)
    assert right.generation == 1
    assert right.grant(sent_at=1800, lease_ms=1000, now=1900)
    assert right.generation == 2


def test_a_revoked_right_is_over_and_the_next_is_another() -> None:
    right = Right()
    right.grant(sent_at=0, lease_ms=1000, now=10)
    right.revoke()
    assert not right.live(20)
    assert right.grant(sent_at=20, lease_ms=1000, now=30)
    assert right.generation == 2


def test_a_grant_that_comes_after_its_own_end_gives_nothing() -> None:
    right = Right()
    right.grant(sent_at=0, lease_ms=1000, now=2000)
    assert not right.live(2000)


def test_the_engines_own_version_is_signed_with_the_lease_and_left_out_where_it_is_not_known() -> None:
    told = replace(OWN, engine_version="0.32.0")
    assert read_lease(KEYS, write_lease(KEYS.current, told), name=lease_name(told.pod_uid, told.boot_id)) == told
    assert "engine_version" not in claimed_lease(write_lease(KEYS.current, OWN)), "written as before there was any"
