"""`python -m tests.engine_plugin.inside.cost MODEL COUNTER`: what the plugin costs vLLM's scheduler, in instructions.

Run below `valgrind --tool=callgrind --instr-atstart=no`; COUNTER is the library that `counter.c` makes, by which only the work of
the scheduler is counted: a request is hashed, looked up, scheduled, cached and finished. Each kind is counted once without the
plugin and once with it, in one process; valgrind writes a file of counts for each.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence

from vllm.utils.hashing import sha256  # type: ignore[import-not-found]

from cachescope.guard.engine_plugin.entry import register
from tests.engine_plugin.inside.scheduling import Core
from tests.engine_plugin.inside.tokens import BLOCK, REQUESTS, WARM, prompts


def serve(core: Core, tokens: Sequence[Sequence[int]], salt: str) -> int:
    """Serve some requests; how many tokens were found."""
    return sum(core.serve(prompt, salt) for prompt in tokens)


def main() -> None:
    """Count each kind without and with the plugin."""
    counter, salts = ctypes.CDLL(sys.argv[2]), {"segmented": os.environ["SEGMENTED_SALT"], "plain": "plain"}
    for side in ("without", "with"):
        if side == "with":
            register()
        core = Core(BLOCK, sha256)
        for kind, salt in salts.items():
            stream = prompts(len(kind))
            warm, counted = ([next(stream) for _ in range(many)] for many in (WARM, REQUESTS))
            serve(core, warm, salt)
            counter.begin()
            found = serve(core, counted, salt)
            counter.end(f"{side} {kind} found {found // REQUESTS}".encode())


if __name__ == "__main__":
    main()
