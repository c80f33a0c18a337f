"""Chains of blocks: shared exactly as far as approved, for every block size, boundary and claim, against an independent model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachescope.core.approvals import Expected, Table, read_table, write_table
from cachescope.core.encodings import encode
from cachescope.core.keys import KeyRing
from cachescope.core.segments import Segment, SegmentedSalt, approval_set, write_segmented
from cachescope.core.types import ScopeClass
from cachescope.guard.engine_plugin.chains import CHAIN, BlockHasher
from cachescope.guard.engine_plugin.internals import ALGORITHMS
from cachescope.guard.engine_plugin.shapes import Hashing
from tests.unit.approval_tables import POOL, SET, TOKENIZER, contents, mark
from tests.unit.core_strategies import KEY
from tests.unit.vllm_fakes import NONE_HASH as ROOT
from tests.unit.vllm_fakes import Request, generate_block_hash_extra_keys, get_request_block_hasher, sha256

PUBLIC, TENANT, PRINCIPAL = ScopeClass.PUBLIC, ScopeClass.TENANT, ScopeClass.PRINCIPAL
Approved = Mapping[ScopeClass, Sequence[Sequence[int]]]
BEGIN = list(range(100, 140))


def salt(*names: tuple[ScopeClass, str], approvals: str = SET) -> str:
    segments = (Segment(scope, encode(name.encode().ljust(16))) for scope, name in names)
    return write_segmented(SegmentedSalt(approvals, tuple(segments)))


RED, BLUE = (salt((PUBLIC, "all"), (TENANT, name)) for name in ("red", "blue"))


def table(approved: Approved, unit: int = 1) -> Table:
    return read_table(KeyRing.of(KEY), write_table(KEY, contents(approved, unit=unit)), Expected(POOL, TOKENIZER))


def hasher(size: int, found: Table | None) -> BlockHasher:
    hashing = Hashing(*ALGORITHMS["sha256"], ROOT)
    return BlockHasher(size, hashing, generate_block_hash_extra_keys, table=lambda: found, clock=lambda: 0)


def shared(hashes: BlockHasher, *requests: tuple[Sequence[int], str | None]) -> int:
    """How many blocks two requests have in common, which must be the first ones."""
    one, other = (Request(tokens, text, hasher=hashes).block_hashes for tokens, text in requests)
    alike = [left == right for left, right in zip(one, other, strict=False)]
    assert alike == sorted(alike, reverse=True)
    assert len({*one} & {*other}) == sum(alike)
    return sum(alike)


def alike(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens two sequences begin with alike."""
    return next((at for at, (one, other) in enumerate(zip(left, right, strict=False)) if one != other), min(len(left), len(right)))


@pytest.mark.parametrize(("size", "unit"), [(1, 1), (4, 1), (4, 4), (5, 3), (3, 5), (8, 2), (16, 16)])
def test_tenants_share_what_is_approved_to_the_block_wherever_it_ends(size: int, unit: int) -> None:
    """Every offset of the end of the approved text in a block, each beside what the tenant itself finds."""
    for end in range(2 * size + unit + 1):
        hashes = hasher(size, table({PUBLIC: [BEGIN[:end]]}, unit))
        assert shared(hashes, (BEGIN, RED), (BEGIN, BLUE)) == min(end, len(BEGIN)) // unit * unit // size
        assert shared(hashes, (BEGIN, RED), (BEGIN, RED)) == len(BEGIN) // size


tokens = st.builds(
    lambda length, tail: BEGIN[:length] + tail, st.integers(0, 14), st.lists(st.integers(0, 1), min_size=1, max_size=4)
)
"""Texts of which many begin alike."""
subjects = st.sampled_from(["x", "y"])


