"""Permits and statements: they are read whole, and no changed field keeps its MAC."""

from __future__ import annotations

import re
from dataclasses import asdict, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachescope.core.adapters import MAX_NAME, MOST_ADAPTERS
from cachescope.core.epochs import EpochVector
from cachescope.core.errors import WireFormatError
from cachescope.core.heads import Epochs, Seen
from cachescope.core.keys import KeyRing, derive
from cachescope.core.permits import Permit, permit_keys, read_permit, write_permit
from cachescope.core.signed import sign
from cachescope.core.statements import SignedStatement, Statement, read_statement, write_statement
from cachescope.core.types import Digest, Epoch, Reuse, ScopeClass, TargetName
from tests.unit.core_strategies import KEY, NEWER_KEY, OTHER_KEY, RECORD, digest_of, epochs, targets, texts, variants

AIOHTTP_LINE = 8190
"""The longest header that the gateway's client reads."""
RING = KeyRing.of(KEY)
PERMIT = Permit(
    id="0" * 32,
    pool_uid="pool",
    pod_uid="pod",
    boot_id="1" * 32,
    tick=123,
    method="POST",
    path="/v1/completions",
    body_digest=digest_of("a"),
    record_digest=digest_of("b"),
    runtime_digest=digest_of("c"),
    scope=ScopeClass.TENANT,
    epochs=Epochs(EpochVector.of({TargetName("a" * 64): Epoch(1)}), EpochVector.of({TargetName("b" * 64): Epoch(2)})),
    seen=Seen("lineage", 9, "authorization", 8),
    reuse=Reuse.SALTED,
)
STATEMENT = Statement(
    nonce="n" * 22,
    pool_uid="pool",
    pod_uid="pod",
    boot_id="1" * 32,
    tick=123,
    engine=RECORD.engine,
    lineage="lineage",
    sequence=9,
    authorization_lineage="authorization",
    authorization_sequence=8,
    right_ms=20_000,
    version="0.1.0",
)
SIGNED = SignedStatement(**vars(STATEMENT), key_id=KEY.id)
VARIANTS = variants(PERMIT)
FIELDS = [field.name for field in fields(Permit)]
ADDED = {"adapter_digest", "adapters", "cache", "caching", "engine_type"}
"""Fields of this version: what was written before has none of them."""
PAYLOAD: dict[str, Any] = {
    **asdict(PERMIT),
    "epochs": [[["a" * 64, 1]], [["b" * 64, 2]]],
    "seen": ["lineage", 9, "authorization", 8],
}


digests = st.text("0123456789abcdef", min_size=64, max_size=64).map(lambda digits: Digest(f"sha256:{digits}"))
counters = st.integers(0, 2**53 - 1)
vectors = st.dictionaries(targets, epochs).map(EpochVector.of)
permits = st.builds(
    Permit,
    **dict.fromkeys(("id", "pool_uid", "pod_uid", "boot_id", "method", "path"), texts),
    **dict.fromkeys(("body_digest", "record_digest", "runtime_digest", "adapter_digest"), digests),
    tick=counters,
    epochs=st.builds(Epochs, vectors, vectors),
    seen=st.builds(Seen, texts, counters, texts, counters),
    scope=st.sampled_from(ScopeClass),
    reuse=st.sampled_from(Reuse),
)


@given(permits)
def test_every_permit_is_read_as_it_was_written(permit: Permit) -> None:
    assert read_permit(RING, write_permit(KEY, permit)) == permit


@given(permits, permits, st.sampled_from(FIELDS))
def test_a_field_of_another_permit_does_not_keep_the_mac(permit: Permit, other: Permit, name: str) -> None:
    changed = replace(permit, **{name: getattr(other, name)})
    honest, forged = write_permit(KEY, permit).split("."), write_permit(KEY, changed).split(".")
    if changed == permit:
        assert forged == honest
        return
    with pytest.raises(WireFormatError, match="does not match"):
        read_permit(RING, ".".join([*forged[:-1], honest[-1]]))


