"""Approval tables: exact prefixes, of one pool, tokenizer and state, and nothing that is older, foreign or broken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachescope.core import approvals
from cachescope.core.approvals import ApprovedPrefix, Expected, PrefixDigests, Table, follow, read_table, token_bytes, write_table
from cachescope.core.encodings import encode
from cachescope.core.errors import SpecError, WireFormatError
from cachescope.core.keys import KeyRing
from cachescope.core.segments import approval_set
from cachescope.core.signed import sign
from cachescope.core.types import ScopeClass
from tests.unit.approval_tables import POOL, SET, TOKENIZER, contents, mark, prefix
from tests.unit.core_strategies import KEY, NEWER_KEY, OTHER_KEY, digest_of

PUBLIC, TENANT = ScopeClass.PUBLIC, ScopeClass.TENANT
EXPECTED = Expected(POOL, TOKENIZER)
RING = KeyRing.of(KEY)
NOW = 1_000.0
TOKENS = list(range(10))
BASE = [0, 1, 2, 1, 0, 0, 1, 2, 2, 1, 0, 1, 2, 0]
tokens = st.builds(lambda length, tail: BASE[:length] + tail, st.integers(0, len(BASE)), st.lists(st.integers(0, 2), max_size=5))
"""Texts of which many begin alike."""
approved_texts = st.dictionaries(st.sampled_from([PUBLIC, TENANT, ScopeClass.PRINCIPAL]), st.lists(tokens, max_size=3), max_size=3)


def table(approved: Mapping[ScopeClass, Sequence[Sequence[int]]], unit: int = 4) -> Table:
    return read_table(RING, write_table(KEY, contents(approved, unit=unit)), EXPECTED)


def asked(found: Table, prompt: Sequence[int], *, now: float = NOW) -> dict[ScopeClass, int]:
    return found.approved(SET, token_bytes(prompt), now)


def common(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens two sequences begin with alike."""
    return next((at for at, (one, other) in enumerate(zip(left, right, strict=False)) if one != other), min(len(left), len(right)))


