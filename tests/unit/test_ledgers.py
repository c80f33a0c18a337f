"""Ledgers as values: read back as written, sealed, followed only forward."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachescope.core.digests import digest
from cachescope.core.epochs import EpochVector
from cachescope.core.errors import SpecError
from cachescope.core.keys import KeyRing
from cachescope.core.ledger_documents import parse_ledger, parse_mark, write_ledger
from cachescope.core.ledger_seals import seal_keys, sealed, verified, witness
from cachescope.core.ledgers import (
    HISTORY,
    Flags,
    Floor,
    Ledger,
    LedgerFork,
    Lineage,
    Mark,
    Role,
    advanced,
    followed,
    reborn,
    write_mark,
)
from cachescope.core.types import Epoch, TargetName
from tests.unit.core_strategies import KEY, OTHER_KEY

RED, BLUE = TargetName("a" * 64), TargetName("b" * 64)
FIRST = Ledger(Role.SHARD, Lineage(7, "1" * 32), 1)
SOME = replace(
    FIRST, floors={RED: Floor(Epoch(5), Epoch(4), 9, Epoch(3), Epoch(2), 100)}, flags=Flags(Epoch(3), Epoch(2), Epoch(1))
)
KEYS = seal_keys(KeyRing.of(KEY))

numbers = st.integers(0, 5)
epochs = numbers.map(Epoch)
floors = st.builds(Floor, epochs, epochs, numbers, epochs, epochs, numbers)
ledgers = st.builds(
    Ledger,
    st.sampled_from(list(Role)),
    st.just(Lineage(7, "1" * 32)),
    st.integers(1, 5),
    base=epochs,
    floors=st.dictionaries(st.sampled_from([RED, BLUE]), floors),
    flags=st.builds(Flags, epochs, epochs, epochs),
    reach=numbers,
    changed=st.dictionaries(st.sampled_from([RED, BLUE]), numbers),
    shards=st.dictionaries(st.sampled_from(["authorization.shard-a"]), st.just(Mark(Lineage(2, "2" * 32), 3, digest("m")))),
    policy=st.dictionaries(st.sampled_from(["tenants"]), st.just(digest("p"))),
    restored=numbers,
    confirmed=numbers,
    incidents=st.dictionaries(st.sampled_from(["i"]), epochs),
)


@settings(max_examples=30)
@given(ledger=ledgers)
def test_a_written_ledger_is_read_back_and_its_witness_too(ledger: Ledger) -> None:
    assert parse_ledger(write_ledger(ledger)) == ledger
    seen = verified(KEYS, "place", witness(sealed(KEYS, "place", ledger)))
    assert (seen.mark, seen.digest, seen.incidents) == (ledger.mark, ledger.digest, ledger.incidents)
    assert parse_mark(write_mark(ledger.mark)) == ledger.mark


def test_a_seal_holds_for_one_place_one_key_and_one_content() -> None:
    spec = sealed(KEYS, "place", SOME)
    assert verified(KEYS, "place", spec) == SOME
    bad: list[tuple[KeyRing, str, dict[str, Any]]] = [
        (KEYS, "elsewhere", spec),
        (seal_keys(KeyRing.of(OTHER_KEY)), "place", spec),
        (KEYS, "place", {**spec, "mac": {**spec["mac"], "value": "0" * 64}}),
        (KEYS, "place", {**spec, "mac": None}),
        *((KEYS, "place", {**spec, "mac": {**spec["mac"], "value": value}}) for value in ("\ud800", "A" * 64, 7, None)),
        (KEYS, "place", {**spec, "mac": {**spec["mac"], "key": "\ud800"}}),
        (KEYS, "place", {**write_ledger(advanced(SOME)), "mac": spec["mac"]}),
    ]
    for keys, place, changed in bad:
        with pytest.raises(SpecError, match="no seal of this installation"):
            verified(keys, place, changed)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(st.characters(), max_size=4), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=100)
@given(field=st.sampled_from([*write_ledger(SOME), "mac"]), inner=st.none() | st.text(max_size=4), value=anything)
def test_whatever_stands_in_a_copy_it_is_read_or_refused(field: str, inner: str | None, value: object) -> None:
    """Every guard of a namespace may publish what it likes: it must stop nobody who reads it."""
    spec = sealed(KEYS, "place", SOME)
    value = value if inner is None else {inner: value}
    changed = {**spec, field: {**spec[field], **value} if isinstance(spec[field], dict) and isinstance(value, dict) else value}
    with contextlib.suppress(SpecError):
        assert verified(KEYS, "place", changed).digest == SOME.digest


BROKEN: list[tuple[str, object]] = [
    ("role", "Tenant"),
    ("sequence", "1"),
    ("sequence", True),
    ("sequence", -1),
    ("base", 2**53),
    ("lineage", {"generation": 0, "id": "1" * 32}),
    ("lineage", {"generation": 7, "id": ""}),
    ("lineage", None),
    ("floors", {"short": 1}),
    ("floors", {RED: 5, BLUE: 1.5}),
    ("floors", None),
    ("denied", {BLUE: 1}),
    ("flags", {"bypassed": 1}),
    ("history", ["x"]),
    ("incidents", []),
    ("shards", {"s": {"sequence": 1}}),
    ("digest", digest("other")),
    ("digest", None),
    ("lineage", {"generation": 7, "id": "\ud800"}),
    ("policy", {"\u00e9": "x"}),
    ("shards", {"s": {"lineage": {"generation": 7, "id": "1"}, "sequence": 1, "digest": "\ud800"}}),
]


@pytest.mark.parametrize(("field", "value"), BROKEN)
def test_what_is_no_ledger_is_refused(field: str, value: object) -> None:
    good = write_ledger(SOME)
    assert parse_ledger(good) == SOME
    with pytest.raises(SpecError):
        parse_ledger({**good, field: value})
    without = dict(good)
    del without[field]
    if field != "history":
        with pytest.raises(SpecError):
            parse_ledger(without)


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"lineage": {}, "sequence": 1, "digest": "d"}]
    + [{**write_mark(SOME.mark), "digest": value} for value in ("", "sha256:x", "\ud800", "sha256:" + "0" * 63, "0" * 64)],
)
def test_what_is_no_mark_is_refused(document: object) -> None:
    with pytest.raises(SpecError, match="update the older side"):
        parse_mark(document)


def test_the_digest_covers_everything_but_history() -> None:
    changes: list[dict[str, Any]] = [
        {"base": Epoch(9)}, {"reach": 9}, {"restored": 9}, {"confirmed": 9}, {"sequence": 9}, {"previous": digest("x")},
        {"floors": {}}, {"changed": {RED: 9}}, {"policy": {"a": digest("x")}}, {"flags": Flags()},
        {"lineage": Lineage(9, "1" * 32)}, {"role": Role.POOL}, {"shards": {"s": SOME.mark}},
    ]  # fmt: skip
    assert len({SOME.digest, *(replace(SOME, **change).digest for change in changes)}) == len(changes) + 1
    assert replace(SOME, incidents={"i": Epoch(1)}, history=()).digest != SOME.digest


def chain(length: int) -> list[Ledger]:
    states = [FIRST]
    for _ in range(length):
        states.append(advanced(states[-1], base=Epoch(states[-1].base)))
    return states


def test_a_ledger_knows_its_last_states_and_forgets_older_ones() -> None:
    states = chain(HISTORY + 1)
    last = states[-1]
    assert len(last.history) == HISTORY
    assert [last.knows(state.mark) for state in states] == [False, False, *[True] * HISTORY]
    assert [last.forgot(state.mark) for state in states] == [True, True, *[False] * HISTORY]
    assert not states[3].knows(last.mark)
    assert not last.forgot(replace(states[0].mark, lineage=Lineage(6, "1" * 32)))
    assert all(followed(state, last) is last for state in states)


def test_a_state_that_the_history_never_had_is_a_fork() -> None:
    one, other = advanced(FIRST, reach=1), advanced(FIRST, reach=2)
    assert not other.knows(one.mark)
    for newer in (other, advanced(other), FIRST):
        with pytest.raises(LedgerFork, match="does not follow"):
            followed(one, newer)
    assert followed(FIRST, other) is other
    assert followed(None, other) is other


LOWERED: list[Callable[[Ledger], Ledger]] = [
    *(lambda ledger, name=name: advanced(ledger, **{name: 1}) for name in ("base", "reach", "restored", "confirmed")),
    *(lambda ledger, name=name: advanced(ledger, flags=replace(ledger.flags, **{name: Epoch(0)})) for name in Flags.__slots__),
    *(
        lambda ledger, name=name: advanced(ledger, floors={RED: replace(ledger.floors[RED], **{name: 1})})
        for name in ("epoch", "abort_below", "denied", "readmitted", "issued_before")
    ),
    lambda ledger: advanced(ledger, floors={}),
    lambda ledger: advanced(ledger, floors={}, base=Epoch(9)),
    lambda ledger: advanced(ledger, shards={}),
    lambda ledger: advanced(ledger, shards={"s": replace(ledger.shards["s"], sequence=1)}),
    lambda ledger: advanced(ledger, shards={"s": replace(ledger.shards["s"], lineage=Lineage(1, "3" * 32))}),
]


@pytest.mark.parametrize("lower", LOWERED)
def test_nothing_falls_within_a_lineage_also_where_the_chain_is_whole(lower: Callable[[Ledger], Ledger]) -> None:
    mark = Mark(Lineage(2, "2" * 32), 3, digest("m"))
    known = replace(SOME, base=Epoch(2), reach=2, restored=2, confirmed=2, shards={"s": mark}, history=())
    assert followed(known, advanced(known)).sequence == 2
    with pytest.raises(LedgerFork):
        followed(known, lower(known))
    reborn_lower = reborn(lower(known), Lineage(8, "8" * 32))
    assert followed(known, reborn_lower) is reborn_lower


def test_an_entry_may_be_folded_and_a_head_may_forget_what_is_old() -> None:
    plain = replace(FIRST, floors={RED: Floor(Epoch(5), Epoch(5))})
    assert followed(plain, advanced(plain, floors={}, base=Epoch(5))).epoch(RED) == 5
    head = replace(SOME, role=Role.AUTHORIZATION, history=())
    assert followed(head, advanced(head, floors={}, reach=1)).floors == {}


def test_another_lineage_is_followed_only_when_it_is_later() -> None:
    for other in (Lineage(7, "2" * 32), Lineage(6, "2" * 32)):
        with pytest.raises(LedgerFork, match="without being later"):
            followed(FIRST, replace(FIRST, lineage=other, history=()))
        with pytest.raises(ValueError, match="number it higher"):
            reborn(FIRST, other)
    assert Lineage(3, "x").after(Lineage(7, "y"), Lineage(5, "z")) == Lineage(8, "x")
    assert Lineage(9, "x").after(Lineage(7, "y")) == Lineage(9, "x")


@settings(max_examples=40)
@given(one=floors, two=floors)
def test_joining_floors_lowers_nothing_and_drains_no_longer(one: Floor, two: Floor) -> None:
    both = one.joined(two)
    for name in ("epoch", "abort_below", "denied", "readmitted", "issued_before"):
        assert getattr(both, name) == max(getattr(one, name), getattr(two, name))
    if one.epoch == two.epoch:
        assert both == two.joined(one)
        assert both.drain_seconds == min(one.drain_seconds, two.drain_seconds)


def test_vectors_are_held_against_floors_and_the_base() -> None:
    ledger = replace(SOME, base=Epoch(2))
    assert ledger.below(EpochVector.of({RED: Epoch(4), BLUE: Epoch(1)})) == (RED, BLUE)
    assert ledger.below(EpochVector.of({RED: Epoch(5), BLUE: Epoch(2)})) == ()
    assert ledger.ahead(EpochVector.of({RED: Epoch(6), BLUE: Epoch(9)})) == (RED,)
    assert ledger.denied(EpochVector.of({RED: Epoch(5)}))
    assert not ledger.denied(EpochVector.of({BLUE: Epoch(5)}))
    assert ledger.floor(BLUE) == Floor(Epoch(2), Epoch(2)), "below a base nothing drains"
    assert replace(SOME, base=Epoch(9)).floor(RED).abort_below == 9
    assert ledger.vector(RED, BLUE) == EpochVector.of({RED: Epoch(5), BLUE: Epoch(2)})
