"""The frozen templates of fixed pools: `python tests/unit/make_pool_golden.py` writes them, with `--check` it only compares.

A change of these files is a change that the next rollout of every pool brings: say so in the changelog. `frozen-*.json` are what
earlier builds froze, with templates of their own; they are never written again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from cachescope.manifests.revisions import build_revision, revision_object
from tests.unit.generated_files import goldens
from tests.unit.pools import ADAPTERS, FULL, PLATFORM, TARGET, pool

FOLDER = Path(__file__).parent / "golden"
POOLS: dict[str, dict[str, Any]] = {"plain": {}, "full": FULL, "adapters": {"engine.adapters": ADAPTERS}}
HOW = "if the change is meant, run `PYTHONPATH=operator:. python tests/unit/make_pool_golden.py` and read the difference"


def written(name: str) -> str:
    """The golden file as the present code writes it."""
    made = pool(POOLS[name])
    return json.dumps(revision_object(made, build_revision(PLATFORM, made, TARGET)), indent=1) + "\n"


def read(name: str) -> dict[str, Any]:
    """A golden file's object."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def _path(name: str) -> Path:
    return FOLDER / f"{name}.json"


if __name__ == "__main__":
    sys.exit(goldens({_path(name): written(name) for name in POOLS}))