@given(permits)
def test_a_permit_of_another_key_is_refused(permit: Permit) -> None:
    with pytest.raises(WireFormatError, match="does not match"):
        read_permit(RING, write_permit(OTHER_KEY, permit))


def test_a_permit_is_read_as_it_was_written() -> None:
    assert read_permit(RING, write_permit(KEY, PERMIT)) == PERMIT


def test_every_field_has_a_variant() -> None:
    assert {name.partition(".")[0] for name in VARIANTS} == set(FIELDS)


def test_the_payload_of_these_tests_is_what_is_signed() -> None:
    assert read_permit(RING, sign(KEY, "permit", PAYLOAD)) == PERMIT


@pytest.mark.parametrize("field", VARIANTS)
def test_a_changed_field_does_not_keep_its_mac(field: str) -> None:
    honest, changed = write_permit(KEY, PERMIT).split("."), write_permit(KEY, VARIANTS[field]).split(".")
    assert honest[2] != changed[2]
    with pytest.raises(WireFormatError, match="does not match"):
        read_permit(RING, ".".join([*honest[:2], changed[2], honest[3]]))
    assert read_permit(RING, ".".join(changed)) == VARIANTS[field]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", [None, 1.5, True, ["x"], {"x": "y"}], ids=repr)
def test_a_signed_field_of_another_type_is_refused(field: str, value: Any) -> None:
    with pytest.raises(WireFormatError, match="update the older"):
        read_permit(RING, sign(KEY, "permit", {**PAYLOAD, field: value}))


@pytest.mark.parametrize("field", [name for name in FIELDS if name not in ADDED])
def test_a_missing_field_is_refused(field: str) -> None:
    with pytest.raises(WireFormatError, match="update the older"):
        read_permit(RING, sign(KEY, "permit", {name: value for name, value in PAYLOAD.items() if name != field}))


def test_a_permit_without_an_adapter_is_what_an_older_guard_reads() -> None:
    before = {name: value for name, value in PAYLOAD.items() if name not in ADDED}
    assert read_permit(RING, sign(KEY, "permit", before)) == PERMIT
    assert write_permit(KEY, PERMIT).split(".")[2] == sign(KEY, "permit", before).split(".")[2]
    named = replace(PERMIT, adapter_digest=digest_of("e"))
    assert read_permit(RING, write_permit(KEY, named)) == named


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(WireFormatError, match="update the older"):
        read_permit(RING, sign(KEY, "permit", {**PAYLOAD, "new": "x"}))


VECTORS: list[Any] = [[["a"]], [["a", -1]], [["a", 2**53]], [["a", "1"]], [["a", 1.0]], [["a", 1], ["a", 2]], "ab", {"a": 1}]


@pytest.mark.parametrize(
    "epochs", [*([wrong, []] for wrong in VECTORS), *([[], wrong] for wrong in VECTORS), [], [[]] * 3], ids=repr
)
def test_epochs_of_another_shape_are_refused(epochs: Any) -> None:
    with pytest.raises(WireFormatError, match="update the older"):
        read_permit(RING, sign(KEY, "permit", {**PAYLOAD, "epochs": epochs}))


