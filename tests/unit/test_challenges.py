from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from packaging.version import Version

from cachescope.core.endpoints import Endpoint
from cachescope.core.errors import WireFormatError
from cachescope.core.keys import Key, KeyRing
from cachescope.core.record import EngineDigests
from cachescope.core.statements import SignedStatement, Statement, write_statement
from cachescope.core.types import Digest
from cachescope.gateway.binding import signing_key
from cachescope.gateway.challenges import ChallengeAnswer, PoolTrust, Proof, due, problem, proven

KEY = Key("k1", b"k" * 32)
LINEAGES = ("lineage", "authorization-lineage")
TRUST = PoolTrust("pool-uid", KeyRing.of(KEY), LINEAGES, 60_000)
ENDPOINT = Endpoint("models/tiny", "pod-uid", "10.0.0.1:8000")
NONCE = "n" * 32
ENGINE = EngineDigests(Digest("sha256:m"), Digest("sha256:t"), Digest("sha256:r"))
STATEMENT = Statement(
    NONCE, "pool-uid", "pod-uid", "boot", 5000, ENGINE, "lineage", 1, "authorization-lineage", 1, right_ms=60_000, version="0.1.0"
)


def judge(statement: Statement, *, status: int = 401, key: Key = KEY, sent_at: int = 1000, before: Proof | None = None) -> Proof:
    answer = ChallengeAnswer(status, write_statement(key, statement))
    return proven(ENDPOINT, TRUST, answer, nonce=NONCE, sent_at=sent_at, before=before)


def test_a_guards_own_401_proves_it() -> None:
    assert judge(STATEMENT) == Proof(SignedStatement(**vars(STATEMENT), key_id="k1"), 1000)


@pytest.mark.parametrize("status", [200, 403, 404, 500, 503])
def test_an_engine_that_does_not_refuse_proves_nothing(status: int) -> None:
    with pytest.raises(WireFormatError, match=str(status)):
        judge(STATEMENT, status=status)


def test_a_401_of_somebody_else_proves_nothing() -> None:
    with pytest.raises(WireFormatError, match="without a guard's statement"):
        proven(ENDPOINT, TRUST, ChallengeAnswer(401, None), nonce=NONCE, sent_at=0, before=None)
    with pytest.raises(WireFormatError, match="MAC"):
        judge(STATEMENT, key=Key("k1", b"x" * 32))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pool_uid": "other"}, "another pool"),
        ({"pod_uid": "other"}, "another pool or pod"),
        ({"nonce": "m" * 32}, "challenge"),
    ],
)
def test_a_statement_of_something_else_proves_nothing(change: dict[str, Any], said: str) -> None:
    with pytest.raises(WireFormatError, match=said):
        judge(replace(STATEMENT, **change))


def test_a_proof_keeps_the_key_that_the_guard_signs_with() -> None:
    newer = Key("k2", b"n" * 32)
    trust = replace(TRUST, keys=KeyRing.of(KEY, newer))
    for key in (KEY, newer):
        answer = ChallengeAnswer(401, write_statement(key, STATEMENT))
        proof = proven(ENDPOINT, trust, answer, nonce=NONCE, sent_at=0, before=judge(STATEMENT))
        assert signing_key(trust.keys, proof.statement) == key
    assert signing_key(KeyRing.of(newer), judge(STATEMENT).statement) == newer


def test_only_a_tick_that_moves_keeps_an_endpoint_routable() -> None:
    first = judge(STATEMENT, sent_at=1000)
    stuck = judge(STATEMENT, sent_at=20_000, before=first)
    moved = judge(replace(STATEMENT, tick=5001), sent_at=20_000, before=first)
    assert (stuck.moved_at, moved.moved_at) == (1000, 20_000)
    assert "for too long" in str(problem(stuck, TRUST, now=31_001))
    assert problem(stuck, TRUST, now=31_000) is None
    assert problem(moved, TRUST, now=31_001) is None


@pytest.mark.parametrize("lineages", [("later", "authorization-lineage"), ("lineage", "later")])
def test_only_the_lineages_that_stand_are_routable(lineages: tuple[str, str]) -> None:
    proof = judge(STATEMENT)
    assert problem(proof, TRUST, now=1000) is None
    assert "another lineage" in str(problem(proof, replace(TRUST, lineages=lineages), now=1000))


@pytest.mark.parametrize(
    ("version", "routed"),
    [
        ("0.1.9", False),
        ("0.2.0.dev1", False),
        ("0.2.0rc1", False),
        ("0.2.0", True),
        ("0.10.0", True),
        ("2", True),
        ("newest", False),
    ],
)
def test_a_guard_below_the_minimum_is_not_routed_to(version: str, routed: bool) -> None:
    proof = judge(replace(STATEMENT, version=version))
    assert problem(proof, TRUST, now=1000) is None
    found = problem(proof, replace(TRUST, minimum_version=Version("0.2.0")), now=1000)
    assert (found is None) is routed
    assert routed or f"{version}, below 0.2.0" in str(found)


def test_a_new_boot_counts_as_movement() -> None:
    first = judge(STATEMENT, sent_at=1000)
    assert judge(replace(STATEMENT, boot_id="next", tick=1), sent_at=9000, before=first).moved_at == 9000


def test_an_unknown_endpoint_is_challenged_at_once_and_a_proven_one_every_quarter() -> None:
    proof = judge(STATEMENT, sent_at=1000)
    assert due(None, None, TRUST, now=0)
    assert not due(None, 0, TRUST, now=499)
    assert due(None, 0, TRUST, now=500)
    assert not due(proof, 1000, TRUST, now=15_999)
    assert due(proof, 1000, TRUST, now=16_000)
    assert due(proof, 1000, replace(TRUST, lineages=("later", "later")), now=1500)
