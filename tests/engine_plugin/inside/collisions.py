"""`python -m tests.engine_plugin.inside.collisions MODEL`: vLLM's cache with a hash of one byte, without the plugin and with it."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from typing import Any

from vllm.utils.hashing import sha256  # type: ignore[import-not-found]

from cachescope.guard.engine_plugin import internals
from cachescope.guard.engine_plugin.engine import OWNER
from cachescope.guard.engine_plugin.entry import register
from tests.engine_plugin.inside.scheduling import Core

TRIES, BLOCK = 300, 16


class Short:
    """A hash that is so short that it collides all the time."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def digest(self) -> bytes:
        """One byte."""
        return hashlib.sha256(self._content).digest()[:1]


def short(value: Any) -> bytes:
    """The same, as vLLM calls it."""
    found: bytes = sha256(value)[:1]
    return found


def texts() -> list[list[int]]:
    """Prompts of four blocks, of which no two begin alike."""
    draw = random.Random(1)  # noqa: S311 - the same texts in every run
    return [[number, *(draw.randrange(256) for _ in range(4 * BLOCK))] for number in range(TRIES)]


def wrong(core: Core) -> int:
    """How many tokens were found by requests of which nobody had sent a block before."""
    return sum(core.serve(tokens, "salt") for tokens in texts())


def main() -> None:
    """Print what was found."""
    without = wrong(Core(BLOCK, short))
    utils = sys.modules[internals.UTILS]
    internals.KNOWN = {"short": utils.hash_block_tokens(short, bytes(32), range(BLOCK), internals._KEYS).hex()}  # type: ignore[misc]
    internals.ALGORITHMS = {"short": (internals.ALGORITHMS["sha256"][0], Short)}  # type: ignore[misc]
    register()
    core, first = Core(BLOCK, short), texts()[0]
    own = [core.serve(first, "salt") for _ in range(2)]
    found = {"without": without, "own": own, "with": wrong(core) - own[1]}
    engine = getattr(core.scheduler.kv_cache_manager, OWNER)
    sys.stdout.write(json.dumps({**found, "mismatches": engine.blocks.mismatches}) + "\n")


if __name__ == "__main__":
    main()