@given(
    st.fixed_dictionaries({PUBLIC: st.lists(tokens, max_size=2), TENANT: st.lists(tokens, max_size=2)}),
    st.tuples(tokens, subjects, subjects, subjects),
    st.tuples(tokens, subjects, subjects, subjects),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_blocks_are_shared_exactly_where_approved(approved: Approved, left: Any, right: Any, size: int, unit: int) -> None:
    """The model knows no hashes: what two requests may share is what they say alike, in the widest domain that they have in common.

    A request's domain is public as far as its text is approved for everybody, then its tenant's, then its principal's.
    """
    hashes = hasher(size, table(approved, unit))
    sides = [(prompt, salt((PUBLIC, names[0]), (TENANT, names[1]), (PRINCIPAL, names[2]))) for prompt, *names in (left, right)]
    common = alike(left[0], right[0])
    expected = 0
    while (end := (expected + 1) * size) <= common and _domain(approved, left, end, unit) == _domain(approved, right, end, unit):
        expected += 1
    assert shared(hashes, sides[0], sides[1]) == expected


def _domain(approved: Approved, side: Any, end: int, unit: int) -> list[str]:
    """The names that separate the block that ends there."""
    prompt, public, tenant, principal = side

    def reaches(scope: ScopeClass) -> bool:
        return any(alike(text, prompt) // unit * unit >= end for text in approved.get(scope, ()))

    if reaches(PUBLIC):
        return [public]
    return [public, tenant] if reaches(TENANT) else [public, tenant, principal]


@given(tokens, tokens, st.integers(1, 4))
def test_whatever_a_request_claims_no_unapproved_block_is_under_a_shared_salt(
    approved: list[int], prompt: list[int], size: int
) -> None:
    """A client that could choose every segment but its own tenant's, and the set: what is not approved is still its own."""
    hashes = hasher(size, table({PUBLIC: [approved]}))
    for wide, approvals in product(("all", "red", ""), (SET, approval_set("another"))):
        claimed = salt((PUBLIC, wide), (TENANT, "blue"), approvals=approvals)
        assert shared(hashes, (prompt, RED), (prompt, claimed)) <= alike(approved, prompt) // size


def test_unapproved_text_shares_nothing_also_behind_an_approved_beginning() -> None:
    hashes = hasher(4, table({PUBLIC: [BEGIN[:8]]}))
    assert shared(hashes, (BEGIN, RED), (BEGIN, BLUE)) == 2
    assert shared(hashes, (BEGIN[1:], RED), (BEGIN[1:], BLUE)) == 0
    assert shared(hashes, ([*BEGIN[:7], 7, *BEGIN[8:]], RED), ([*BEGIN[:7], 7, *BEGIN[8:]], BLUE)) == 1


@pytest.mark.parametrize("found", [None, table({})], ids=["no table", "an empty table"])
def test_without_approvals_a_segmented_salt_separates_from_the_first_block(found: Table | None) -> None:
    hashes = hasher(4, found)
    assert shared(hashes, (BEGIN, RED), (BEGIN, BLUE)) == 0
    assert shared(hashes, (BEGIN, RED), (BEGIN, RED)) == 10


def entered(request: Request) -> list[tuple[int, str]]:
    """Numbers of blocks and labels of what entered there, from the keys themselves."""
    size, keys_of = len(request.all_token_ids) // len(request.block_hashes), getattr(request, CHAIN).keys_of(request)
    keys = (keys_of(number * size) or () for number in range(len(request.block_hashes)))
    return [(number, key[0]) for number, many in enumerate(keys) for key in many]


def test_each_segment_enters_once_and_in_order() -> None:
    text = salt((PUBLIC, "all"), (TENANT, "red"), (ScopeClass.COMPARTMENT, "deal"), (PRINCIPAL, "ann"))
    hashes = hasher(4, table({PUBLIC: [BEGIN[:8]], TENANT: [BEGIN[:17]], ScopeClass.COMPARTMENT: [BEGIN[:10]]}))
    assert entered(Request(BEGIN, text, hasher=hashes)) == [
        (0, "cachescope/segment/0"),
        (2, "cachescope/segment/1"),
        (4, "cachescope/segment/2"),
        (4, "cachescope/segment/3"),
    ]


@pytest.mark.parametrize("text", [None, "", "plain", "cs1.", RED[:-1], RED + "x", "cs1" + RED])
def test_any_other_salt_gives_the_hashes_of_the_engine(text: str | None) -> None:
    hashes, own = hasher(4, table({PUBLIC: [BEGIN]})), get_request_block_hasher(4, sha256)
    found = Request(BEGIN, text, hasher=hashes).block_hashes
    assert found == Request(BEGIN, text, hasher=own).block_hashes
    assert hashes.malformed == int((text or "").startswith("cs1."))


@pytest.mark.parametrize(
    "beside", [{"lora_request": "a"}, {"mm_features": ["image"]}, {"prompt_embeds": object()}, {"kv_transfer_params": {"a": 1}}]
)
def test_whatever_changes_attention_beside_tokens_separates_from_the_first_block(beside: dict[str, Any]) -> None:
    hashes, own = hasher(4, table({PUBLIC: [BEGIN]})), get_request_block_hasher(4, sha256)
    red, blue, again = (Request(BEGIN, text, hasher=hashes, **beside).block_hashes for text in (RED, BLUE, RED))
    assert not {*red} & {*blue}
    assert red == again == Request(BEGIN, RED, hasher=own, **beside).block_hashes
    assert shared(hashes, (BEGIN, RED), (BEGIN, BLUE)) == 10


def test_what_is_generated_is_never_approved() -> None:
    hashes = hasher(4, table({PUBLIC: [BEGIN]}))
    red, blue = (Request(BEGIN[:6], text, hasher=hashes) for text in (RED, BLUE))
    for request in (red, blue):
        request.append(*BEGIN[6:])
    assert [left == right for left, right in zip(red.block_hashes, blue.block_hashes, strict=True)] == [True] + 9 * [False]
    assert red.block_hashes[0] == Request(BEGIN, RED, hasher=hashes).block_hashes[0]


def test_what_is_generated_is_never_approved_also_if_it_ends_the_first_block() -> None:
    hashes = hasher(4, table({PUBLIC: [BEGIN]}))
    red, blue = (Request(BEGIN[:3], text, hasher=hashes) for text in (RED, BLUE))
    for request in (red, blue):
        request.append(*BEGIN[3:])
    assert not {*red.block_hashes} & {*blue.block_hashes}


def test_a_table_that_changes_meanwhile_changes_no_request_that_began() -> None:
    tables = [table({PUBLIC: [BEGIN[:8]]})]
    hashes = hasher(4, None)
    hashes._table = lambda: tables[0]
    before = Request(BEGIN[:10], RED, hasher=hashes)
    assert hashes.versions() == {mark(1)}
    tables[0] = read_table(KeyRing.of(KEY), write_table(KEY, contents({}, sequence=2)), Expected(POOL, TOKENIZER))
    before.append(*BEGIN[10:])
    after = Request(BEGIN, RED, hasher=hashes)
    assert hashes.versions() == {mark(1), mark(2)}
    assert not {*before.block_hashes} & {*after.block_hashes}
    before.finished = True
    assert hashes.versions() == {mark(2)}
    del after
    assert hashes.versions() == set()


def test_a_request_that_is_taken_back_shares_nothing_that_follows() -> None:
    """Sessions that go on: the engine drops hashes behind a point, and others follow."""
    hashes = hasher(4, table({PUBLIC: [BEGIN]}))
    red, blue = (Request(BEGIN, text, hasher=hashes) for text in (RED, BLUE))
    for left in (6, 3):
        for request in (red, blue):
            del request.block_hashes[left:]
            request.block_hashes.extend(hashes(request))
        assert [one == other for one, other in zip(red.block_hashes, blue.block_hashes, strict=True)] == left * [True] + (
            10 - left
        ) * [False]


def test_a_whole_request_that_is_taken_back_asks_the_engine_anew() -> None:
    hashes, own = hasher(4, None), get_request_block_hasher(4, sha256)
    request, beside = Request(BEGIN, RED, hasher=hashes, lora_request="a"), Request(BEGIN, RED, hasher=own, lora_request="a")
    del request.block_hashes[2:]
    request.block_hashes.extend(hashes(request))
    assert request.block_hashes == beside.block_hashes


def test_tokens_that_are_none_are_hashed_as_the_engine_does_and_never_approved() -> None:
    hashes, own = hasher(4, table({PUBLIC: [BEGIN]})), get_request_block_hasher(4, sha256)
    odd = [-1, *BEGIN]
    assert Request(odd, "plain", hasher=hashes).block_hashes == Request(odd, "plain", hasher=own).block_hashes
    assert shared(hashes, (odd, RED), (odd, BLUE)) == 0


def test_what_is_kept_of_a_block_is_what_was_hashed() -> None:
    hashes = hasher(4, table({PUBLIC: [BEGIN[:8]]}))
    for request in (Request(BEGIN, RED, hasher=hashes), Request(BEGIN, RED, hasher=hashes, lora_request="a")):
        request.append(*BEGIN)
        payloads = getattr(request, CHAIN).payloads
        assert [hashlib.sha256(payload).digest() for payload in payloads] == request.block_hashes
