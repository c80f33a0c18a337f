"""The pods of every engine: `python tests/unit/make_engine_golden.py` writes them, with `--check` it only compares.

Those of vLLM are frozen for pools that run (`make_pool_golden`). Of the others nobody runs one yet: these files show what changes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.unit.engine_pools import OTHERS, arguments, template
from tests.unit.generated_files import goldens

FOLDER = Path(__file__).parent / "golden" / "engines"
HOW = "if the change is meant, run `PYTHONPATH=operator:. python tests/unit/make_engine_golden.py` and read the difference"


def written(engine: str) -> str:
    """The golden file as the present code writes it: the pods' template, and the arguments where nothing may be reused."""
    document = {"template": template(engine), "argumentsWithoutReuse": arguments(engine, reuse=False)}
    return json.dumps(document, indent=1) + "\n"


def path(engine: str) -> Path:
    """Where it is."""
    return FOLDER / f"{engine}.json"


if __name__ == "__main__":
    sys.exit(goldens({path(name): written(name) for name in OTHERS}))