@pytest.mark.parametrize(
    "seen", [[], ["l", 1, "a"], ["l", "1", "a", 1], ["l", 1, 2, 1], [1, 1, "a", 1], ["l", 1, "a", True]], ids=repr
)
def test_states_of_another_shape_are_refused(seen: Any) -> None:
    with pytest.raises(WireFormatError, match="update the older"):
        read_permit(RING, sign(KEY, "permit", {**PAYLOAD, "seen": seen}))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"epochs": [[["a", 1], ["a", 2]], []]}, "(a target is named twice)"),
        ({"epochs": [[["a", "1"]], []]}, "('1' is not an integer)"),
        ({"seen": [1, 1, "a", 1]}, "(a lineage is of another type)"),
        ({"tick": "1"}, "(tick is of another type)"),
    ],
)
def test_what_cannot_be_read_is_named(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(WireFormatError, match=re.escape(f"cannot be read {says}; update the older of gateway and guard")):
        read_permit(RING, sign(KEY, "permit", {**PAYLOAD, **changed}))


def test_each_pool_has_permit_keys_of_its_own() -> None:
    one, other = (permit_keys(RING, pool).current for pool in ("one", "other"))
    assert one == derive(KEY, "permit", "one")
    assert one != other


def test_a_statement_is_read_as_it_was_written() -> None:
    assert read_statement(RING, write_statement(KEY, STATEMENT), nonce=STATEMENT.nonce) == SIGNED


def test_a_statement_without_adapters_is_what_an_older_gateway_reads() -> None:
    before = {name: value for name, value in asdict(STATEMENT).items() if name not in ADDED}
    assert read_statement(RING, sign(KEY, "statement", before), nonce=STATEMENT.nonce) == SIGNED
    assert write_statement(KEY, STATEMENT) == sign(KEY, "statement", before)


def test_a_statement_with_as_many_adapters_as_a_pool_has_fits_a_header() -> None:
    adapters = {f"{number:02}".ljust(MAX_NAME, "x"): digest_of("e") for number in range(MOST_ADAPTERS)}
    text = write_statement(KEY, replace(STATEMENT, pool_uid="p" * 36, pod_uid="q" * 36, adapters=adapters))
    assert len(text) < AIOHTTP_LINE
    assert read_statement(RING, text, nonce=STATEMENT.nonce).loaded.serving("31".ljust(MAX_NAME, "x")).adapter == digest_of("e")


@pytest.mark.parametrize("adapters", [None, [], "x", {"x": 7}, {"x": None}, {"x": {"y": "z"}}], ids=repr)
def test_adapters_of_another_shape_are_refused(adapters: Any) -> None:
    payload = {**asdict(STATEMENT), "adapters": {"tick": digest_of("e")}}
    assert read_statement(RING, sign(KEY, "statement", payload), nonce=STATEMENT.nonce).adapters == {"tick": digest_of("e")}
    with pytest.raises(WireFormatError, match="update the older"):
        read_statement(RING, sign(KEY, "statement", {**payload, "adapters": adapters}), nonce=STATEMENT.nonce)


def test_a_statement_tells_which_key_signed_it() -> None:
    ring = KeyRing.of(KEY, NEWER_KEY)
    read = [read_statement(ring, write_statement(key, STATEMENT), nonce=STATEMENT.nonce) for key in (KEY, NEWER_KEY)]
    assert [statement.key_id for statement in read] == [KEY.id, NEWER_KEY.id]


def test_a_signed_key_id_is_refused() -> None:
    payload = {**asdict(STATEMENT), "key_id": "made up"}
    with pytest.raises(WireFormatError, match="update the older"):
        read_statement(RING, sign(KEY, "statement", payload), nonce=STATEMENT.nonce)


def test_a_statement_for_another_challenge_is_refused() -> None:
    with pytest.raises(WireFormatError, match="another challenge"):
        read_statement(RING, write_statement(KEY, STATEMENT), nonce="m" * 22)


def test_a_permit_is_no_statement_and_a_statement_no_permit() -> None:
    with pytest.raises(WireFormatError, match="does not match"):
        read_statement(RING, write_permit(KEY, PERMIT), nonce="n" * 22)
    with pytest.raises(WireFormatError, match="does not match"):
        read_permit(RING, write_statement(KEY, STATEMENT))


@pytest.mark.parametrize("field", [field.name for field in fields(Statement) if field.name not in ADDED])
def test_a_statement_without_a_field_is_refused(field: str) -> None:
    payload = {name: value for name, value in asdict(STATEMENT).items() if name != field}
    with pytest.raises(WireFormatError, match="update the older"):
        read_statement(RING, sign(KEY, "statement", payload), nonce=STATEMENT.nonce)
