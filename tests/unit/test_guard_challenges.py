"""Challenges: a guard says what it is to whoever sends a good nonce, and once it serves."""

from __future__ import annotations

import pytest

from cachescope.core.keys import KeyRing
from cachescope.core.ledgers import Lineage
from cachescope.core.statements import read_statement
from tests.unit.guard_fakes import KEY, World, with_authorization

NONCE = "n" * 22


async def test_a_challenge_is_answered_with_what_the_guard_is() -> None:
    world = World()
    world.source.heads = with_authorization(sequence=5, lineage=Lineage(3, "authorization"))
    answers = []
    for left_ms in (1000, 0):
        world.source.left_ms = left_ms
        server = await world.ask(headers=[(b"x-cachescope-challenge", NONCE.encode())])
        assert (server.status, server.code) == (401, "permit_required")
        answers.append(read_statement(KeyRing.of(KEY), server.headers["x-cachescope-statement"], nonce=NONCE))
    first = answers[0]
    assert (first.boot_id, first.tick, first.pod_uid) == (world.process.boot_id, world.process.tick(), "pod-uid")
    assert (first.lineage, first.sequence) == ("lineage", 1)
    assert (first.authorization_lineage, first.authorization_sequence) == ("authorization", 5)
    assert [answer.right_ms for answer in answers] == [1000, 0]


@pytest.mark.parametrize("nonce", ["short", "n" * 129, "n" * 20 + "!", "n" * 20 + "\n", ""])
async def test_a_bad_nonce_gets_no_statement(nonce: str) -> None:
    server = await World().ask(headers=[(b"x-cachescope-challenge", nonce.encode())])
    assert (server.status, "x-cachescope-statement" in server.headers) == (401, False)


async def test_two_nonces_get_no_statement() -> None:
    server = await World().ask(headers=[(b"x-cachescope-challenge", NONCE.encode())] * 2)
    assert "x-cachescope-statement" not in server.headers


@pytest.mark.parametrize("length", [16, 128])
async def test_the_shortest_and_longest_nonce_are_answered(length: int) -> None:
    server = await World().ask(headers=[(b"x-cachescope-challenge", b"n" * length)])
    assert "x-cachescope-statement" in server.headers
