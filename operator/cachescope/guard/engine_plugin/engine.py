"""One engine core that shares segments: its hasher, its verified blocks, its table, and what it reports."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from cachescope.guard.engine_plugin.chains import BlockHasher
from cachescope.guard.engine_plugin.reports import Report, boot_ms
from cachescope.guard.engine_plugin.shapes import EngineKeys, Hashing
from cachescope.guard.engine_plugin.tables import Tables
from cachescope.guard.engine_plugin.verification import VerifiedBlocks


class Engine:
    """An engine core under the plugin.

    Args:
        tables: Its approval table.
        block_size: Tokens of a block.
        hashing: How it hashes a block.
        engine_keys: Its own extra keys.

    Attributes:
        hasher: Hashes its requests.
        blocks: Identities of what it cached.
        block_size: Tokens of a block.
    """

    def __init__(self, tables: Tables, *, block_size: int, hashing: Hashing, engine_keys: EngineKeys) -> None:
        self.block_size = block_size
        self.blocks = VerifiedBlocks()
        self.hasher = BlockHasher(block_size, hashing, engine_keys, table=lambda: tables.current)
        self._tables = tables

    def report(self) -> Report:
        """Look for another table, and say how things are."""
        self._tables.refresh()
        table = self._tables.current
        return Report(
            pid=os.getpid(),
            at_ms=boot_ms(),
            problem=self._tables.problem,
            version=table.version if table else None,
            in_use=tuple(sorted(self.hasher.versions(), key=lambda mark: (mark.lineage, mark.sequence))),
            block_size=self.block_size,
            mismatches=self.blocks.mismatches,
            unidentified=self.blocks.unidentified,
            malformed=self.hasher.malformed,
        )


def get_computed_blocks(original: Callable[..., Any], manager: Any, request: Any) -> Any:  # noqa: ANN401 - vLLM's own
    """`KVCacheManager.get_computed_blocks`, less what is not verified."""
    found = original(manager, request)
    engine: Engine | None = getattr(manager, OWNER, None)
    if engine is None or not found[1]:
        return found
    (blocks,) = found[0].blocks
    kept = engine.blocks.confirmed(request, blocks)
    if kept == len(blocks):
        return found
    return manager.create_kv_cache_blocks((list(blocks[:kept]),)), kept * engine.block_size, 0


OWNER = "cachescope_engine"
"""Where vLLM's objects keep the engine that they belong to."""
