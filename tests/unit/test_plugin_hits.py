"""Verified hits: with an engine whose hashes collide a wrong block is accepted, and with the plugin never."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace
from pathlib import Path

import pytest

from cachescope.core.types import ScopeClass
from cachescope.guard.engine_plugin.engine import OWNER, Engine
from cachescope.guard.engine_plugin.entry import register
from cachescope.guard.engine_plugin.verification import VerifiedBlocks
from tests.unit.approval_tables import contents
from tests.unit.plugin_places import Place, place_of
from tests.unit.test_plugin_chains import BEGIN, BLUE, RED
from tests.unit.vllm_fakes import Block, Core, Request, Short, installed, short_hash

TRIES = 300


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Place:
    made = place_of(monkeypatch, tmp_path, short_hash)
    made.approve(contents({ScopeClass.PUBLIC: [BEGIN[:8]]}))
    return made


def engine_of(core: Core) -> Engine:
    found: Engine = getattr(core.manager, OWNER)
    return found


def texts(seed: int) -> list[list[int]]:
    """Prompts of which no two begin alike."""
    draw = random.Random(seed)  # noqa: S311 - the same texts in every run
    return [[number, *(draw.randrange(1000) for _ in range(12))] for number in range(TRIES)]


def wrong_blocks(core: Core) -> int:
    """How many tokens requests found that nobody had ever sent before; every one is of another text."""
    return sum(core.serve(tokens, "red") for tokens in texts(1))


def test_where_hashes_collide_a_wrong_block_is_accepted_without_and_never_with_the_plugin(place: Place) -> None:
    assert wrong_blocks(Core(place.modules, hash_function=short_hash)) > 100
    register()
    core = Core(place.modules, hash_function=short_hash)
    assert wrong_blocks(core) == 0
    assert engine_of(core).blocks.mismatches > 100
    assert engine_of(core).report().mismatches == engine_of(core).blocks.mismatches
    assert core.serve(texts(1)[-1], "red") == 12, "what is its own is found, also there"


class Blind(Short):
    """Knows tokens and the hash before them, and no extra keys."""

    def __init__(self, content: bytes) -> None:
        super().__init__(pickle.dumps(pickle.loads(content)[:2]))  # noqa: S301 - what the test wrote


def test_a_block_of_another_salt_is_another_block_whatever_its_hash(place: Place) -> None:
    register()
    core = Core(place.modules, hash_function=short_hash)
    core.hasher._hashing = replace(core.hasher._hashing, hashed=Blind)
    assert core.serve(BEGIN, RED) == 0
    assert (core.serve(BEGIN, BLUE), core.serve(BEGIN, "blue")) == (8, 0)
    assert engine_of(core).blocks.mismatches == 2


def test_a_block_behind_another_is_another_block_also_if_all_that_was_hashed_is_the_same(place: Place) -> None:
    """Two first blocks collide, so that what is hashed of the second one is the same behind either."""
    register()
    core = Core(place.modules, hash_function=short_hash)
    one, other = colliding(core)
    second, end = [7, 7, 7, 7], [9]
    assert core.serve([*one, *second, *end]) == 0
    assert core.serve([*other, *second, *end]) == 0
    assert core.serve([*one, *end]) == 0, "it is cached anew"
    mismatches = engine_of(core).blocks.mismatches
    assert core.serve([*one, *second, *end]) == 4, "the first is its own, the second was computed behind the other"
    assert engine_of(core).blocks.mismatches == mismatches + 1
    assert core.serve([*one, *second, *end]) == 8


def colliding(core: Core) -> tuple[list[int], list[int]]:
    """Two blocks of one hash."""
    seen: dict[bytes, list[int]] = {}
    for number in range(1000):
        tokens = [number, 0, 0, 0]
        (block_hash,) = core.request(tokens).block_hashes
        if block_hash in seen:
            return seen[block_hash], tokens
        seen[block_hash] = tokens
    raise AssertionError("a byte has 256 values")


def test_hits_are_what_is_approved_and_ones_own(place: Place) -> None:
    register()
    core = Core(place.modules)
    assert [core.serve(BEGIN, salt) for salt in (RED, RED, BLUE, BLUE, "plain", "plain", None)] == [0, 36, 8, 36, 0, 36, 0]
    assert (engine_of(core).blocks.mismatches, engine_of(core).blocks.unidentified) == (0, 0)
    assert place.problem == ""


def test_blocks_that_were_computed_twice_are_the_same_blocks(place: Place) -> None:
    """Two requests at once compute the same beginning; what the next one finds was cached behind either of the two."""
    register()
    core = Core(place.modules)
    pool, requests = core.manager.block_pool, [core.request(BEGIN, RED) for _ in range(2)]
    for request, first in zip(requests, (0, 0), strict=True):
        pool.cache_full_blocks(request, pool.new_blocks(10), first, 5 if request is requests[0] else 10, 4, 0)
    for block_hash in requests[0].block_hashes[:5]:
        pool.cached[block_hash] = Block(number := requests[0].block_hashes.index(block_hash))
        assert number < 5
    assert core.serve(BEGIN, RED) == 36
    assert engine_of(core).blocks.mismatches == 0


def test_a_block_without_an_identity_hits_nothing_even_if_it_had_one() -> None:
    blocks = VerifiedBlocks()
    core = Core(installed(pytest.MonkeyPatch()))
    known, unknown = core.request(BEGIN), Request(BEGIN)
    held = core.manager.block_pool.new_blocks(2)
    blocks.cached(unknown, held, 0, 2)
    assert blocks.confirmed(known, held) == 0
    assert (blocks.mismatches, blocks.unidentified) == (0, 1)


def test_an_engine_that_the_plugin_left_alone_is_left_alone(place: Place) -> None:
    register()
    core = Core(place.modules, hash_function=lambda value: short_hash(value) * 2)
    assert not hasattr(core.manager, OWNER)
    assert (core.serve(BEGIN, RED), core.serve(BEGIN, RED), core.serve(BEGIN, BLUE)) == (0, 36, 0)
