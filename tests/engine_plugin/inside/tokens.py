"""The prompts whose cost is counted."""

from __future__ import annotations

import random
from collections.abc import Iterator

TOKENS, APPROVED, BLOCK = 4_000, 2_048, 16
REQUESTS, WARM = 4, 3


def approved() -> list[int]:
    """The approved tokens."""
    draw = random.Random(0)  # noqa: S311 - the same tokens in every run
    return [draw.randrange(256) for _ in range(APPROVED)]


def prompts(seed: int) -> Iterator[list[int]]:
    """Prompts that begin with the approved tokens and go on with others."""
    draw = random.Random(seed)  # noqa: S311
    while True:
        yield [*approved(), *(draw.randrange(256) for _ in range(TOKENS - APPROVED))]