@given(approved_texts, tokens, st.integers(1, 5))
def test_what_is_approved_is_what_both_begin_with_in_whole_units(
    approved: dict[ScopeClass, list[list[int]]], prompt: list[int], unit: int
) -> None:
    """An independent model: the longest common beginning with any text of the class, cut to whole units of that text."""
    found = asked(table(approved, unit), prompt)
    for scope in ScopeClass:
        assert found.get(scope, 0) == max((common(text, prompt) // unit * unit for text in approved.get(scope, [])), default=0)


def test_the_tokens_of_before_count_too() -> None:
    found = table({PUBLIC: [TOKENS]})
    assert asked(found, TOKENS) == {PUBLIC: 8}
    assert asked(found, [9, *TOKENS[1:]]) == {}
    assert asked(found, TOKENS[4:]) == {}
    assert asked(found, TOKENS[:7]) == {PUBLIC: 4}


def test_a_set_says_nothing_of_another() -> None:
    found = table({PUBLIC: [TOKENS]})
    assert found.approved(approval_set("another"), token_bytes(TOKENS), NOW) == {}
    assert table({}).approved(SET, token_bytes(TOKENS), NOW) == {}


def _ending(*ends: int | None) -> Table:
    """A table whose one text is approved that often, each time until then."""
    made = contents({PUBLIC: [TOKENS] * len(ends), TENANT: [TOKENS[:4]]})
    names = made.sets[SET][PUBLIC]
    prefixes = {**made.prefixes, **{name: prefix(TOKENS, unit=4, until=until) for name, until in zip(names, ends, strict=True)}}
    return read_table(RING, write_table(KEY, replace(made, prefixes=prefixes)), EXPECTED)


def test_an_approval_ends_by_the_clock_of_who_asks() -> None:
    assert asked(_ending(1_000), TOKENS, now=999.9) == {PUBLIC: 8, TENANT: 4}
    assert asked(_ending(1_000), TOKENS, now=1_000) == {TENANT: 4}
    assert asked(_ending(1_000, 1_001), TOKENS, now=1_000) == {PUBLIC: 8, TENANT: 4}
    assert asked(_ending(1_001, 1_000), TOKENS, now=1_000) == {PUBLIC: 8, TENANT: 4}
    assert asked(_ending(1_000, 1_001), TOKENS, now=1_001) == {TENANT: 4}
    assert asked(_ending(1_001, 1_000), TOKENS, now=1_001) == {TENANT: 4}
    assert asked(_ending(1_000, None), TOKENS, now=1e12) == {PUBLIC: 8, TENANT: 4}
    assert asked(_ending(None, 1_000), TOKENS, now=1e12) == {PUBLIC: 8, TENANT: 4}


def test_a_longer_text_that_ended_leaves_the_shorter_one() -> None:
    made = contents({PUBLIC: [TOKENS, TOKENS[:4]]})
    prefixes = {**made.prefixes, "Public-0": prefix(TOKENS, unit=4, until=5)}
    found = read_table(RING, write_table(KEY, replace(made, prefixes=prefixes)), EXPECTED)
    assert (asked(found, TOKENS, now=4), asked(found, TOKENS, now=5)) == ({PUBLIC: 8}, {PUBLIC: 4})


def test_a_table_says_what_it_was_made_for() -> None:
    found = table({PUBLIC: [TOKENS]}, unit=3)
    assert (found.version, found.unit, found.longest) == (mark(1), 3, 9)
    assert table({}).longest == 0
    assert "digests" not in repr(found)


TEXT = write_table(KEY, contents({PUBLIC: [TOKENS]}))


@pytest.mark.parametrize(
    ("text", "ring", "expected"),
    [
        (TEXT, KeyRing.of(OTHER_KEY), EXPECTED),
        (TEXT, KeyRing.of(NEWER_KEY), EXPECTED),
        (TEXT, RING, Expected("another-pool", TOKENIZER)),
        (TEXT, RING, Expected(POOL, digest_of("3"))),
        ("", RING, EXPECTED),
        (TEXT[:-1], RING, EXPECTED),
        (TEXT[: len(TEXT) // 2], RING, EXPECTED),
        (TEXT.replace("v1.", "v2."), RING, EXPECTED),
        (sign(KEY, "lease", {}), RING, EXPECTED),
        ("x" * (approvals.MAX_CHARACTERS + 1), RING, EXPECTED),
    ],
)
def test_a_table_of_somebody_else_or_in_parts_is_refused(text: str, ring: KeyRing, expected: Expected) -> None:
    assert read_table(RING, TEXT, EXPECTED).version == mark(1)
    with pytest.raises(WireFormatError, match="; "):
        read_table(ring, text, expected)


@given(st.integers(0, len(TEXT) - 1), st.sampled_from("Aaz09-_."))
def test_a_changed_character_is_refused(position: int, character: str) -> None:
    changed = TEXT[:position] + character + TEXT[position + 1 :]
    if changed != TEXT:
        with pytest.raises(WireFormatError):
            read_table(RING, changed, EXPECTED)


GOOD: dict[str, Any] = approvals._document(contents({PUBLIC: [TOKENS]}))  # what a signer that does not check would sign
BROKEN = {
    "nothing": {},
    "a version without a digest": {**GOOD, "version": {"lineage": {"generation": 1, "id": "x"}, "sequence": 1}},
    "a unit of another type": {**GOOD, "unit": "4"},
    "a true unit": {**GOOD, "unit": True},
    "no unit": {**GOOD, "unit": 0},
    "too large a unit": {**GOOD, "unit": approvals.MOST_UNIT + 1},
    "a pool of another type": {**GOOD, "pool_uid": 1},
    "prefixes as a list": {**GOOD, "prefixes": []},
    "a digest that is cut": {**GOOD, "prefixes": {"Public-0": {"digests": encode(b"x" * 17), "until": None}}},
    "digests that are no base64": {**GOOD, "prefixes": {"Public-0": {"digests": "?", "until": None}}},
    "an end of another type": {**GOOD, "prefixes": {"Public-0": {"digests": "", "until": "1"}}},
    "no end": {**GOOD, "prefixes": {"Public-0": {"digests": ""}}},
    "a prefix that is not there": {**GOOD, "prefixes": {}},
    "a class that shares nothing": {**GOOD, "sets": {SET: {"4": ["Public-0"]}}},
    "a class that is none": {**GOOD, "sets": {SET: {"5": ["Public-0"]}}},
    "a name of another type": {**GOOD, "sets": {SET: {"0": [1]}}},
}


@pytest.mark.parametrize("payload", BROKEN.values(), ids=BROKEN)
def test_a_table_whose_fields_are_wrong_is_refused_whoever_signed_it(payload: dict[str, Any]) -> None:
    assert read_table(RING, sign(KEY, approvals.PURPOSE, GOOD), EXPECTED).version == mark(1)
    with pytest.raises(WireFormatError, match="cannot be read"):
        read_table(RING, sign(KEY, approvals.PURPOSE, payload), EXPECTED)


def test_what_nobody_may_share_cannot_be_approved() -> None:
    with pytest.raises(SpecError, match="class Request"):
        write_table(KEY, contents({ScopeClass.REQUEST: [TOKENS]}))
    with pytest.raises(SpecError, match="does not hold"):
        write_table(KEY, replace(contents({PUBLIC: [TOKENS]}), prefixes={}))


def test_a_table_that_no_config_map_holds_is_not_written() -> None:
    digests = tuple(number.to_bytes(16, "big") for number in range(45_000))
    with pytest.raises(SpecError, match="approve fewer"):
        write_table(KEY, replace(contents({}), prefixes={"long": ApprovedPrefix(digests)}))


def test_a_table_of_many_sources_is_read() -> None:
    texts = [[number, *range(1_000)] for number in range(100)]
    text = write_table(KEY, contents({PUBLIC: texts}))
    assert len(text) > 1_000_000 // 2
    assert asked(read_table(RING, text, EXPECTED), texts[-1]) == {PUBLIC: 1_000}


def test_a_table_under_a_key_in_rotation_is_read_with_that_key() -> None:
    both = KeyRing.of(KEY, NEWER_KEY)
    for key in (KEY, NEWER_KEY):
        found = read_table(both, write_table(key, contents({PUBLIC: [TOKENS]}, key=key)), EXPECTED)
        assert asked(found, TOKENS) == {PUBLIC: 8}


def test_digests_depend_on_key_tokenizer_and_unit() -> None:
    kinds = [(KEY, TOKENIZER, 4), (OTHER_KEY, TOKENIZER, 4), (KEY, digest_of("3"), 4), (KEY, TOKENIZER, 8)]
    found = [PrefixDigests(*kind).prefix(range(8)).digests[-1] for kind in kinds]
    assert len(set(found)) == 4
    assert {len(item) for item in found} == {16}


def test_an_older_table_never_follows_a_newer_one() -> None:
    def of(sequence: int, generation: int = 1) -> Table:
        return replace(table({}), version=mark(sequence, generation))

    assert follow(None, of(1)).version == mark(1)
    assert follow(mark(1), of(1)).version == mark(1)
    assert follow(mark(1), of(2)).version == mark(2)
    assert follow(mark(9), of(1, 2)).version == mark(1, 2)
    for current, later in ((mark(2), of(1)), (mark(1, 2), of(9, 1))):
        with pytest.raises(WireFormatError, match=f"sequence {later.version.sequence} is older than {current.sequence}"):
            follow(current, later)


@pytest.mark.parametrize("token", [-1, 2**32, "x", None])
def test_what_is_no_token_is_refused(token: Any) -> None:
    assert bytes(token_bytes([1, 2**32 - 1])) == b"\x01\0\0\0\xff\xff\xff\xff"
    with pytest.raises(ValueError, match="token"):
        token_bytes([token])


def test_tokens_have_the_same_bytes_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.byteorder", "big")
    assert bytes(token_bytes([1])) == b"\0\0\0\x01"


def test_a_machine_with_other_numbers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals, "TOKEN_BYTES", 8)
    with pytest.raises(ValueError, match="4 bytes"):
        token_bytes([1])


def test_a_digest_is_the_published_one() -> None:
    """Whoever writes tables and whoever asks them are of different versions some day."""
    (digest,) = PrefixDigests(KEY, TOKENIZER, 4).prefix(range(4)).digests
    assert digest.hex() == "693b78b25a1a34eb44cc79e88de616b0"
